//! Repeatable randomness.

/// A small generator (xorshift64*, Vigna 2016): for faults, not for secrets.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Makes the sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // A state of zero would never change; the multiplication spreads small seeds.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Whether an event of this probability happens.
    pub fn hits(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
        let roll = (self.roll() >> 11) as f64 / (1u64 << 53) as f64;
        roll < probability
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.roll() % end }
    }
}
