//! Neglected listeners. Of processes that have a listener from before fork(2) the one that accepts next gets the oldest
//! connection of the kernel's one queue. On the stack each has a queue of its own, and a hash chooses. So a process that sleeps
//! on something else would leave its own waiting: on a lock by which workers take turns at accepting (apache2 prefork, uwsgi),
//! or on a peer that it serves. It leaves the port to the others instead, with all that wait, until it waits there again.
//!
//! Where they do that again and again, the privileged half leaves the port to the kernel for good, and says so. From then on
//! accept(2) is the kernel's as well, where a process that waits costs nothing and one of many is woken.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::one_by_one::Served;
use crate::one_each::Side;
use crate::sleepers::For;
use crate::table::{Kind, Listener, Slot, Socket};
use crate::world::World;

/// How long a connection may wait for a process that does something else.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);
/// How long, up to this and doubled each time, before that is looked at again where no other process was there to take it.
const PATIENCE_ALONE: Duration = Duration::from_millis(640);

/// Why a port that was the stack's is the kernel's.
const TAKE_TURNS: &str = "the processes that listen there take turns, or are busy with others: the kernel's one queue is the \
     better one for them";

/// A listener that other processes have, too.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slot: Slot,
    pub(crate) served: Served,
    /// Since when a connection waits that no thread here is about to accept.
    neglected: Option<Instant>,
    /// How long it may wait.
    patience: Duration,
}

impl Shared {
    fn of(slot: Slot) -> Self {
        Self { slot, served: Served::default(), neglected: None, patience: PATIENCE }
    }

    pub(crate) fn is_of(&self, listener: Slot) -> bool {
        self.slot == listener
    }

    fn is_due(&self) -> bool {
        self.neglected.is_some_and(|since| since.elapsed() >= self.patience)
    }
}

impl World {
    /// Notes listeners as shared before fork(2): they are both processes' from then on.
    pub(crate) fn share_listeners(&mut self) {
        for slot in self.table.slots_where(Socket::is_listener) {
            match self.shared.iter_mut().find(|one| one.slot == slot) {
                Some(one) => one.patience = PATIENCE,
                None => self.shared.push(Shared::of(slot)),
            }
        }
    }

