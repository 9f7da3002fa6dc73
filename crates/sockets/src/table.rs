//! The table of descriptors: which socket each stands for. Several may stand for one socket (dup(2)).

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use uncork_stack::{ListenerId, SocketId};

use crate::asked::Asked;
use crate::epoll::Watch;
use crate::handing::{HANDED_OVER, Owner};
use crate::host::Reason;
use crate::parts::{self, Part};

/// Where a connection is: on which link, and its name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) link: usize,
    pub(crate) id: SocketId,
}

/// A socket that listens: the kernel's does, too, for what does not come by the stack.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    /// `[::]` means IPv6 alone.
    pub(crate) v6_only: bool,
    pub(crate) backlog: u32,
    /// The listeners on the stack, one on each link that it is reached by; empty until this process waits for connections.
    pub(crate) on: Vec<(usize, ListenerId)>,
    /// Why there are none, if that is decided.
    pub(crate) reason: Option<Reason>,
    /// What comes there is the kernel's, though the privileged half still has the end as this process's.
    pub(crate) is_kernels: bool,
    /// shutdown(2) has ended it, until it listens again.
    pub(crate) shut: bool,
    /// The kernel's connections that processes which listen no more were to accept, each with our end.
    pub(crate) passed: VecDeque<(SocketAddr, OwnedFd)>,
}

impl Listener {
    pub(crate) fn new(local: SocketAddr, v6_only: bool, backlog: u32) -> Self {
        let (on, passed) = (Vec::new(), VecDeque::new());
        let (is_kernels, shut) = (false, false);
        Self { local, v6_only, backlog, on, reason: None, is_kernels, shut, passed }
    }

    /// Returns whether the privileged half has the end as this process's.
    pub(crate) fn is_claimed(&self) -> bool {
        !self.on.is_empty() || self.is_kernels
    }

    /// Returns whether connections to this end are for this listener.
    pub(crate) fn takes(&self, end: SocketAddr) -> bool {
        let takes = match self.local.ip() {
            address if !address.is_unspecified() => address == end.ip(),
            IpAddr::V4(_) => end.is_ipv4(),
            IpAddr::V6(_) => end.is_ipv6() || !self.v6_only,
        };
        takes && self.local.port() == end.port()
    }
}

/// What a socket is.
#[derive(Debug)]
pub(crate) enum Kind {
    Listener(Listener),
    /// Its connection, and whether connect(2) has yet to say how it went.
    Connection {
        place: Place,
        connecting: bool,
    },
    /// A connection of the process that this one was forked from, and the way to ask for it.
    Elsewhere {
        place: Place,
        owner: Option<Owner>,
    },
}

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) kind: Kind,
    /// How many descriptors stand for it.
    pub(crate) descriptors: u32,
    /// O_NONBLOCK; of a listener the kernel knows it.
    pub(crate) non_blocking: bool,
    /// The program has called connect(2).
    pub(crate) is_opened: bool,
    /// Its descriptor is a duplicate of the stand-in that others share.
    pub(crate) stand_in: bool,
    /// A child of fork has it, too.
    pub(crate) forked: bool,
    /// Where children of fork find it when it is the kernel's; a child has its parent's mailbox.
    pub(crate) mailbox: Option<OwnedFd>,
    pub(crate) ipv6: bool,
    /// IPV6_V6ONLY.
    pub(crate) v6_only: bool,
    /// Shared with the listener that it came from, until one of them sets something.
    pub(crate) asked: Arc<Asked>,
    /// Its memberships in epoll sets.
    pub(crate) watches: Vec<Watch>,
}

impl Socket {
    pub(crate) fn new(kind: Kind, ipv6: bool, asked: Arc<Asked>) -> Self {
        Self {
            kind,
            descriptors: 0,
            non_blocking: false,
            is_opened: false,
            stand_in: false,
            forked: false,
            mailbox: None,
            ipv6,
            v6_only: false,
            asked,
            watches: Vec::new(),
        }
    }

    pub(crate) fn is_listener(&self) -> bool {
        matches!(self.kind, Kind::Listener(_))
    }

    pub(crate) fn is_connection(&self) -> bool {
        matches!(self.kind, Kind::Connection { .. })
    }

    pub(crate) fn place(&self) -> Option<Place> {
        match self.kind {
            Kind::Connection { place, .. } => Some(place),
            Kind::Listener(_) | Kind::Elsewhere { .. } => None,
        }
    }
}

/// The name of a socket in the table, and of none after that is closed: a thread that has waited for it takes no other for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    at: u32,
    generation: u32,
}

#[cfg(test)]
impl Slot {
    /// Returns its index in the table.
    pub(crate) fn at(self) -> u32 {
        self.at
    }
}

/// An entry of the table.
#[derive(Debug, Default)]
struct Entry {
    socket: Option<Socket>,
    /// How many sockets have been here before.
    generation: u32,
}

/// The table of open sockets.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// By descriptor: one more than the index of its socket, zero for none, or [`KERNELS`].
    of: Vec<u32>,
    /// The part that has the table.
    part: Part,
}

/// Its connection has become the kernel's. That stays until the descriptor stands for another socket on the stack.
const KERNELS: u32 = u32::MAX;

