//! Being asked to end, as something that can be waited for.

use std::os::fd::{AsFd as _, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// SIGINT, SIGTERM and SIGHUP of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// From now on they end nothing by themselves, in this thread and those that it starts. Nor does
    /// SIGPIPE: a descriptor that nobody reads is an error when it is written to.
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

    /// How many have come since this was asked last.
    pub(crate) fn fetch(&self) -> u32 {
        let mut count = 0;
        while let Ok(Some(_)) = self.fd.read_signal() {
            count += 1;
        }
        count
    }
}
