//! The signals that are handled here, read from a descriptor: no handler, and no race with a wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Come to an end: SIGINT, SIGTERM or SIGHUP.
    End,
    /// Pause: SIGUSR1.
    Pause,
    /// A child has ended: SIGCHLD.
    Child,
}

/// The signals of this process, blocked and queued.
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks them all. SIGPIPE, too: a write to a closed pipe or connection then fails with an
    /// error that can be reported, instead of ending the process.
    pub(crate) fn take() -> io::Result<Self> {
        let queued =
            [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGCHLD];
        let mut set: SigSet = queued.into_iter().collect();
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        set.add(Signal::SIGPIPE);
        set.thread_block()?;
        Ok(Self(fd))
    }

    /// Returns all that have arrived since the last call.
    pub(crate) fn requests(&self) -> io::Result<Vec<Request>> {
        let mut requests = Vec::new();
        while let Some(info) = self.0.read_signal()? {
            let signal = i32::try_from(info.ssi_signo).ok();
            match signal.and_then(|signal| Signal::try_from(signal).ok()) {
                Some(Signal::SIGUSR1) => requests.push(Request::Pause),
                Some(Signal::SIGCHLD) => requests.push(Request::Child),
                Some(_) => requests.push(Request::End),
                None => {}
            }
        }
        Ok(requests)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
