//! Ports that are given up to the kernel. Processes that take turns at accepting, or are mostly busy with other things, are
//! better served by the kernel's single queue than by a queue each on the stack, whose connections they leave to one another
//! again and again. The same goes for programs that say so themselves, as each of their threads waits for one connection.
//!
//! Connections that are on their way to their stacks are passed around until each reaches a process that accepts, so none of
//! these may stop listening before that is over. Then they are told, and accept as they would without the stack.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often within [`PERIOD`] sleeping processes must leave a place to others before it becomes the kernel's.
const LEAVES: u32 = 4;
const PERIOD: Duration = Duration::from_secs(10);
/// How long a place must have been the kernel's with no connection passed on there: a handshake takes a second and a half at
/// most, and a neglected connection is passed on within a second.
const SETTLES: Duration = Duration::from_secs(2);

/// Places that are left to others, and how often; and those that were given up.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    leaves: HashMap<SocketAddr, (Instant, u32)>,
    given_up: HashMap<SocketAddr, GivenUp>,
}

/// A place that the kernel has for good.
#[derive(Debug)]
struct GivenUp {
    /// When it was given up, or a connection was last passed on there.
    since: Instant,
    /// Whether new connections have ceased to come to a stack.
    settles: bool,
    /// Whether none is on its way to a stack any more.
    is_settled: bool,
}

impl Turns {
    /// Counts that a process is about to leave a place to others. True if it has happened too often.
    pub(crate) fn note(&mut self, place: SocketAddr) -> bool {
        self.note_at(place, Instant::now())
    }

    fn note_at(&mut self, place: SocketAddr, now: Instant) -> bool {
        let (since, count) = self.leaves.entry(place).or_insert((now, 0));
        if now - *since > PERIOD {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count >= LEAVES && self.give_up_at(place, now)
    }

    /// Gives a place to the kernel for good. True if that is new.
    pub(crate) fn give_up(&mut self, place: SocketAddr) -> bool {
        self.give_up_at(place, Instant::now())
    }

    fn give_up_at(&mut self, place: SocketAddr, since: Instant) -> bool {
        let is_new = !self.has_given_up(&place);
        self.given_up.entry(place).or_insert(GivenUp { since, settles: true, is_settled: false });
        is_new
    }

    /// Tells whether the kernel has a place for good.
    pub(crate) fn has_given_up(&self, place: &SocketAddr) -> bool {
        self.given_up.contains_key(place)
    }

    /// Tells whether, besides, no connection is on its way to a stack there.
    pub(crate) fn has_settled(&self, place: &SocketAddr) -> bool {
        self.given_up.get(place).is_some_and(|it| it.is_settled)
    }

    /// Records that connections still come to a stack there, which must keep listening.
    pub(crate) fn never_settles(&mut self, place: &SocketAddr) {
        if let Some(given_up) = self.given_up.get_mut(place) {
            given_up.settles = false;
        }
    }

    /// Records that a connection is passed on there.
    pub(crate) fn passes(&mut self, place: &SocketAddr) {
        if let Some(given_up) = self.given_up.get_mut(place) {
            given_up.since = Instant::now();
        }
    }

    /// Returns how long until the next place may have settled.
    pub(crate) fn settles_after(&self) -> Option<Duration> {
        let waits = self.given_up.values().filter(|it| it.settles && !it.is_settled);
        waits.map(|it| SETTLES.saturating_sub(it.since.elapsed())).min()
    }

    /// Settles the places that are due; tells whether there were any.
    pub(crate) fn settle(&mut self) -> bool {
        self.settle_at(Instant::now())
    }

    fn settle_at(&mut self, now: Instant) -> bool {
        let is_due = |it: &&mut GivenUp| it.settles && !it.is_settled && now - it.since >= SETTLES;
        let due = self.given_up.values_mut().filter(is_due);
        due.map(|it| it.is_settled = true).count() > 0
    }

    /// Forgets all places but these: later programs start anew.
    pub(crate) fn keep_only(&mut self, held: &HashSet<SocketAddr>) {
        self.leaves.retain(|place, _| held.contains(place));
        self.given_up.retain(|place, _| held.contains(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_left_again_and_again_is_given_up_as_long_as_somebody_has_it() {
        let (place, other) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.1:81".parse().unwrap());
        let (mut turns, begun) = (Turns::default(), Instant::now());
        // Now and then does no harm.
        for at in 0..100 {
            assert!(!turns.note_at(other, begun + PERIOD / 2 * at), "{at}");
        }
        let often: Vec<_> =
            (0..LEAVES + 2).map(|at| turns.note_at(place, begun + PERIOD / 32 * at)).collect();
        assert_eq!(often.iter().position(|it| *it), Some(LEAVES as usize - 1));
        assert_eq!(often.iter().filter(|it| **it).count(), 1);
        assert!(turns.has_given_up(&place) && !turns.has_given_up(&other));
        turns.keep_only(&[other].into());
        assert!(!turns.has_given_up(&place));
    }

    #[test]
    fn what_was_given_up_settles_when_nobody_was_passed_on_for_a_while() {
        let (place, begun) = ("10.0.0.1:80".parse().unwrap(), Instant::now());
        let mut turns = Turns::default();
        assert!(turns.give_up_at(place, begun) && !turns.give_up_at(place, begun + SETTLES));
        assert!(!turns.settle_at(begun + SETTLES * 9 / 10) && !turns.has_settled(&place));
        assert!(turns.settles_after().is_some_and(|after| after <= SETTLES));
        // As if it had been given up earlier.
        turns.given_up.get_mut(&place).unwrap().since = begun - SETTLES;
        turns.passes(&place);
        assert!(!turns.settle());
        let last = turns.given_up[&place].since;
        assert!(turns.settle_at(last + SETTLES) && turns.has_settled(&place));
        assert!(!turns.settle_at(last + SETTLES * 2) && turns.settles_after().is_none(), "once");
        let other = "10.0.0.1:81".parse().unwrap();
        assert!(turns.give_up_at(other, begun));
        turns.never_settles(&other);
        assert!(!turns.settle_at(begun + SETTLES * 9) && turns.settles_after().is_none());
    }
}
