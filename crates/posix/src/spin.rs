//! Spin before sleep: whether a wait should poll for a while first, and for how long.
//!
//! Waking an idle core, a virtual one above all, costs more than a round trip on the same host. But
//! a spinning core is taken from other threads. [`Waits`] is what one thread knows of its own
//! waits; it is pure, and the loop that polls is the caller's.

use core::time::Duration;

use crate::config::Spin;

/// Longest time that `auto` spins.
pub const LONGEST: Duration = Duration::from_micros(200);
/// Shortest time that `auto` spins if it spins at all: below that, jitter alone makes it miss.
const SHORTEST: Duration = Duration::from_micros(40);
/// Waits longer than this all count the same: a single one must not outweigh many short ones for
/// long, nor be forgotten at once.
const CAP: Duration = Duration::from_millis(2);

/// One thread's recent waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Smoothed length of a wait, in ns. 0: none seen yet.
    average_ns: u32,
    /// Number of waits that do not spin, because another thread wanted the core.
    put_off: u16,
    /// How often in a row that has happened.
    crowded: u8,
}

impl Waits {
    /// Creates the state of a thread that has not waited yet.
    pub const fn new() -> Self {
        Self { average_ns: 0, put_off: 0, crowded: 0 }
    }

    /// Returns how long the wait that begins now should spin.
    pub fn budget(&mut self, spin: Spin) -> Duration {
        match spin {
            Spin::Off => Duration::ZERO,
            Spin::For(limit) => limit,
            Spin::Auto => self.auto(),
        }
    }

    fn auto(&mut self) -> Duration {
        if self.put_off > 0 {
            self.put_off -= 1;
            return Duration::ZERO;
        }
        let average = Duration::from_nanos(u64::from(self.average_ns));
        if average.is_zero() || average > LONGEST {
            return Duration::ZERO;
        }
        (average * 3).clamp(SHORTEST, LONGEST)
    }

    /// Learns from a wait that took this long, from the call to the answer.
    pub fn learn(&mut self, waited: Duration) {
        let sample = waited.min(CAP).as_nanos() as u32;
        let old = self.average_ns;
        // The new sample has a weight of a quarter: four short waits after a long one spin again.
        self.average_ns = if old == 0 { sample } else { old - old / 4 + sample / 4 }.max(1);
    }

    /// Notes that another thread wanted the core during a spin: sleep for a number of waits
    /// instead, more each time.
    pub fn crowded(&mut self) {
        self.crowded = (self.crowded + 1).min(8);
        self.put_off = 1 << self.crowded;
    }

    /// Notes that a spin was not disturbed.
    pub fn undisturbed(&mut self) {
        self.crowded = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn short_waits_spin_and_long_ones_do_not() {
        let mut waits = Waits::new();
        assert_eq!(waits.budget(Spin::Auto), Duration::ZERO, "nothing known yet");
        waits.learn(70 * US);
        assert!(waits.budget(Spin::Auto) >= 70 * US);
        for _ in 0..3 {
            waits.learn(Duration::from_secs(1));
        }
        assert_eq!(waits.budget(Spin::Auto), Duration::ZERO, "an idle program stays idle");
    }

    #[test]
    fn a_program_that_becomes_busy_again_spins_again_soon() {
        let mut waits = Waits::new();
        waits.learn(Duration::from_secs(10));
        let needed = (1..).find(|_| {
            waits.learn(70 * US);
            !waits.budget(Spin::Auto).is_zero()
        });
        assert!(needed.unwrap() <= 20);
    }

    #[test]
    fn a_crowded_core_is_given_back_for_longer_each_time() {
        let mut waits = Waits::new();
        waits.learn(10 * US);
        let mut pauses = Vec::new();
        for _ in 0..4 {
            waits.crowded();
            pauses.push((0..).find(|_| !waits.budget(Spin::Auto).is_zero()).unwrap());
        }
        assert_eq!(pauses, [2, 4, 8, 16]);
        waits.undisturbed();
        waits.crowded();
        assert_eq!((0..).find(|_| !waits.budget(Spin::Auto).is_zero()), Some(2));
    }

    #[test]
    fn a_fixed_duration_is_always_tried() {
        let mut waits = Waits::new();
        waits.learn(Duration::from_secs(1));
        assert_eq!(waits.budget(Spin::For(50 * US)), 50 * US);
        assert_eq!(waits.budget(Spin::Off), Duration::ZERO);
    }
}
