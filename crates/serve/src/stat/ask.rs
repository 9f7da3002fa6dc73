//! The querying side.

use std::fs;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use uncork_stat::Report;

use super::{directory, others, pid_in, socket_of};

/// Longest wait for an answer. A stack answers within a turn; one that is stopped (SIGSTOP) does not.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the process ids of this user's running stacks, and for root of everybody's. Sockets that this user's killed
/// stacks have left are removed.
#[must_use]
pub fn running() -> Vec<u32> {
    let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries
        .filter_map(|entry| {
            let pid = pid_in(&entry.file_name())?;
            match UnixStream::connect(entry.path()) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(entry.path());
                    None
                }
                _ => Some(pid),
            }
        })
        .collect();
    found.extend(others::running());
    found.sort_unstable();
    found.dedup();
    found
}

/// Queries the stack that listens at `socket`.
///
/// # Errors
///
/// If nobody listens there, or the answer cannot be parsed, or breaks off.
pub fn ask(socket: &Path) -> io::Result<Report> {
    told(UnixStream::connect(socket)?)
}

/// Queries the stack of a process at the usual path: this user's, or for root the one of the process's user.
///
/// # Errors
///
/// As for [`ask`].
pub fn ask_process(pid: u32) -> io::Result<Report> {
    match UnixStream::connect(socket_of(pid)) {
        Ok(stream) => told(stream),
        Err(error) => told(others::connect(pid).ok_or(error)?),
    }
}

fn told(stream: UnixStream) -> io::Result<Report> {
    stream.set_read_timeout(Some(PATIENCE))?;
    uncork_stat::read(BufReader::new(stream)).map_err(timed_out)
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}
