//! Processes of the program that go on when the program itself has ended.

use std::fs;

use uncork_posix::config::variable;
use uncork_posix::report::ProcessReport;

use crate::status;

/// A process that is still running, and what it would report now.
#[derive(Debug)]
pub(super) struct Survivor {
    pub(super) pid: i32,
    pub(super) program: String,
    pub(super) report: Option<ProcessReport>,
}

/// The processes that were started with `address` to report to. One that has written over its
/// environment, as some servers do to show a title, is not found.
pub(super) fn of(address: &str) -> Vec<Survivor> {
    let entry = format!("{}={address}", variable::STATS);
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter(|&pid| was_started_with(pid, entry.as_bytes()))
        .map(|pid| Survivor { pid, program: name(pid), report: status::snapshot(pid) })
        .collect()
}

/// A process that is ending has no environment any more.
fn was_started_with(pid: i32, entry: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|&byte| byte == 0).any(|e| e == entry))
}

fn name(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
