//! Waiting for descriptors, or for a time.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// That the descriptor is readable, or has ended.
    Read,
    /// That it is writable.
    Write,
}

/// A descriptor, what is waited for, and the key under which that is reported.
#[derive(Debug, Clone, Copy)]
pub struct Watch<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// What is waited for. That it has failed is reported in any case.
    pub interest: Interest,
    /// The key under which it is reported.
    pub key: u64,
}

impl Interest {
    fn flags(self) -> PollFlags {
        match self {
            Self::Read => PollFlags::POLLIN,
            Self::Write => PollFlags::POLLOUT,
        }
    }
}

/// Waits, for no longer than that, and returns the keys of those of `watched` to which something has
/// happened. ppoll(2) rather than poll(2), as milliseconds are too coarse for pacing.
pub(crate) fn wait(
    device: Option<BorrowedFd<'_>>,
    watched: &[Watch<'_>],
    longest: Option<Duration>,
) -> io::Result<Vec<u64>> {
    let mut polled: Vec<_> =
        watched.iter().map(|watch| PollFd::new(watch.fd, watch.interest.flags())).collect();
    polled.extend(device.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    match ppoll(&mut polled, longest.map(TimeSpec::from), None) {
        Ok(0) | Err(nix::Error::EINTR) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let happened = |polled: &PollFd<'_>| polled.any().unwrap_or(true);
    let both = watched.iter().zip(&polled);
    Ok(both.filter(|(_, polled)| happened(polled)).map(|(watch, _)| watch.key).collect())
}
