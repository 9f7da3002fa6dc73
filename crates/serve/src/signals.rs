//! Signals that ask for the end, as a descriptor to wait for.

use std::os::fd::{AsFd as _, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// SIGINT, SIGTERM and SIGHUP of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks them in this thread and those that it starts, so that they end nothing by themselves.
    /// SIGPIPE, too: writing to a descriptor without a reader is an error.
    pub(crate) fn take() -> std::io::Result<Self> {
        let asked: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        asked.thread_block()?;
        SigSet::from(Signal::SIGPIPE).thread_block()?;
        let fd = SignalFd::with_flags(&asked, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { fd })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns how many have come since the last call.
    pub(crate) fn fetch(&self) -> u32 {
        let mut count = 0;
        while let Ok(Some(_)) = self.fd.read_signal() {
            count += 1;
        }
        count
    }
}
