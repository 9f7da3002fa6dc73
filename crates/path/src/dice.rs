//! Dice that give the same sequence on every machine.

/// xorshift64 (Marsaglia 2003).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Seeds the generator, which must not start at zero.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    fn throw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Whether something of this probability happens. Probability zero draws no number, so that
    /// adding one fault does not change the others.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        #[allow(clippy::cast_precision_loss)] // 53 bits are all that is used
        let thrown = (self.throw() >> 11) as f64 / (1_u64 << 53) as f64;
        thrown < probability
    }

    /// Returns a number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // The bias of a remainder does not matter to a place in a frame.
        usize::try_from(self.throw() >> 11).unwrap_or(0) % end
    }
}
