//! Processes that take turns at accepting, or are busy with others most of the time, are served better by the kernel's one queue
//! than by a queue of the stack's each, which they leave to one another again and again. It is theirs then. So it is with programs
//! that say so of themselves, as their threads wait one for each connection.
//!
//! Who is under way to their stacks is passed among them until each is where somebody accepts, so nobody may be deaf to that
//! before it is over. Then they are told, and accept as without the stack.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// So often within [`PERIOD`] a place is left to others by those who sleep, before it is the kernel's.
const LEAVES: u32 = 4;
const PERIOD: Duration = Duration::from_secs(10);
/// So long a place has to have been the kernel's, and nobody passed on there: a handshake takes a second and a half at the most,
/// and who is neglected is passed on within a second.
const SETTLES: Duration = Duration::from_secs(2);

/// What is left, and how often.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    leaves: HashMap<SocketAddr, (Instant, u32)>,
    given_up: HashMap<SocketAddr, GivenUp>,
}

/// The kernel has it for good.
#[derive(Debug)]
struct GivenUp {
    /// Since when, or since somebody was passed on there.
    since: Instant,
    /// Whether nobody comes to a stack any more.
    settles: bool,
    /// Whether nobody is under way any more.
    is_settled: bool,
}

impl Turns {
    /// A process is about to leave a place to others. Whether that is once too often.
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

    /// The kernel has it for good from now on. Whether that is new.
    pub(crate) fn give_up(&mut self, place: SocketAddr) -> bool {
        self.give_up_at(place, Instant::now())
    }

    fn give_up_at(&mut self, place: SocketAddr, since: Instant) -> bool {
        let is_new = !self.has_given_up(&place);
        self.given_up.entry(place).or_insert(GivenUp { since, settles: true, is_settled: false });
        is_new
    }

    /// Whether the kernel has it for good.
    pub(crate) fn has_given_up(&self, place: &SocketAddr) -> bool {
        self.given_up.contains_key(place)
    }

    /// The same, and nobody is under way to a stack there.
    pub(crate) fn has_settled(&self, place: &SocketAddr) -> bool {
        self.given_up.get(place).is_some_and(|it| it.is_settled)
    }

    /// Some still come to a stack there, who has to go on listening.
    pub(crate) fn never_settles(&mut self, place: &SocketAddr) {
        if let Some(given_up) = self.given_up.get_mut(place) {
            given_up.settles = false;
        }
    }

    /// Somebody is passed on there.
    pub(crate) fn passes(&mut self, place: &SocketAddr) {
        if let Some(given_up) = self.given_up.get_mut(place) {
            given_up.since = Instant::now();
        }
    }

    /// When the next may have settled.
    pub(crate) fn settles_after(&self) -> Option<Duration> {
        let waits = self.given_up.values().filter(|it| it.settles && !it.is_settled);
        waits.map(|it| SETTLES.saturating_sub(it.since.elapsed())).min()
    }

    /// Whether some have settled by now.
    pub(crate) fn settle(&mut self) -> bool {
        self.settle_at(Instant::now())
    }

    fn settle_at(&mut self, now: Instant) -> bool {
        let is_due = |it: &&mut GivenUp| it.settles && !it.is_settled && now - it.since >= SETTLES;
        let due = self.given_up.values_mut().filter(is_due);
        due.map(|it| it.is_settled = true).count() > 0
    }

    /// Other programs begin anew.
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
        // Now and then is no harm.
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
