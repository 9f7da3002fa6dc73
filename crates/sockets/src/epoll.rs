//! Epoll sets (epoll(7)), as far as members on the stack are concerned. The kernel's members are in the kernel's set of
//! the same descriptor.

mod heralds;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;

use crate::epoll::heralds::{Heard, Herald};
use crate::handing::Watched;
use crate::nested::Shown;
use crate::table::{Slot, Socket};
use crate::world::READABLE;

const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
/// The events that are told whether asked for or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// The bits that do not name an event.
pub(crate) const WAYS: u32 = EDGE | ONE_SHOT | libc::EPOLLWAKEUP as u32 | EXCLUSIVE;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What may be combined with it (EPOLLEXCLUSIVE_OK_BITS of fs/eventpoll.c).
const WITH_EXCLUSIVE: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLWAKEUP) as u32 | ALWAYS | EDGE | EXCLUSIVE;

/// A socket's membership in a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    set: RawFd,
    /// The descriptor under which it was entered.
    fd: RawFd,
    /// EPOLLIN and its kin, with EPOLLET and EPOLLONESHOT.
    events: u32,
    data: u64,
    /// Whether something has happened since it was last told.
    edge: bool,
    /// Its ticket among those to be looked at. One that was there under its name before does not count.
    queued: Option<Ticket>,
    /// What tells of a listener's connections that come to the kernel's.
    herald: Option<Herald>,
    /// What that has said and was not looked at yet.
    heard: u32,
}

impl Watch {
    /// Returns whether that set is to be told of data, or of a connection that can be accepted.
    pub(crate) fn waits_in(&self, set: RawFd) -> bool {
        self.is_of(set) && self.events & READABLE != 0
    }

    pub(crate) fn is_of(&self, set: RawFd) -> bool {
        self.set == set
    }

    /// Renames a set, which is known by another number from now on.
    pub(crate) fn rename(&mut self, set: RawFd, other: RawFd) {
        if self.is_of(set) {
            self.set = other;
        }
    }

    pub(crate) fn herald(&self) -> Option<Herald> {
        self.herald
    }

    /// Returns it as the kernel would be told.
    pub(crate) fn told(&self) -> Watched {
        let event = libc::epoll_event { events: self.events, u64: self.data };
        Watched { set: self.set, fd: self.fd, event }
    }

    /// Returns what is to be told if `ready` is what holds now.
    fn wants(&self, ready: u32) -> Option<u32> {
        let events = ready & self.events;
        let by_edge = self.events & EDGE != 0;
        // One that was told once (EPOLLONESHOT) wants nothing more, not even errors, until it is changed.
        let nothing = events == 0 || self.events & !WAYS == 0 || by_edge && !self.edge;
        (!nothing).then_some(events)
    }
}

/// The number of a queued member: sockets and descriptors are closed and come again under the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ticket(u64);

/// A queued member, which may have something to tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) slot: Slot,
    fd: RawFd,
    ticket: Ticket,
}

/// An event to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

#[derive(Debug)]
pub(crate) struct Set {
    /// Unique among all sets: its descriptor's number comes again.
    serial: u64,
    /// Members that may have something to tell.
    ready: VecDeque<Candidate>,
    /// Which of these are members no more.
    dead: HashSet<Ticket>,
    members: usize,
    /// How often in a row only these have told something, and the kernel's were not asked.
    told_by_stack: u32,
    /// How it is shown to the kernel, if a thread waits for it as for a descriptor.
    shown: Option<Shown>,
}

impl Set {
    fn new() -> Self {
        /// How many sets there were, in all of the process's parts.
        static SERIALS: AtomicU64 = AtomicU64::new(0);
        Self {
            serial: SERIALS.fetch_add(1, Relaxed),
            ready: VecDeque::new(),
            dead: HashSet::new(),
            members: 0,
            told_by_stack: 0,
            shown: None,
        }
    }

    /// Notes that a member has left, which is among those to be looked at if it has a ticket. A program may enter and remove members
    /// without ever waiting: there are never many more tickets of such than of others.
    fn leave(&mut self, queued: Option<Ticket>) {
        /// So few are not worth a look at all.
        const FEW: usize = 32;
        self.members = self.members.saturating_sub(1);
        let Some(queued) = queued else { return };
        let Self { ready, dead, .. } = self;
        dead.insert(queued);
        if dead.len() > FEW && dead.len() > ready.len() / 2 {
            ready.retain(|one| !dead.contains(&one.ticket));
            dead.clear();
        }
    }

    /// Takes the next of the members to be looked at.
    fn next(&mut self) -> Option<Candidate> {
        loop {
            let next = self.ready.pop_front()?;
            if self.dead.is_empty() || !self.dead.remove(&next.ticket) {
                return Some(next);
            }
        }
    }
}

/// Hashes descriptors. The kernel gives them out, the lowest first: nobody chooses them so that they collide, and each event is
/// looked up three times.
#[derive(Debug, Default)]
struct ByDescriptor(u64);

