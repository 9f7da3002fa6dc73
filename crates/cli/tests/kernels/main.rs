//! `uncork lab kernels`: it boots what Debian ships, says what a kernel did that does not come up,
//! and leaves no machine running.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

#[path = "../common/mod.rs"]
mod common;
mod image;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{UNCORK, output, refused, stderr, stdout, uncork};
use image::{Ending, image};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use tempfile::TempDir;

const QEMU: &str = "qemu-system-x86_64";

/// Returns whether this test can run here; says so if not, and fails where everything has to run.
fn possible(test: &str, lacks: Option<&str>) -> bool {
    let installed = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(QEMU).exists())
    });
    let lacks = match lacks {
        _ if !cfg!(target_arch = "x86_64") => {
            println!("skipped: {test}: it boots x86-64 kernels");
            return false;
        }
        None if !installed => Some("QEMU (package qemu-system-x86)"),
        other => other,
    };
    let Some(lacks) = lacks else { return true };
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} needs {lacks}");
    println!("skipped: {test}: it needs {lacks}");
    false
}

/// Finds Debian's kernel package, which scripts/setup fetches and does not install.
fn debian() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let files = fs::read_dir(target.join("kernels")).ok()?;
    let mut packages: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    packages.retain(|file| file.extension().is_some_and(|it| it == "deb"));
    packages.sort();
    packages.pop()
}

/// Returns `uncork lab kernels` with a directory for its files, which must end up empty.
fn kernels(line: &str, scratch: &TempDir) -> Command {
    let mut command = uncork();
    command.args(["lab", "kernels"]).args(line.split_whitespace()).env("TMPDIR", scratch.path());
    command
}

fn left_in(scratch: &TempDir) -> Vec<PathBuf> {
    fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Returns a run's verdict: its kind, and how many ACKs were quick at first.
fn verdict(row: &Value, run: usize) -> (&str, u64) {
    let verdict = &row["runs"][run]["verdict"];
    (verdict["kind"].as_str().unwrap(), verdict["quick_at_first"].as_u64().unwrap())
}

/// A kernel that is given more than once does not differ from itself.
#[test]
fn debian_s_own_kernel_shows_both_corrections_of_2023() {
    let test = "debian_s_own_kernel_shows_both_corrections_of_2023";
    let debian = debian();
    let lacks = debian.is_none().then_some("Debian's kernel package (scripts/setup test)");
    if !possible(test, lacks) {
        return;
    }
    let (scratch, pages) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let page = pages.path().join("kernels.html");
    let debian = debian.unwrap();
    let mut command = kernels("--bisect --quick --json --html", &scratch);
    let done = output(command.arg(&page).args([&debian, &debian, &debian]));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let document: Value = serde_json::from_str(&stdout(&done)).unwrap();
    assert_eq!(document["version"], 1);
    assert!(document["bisect"]["first"].is_null(), "{document}");
    let guests = document["kernels"].as_array().unwrap();
    assert_eq!(guests.len(), 2, "the first and the last are alike: {document}");
    for guest in guests {
        assert_eq!(guest["kernel"].as_str(), debian.to_str());
        assert!(guest["release"].as_str().unwrap().starts_with("6.1.0-"), "{guest}");
        assert!(guest["version"].as_str().unwrap().contains(" Debian 6.1."), "{guest}");
        assert_eq!(verdict(guest, 0).0, "quick_throughout", "{guest}");
        for run in [1, 2] {
            let (kind, quick) = verdict(guest, run);
            assert_eq!(kind, "quick_then_late", "{guest}");
            assert!((15..=19).contains(&quick), "{guest}");
            let delays = guest["runs"][run]["ack_delays_ms"].as_array().unwrap();
            assert!((28..=41).contains(&delays.len()), "{guest}");
            let late = delays[25].as_f64().unwrap();
            assert!((35.0..60.0).contains(&late), "{guest}");
        }
        let both = serde_json::json!({ "credit_counting": "after", "mss_boundary": "after" });
        assert_eq!(guest["corrections"]["measured"], both);
        assert_eq!(guest["corrections"]["by_version"], both);
    }
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg").count(), 2 * 4);
    assert_eq!(left_in(&scratch), [""; 0].map(PathBuf::from));
}

#[test]
fn a_kernel_that_does_not_come_up_is_named_with_the_end_of_its_console() {
    let test = "a_kernel_that_does_not_come_up_is_named_with_the_end_of_its_console";
    if !possible(test, None) {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let images = TempDir::new().unwrap();
    let said = "[    0.1] VFS: cannot open root\n[    0.2] Kernel panic - not syncing: no init\n";
    // A bisection ends with the first kernel that does not come up; other runs boot them all.
    for (text, ending, how, sentence, times) in [
        (said, Ending::Hang, "--bisect", "it did not come up in 3 s", 1),
        (said, Ending::Reset, "", "the kernel gave up before it had come up", 2),
        ("", Ending::Hang, "--bisect", "nothing came from its serial console in 3 s", 1),
        ("", Ending::Reset, "--bisect", "it ended without a word", 1),
    ] {
        let file = images.path().join("vmlinuz-broken");
        fs::write(&file, image(text, ending)).unwrap();
        let mut command = kernels(&format!("--quick --limit 3s {how}"), &scratch);
        let done = output(command.args([&file, &file]));
        let (errors, table) = (stderr(&done), stdout(&done));
        assert_eq!(done.status.code(), Some(1), "{errors}");
        let name = format!("uncork: {}: {sentence}", file.display());
        assert_eq!(errors.matches(&name).count(), times, "{errors}");
        let lines = errors.matches("\n    [").count();
        assert_eq!(lines, text.lines().count() * times, "{errors}");
        assert_eq!(table.matches("did not come up").count(), times, "{table}");
        // This machine's own row is there whatever the others do, if it may be measured.
        let here = table.lines().filter(|line| line.contains("this machine")).collect::<String>();
        let may = geteuid().is_root() && how.is_empty();
        assert_eq!(here.contains("late from 1"), may, "{table}");
    }
    assert_eq!(left_in(&scratch), [""; 0].map(PathBuf::from));
}

/// Returns the virtual machine that a process has started.
fn machine_of(pid: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.find(|pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("qemu-system")
    })
    .map(Pid::from_raw)
}

/// Starts it on a kernel that never comes up, and returns when the machine exists. It uses
/// emulation: a broken KVM would end the machine itself.
fn started(scratch: &TempDir, file: &Path) -> (Child, Pid) {
    let mut command = kernels("--emulate --bisect --limit 60s", scratch);
    let child =
        command.args([file, file]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while machine_of(child.id()).is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "there is no machine");
        thread::sleep(Duration::from_millis(20));
    }
    let machine = machine_of(child.id()).unwrap();
    (child, machine)
}

