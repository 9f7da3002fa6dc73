//! Queries to a program of `uncork run --stack` about its stack, or to an instance: through the guardian, which passes it
//! one end of a stream.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use uncork_bpf::namespaces::entered;
use uncork_guardian::{Error, Place, look};
use uncork_posix::report::ProcessReport;
use uncork_stat::{Report, Running};

use super::show::{anothers, is_anothers};
use crate::failure::Failure;
use crate::output::shown;
use crate::{pids, place_file, status};

/// A process answers when one of its threads waits for something, or its keeper runs: within a moment. A stopped process
/// does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks a process. Returns `None` if it does not run on the stack.
pub(super) fn ask(pid: u32) -> Result<Option<Report>, Failure> {
    let record = i32::try_from(pid).ok().and_then(status::record);
    let Some(ProcessReport { program, stack: Some(stack), .. }) = record else {
        return ask_instance(pid);
    };
    let Some(guardian) = stack.guardian else { return Ok(None) };
    ask_at(&guardian, pid, &program).map(Some)
}

/// Asks a process that may be an instance.
fn ask_instance(pid: u32) -> Result<Option<Report>, Failure> {
    let all = if is_instance(pid) { place_file::all_instances() } else { Vec::new() };
    // It belongs to one of the guardians; the others do not know it.
    let mut answers = all.iter().map(|told| ask_at(&told.place, pid, "an instance"));
    let first = answers.next();
    let Some(answer) = first else { return Ok(None) };
    answer.or_else(|error| answers.find_map(Result::ok).ok_or(error)).map(Some)
}

/// Returns whether a process was started by `uncork stack start`.
pub(super) fn is_instance(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.starts_with(b"uncork\0guardian\0instance\0"))
}

fn ask_at(guardian: &str, pid: u32, program: &str) -> Result<Report, Failure> {
    let place: Place = guardian.parse().map_err(|error: Error| Failure::left(error.to_string()))?;
    let (ours, theirs) = UnixStream::pair().map_err(|error| cannot_ask(pid, &error))?;
    ours.set_read_timeout(Some(PATIENCE)).map_err(|error| cannot_ask(pid, &error))?;
    let asked = File::open(format!("/proc/{pid}/ns/net"))
        .and_then(|its| entered(&its, || look(&place, pids::in_namespaces(pid), theirs.as_fd())));
    // The process has received its copy by now.
    drop(theirs);
    let missing = match asked.map_err(|error| cannot_ask(pid, &error))? {
        Ok(missing) => missing,
        Err(Error::Refused(why)) => {
            let program = shown(program);
            return Err(Failure::unusable(format!("process {pid} ({program}): {why}")));
        }
        Err(error) => return Err(Failure::left(error.to_string())),
    };
    let mut told = uncork_stat::read(BufReader::new(ours));
    // The process itself does not know these.
    if let Ok(Report { running: Running { by_queue: Some(by_queue), .. }, .. }) = &mut told {
        by_queue.missing.extend(missing);
    }
    told.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::left(format!(
            "process {pid} does not answer: it is stopped, or has no time; `uncork stack why {pid}` needs no answer"
        )),
        _ => Failure::left(format!("process {pid} has not told all: {error}")),
    })
}

fn cannot_ask(pid: u32, error: &io::Error) -> Failure {
    match error.kind() {
        // Only its own user may look up where it is.
        ErrorKind::PermissionDenied if is_anothers(pid) => Failure::no_permission(anothers(pid)),
        ErrorKind::PermissionDenied => Failure::no_permission(format!(
            "process {pid} is in another network namespace, and only root may go there to ask it"
        )),
        ErrorKind::NotFound => Failure::no_such_process(format!("process {pid} has ended")),
        _ => Failure::left(format!("process {pid} cannot be asked: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_process_it_is_comes_before_where_it_is() {
        let denied = io::Error::from(ErrorKind::PermissionDenied);
        let own = cannot_ask(std::process::id(), &denied).to_string();
        assert!(own.contains("is in another network namespace"), "{own}");
        if !nix::unistd::geteuid().is_root() {
            let failure = cannot_ask(1, &denied);
            assert_eq!(failure.code(), Failure::NO_PERMISSION);
            assert_eq!(
                failure.to_string(),
                "process 1 is another user's: ask as that one, or as root"
            );
        }
    }
}
