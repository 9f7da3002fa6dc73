//! Waiting for descriptors, or for a moment.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// That it can be read, or has ended.
    Read,
    /// That it can be written.
    Write,
}

/// A descriptor, what is waited for, and the key under which that is told.
#[derive(Debug, Clone, Copy)]
pub struct Watch<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// What is waited for. That it has failed is told in any case.
    pub interest: Interest,
    /// A name for it.
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

/// Waits, at most for so long, and gives the keys of those of `watched` to which something has
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
