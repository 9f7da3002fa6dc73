//! `uncork status`: is the library in a process, and what does it hold there?
//!
//! Reads /proc only; the process is neither stopped nor changed, and need not cooperate.

mod absence;
mod maps;
mod memory;
mod peers;
mod symbol;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};
use serde::Serialize;
use uncork_posix::config::Settings;
use uncork_posix::published::{self, Unreadable};
use uncork_posix::report::ProcessReport;

use crate::arguments::Status;
use crate::environment::switches_ignored;
use crate::failure::Failure;
use crate::library::is_autocork;
use crate::output;
use crate::pids;
use crate::tables;
use memory::ProcessMemory;

/// The name of this command, for messages.
const COMMAND: &str = "uncork status";

/// Exit statuses, from the most to the least informative for a script.
mod code {
    pub(super) const LOADED: i32 = 0;
    pub(super) const NOT_LOADED: i32 = 1;
    pub(super) const NO_PERMISSION: i32 = 3;
    pub(super) const NO_PROCESS: i32 = 4;
}

/// The state of one process, as far as known.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pid: i32,
    /// `comm` of the process.
    program: Option<String>,
    /// Whether the library is in it; `None` without permission.
    loaded: Option<bool>,
    /// The file that it was loaded from.
    #[serde(rename = "library")]
    loaded_library: Option<PathBuf>,
    /// Why the library is not in it, where /proc tells.
    absent_because: Option<String>,
    /// Settings and sockets.
    report: Option<ProcessReport>,
    /// Why something above is missing.
    error: Option<String>,
    #[serde(skip)]
    code: i32,
}

/// Prints what is known of each process; the largest code is the exit status.
pub(crate) fn status(arguments: &Status) -> Result<i32, Failure> {
    let answers: Vec<_> = arguments.pids.iter().map(|pid| ask(*pid, COMMAND)).collect();
    let text = if arguments.json {
        let text = serde_json::to_string_pretty(&answers)
            .map_err(|error| Failure::own(error.to_string()))?;
        text + "\n"
    } else {
        answers.iter().filter_map(human).collect::<Vec<_>>().join("\n")
    };
    output::print(&text)?;
    for answer in answers.iter().filter(|_| !arguments.json) {
        if let Some(error) = &answer.error {
            output::complain(error);
        }
    }
    Ok(answers.iter().map(|answer| answer.code).max().unwrap_or(code::LOADED))
}

/// Returns the answer for people; `None` if there is only an error.
fn human(answer: &Answer) -> Option<String> {
    let loaded = answer.loaded?;
    let program = output::shown(answer.program.as_deref().unwrap_or("?")).into_owned();
    let mut text = format!("{} ({program}): ", answer.pid);
    match (loaded, &answer.loaded_library) {
        (true, Some(library)) => {
            text += &format!("{} is loaded\n", output::shown(&library.to_string_lossy()));
        }
        _ => {
            let why = because(answer.absent_because.as_deref());
            text += &format!("{} is not in this process{why}\n", crate::library::NAME);
        }
    }
    if let Some(report) = &answer.report {
        text += &tables::status(report, tables::Width::of_stdout());
    }
    Some(text)
}

/// Returns the end of the sentence that says that the library is not there.
fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {}", output::shown(reason))).unwrap_or_default()
}

/// A process with the library.
pub(crate) struct Looked {
    /// `comm` of the process.
    pub(crate) program: String,
    pub(crate) report: ProcessReport,
}

/// Inspects a process that must have the library, for a command of this name.
pub(crate) fn looked_into(pid: i32, command: &str) -> Result<Looked, Failure> {
    let answer = ask(pid, command);
    let program = answer.program.unwrap_or_else(|| "?".to_owned());
    match (answer.report, answer.error, answer.code) {
        (Some(report), ..) => Ok(Looked { program, report }),
        (None, Some(sentence), code::NO_PERMISSION) => Err(Failure::no_permission(sentence)),
        (None, Some(sentence), _) => Err(Failure::no_such_process(sentence)),
        (None, None, _) => Err(Failure::no_such_process(format!(
            "{} is not in process {pid} ({program}){}",
            crate::library::NAME,
            because(answer.absent_because.as_deref())
        ))),
    }
}

pub(crate) use peers::fill_in as fill_in_peers;

/// Inspects one process, for a command of this name.
fn ask(pid: i32, command: &str) -> Answer {
    let mut answer = Answer {
        pid,
        program: program_name(pid),
        loaded: None,
        loaded_library: None,
        absent_because: None,
        report: None,
        error: None,
        code: code::LOADED,
    };
    match look(pid) {
        Ok(None) => {
            (answer.loaded, answer.code) = (Some(false), code::NOT_LOADED);
            answer.absent_because = absence::reason(pid);
        }
        Ok(Some(found)) => {
            answer.loaded = Some(true);
            answer.loaded_library = Some(found.from);
            match found.report {
                Ok(report) => answer.report = Some(report),
                Err(Unreadable::Io(error)) => refused(&mut answer, &error, command),
                Err(error) => answer.error = Some(format!("process {pid}: {error}")),
            }
        }
        Err(error) => refused(&mut answer, &error, command),
    }
    answer
}

