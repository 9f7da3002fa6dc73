//! Epoll sets (epoll(7)).

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use nix::errno::Errno;

/// One registered descriptor of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interest {
    /// EPOLLIN and related bits, with EPOLLET and EPOLLONESHOT.
    pub(crate) events: u32,
    pub(crate) data: u64,
    /// Whether something has happened since it was last reported.
    edge: bool,
}

/// An epoll set.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    watched: BTreeMap<RawFd, Interest>,
}

const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
/// Reported whether requested or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl Interests {
    /// epoll_ctl(2).
    pub(crate) fn control(
        &mut self,
        operation: i32,
        fd: RawFd,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let interest = Interest { events, data, edge: true };
        match operation {
            libc::EPOLL_CTL_ADD if self.watched.contains_key(&fd) => return Err(Errno::EEXIST),
            libc::EPOLL_CTL_ADD => {
                self.watched.insert(fd, interest);
            }
            libc::EPOLL_CTL_MOD => *self.watched.get_mut(&fd).ok_or(Errno::ENOENT)? = interest,
            libc::EPOLL_CTL_DEL => {
                self.watched.remove(&fd).ok_or(Errno::ENOENT)?;
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    pub(crate) fn note_edge(&mut self, fd: RawFd) {
        if let Some(interest) = self.watched.get_mut(&fd) {
            interest.edge = true;
        }
    }

    pub(crate) fn forget(&mut self, fd: RawFd) {
        self.watched.remove(&fd);
    }

    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.watched.keys().copied().collect()
    }

    /// Returns what to report of `fd`, given its readiness, and notes that it was reported.
    pub(crate) fn tell(&mut self, fd: RawFd, ready: u32) -> Option<(u32, u64)> {
        let interest = self.watched.get_mut(&fd)?;
        let told = ready & (interest.events | ALWAYS);
        if told == 0 || interest.events & EDGE != 0 && !interest.edge {
            return None;
        }
        interest.edge = false;
        if interest.events & ONE_SHOT != 0 {
            interest.events &= EDGE | ONE_SHOT;
        }
        Some((told, interest.data))
    }
}
