//! The side that asks.

use std::fs;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use uncork_stat::Report;

use super::{PREFIX, SUFFIX, directory};

/// A stack answers within a turn; one that is stopped (SIGSTOP) does not.
const PATIENCE: Duration = Duration::from_secs(5);

/// Process ids of this user's running stacks. What those that were killed have left is removed.
#[must_use]
pub fn running() -> Vec<u32> {
    let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let pid = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()?;
            match UnixStream::connect(entry.path()) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(entry.path());
                    None
                }
                _ => Some(pid),
            }
        })
        .collect();
    found.sort_unstable();
    found
}

/// Asks the stack that listens at `socket`.
///
/// # Errors
///
/// If nobody listens there, or what is told is not understood, or breaks off.
pub fn ask(socket: &Path) -> io::Result<Report> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    uncork_stat::read(BufReader::new(stream)).map_err(timed_out)
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}
