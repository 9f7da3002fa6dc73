//! Listeners in epoll sets.
//!
//! A listener is a member of both sets that are under one descriptor, the stack's and the kernel's, as connections come by
//! either. To the program it is one member: it is reported once in a call, by edges (EPOLLET) once for what has come, and after
//! it was reported (EPOLLONESHOT) not until it is armed again. So only the stack's set tells the program of it. Its member in
//! the kernel's set is a *herald*: the kernel gives it out under data of ours, which is what the member is known by here, and
//! what it says is kept with the stack's member until that is looked at.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;

use super::{Candidate, Happened, Sets, WAYS, find, ticket};
use crate::Sockets;
use crate::outside::Outside;
use crate::parts::{self, Part};
use crate::table::{Slot, Socket};
use crate::waiting::stand_back;
use crate::world::World;

/// How many a part may have.
const EACH: u64 = 1 << 20;

/// The data by which the kernel's set tells of a listener. It follows the mark of bells ([`World::mark`]), which is random, so
/// that it is no entry's of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Herald(u64);

/// What a herald has said to a thread that holds the lock of another part than that of the listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    pub(crate) part: Part,
    herald: Herald,
    events: u32,
}

impl Herald {
    /// Returns a new one of this part. All processes that are forked from each other have one mark, and may have one set.
    pub(super) fn new(mark: u64, part: Part) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Each process begins elsewhere.
        let first = u64::from(std::process::id()) * 7919;
        let count = COUNT.fetch_add(1, Relaxed).wrapping_add(first) % EACH;
        Self(mark.wrapping_add(1 + u64::from(part.number()) * EACH + count))
    }

    /// Returns the herald that has these data, and the part that it is of.
    fn of(data: u64, mark: u64) -> Option<(Self, Part)> {
        let at = data.wrapping_sub(mark).checked_sub(1)?;
        let part = u8::try_from(at / EACH).ok().filter(|part| usize::from(*part) < parts::MOST)?;
        Some((Self(data), Part::numbered(part)))
    }
}

impl<O: Outside> Sockets<O> {
    /// Does epoll_ctl(2) on a listener's member in the kernel's set. Returns the herald that it is. The caller goes on with the
    /// stack's member, under the same lock: a thread that looked in between would take what a new herald says for nobody's.
    pub(crate) fn control_herald(
        &self,
        world: &mut World,
        (set, operation, fd): (RawFd, i32, RawFd),
        slot: Slot,
        what: Option<Happened>,
    ) -> Result<Option<Herald>, Errno> {
        let (part, mark) = (world.table.part(), world.mark);
        let known = world.table.get(slot).and_then(|socket| Sets::herald_of(socket, set, fd));
        let herald = if operation == libc::EPOLL_CTL_ADD {
            let mut new = std::iter::repeat_with(|| Herald::new(mark, part));
            new.find(|new| !world.sets.heralds.contains_key(new))
        } else {
            known
        };
        let event = what.map(|Happened { events, data }| libc::epoll_event {
            events,
            u64: herald.map_or(data, |Herald(data)| data),
        });
        self.outside.control(set, operation, fd, event)?;
        Ok(herald)
    }

    /// Passes on what heralds have said to a thread that was in another part.
    pub(crate) fn pass_on_heard(&self, heard: Vec<Heard>) {
        for Heard { part, herald, events } in heard {
            self.with(part, |world| {
                if let Some(set) = world.hear(herald, events) {
                    // The calling thread sleeps there, too, or is about to look.
                    world.wake_set(set);
                }
            });
        }
    }
}

