//! The random choices of a round, which the same seed repeats.

use std::time::Duration;

/// Random numbers (xorshift64*).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64, round: u64) -> Self {
        let mut dice = Self((seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        // After some numbers, similar seeds have diverged.
        for _ in 0..8 {
            dice.next();
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `limit`, or 0 if that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from((self.next() >> 16) % limit).unwrap_or(0)
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(super) fn time(&mut self, limit: Duration) -> Duration {
        let limit = usize::try_from(limit.as_micros()).unwrap_or(usize::MAX);
        Duration::from_micros(u64::try_from(self.below(limit)).unwrap_or(0))
    }

    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }
}
