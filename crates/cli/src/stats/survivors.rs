//! Processes of the program that outlive it.

use std::fs;
use std::iter;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uncork_posix::config::variable;
use uncork_posix::report::ProcessReport;

use crate::status;

/// How long processes without an environment are retried, all together, and the interval.
const PATIENCE: Duration = Duration::from_millis(50);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Upper bound for the whole search.
const LONGEST: Duration = Duration::from_secs(1);

/// A process that is still running, and what it would report now.
#[derive(Debug)]
pub(super) struct Survivor {
    pub(super) pid: i32,
    pub(super) program: String,
    pub(super) report: Option<ProcessReport>,
}

/// Returns the processes that were started with `address` to report to. A process that has overwritten its environment, as
/// some servers do to show a title, is not found; nor are those with lower numbers than one that cannot be read because it
/// waits for a disk, say (its memory map is locked then): the program has ended, and that wait would be for nothing.
pub(super) fn of(address: &str) -> Vec<Survivor> {
    let entry = format!("{}={address}", variable::STATS);
    let (tells, told) = mpsc::channel();
    let begun = Instant::now();
    let look = move || {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let number = |process: fs::DirEntry| process.file_name().to_str()?.parse().ok();
        let mut numbers: Vec<i32> = processes.filter_map(number).collect();
        numbers.sort_unstable();
        let is_one = |&pid: &i32| was_started_with(pid, entry.as_bytes(), begun + PATIENCE);
        for pid in numbers.into_iter().rev().filter(is_one) {
            let report = status::snapshot(pid);
            if tells.send(Survivor { pid, program: name(pid), report }).is_err() {
                return;
            }
        }
    };
    if thread::Builder::new().spawn(look).is_err() {
        return Vec::new();
    }
    let rest = || LONGEST.saturating_sub(begun.elapsed());
    let mut found: Vec<_> = iter::from_fn(|| told.recv_timeout(rest()).ok()).collect();
    found.reverse();
    found
}

fn was_started_with(pid: i32, entry: &[u8], until: Instant) -> bool {
    environment(pid, until).split(|&byte| byte == 0).any(|variable| variable == entry)
}

/// Reads the environment of a process. A process that is ending has none any more. One that executes another program has
/// none for a moment, but has an executable file, which a kernel thread never has (execve(2)).
fn environment(pid: i32, until: Instant) -> Vec<u8> {
    loop {
        let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has_file = || fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        if !all.is_empty() || Instant::now() > until || !has_file() {
            return all;
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

fn name(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
