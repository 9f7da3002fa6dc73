//! The source of the capture: a file, or a pipe that is still being written to.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// How long `tcpdump` has to write the rest of its data after Ctrl-C, which reaches it as well,
/// before the capture is taken to be complete.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A capture to be read.
pub(super) struct Input {
    file: File,
    /// Its length, if it has one.
    pub(super) length_bytes: Option<u64>,
    /// The signals that end an input that has no end of its own.
    signals: Option<SignalFd>,
    interrupted: Rc<Cell<bool>>,
    /// Until when more data of the writer is waited for.
    deadline: Cell<Option<Instant>>,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let is_stdin = is_stdin(path);
        let file = if is_stdin {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        if is_stdin && file.is_terminal() {
            return Err(io::Error::other("a capture has to be piped into it, it is a terminal"));
        }
        let metadata = file.metadata()?;
        let length_bytes = metadata.is_file().then_some(metadata.len());
        let signals = if metadata.is_file() { None } else { Some(signals()?) };
        Ok(Self {
            file,
            length_bytes,
            signals,
            interrupted: Rc::default(),
            deadline: Cell::new(None),
        })
    }

    /// Returns a flag that becomes true when the input was ended by a signal and not by the writer.
    pub(super) fn interrupted(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.interrupted)
    }

    /// Waits until there is data to read. Returns false if a signal has ended the input.
    fn wait(&self, signals: &SignalFd) -> io::Result<bool> {
        loop {
            // However much the writer still has.
            let deadline = self.deadline.get();
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let timeout = match deadline {
                None => PollTimeout::NONE,
                Some(deadline) => {
                    let left = Instant::now().max(deadline) - Instant::now();
                    PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
                }
            };
            let mut fds = [&self.file.as_fd(), &signals.as_fd()]
                .map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let [input, signal] = fds.map(|fd| fd.any().unwrap_or(true));
            if signal && signals.read_signal()?.is_some() {
                // A second signal ends it at once.
                if self.interrupted.replace(true) {
                    return Ok(false);
                }
                self.deadline.set(Some(Instant::now() + LAST_WORDS));
            } else if input {
                return Ok(true);
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.signals {
            Some(signals) if !self.wait(signals)? => Ok(0),
            _ => self.file.read(buffer),
        }
    }
}

/// Returns whether the path stands for standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns the signals by which users and service managers ask a process to end.
fn signals() -> io::Result<SignalFd> {
    let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    set.thread_block()?;
    Ok(fd)
}
