//! `uncork stack stat`: what a process reports of its stack, and where its sockets are that are not on it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;
use uncork_posix::report::{ProcessReport, StackReport};
use uncork_serve::stat;
use uncork_stat::Report;

use super::arguments::Stat;
use super::running::{self, Runs};
use super::{DONE, ask, table};
use crate::failure::Failure;
use crate::output::print;
use crate::pids;
use crate::status;
use crate::tables::Width;

/// All that is known of a process.
#[derive(Debug, Serialize)]
struct Told {
    #[serde(flatten)]
    report: Report,
    /// The sockets of a program under `uncork run --stack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<StackReport>,
}

/// What is known of a program whose stack does not answer.
#[derive(Debug, Serialize)]
struct Silent<'a> {
    pid: u32,
    does: &'a str,
    stack: &'a StackReport,
}

/// Prints what is known, or which processes can be asked.
pub(super) fn show(wanted: &Stat) -> Result<i32, Failure> {
    if let Some(sentence) = pids::not_mounted().filter(|_| wanted.socket.is_none()) {
        return Err(Failure::left(sentence));
    }
    let (path, pid) = match (&wanted.socket, wanted.pid) {
        (Some(path), _) => (path.clone(), None),
        (None, Some(pid)) => of(pid),
        (None, None) => match &running::all()[..] {
            [] => return Err(nobody_runs()),
            [one] => of(one.pid),
            several => return list(several, wanted.json),
        },
    };
    let told = tell(&path, pid);
    let program = pid.and_then(program);
    match (told, pid.zip(program)) {
        (Ok(report), program) => {
            let told = Told { report, stack: program.map(|(_, (_, stack))| stack) };
            let text = if wanted.json {
                json(&told)?
            } else {
                table::report(told.report, told.stack.as_ref(), Width::of_stdout())
            };
            print(&text).map(|()| DONE)
        }
        (Err(failure), Some((pid, (program, stack)))) if stack.is_anything() => {
            let (does, stack) = (program.as_str(), &stack);
            print(&if wanted.json {
                json(&Silent { pid, does, stack })?
            } else {
                table::places(pid, does, stack)
            })?;
            Err(failure)
        }
        (Err(failure), _) => Err(failure),
    }
}

fn of(pid: u32) -> (PathBuf, Option<u32>) {
    (stat::socket_of(pid), Some(pid))
}

fn json(told: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(told);
    text.map(|text| text + "\n").map_err(|error| Failure::left(error.to_string()))
}

/// Reads the stack's own report.
fn tell(path: &Path, pid: Option<u32>) -> Result<Report, Failure> {
    let told = pid.map_or_else(|| stat::ask(path), stat::ask_process);
    match (told, pid) {
        (Err(error), Some(pid)) if is_nowhere(&error) => {
            ask::ask(pid)?.ok_or_else(|| unanswered(Some(pid), path, &error))
        }
        (told, pid) => told.map_err(|error| unanswered(pid, path, &error)),
    }
}

/// Returns where the sockets of a program under `uncork run --stack` are, and its name. It is read from its memory, so
/// that it works even if the stack does not answer.
fn program(pid: u32) -> Option<(String, StackReport)> {
    let number = i32::try_from(pid).ok()?;
    let ProcessReport { program, stack: Some(mut stack), .. } = status::record(number)? else {
        return None;
    };
    status::fill_in_peers(number, stack.sockets.iter_mut().map(|one| (one.fd, &mut one.peer)));
    Some((program, stack))
}

fn list(several: &[Runs], as_json: bool) -> Result<i32, Failure> {
    let text = if as_json { json(&several)? } else { table::running(several, Width::of_stdout()) };
    print(&text).map(|()| DONE)
}

fn nobody_runs() -> Failure {
    Failure::left(
        "no stack of this user runs, nor a program under uncork run --stack: as root those of others are found, too, \
         and uncork stack serve --socket PATH is asked by its --socket",
    )
}

/// Returns whether there is no listener.
fn is_nowhere(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Returns whether the process belongs to a user whose stacks this user may not ask.
pub(super) fn is_anothers(pid: u32) -> bool {
    let own = nix::unistd::geteuid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = users.and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
    !own.is_root() && effective.is_some_and(|its: u32| its != own.as_raw())
}

/// Says that the process is another user's.
pub(super) fn anothers(pid: u32) -> String {
    format!("process {pid} is another user's: ask as that one, or as root")
}

fn unanswered(pid: Option<u32>, path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match (error.kind(), pid) {
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, Some(pid)) if is_anothers(pid) => {
            Failure::no_permission(anothers(pid))
        }
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, Some(pid)) => {
            Failure::no_such_process(format!(
                "no stack of this user runs in process {pid}: uncork stack stat without PID says where some run"
            ))
        }
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, None) => {
            Failure::left(format!("no stack can be asked at {path}"))
        }
        (ErrorKind::PermissionDenied, _) => Failure::no_permission(format!(
            "{path} belongs to another user: ask as that one, or as root"
        )),
        (ErrorKind::TimedOut, _) => Failure::left(format!(
            "the stack at {path} does not answer: its process is stopped, or has no time"
        )),
        _ => Failure::left(format!("the stack at {path} has not told all: {error}")),
    }
}
