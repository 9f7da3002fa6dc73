//! The signals that end `uncork stack start`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that ask for the end.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Signals that are read from a descriptor, and have no other effect.
pub(super) struct Signals(SignalFd);

impl Signals {
    /// Blocks them in this thread, and in those that it starts.
    pub(super) fn take() -> io::Result<Self> {
        let set: SigSet = ENDING.into_iter().collect();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// Returns whether one has come since the last call.
    pub(super) fn have_come(&self) -> bool {
        let mut any = false;
        while let Ok(Some(_)) = self.0.read_signal() {
            any = true;
        }
        any
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
