//! Machines that lack something: /proc, /sys, room on a disk.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::process::Command;

use crate::common::capture::Trace;
use crate::common::{self, UNCORK, needs_root, output, refused, stderr, stdout};

/// Returns a command that `prepare` comes before, in a mount namespace of its own.
fn after(prepare: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{prepare} && \"$@\""), "sh", UNCORK]);
    command.args(arguments).env("UNCORK_LIBRARY", common::library());
    command
}

#[test]
fn without_proc_that_is_told_and_nothing_else() {
    if !needs_root("without_proc_that_is_told_and_nothing_else") {
        return;
    }
    for (line, code) in [
        ("tune --nodelay --pid 1", 2),
        ("status 1", 3),
        ("stack why 1", 3),
        ("stack stat", 1),
        ("stack stat 1", 1),
        ("doctor --pid 1", 2),
        ("doctor -- true", 2),
    ] {
        let arguments: Vec<_> = line.split(' ').collect();
        let mut command = after("umount --lazy /proc", &arguments);
        refused(&mut command, code, "/proc is not mounted here");
    }
}

#[test]
fn without_sys_that_is_told_and_nothing_else() {
    if !needs_root("without_sys_that_is_told_and_nothing_else") {
        return;
    }
    let told = "sysfs is not mounted at /sys";
    let line = ["tune", "--nodelay", "--port", "4999", "--live"];
    let tuned = output(&mut after("umount --lazy /sys", &line));
    assert!(!tuned.status.success() && stderr(&tuned).contains(told), "{}", stderr(&tuned));
    let traced = output(&mut after("umount --lazy /sys", &["doctor", "--", "true"]));
    assert!(stderr(&traced).contains(told), "{}", stderr(&traced));
}

/// A file that was not there before is not there afterwards either; one that was is kept.
#[test]
fn on_a_full_disk_no_empty_file_is_left() {
    if !needs_root("on_a_full_disk_no_empty_file_is_left") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("capture.pcap");
    std::fs::write(&capture, Trace::nagle(4).pcap()).unwrap();
    let capture = capture.to_str().unwrap();
    for name in ["/mnt/new", "/mnt/old"] {
        let stats = format!("--stats={name}");
        for arguments in [
            &["run", &stats, "true"][..],
            &["doctor", "--quiet", "--pcap", capture, "--html", name],
        ] {
            let prepare = "mount -t tmpfs -o size=8k none /mnt && touch /mnt/old && \
                           { head -c 9000 /dev/zero > /mnt/full 2> /dev/null; trap 'ls /mnt' EXIT; }";
            let done = output(&mut after(prepare, arguments));
            assert_eq!(stdout(&done), "full\nold\n", "{arguments:?}: {}", stderr(&done));
            assert!(stderr(&done).contains("written: No space left"), "{}", stderr(&done));
        }
    }
}