impl World {
    /// Takes out of what the kernel's set has told what is not the program's: the bells of sets that are shown, and heralds.
    /// Returns how many events are left.
    pub(crate) fn sort_out(&mut self, told: &mut [libc::epoll_event]) -> usize {
        let (mut kept, mut only_strangers) = (0, !told.is_empty());
        for at in 0..told.len() {
            let libc::epoll_event { events, u64: data } = told[at];
            if data == self.mark {
                only_strangers = false;
                continue;
            }
            match Herald::of(data, self.mark) {
                None => {
                    told[kept] = told[at];
                    kept += 1;
                    only_strangers = false;
                }
                Some((herald, part)) if part == self.table.part() => {
                    only_strangers &= !self.sets.heralds.contains_key(&herald);
                    self.hear(herald, events);
                }
                Some((herald, part)) => {
                    only_strangers = false;
                    self.sets.heard.push(Heard { part, herald, events });
                }
            }
        }
        if only_strangers {
            // Another process has those listeners, and the set is readable until it accepts.
            stand_back();
        }
        kept
    }

    /// Notes what a herald says; returns the set whose member has become one to be looked at. Nobody's says nothing: its listener
    /// is closed here, and open in another process, for which the kernel keeps it in the set.
    fn hear(&mut self, herald: Herald, events: u32) -> Option<RawFd> {
        let Self { table, sets, .. } = self;
        let slot = *sets.heralds.get(&herald)?;
        let set = sets.hear(herald, (slot, table.get(slot)?), events)?;
        sets.have_news = true;
        Some(set)
    }
}

impl Sets {
    /// Has a herald tell of this member from now on.
    pub(crate) fn appoint(
        &mut self,
        herald: Herald,
        (slot, socket): (Slot, &mut Socket),
        (set, fd): (RawFd, RawFd),
    ) {
        if let Some(watch) = find(socket, set, fd) {
            watch.herald = Some(herald);
            self.heralds.insert(herald, slot);
        }
    }

    /// Forgets the herald of what is a member no more.
    pub(crate) fn dismiss(&mut self, herald: Option<Herald>) {
        if let Some(herald) = herald {
            self.heralds.remove(&herald);
        }
    }

    fn herald_of(socket: &mut Socket, set: RawFd, fd: RawFd) -> Option<Herald> {
        find(socket, set, fd)?.herald
    }

    /// Notes what a herald says; returns the set whose member is to be looked at, if that is new. A member that was told and not armed
    /// again since hears nothing: when it is armed the kernel says it anew. Nor does one that was just told by edges.
    pub(super) fn hear(
        &mut self,
        herald: Herald,
        (slot, socket): (Slot, &mut Socket),
        events: u32,
    ) -> Option<RawFd> {
        let watch = socket.watches.iter_mut().find(|watch| watch.herald == Some(herald))?;
        if watch.events & !WAYS == 0 || self.told.contains(&herald) {
            return None;
        }
        (watch.edge, watch.heard) = (true, watch.heard | events);
        if watch.queued.is_some() {
            return None;
        }
        let ticket = ticket(&mut self.tickets);
        watch.queued = Some(ticket);
        self.all.get_mut(&watch.set)?.ready.push_back(Candidate { slot, fd: watch.fd, ticket });
        Some(watch.set)
    }

    /// Returns whether listeners were told by edges in this call: what their heralds have to say is a part of that.
    pub(crate) fn has_told_listeners(&self) -> bool {
        !self.told.is_empty()
    }

    /// Ends a call.
    pub(crate) fn forget_told(&mut self) {
        self.told.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herald_is_known_by_its_data_and_nothing_else_is_one() {
        for mark in [0, 5, u64::MAX, u64::MAX - 3, 1 << 40] {
            for number in [0, 1, 63] {
                let part = Part::numbered(number);
                let herald = Herald::new(mark, part);
                assert_eq!(Herald::of(herald.0, mark), Some((herald, part)));
            }
            assert_eq!(Herald::of(mark, mark), None);
            assert_eq!(Herald::of(mark.wrapping_sub(1), mark), None);
            let beyond = mark.wrapping_add(1 + 64 * EACH);
            assert_eq!(Herald::of(beyond, mark), None);
            assert!(Herald::of(beyond.wrapping_sub(1), mark).is_some());
        }
    }
}