fn refused(answer: &mut Answer, error: &io::Error, command: &str) {
    let pid = answer.pid;
    let no_permission = |pid| no_permission(pid, command, geteuid().is_root());
    let (code, sentence) = match error.kind() {
        ErrorKind::NotFound if let Some(sentence) = pids::not_mounted() => {
            (code::NO_PERMISSION, sentence)
        }
        ErrorKind::NotFound if exists(pid) => (code::NO_PERMISSION, no_permission(pid)),
        ErrorKind::NotFound => (code::NO_PROCESS, format!("no process {pid}")),
        ErrorKind::PermissionDenied => (code::NO_PERMISSION, no_permission(pid)),
        _ if error.raw_os_error() == Some(Errno::ESRCH as i32) => {
            (code::NO_PROCESS, format!("process {pid} has ended"))
        }
        _ => (code::NO_PERMISSION, format!("process {pid} cannot be read: {error}")),
    };
    answer.code = code;
    answer.error = Some(sentence);
}

/// Returns whether it exists. With /proc mounted hidepid, other users' processes seem not to exist.
fn exists(pid: i32) -> bool {
    matches!(kill(Pid::from_raw(pid), None), Ok(()) | Err(Errno::EPERM))
}

fn no_permission(pid: i32, command: &str, is_root: bool) -> String {
    if is_root {
        return format!(
            "root may not look into process {pid} here, for want of CAP_SYS_PTRACE or by a security module: run \
             `{command} {pid}` outside of the container"
        );
    }
    format!(
        "no permission to look into process {pid}; run `sudo {command} {pid}`, or as the same user with \
         kernel.yama.ptrace_scope=0"
    )
}

/// The library in a process, and what it has published there.
struct Found {
    from: PathBuf,
    report: Result<ProcessReport, Unreadable>,
}

fn look(pid: i32) -> io::Result<Option<Found>> {
    let Some((library, report)) = read(pid)? else { return Ok(None) };
    let report = report.map(|report| completed(report, pid, &library));
    Ok(Some(Found { from: library, report }))
}

/// Reads the record in the process's memory, and returns the library that put it there.
fn read(pid: i32) -> io::Result<Option<(PathBuf, Result<ProcessReport, Unreadable>)>> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    let mut first = None;
    for mapping in maps::libraries(&maps) {
        let report = ProcessMemory::open(pid).map_err(Unreadable::Io).and_then(|memory| {
            let address = symbol::address(&memory, mapping.start, published::SYMBOL)?;
            published::read(&memory, address)
        });
        // Of two copies only one works; the other has not started and never will.
        if !matches!(report, Err(Unreadable::NotStarted)) {
            return Ok(Some((mapping.path, report)));
        }
        first.get_or_insert((mapping.path, report));
    }
    Ok(first)
}

/// Adds what is found elsewhere in /proc, and not in the process's memory.
fn completed(mut report: ProcessReport, pid: i32, library: &Path) -> ProcessReport {
    report.pid = pid.unsigned_abs();
    report.program = program_name(pid).unwrap_or_default();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let lookup = |name: &str| variable(&environment, name);
    report.ignored = Settings::from_lookup(is_autocork(library), lookup).ignored;
    report.ignored.extend(switches_ignored(lookup));
    peers::fill_in(pid, report.sockets.iter_mut().map(|socket| (socket.fd, &mut socket.peer)));
    report
}

/// Returns the value of a variable in an environment as shown by /proc.
fn variable(environment: &[u8], name: &str) -> Option<String> {
    environment.split(|&byte| byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// Returns what the library in process `pid` would report now, if it is there and can be read.
pub(crate) fn snapshot(pid: i32) -> Option<ProcessReport> {
    look(pid).ok()??.report.ok().map(without_listeners)
}

/// Leaves out what no report at a process's end has.
fn without_listeners(mut report: ProcessReport) -> ProcessReport {
    report.sockets.retain(|socket| !socket.listens());
    report
}

/// Returns such a report without the sockets' peers, which take a while to find.
pub(crate) fn record(pid: i32) -> Option<ProcessReport> {
    let (_, report) = read(pid).ok()??;
    let program = program_name(pid).unwrap_or_default();
    let report = without_listeners(report.ok()?);
    Some(ProcessReport { pid: pid.unsigned_abs(), program, ..report })
}

fn program_name(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_library_says_so() {
        let own = std::process::id().try_into().unwrap();
        let answer = ask(own, COMMAND);
        assert_eq!((answer.loaded, answer.code), (Some(false), code::NOT_LOADED));
        assert!(human(&answer).unwrap().contains("is not in this process"));
    }

    #[test]
    fn a_process_that_is_not_there_has_its_own_code() {
        let answer = ask(i32::MAX, COMMAND);
        assert_eq!((answer.loaded, answer.code), (None, code::NO_PROCESS));
        assert_eq!(answer.error.unwrap(), format!("no process {}", i32::MAX));
        assert!(snapshot(i32::MAX).is_none());
    }

    #[test]
    fn who_may_not_look_is_told_which_command_may() {
        let told = no_permission(7, "uncork stack why", false);
        assert!(told.contains("run `sudo uncork stack why 7`, or"), "{told}");
        assert!(!no_permission(7, COMMAND, true).contains("sudo"));
    }
}
