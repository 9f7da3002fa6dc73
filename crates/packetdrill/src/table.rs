//! The objects of descriptors. Each descriptor is a real one (an eventfd), as packetdrill takes
//! them for the kernel's.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use uncork_sockets::Asked;
use uncork_stack::{FastOpenKeys, ListenerId, SocketId};

use crate::epoll::Interests;

/// An address, or `None` for AF_UNSPEC, which dissolves a connection.
pub(crate) type Address = Option<SocketAddr>;

/// Fast Open options, which count only before there is a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fast {
    /// TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE, TCP_FASTOPEN and TCP_FASTOPEN_KEY.
    pub(crate) connect: bool,
    pub(crate) without_cookie: bool,
    pub(crate) pending: u32,
    pub(crate) keys: Option<FastOpenKeys>,
}

/// The state of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is neither listening nor connected, and may be bound.
    New {
        bound: Option<SocketAddr>,
    },
    Listening {
        id: ListenerId,
    },
    /// connect(2) has begun, and its result has not been returned yet.
    Connecting {
        id: SocketId,
    },
    Open {
        id: SocketId,
    },
}

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stage: Stage,
    pub(crate) non_blocking: bool,
    /// Whether its SYN waits for the first data.
    pub(crate) deferred: bool,
    pub(crate) asked: Asked,
    pub(crate) fast: Fast,
    pub(crate) ipv6: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Socket(Box<Socket>),
    Epoll(Interests),
}

#[derive(Debug)]
struct Entry {
    /// Closed when the script closes it. packetdrill itself closes what a script leaves open,
    /// before it frees this table, so the table must not.
    descriptor: ManuallyDrop<EventFd>,
    kind: Kind,
}

/// The table of open descriptors.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<RawFd, Entry>,
}

impl Table {
    pub(crate) fn add(&mut self, kind: Kind) -> Result<RawFd, Errno> {
        let descriptor = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
        let fd = descriptor.as_raw_fd();
        self.entries.insert(fd, Entry { descriptor: ManuallyDrop::new(descriptor), kind });
        Ok(fd)
    }

    pub(crate) fn remove(&mut self, fd: RawFd) -> Result<Kind, Errno> {
        let entry = self.entries.remove(&fd).ok_or(Errno::EBADF)?;
        drop(ManuallyDrop::into_inner(entry.descriptor));
        Ok(entry.kind)
    }

    pub(crate) fn socket(&mut self, fd: RawFd) -> Result<&mut Socket, Errno> {
        match self.entries.get_mut(&fd).map(|entry| &mut entry.kind) {
            Some(Kind::Socket(socket)) => Ok(socket),
            Some(Kind::Epoll(_)) => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    pub(crate) fn epoll(&mut self, fd: RawFd) -> Result<&mut Interests, Errno> {
        match self.entries.get_mut(&fd).map(|entry| &mut entry.kind) {
            Some(Kind::Epoll(interests)) => Ok(interests),
            Some(Kind::Socket(_)) => Err(Errno::EINVAL),
            None => Err(Errno::EBADF),
        }
    }

    /// Returns the descriptor of a connection.
    pub(crate) fn find(&self, socket: SocketId) -> Option<RawFd> {
        self.entries.iter().find_map(|(&fd, entry)| match &entry.kind {
            Kind::Socket(one) => match one.stage {
                Stage::Connecting { id } | Stage::Open { id } => (id == socket).then_some(fd),
                _ => None,
            },
            Kind::Epoll(_) => None,
        })
    }

    /// Returns the descriptor of a listener.
    pub(crate) fn find_listener(&self, listener: ListenerId) -> Option<RawFd> {
        self.entries.iter().find_map(|(&fd, entry)| match &entry.kind {
            Kind::Socket(one) => (one.stage == Stage::Listening { id: listener }).then_some(fd),
            Kind::Epoll(_) => None,
        })
    }

    /// Notes an edge of `fd` in all epoll sets that watch it.
    pub(crate) fn note_edge(&mut self, fd: RawFd) {
        for entry in self.entries.values_mut() {
            if let Kind::Epoll(interests) = &mut entry.kind {
                interests.note_edge(fd);
            }
        }
    }

    /// Removes `fd`, which was closed, from all epoll sets.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        for entry in self.entries.values_mut() {
            if let Kind::Epoll(interests) = &mut entry.kind {
                interests.forget(fd);
            }
        }
    }
}