impl Hasher for ByDescriptor {
    fn write_i32(&mut self, fd: RawFd) {
        // Fibonacci hashing (Knuth, TAOCP 6.4): the table looks at the highest bits, too.
        self.0 = u64::from(fd.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = (self.0 << 8 | u64::from(*octet)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All sets that have members on the stack.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    all: HashMap<RawFd, Set, BuildHasherDefault<ByDescriptor>>,
    /// Those that are shown to the kernel.
    shown: Vec<RawFd>,
    /// How many members were queued so far.
    tickets: u64,
    /// The listeners that heralds tell of.
    heralds: BTreeMap<Herald, Slot>,
    /// Those of members that were told by edges in the call that is being made.
    told: Vec<Herald>,
    /// What those of other parts have said.
    pub(crate) heard: Vec<Heard>,
    /// Whether one has said something that has a member looked at.
    pub(crate) have_news: bool,
}

fn ticket(tickets: &mut u64) -> Ticket {
    *tickets += 1;
    Ticket(*tickets)
}

impl Sets {
    pub(crate) fn has(&self, set: RawFd) -> bool {
        self.all.contains_key(&set)
    }

    /// Returns what tells a set from those that had its number before it.
    pub(crate) fn serial(&self, set: RawFd) -> Option<u64> {
        self.all.get(&set).map(|set| set.serial)
    }

    pub(crate) fn add(
        &mut self,
        set: RawFd,
        (slot, socket): (Slot, &mut Socket),
        fd: RawFd,
        what: Happened,
    ) -> Result<(), Errno> {
        if find(socket, set, fd).is_some() {
            return Err(Errno::EEXIST);
        }
        let Happened { events, data } = what;
        if events & EXCLUSIVE != 0 && events & !WITH_EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        let events = events | ALWAYS;
        let ticket = ticket(&mut self.tickets);
        let (queued, herald, heard) = (Some(ticket), None, 0);
        let watch = Watch { set, fd, events, data, edge: true, queued, herald, heard };
        socket.watches.push(watch);
        let set = self.all.entry(set).or_insert_with(Set::new);
        set.members += 1;
        set.ready.push_back(Candidate { slot, fd, ticket });
        Ok(())
    }

    pub(crate) fn change(
        &mut self,
        set: RawFd,
        (slot, socket): (Slot, &mut Socket),
        fd: RawFd,
        what: Happened,
    ) -> Result<(), Errno> {
        let watch = find(socket, set, fd).ok_or(Errno::ENOENT)?;
        if (watch.events | what.events) & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        (watch.events, watch.data, watch.edge) = (what.events | ALWAYS, what.data, true);
        // The kernel, which was told of the change before, says again what holds.
        watch.heard = 0;
        if watch.queued.is_none() {
            let ticket = ticket(&mut self.tickets);
            watch.queued = Some(ticket);
            self.all.entry(set).or_insert_with(Set::new).ready.push_back(Candidate {
                slot,
                fd,
                ticket,
            });
        }
        Ok(())
    }

    pub(crate) fn remove(
        &mut self,
        set: RawFd,
        socket: &mut Socket,
        fd: RawFd,
    ) -> Result<(), Errno> {
        let Watch { queued, herald, .. } = *find(socket, set, fd).ok_or(Errno::ENOENT)?;
        socket.watches.retain(|watch| watch.set != set || watch.fd != fd);
        self.dismiss(herald);
        self.leave(set, queued);
        Ok(())
    }

    /// Enters a member of its parent's sets in a child of fork, too.
    pub(crate) fn inherit(&mut self, slot: Slot, socket: &mut Socket) {
        for watch in &mut socket.watches {
            let ticket = ticket(&mut self.tickets);
            (watch.edge, watch.queued) = (true, Some(ticket));
            self.heralds.extend(watch.herald.map(|herald| (herald, slot)));
            let set = self.all.entry(watch.set).or_insert_with(Set::new);
            set.members += 1;
            set.ready.push_back(Candidate { slot, fd: watch.fd, ticket });
        }
    }

    fn leave(&mut self, set: RawFd, queued: Option<Ticket>) {
        if let Some(at) = self.all.get_mut(&set) {
            at.leave(queued);
        }
    }

    /// Removes a closed socket from all sets.
    pub(crate) fn forget_socket(&mut self, socket: &Socket) {
        for watch in &socket.watches {
            self.dismiss(watch.herald);
            self.leave(watch.set, watch.queued);
        }
    }

    /// Forgets a set that is closed; returns whether it had members of ours.
    pub(crate) fn forget_set(&mut self, set: RawFd) -> bool {
        self.shown.retain(|shown| *shown != set);
        self.all.remove(&set).is_some()
    }

    /// Notes that a set has another number from now on.
    pub(crate) fn rename(&mut self, set: RawFd, other: RawFd) {
        self.shown.iter_mut().filter(|shown| **shown == set).for_each(|shown| *shown = other);
        let Some(Set { ready, dead, members, shown, .. }) = self.all.remove(&set) else { return };
        // Something may have been entered under that number in between.
        let at = self.all.entry(other).or_insert_with(Set::new);
        at.members += members;
        at.ready.extend(ready);
        at.dead.extend(dead);
        at.shown = at.shown.take().or(shown);
    }

    /// Queues a socket to which something has happened in its sets. Calls `ring` for each in which it was not queued yet.
    pub(crate) fn note(&mut self, slot: Slot, socket: &mut Socket, mut ring: impl FnMut(RawFd)) {
        for watch in &mut socket.watches {
            watch.edge = true;
            if watch.events & !WAYS == 0 {
                continue;
            }
            let Some(set) = self.all.get_mut(&watch.set) else { continue };
            if let Some(shown) = &mut set.shown {
                shown.noted = true;
            }
            if watch.queued.is_none() {
                let ticket = ticket(&mut self.tickets);
                watch.queued = Some(ticket);
                set.ready.push_back(Candidate { slot, fd: watch.fd, ticket });
                ring(watch.set);
            }
        }
    }

    /// Returns how many members are to be looked at.
    pub(crate) fn candidates(&self, set: RawFd) -> usize {
        self.all.get(&set).map_or(0, |set| set.ready.len().saturating_sub(set.dead.len()))
    }

    /// Returns how often in a row only the stack's members of a set have told something.
    pub(crate) fn told_by_stack(&self, set: RawFd) -> u32 {
        self.all.get(&set).map_or(0, |set| set.told_by_stack)
    }

    /// Notes how many of the stack's members have told something, after the kernel's if these were asked first.
    pub(crate) fn note_told(&mut self, set: RawFd, kernels_first: bool, ours: usize) {
        if let Some(set) = self.all.get_mut(&set) {
            let before = if kernels_first { 0 } else { set.told_by_stack };
            set.told_by_stack = before + u32::from(ours > 0);
        }
    }

    /// Takes the next of the members to be looked at.
    pub(crate) fn next(&mut self, set: RawFd) -> Option<Candidate> {
        self.all.get_mut(&set)?.next()
    }

    pub(crate) fn all_candidates(&self, set: RawFd) -> Vec<(Slot, RawFd)> {
        self.all
            .get(&set)
            .map_or_else(Vec::new, |set| set.ready.iter().map(|one| (one.slot, one.fd)).collect())
    }

    pub(crate) fn is_shown(&self, set: RawFd) -> bool {
        self.all.get(&set).is_some_and(|set| set.shown.is_some())
    }

    pub(crate) fn shown(&self) -> &[RawFd] {
        &self.shown
    }

    /// Returns the descriptors that show them.
    pub(crate) fn bells(&self) -> impl Iterator<Item = RawFd> {
        self.all.values().filter_map(|set| Some(set.shown.as_ref()?.descriptor()))
    }

    pub(crate) fn shown_of(&mut self, set: RawFd) -> Option<&mut Shown> {
        self.all.get_mut(&set)?.shown.as_mut()
    }

    pub(crate) fn show(&mut self, set: RawFd, shown: Shown) {
        self.all.entry(set).or_insert_with(Set::new).shown = Some(shown);
        self.shown.push(set);
    }

    /// Has a thread that waits for this set make turns from now on.
    pub(crate) fn adopt(&mut self, set: RawFd) {
        self.all.entry(set).or_insert_with(Set::new);
    }

    /// Returns what is to be told of a member if `ready` is what holds of it now. A level-triggered one stays among those to
    /// be looked at.
    pub(crate) fn tell(
        &mut self,
        set: RawFd,
        candidate: Candidate,
        socket: &mut Socket,
        ready: u32,
    ) -> Option<Happened> {
        let Candidate { slot, fd, ticket: queued } = candidate;
        let watch = find(socket, set, fd).filter(|watch| watch.queued == Some(queued))?;
        watch.queued = None;
        let ready = ready | std::mem::take(&mut watch.heard);
        let events = watch.wants(ready)?;
        let by_edge = watch.events & EDGE != 0;
        watch.edge = false;
        let told = Happened { events, data: watch.data };
        if watch.events & ONE_SHOT != 0 {
            watch.events &= WAYS;
        } else if by_edge {
            self.told.extend(watch.herald);
        } else {
            let ticket = ticket(&mut self.tickets);
            watch.queued = Some(ticket);
            if let Some(set) = self.all.get_mut(&set) {
                set.ready.push_back(Candidate { slot, fd, ticket });
            }
        }
        Some(told)
    }
}

/// Returns whether a member that is to be looked at has something to tell.
pub(crate) fn would_tell(socket: &mut Socket, (set, fd): (RawFd, RawFd), ready: u32) -> bool {
    find(socket, set, fd)
        .is_some_and(|watch| watch.queued.is_some() && watch.wants(ready | watch.heard).is_some())
}

fn find(socket: &mut Socket, set: RawFd, fd: RawFd) -> Option<&mut Watch> {
    socket.watches.iter_mut().find(|watch| watch.set == set && watch.fd == fd)
}
