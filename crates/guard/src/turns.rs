//! Processes that take turns at accepting, or are busy with others most of the time, are served better by the kernel's one queue
//! than by a queue of the stack's each, which they leave to one another again and again. It is theirs then.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// So often within [`PERIOD`] a place is left to others by those who sleep, before it is the kernel's.
const LEAVES: u32 = 4;
const PERIOD: Duration = Duration::from_secs(10);

/// What is left, and how often.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    leaves: HashMap<SocketAddr, (Instant, u32)>,
    given_up: HashSet<SocketAddr>,
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
        *count >= LEAVES && self.give_up(place)
    }

    /// The kernel has it for good from now on. Whether that is new.
    pub(crate) fn give_up(&mut self, place: SocketAddr) -> bool {
        self.given_up.insert(place)
    }

    /// Whether the kernel has it for good.
    pub(crate) fn has_given_up(&self, place: &SocketAddr) -> bool {
        self.given_up.contains(place)
    }

    /// Other programs begin anew.
    pub(crate) fn keep_only(&mut self, held: &HashSet<SocketAddr>) {
        self.leaves.retain(|place, _| held.contains(place));
        self.given_up.retain(|place| held.contains(place));
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
}
