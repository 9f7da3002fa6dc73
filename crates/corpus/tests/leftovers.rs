//! A run that is killed leaves namespaces and programs behind; the next one removes them, and
//! nothing of a run that still lives.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uncork_netns::testing::is_skipped;
use uncork_netns::{Namespace, PREFIX};

fn namespaces_of(pid: u32) -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let mine = format!("{PREFIX}{pid}-");
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with(&mine))
        .map(str::to_owned)
        .collect()
}

fn pids_in(namespaces: &[String]) -> Vec<String> {
    let mut pids = Vec::new();
    for name in namespaces {
        let found = Command::new("ip").args(["netns", "pids", name]).output().unwrap();
        pids.extend(String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned));
    }
    pids
}

fn comm(pid: &str) -> String {
    let comm = std::fs::read_to_string(Path::new("/proc").join(pid).join("comm"));
    comm.unwrap_or_default().trim_end().to_owned()
}

fn children(pid: u32) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(str::to_owned).collect()
}

fn has_argument(pid: &str, argument: &str) -> bool {
    let line = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
}

/// Returns whether a process runs: a dead one may wait a while for its new parent to reap it.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn what_a_killed_run_has_left_is_removed_by_the_next() {
    let test = "what_a_killed_run_has_left_is_removed_by_the_next";
    if is_skipped(test) {
        return;
    }
    let living = Namespace::new("living").unwrap();
    let program = env!("CARGO_BIN_EXE_uncork-corpus");
    let out = std::env::temp_dir().join(format!("uncork-leftovers-{}", std::process::id()));
    let mut killed = Command::new(program)
        .args(["make", "--only", "healthy-typing", "--out"])
        .arg(&out)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = killed.id();
    let began = Instant::now();
    let mut left = Vec::new();
    // Once it captures, its servers run.
    while !pids_in(&left).iter().any(|pid| comm(pid) == "tcpdump") {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was started");
        assert!(killed.try_wait().unwrap().is_none(), "it ended by itself");
        left = namespaces_of(pid);
    }
    // The link is in none of the searched namespaces, and holds the devices of two.
    let link = children(pid).into_iter().find(|pid| has_argument(pid, "link")).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut pids = pids_in(&left);
    assert!(!pids.is_empty(), "nothing was left to be removed");
    pids.push(link);
    let cleared = Command::new(program).arg("clear").status().unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    assert!(cleared.success());
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    for pid in pids {
        // A process leaves its namespace a little before it is dead.
        let began = Instant::now();
        while runs(&pid) {
            assert!(began.elapsed() < Duration::from_secs(5), "process {pid} still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(namespaces_of(std::process::id()), [living.name()], "a living run was disturbed");
}
