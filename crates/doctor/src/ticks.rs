//! A test of whether pauses end at the ticks of a clock.
//!
//! A kernel's timers expire at its ticks (CONFIG_HZ: every 4 or 10 ms; at 1000 Hz its wheel has a
//! granularity of 8 ms for timers of 200 ms, kernel/time/timer.c); a program that has slept or
//! computed goes on anywhere between two of them. 300 Hz is left out: hardly a server has it, and
//! each further rate makes a program's own beat look like a timer's.

use std::f64::consts::TAU;
use std::time::Duration;

/// How often a second a long timer of Linux can expire, by how the kernel was configured.
const RATES_HZ: [f64; 3] = [100.0, 125.0, 250.0];

/// The ticks of all of these clocks coincide this often.
const ALL_TICK: Duration = Duration::from_millis(40);

/// How many pauses are kept.
const KEPT: usize = 32;

/// Fewer pauses than this tell nothing.
const ENOUGH: usize = 7;

/// When pauses ended, and how long they were: of every n-th, where n doubles whenever there are too many.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ticks {
    /// The end of each, in nanoseconds since all clocks ticked, and its length in microseconds.
    kept: Vec<(u32, u32)>,
    /// Every `1 << stride`-th is kept.
    stride: u8,
    seen: u32,
}

impl Ticks {
    /// Adds a pause.
    pub(crate) fn record(&mut self, since: Duration, until: Duration) {
        let due = self.seen.trailing_zeros() >= u32::from(self.stride) || self.seen == 0;
        self.seen = self.seen.wrapping_add(1);
        if !due {
            return;
        }
        if self.kept.len() == KEPT {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.stride = (self.stride + 1).min(31);
        }
        let length_us = u32::try_from(until.saturating_sub(since).as_micros());
        let period_ns = ALL_TICK.subsec_nanos();
        self.kept.push((until.subsec_nanos() % period_ns, length_us.unwrap_or(u32::MAX)));
    }

    /// Returns whether the pauses ended at the ticks of one of the clocks.
    pub(crate) fn are_kept(&self) -> bool {
        if !self.can_tell() {
            return false;
        }
        // What kept a program, or its kernel, from going on made some pauses longer, to the next tick as
        // often as not; the shorter half is what was meant.
        let mut shorter = self.kept.clone();
        shorter.sort_unstable_by_key(|(_, length_us)| *length_us);
        shorter.truncate(self.kept.len().div_ceil(2));
        RATES_HZ.into_iter().any(|hz| self.are_kept_at(hz, &shorter))
    }

    /// Returns whether they ended at the ticks of this clock: all of them point in one direction, more than
    /// chance would explain (Rayleigh's test: one in four hundred), the shorter ones exactly, and more
    /// exactly than they are of one length, for what goes on again after a sleep has its own beat.
    fn are_kept_at(&self, hz: f64, shorter: &[(u32, u32)]) -> bool {
        const UNLIKELY: f64 = 6.0;
        const EXACT: f64 = 0.03;
        let ends = |pauses: &[(u32, u32)]| {
            scatter(pauses.iter().map(|(end_ns, _)| f64::from(*end_ns) / 1e9 * hz))
        };
        let lengths = scatter(shorter.iter().map(|(_, us)| f64::from(*us) / 1e6 * hz));
        let together = 1.0 - ends(&self.kept);
        let scatter = ends(shorter);
        together * together * self.kept.len() as f64 >= UNLIKELY
            && scatter <= EXACT
            && scatter < lengths * 0.75
    }

    /// Returns whether there are enough pauses to tell.
    pub(crate) fn can_tell(&self) -> bool {
        self.kept.len() >= ENOUGH
    }
}

/// Returns how far directions, in turns, are from being one: 0 if they are, about 1 if there is none.
fn scatter(turns: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = turns.len().max(1) as f64;
    let (mut across, mut up) = (0.0, 0.0);
    for turn in turns {
        let (sin, cos) = (turn.fract() * TAU).sin_cos();
        across += cos;
        up += sin;
    }
    1.0 - f64::hypot(across, up) / count
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{KEPT, Ticks};

    /// Plays pauses, each of which begins 60 µs after the end of the one before.
    fn ticks(count: u64, end_us: impl Fn(u64, u64) -> u64) -> Ticks {
        let mut ticks = Ticks::default();
        let mut now_us = 1_700_000_000_002_916;
        for n in 0..count {
            let since = now_us + 60;
            now_us = end_us(n, since);
            ticks.record(Duration::from_micros(since), Duration::from_micros(now_us));
        }
        ticks
    }

    fn next_tick(us: u64) -> u64 {
        us.next_multiple_of(4_000)
    }

    #[test]
    fn a_timer_of_the_kernel_is_told_from_a_programs_pauses() {
        for count in [7, 12, 500] {
            // Asked again at once, each pause is as long as the one before.
            let prompt = |n, us| next_tick(us + 204_000) + n % 3 * 40;
            assert!(ticks(count, prompt).are_kept());
            let at_leisure = |n, us| next_tick(us + 204_000 + n * n % 5 * 4_719) + n % 3 * 40;
            assert!(ticks(count, at_leisure).are_kept());
            assert!(!ticks(count, |n, us| us + 203_137 + n * n * 719 % 9_000).are_kept());
        }
        assert!(!ticks(6, |_, us| next_tick(us + 204_000)).are_kept());
        assert!(ticks(500, |_, us| us + 200_000).kept.len() <= KEPT);
    }

    /// A busy host, or a virtual machine, wakes a program some milliseconds late, at a tick.
    #[test]
    fn a_sleep_is_none_though_some_of_it_ends_late() {
        for late in [1, 3, 5, 8] {
            let sleep = |n, us| {
                let wake = us + 200_100 + n % 5 * 12;
                if n < late { next_tick(wake) } else { wake }
            };
            assert!(!ticks(20, sleep).are_kept(), "{late}");
        }
        // And a timer is one, though some of what it lets go leaves late.
        for late in [1, 3, 5, 8] {
            let timer = |n, us| next_tick(us + 204_000) + if n < late { n * 917 + 80 } else { 30 };
            assert!(ticks(20, timer).are_kept(), "{late}");
        }
    }
}