    /// Looks whether connections wait, and whether a thread here sleeps until one comes there.
    pub(crate) fn look_at_shared(&mut self) {
        if self.shared.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.shared);
        all.retain_mut(|one| {
            if self.table.get(one.slot).is_none() {
                return false;
            }
            let waits = !self.is_left(one.slot) && self.is_neglected(one.slot);
            if waits {
                one.neglected.get_or_insert_with(Instant::now);
            } else {
                (one.neglected, one.patience) = (None, PATIENCE);
            }
            true
        });
        self.shared = all;
    }

    /// Returns after how long a connection may have waited for too long.
    pub(crate) fn neglects_after(&self) -> Option<Duration> {
        self.shared.iter().filter(|one| one.neglected.is_some()).map(|one| one.patience).min()
    }

    /// Returns whether one has.
    pub(crate) fn has_neglected(&self) -> bool {
        self.shared.iter().any(Shared::is_due)
    }

    /// Leaves listeners where connections have waited too long to other processes, as each thread here sleeps on something else.
    pub(crate) fn leave_neglected(&mut self) {
        if !self.has_neglected() {
            return;
        }
        let mut all = std::mem::take(&mut self.shared);
        for one in all.iter_mut().filter(|one| one.is_due()) {
            one.neglected = None;
            one.patience = (one.patience * 2).min(PATIENCE_ALONE);
            if self.is_neglected(one.slot) {
                self.leave_for_now(one.slot);
            }
        }
        self.shared = all;
    }

    fn leave_for_now(&mut self, slot: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) else {
            return;
        };
        let local = listener.local;
        if listener.on.is_empty() || !self.host.has_others(local) {
            return;
        }
        let Some(Socket { kind: Kind::Listener(listener), ipv6, asked, .. }) = self.table.get(slot)
        else {
            return;
        };
        let mut left = Listener::new(local, listener.v6_only, listener.backlog);
        std::mem::swap(&mut left.on, &mut listener.on);
        std::mem::swap(&mut left.passed, &mut listener.passed);
        let (ipv6, asked) = (*ipv6, Arc::clone(asked));
        self.leave(left, ipv6, asked);
    }

    /// Listens on the stack again at listeners that were left, when a thread waits at these, or at all members of a set.
    /// `begins`: it did not wait before.
    pub(crate) fn come_back(&mut self, to: &For, begins: bool) {
        if begins {
            self.begins_to_wait(to);
        }
        let all = std::mem::take(&mut self.shared);
        for one in &all {
            if self.is_left(one.slot) && self.is_for(to, one.slot) {
                self.ensure_listening(one.slot);
            }
        }
        self.shared = all;
    }

    /// Hears at which ports connections are the kernel's from now on.
    pub(crate) fn hear_of_kernels(&mut self) {
        while let Some(local) = self.host.next_kernels() {
            let is_it = |one: SocketAddr| canonical(one) == canonical(local);
            let slots = self.table.slots_where(|socket| match &socket.kind {
                Kind::Listener(listener) => {
                    // One that was left meanwhile hears of it when it is listened at again.
                    is_it(listener.local) && !listener.on.is_empty()
                }
                _ => false,
            });
            for slot in slots {
                self.forgo(slot);
            }
        }
    }

    /// Gives what comes to this listener to the kernel, and what is there to the listener. Its claim stays: by that the
    /// privileged half knows that there is a process here to be told so, too.
    fn forgo(&mut self, slot: Slot) {
        self.keep_what_comes(slot);
        self.is_told_of_kernels(slot);
    }

    /// Notes that a listener is claimed, and that what comes there is the kernel's.
    pub(crate) fn is_told_of_kernels(&mut self, slot: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) else {
            return;
        };
        let why = self.one_each.reason(Side::Accepted).unwrap_or(TAKE_TURNS);
        listener.is_kernels = true;
        listener.reason = Some(why.to_owned());
        for fd in self.table.descriptors_of(slot) {
            (self.tell)(fd, Err(why));
        }
    }

    /// Returns whether all that may come to a listener comes to the kernel's, and will. Where an instance has the stack another
    /// one may replace it, and take what was refused before.
    pub(crate) fn is_kernels_alone(&mut self, slot: Slot) -> bool {
        if self.lost.is_some() || self.links().iter().any(Link::is_attached) {
            return false;
        }
        let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) else {
            return false;
        };
        let is_alone = listener.reason.is_some() && listener.passed.is_empty();
        is_alone && !self.is_to_inherit(slot)
    }

    fn is_neglected(&mut self, slot: Slot) -> bool {
        self.somebody_waits(slot) && !self.is_awaited(slot)
    }

    fn is_left(&mut self, slot: Slot) -> bool {
        self.table.get(slot).is_some_and(
            |socket| matches!(&socket.kind, Kind::Listener(listener) if listener.on.is_empty()),
        )
    }

    /// Returns whether a thread sleeps until a connection comes to this listener.
    fn is_awaited(&mut self, slot: Slot) -> bool {
        let sleepers = std::mem::take(&mut self.sleepers);
        let part = self.table.part();
        let awaited = sleepers.is_any(part, |waits_for| self.is_for(waits_for, slot));
        self.sleepers = sleepers;
        awaited
    }

    pub(crate) fn is_for(&mut self, waits_for: &For, slot: Slot) -> bool {
        let For::Set(set) = waits_for else { return waits_for.is_of(slot) };
        let watches = self.table.get(slot).map(|socket| &socket.watches);
        watches.is_some_and(|watches| watches.iter().any(|watch| watch.waits_in(*set)))
    }
}

/// Returns an end in its one canonical form: an IPv4 address may be written as an IPv6 one.
fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}