fn ends(machine: Pid) {
    let start = Instant::now();
    while kill(machine, None).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(5), "the machine is still there");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_machine_outlives_the_command_and_the_next_one_clears_what_a_kill_left() {
    let test = "no_machine_outlives_the_command_and_the_next_one_clears_what_a_kill_left";
    if !possible(test, None) {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let images = TempDir::new().unwrap();
    let file = images.path().join("vmlinuz-hangs");
    fs::write(&file, image("", Ending::Hang)).unwrap();

    let (mut child, machine) = started(&scratch, &file);
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    ends(machine);
    assert_eq!(left_in(&scratch), [""; 0].map(PathBuf::from));

    let (mut child, machine) = started(&scratch, &file);
    child.kill().unwrap();
    child.wait().unwrap();
    ends(machine);
    assert_eq!(left_in(&scratch).len(), 1, "nothing is left that the next run could clear");
    assert_eq!(output(kernels("", &scratch).arg("/no/such/file")).status.code(), Some(2));
    assert_eq!(left_in(&scratch), [""; 0].map(PathBuf::from));
}

#[test]
fn what_is_no_kernel_and_what_is_missing_is_told_before_anything_is_booted() {
    let test = "what_is_no_kernel_and_what_is_missing_is_told_before_anything_is_booted";
    let scratch = TempDir::new().unwrap();
    let empty = TempDir::new().unwrap();
    let mut command = Command::new(UNCORK);
    command.args(["lab", "kernels", "/boot/vmlinuz"]).env("PATH", empty.path());
    let sentence = "uncork lab kernels needs qemu-system-x86_64, which is not in PATH: install the \
                    package qemu-system-x86\n";
    refused(&mut command, 125, sentence);
    for arguments in [["guest", "init", "5"].as_slice(), &["guest", "machine", "1", "true"]] {
        refused(Command::new(UNCORK).args(arguments), 125, "uncork");
    }
    if !possible(test, None) {
        return;
    }
    for (line, says) in [
        (UNCORK, "neither an x86 kernel image"),
        ("/no/such/vmlinuz", "No such file"),
        ("linux-image-of-nobody", "neither a file nor an installed package"),
        ("/boot", "directory"),
        ("--bisect /boot", "two kernels"),
    ] {
        let line = if line == UNCORK { "/etc/hostname" } else { line };
        refused(&mut kernels(line, &scratch), 2, says);
    }
    refused(&mut kernels(UNCORK, &scratch), 2, "an ELF file");
    let library = TempDir::new().unwrap();
    let package = library.path().join("broken.deb");
    fs::write(&package, "!<arch>\nno such thing").unwrap();
    refused(kernels("", &scratch).arg(&package), 2, "dpkg-deb cannot read it");
    assert_eq!(left_in(&scratch), [""; 0].map(PathBuf::from));
}
