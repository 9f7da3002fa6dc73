//! A test of whether events coincide with the ticks of a clock.
//!
//! A kernel's timers expire at its ticks (CONFIG_HZ: every 4 or 10 ms; at 1000 Hz its wheel has a
//! granularity of 8 ms for timers of 200 ms, kernel/time/timer.c); a program that has slept or
//! computed goes on anywhere between two of them. 300 Hz is left out: hardly a server has it, and
//! each further rate makes a program's own beat look like a timer's.

use std::f64::consts::TAU;
use std::time::Duration;

/// How often a second a long timer of Linux can expire, by how the kernel was configured.
const RATES_HZ: [f64; 3] = [100.0, 125.0, 250.0];

/// Moments, as unit vectors on a dial that turns once with each tick of a clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ticks {
    sums: [(f32, f32); RATES_HZ.len()],
    count: u32,
}

impl Ticks {
    /// Adds a moment.
    pub(crate) fn record(&mut self, at: Duration) {
        self.count += 1;
        for (sum, hz) in self.sums.iter_mut().zip(RATES_HZ) {
            let turn = f64::from(at.subsec_nanos()) / 1e9 * hz;
            let (sin, cos) = (turn.fract() * TAU).sin_cos();
            sum.0 += cos as f32;
            sum.1 += sin as f32;
        }
    }

    /// Returns whether the moments point in one direction more than chance would explain (Rayleigh's
    /// test: one in four hundred, for one of the clocks one in a hundred). Needs seven at least.
    pub(crate) fn are_kept(self) -> bool {
        const UNLIKELY: f32 = 6.0;
        let count = self.count as f32;
        self.sums.iter().any(|(cos, sin)| (cos * cos + sin * sin) / count.max(1.0) >= UNLIKELY)
    }

    /// Returns whether there are enough moments to tell.
    pub(crate) fn can_tell(self) -> bool {
        self.count >= 7
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Ticks;

    fn ticks(nth_us: impl Fn(u64) -> u64) -> Ticks {
        let mut ticks = Ticks::default();
        (0..12)
            .for_each(|n| ticks.record(Duration::from_micros(1_700_000_000_000_000 + nth_us(n))));
        ticks
    }

    #[test]
    fn a_timer_of_the_kernel_is_told_from_a_programs_pauses() {
        assert!(ticks(|n| n * 208_000 + n * n % 5 * 4_000 + n % 3 * 40).are_kept());
        assert!(!ticks(|n| n * 203_137 + n * n * 719).are_kept());
        assert!(!Ticks::default().are_kept());
    }
}