impl Table {
    pub(crate) fn new(part: Part) -> Self {
        Self { part, ..Self::default() }
    }

    pub(crate) fn part(&self) -> Part {
        self.part
    }

    /// Returns the socket's name; else EBADF, or [`HANDED_OVER`].
    pub(crate) fn slot(&self, fd: RawFd) -> Result<Slot, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        match self.of.get(at) {
            Some(&KERNELS) => Err(HANDED_OVER),
            Some(&place @ 1..) => self.name(place - 1).ok_or(Errno::EBADF),
            _ => Err(Errno::EBADF),
        }
    }

    fn name(&self, at: u32) -> Option<Slot> {
        let generation = self.entries.get(at as usize)?.generation;
        Some(Slot { at, generation })
    }

    pub(crate) fn get(&mut self, slot: Slot) -> Option<&mut Socket> {
        let entry = self.entries.get_mut(slot.at as usize)?;
        entry.socket.as_mut().filter(|_| entry.generation == slot.generation)
    }

    pub(crate) fn find(&mut self, fd: RawFd) -> Result<(Slot, &mut Socket), Errno> {
        let slot = self.slot(fd)?;
        Ok((slot, self.get(slot).ok_or(Errno::EBADF)?))
    }

    /// Adds a socket that no descriptor stands for yet.
    pub(crate) fn add(&mut self, socket: Socket) -> Slot {
        let at = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[at as usize];
        entry.socket = Some(socket);
        Slot { at, generation: entry.generation }
    }

    /// Lets `fd` stand for a socket.
    pub(crate) fn bind(&mut self, fd: RawFd, slot: Slot) {
        let Ok(at) = usize::try_from(fd) else { return };
        if self.of.len() <= at {
            self.of.resize((at + 1).next_power_of_two().max(64), 0);
        }
        self.of[at] = slot.at + 1;
        parts::has_socket(fd, Some(self.part));
        if let Some(socket) = self.get(slot) {
            socket.descriptors += 1;
        }
    }

    /// Lets `fd` stand for it no longer; returns the socket if no descriptor does.
    pub(crate) fn unbind(&mut self, fd: RawFd) -> Option<(Slot, Socket)> {
        let slot = self.slot(fd).ok()?;
        self.of[usize::try_from(fd).ok()?] = 0;
        let socket = self.get(slot)?;
        socket.descriptors -= 1;
        if socket.descriptors > 0 {
            return None;
        }
        let entry = &mut self.entries[slot.at as usize];
        entry.generation = entry.generation.wrapping_add(1);
        let socket = entry.socket.take()?;
        self.free.push(slot.at);
        Some((slot, socket))
    }

    /// Marks `fd`, which is no longer bound, as the kernel's: a thread that waits there goes on with that.
    pub(crate) fn hand_over(&mut self, fd: RawFd) {
        if let Some(of) = usize::try_from(fd).ok().and_then(|at| self.of.get_mut(at)) {
            *of = KERNELS;
        }
    }

    /// Returns whether `fd` still stands for this socket. A number that another thread closes is the next descriptor's, of whatever
    /// kind; it is let go here first, under the lock, so who finds it here with the lock held may use the kernel's.
    pub(crate) fn is_still(&self, fd: RawFd, slot: Slot) -> bool {
        self.slot(fd) == Ok(slot)
    }

    pub(crate) fn is_handed_over(&self, fd: RawFd) -> bool {
        self.slot(fd) == Err(HANDED_OVER)
    }

    /// Returns every socket.
    pub(crate) fn iter(&mut self) -> impl Iterator<Item = (Slot, &mut Socket)> {
        (0_u32..).zip(&mut self.entries).filter_map(|(at, entry)| {
            Some((Slot { at, generation: entry.generation }, entry.socket.as_mut()?))
        })
    }

    /// Returns a descriptor that stands for a socket.
    pub(crate) fn descriptor(&self, slot: Slot) -> Option<RawFd> {
        let at = self.of.iter().position(|&place| place == slot.at + 1)?;
        RawFd::try_from(at).ok()
    }

    /// Returns all descriptors that stand for a socket.
    pub(crate) fn descriptors_of(&self, slot: Slot) -> Vec<RawFd> {
        let all = (0..).zip(&self.of);
        all.filter(|&(_, &place)| place == slot.at + 1).map(|(fd, _)| fd).collect()
    }

    /// Returns the sockets of some sort, for a caller that changes them or the table meanwhile.
    pub(crate) fn slots_where(&mut self, is: impl Fn(&Socket) -> bool) -> Vec<Slot> {
        let all = self.iter().filter(|(_, socket)| is(socket));
        all.map(|(slot, _)| slot).collect()
    }

    /// Returns the descriptors of sockets of some kind.
    pub(crate) fn descriptors_where(&self, is: impl Fn(&Kind) -> bool) -> Vec<RawFd> {
        let all = (0..).zip(&self.of);
        let is = |place: u32| {
            let at = usize::try_from(place).ok()?.checked_sub(1)?;
            self.entries.get(at)?.socket.as_ref().map(|socket| is(&socket.kind))
        };
        all.filter(|&(_, &place)| is(place) == Some(true)).map(|(fd, _)| fd).collect()
    }
}
