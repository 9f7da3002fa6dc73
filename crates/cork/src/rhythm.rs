//! The burst predictor: how many writes make one of this socket's logical packets.

/// Number of equal bursts in a row after which a prediction is made.
const STEADY: u8 = 2;
/// Each wrong prediction doubles the evidence that is asked for, up to this many bursts.
const MOST_PATIENCE: u8 = 15;
/// The longest burst that is predicted, in writes: longer ones are no evidence of a habit.
const LONGEST: u16 = 1 << 10;

/// What is known of a socket's habit: a header then a payload, always one write, and so on.
///
/// A prediction costs nothing when it is right (no push call, no time held) and one small
/// packet when it is wrong, so it is made early and unlearnt at once; each wrong one makes
/// the next one harder to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// Length of the latest burst, in writes. 0: none seen.
    length: u16,
    /// Number of bursts of that length in a row, saturating at [`MOST_PATIENCE`].
    streak: u8,
    /// Length of the streak after which a prediction is made.
    patience: u8,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self { length: 0, streak: 0, patience: STEADY }
    }
}

impl Rhythm {
    /// Returns whether the `nth` write of a burst is predicted to be its last.
    #[inline]
    pub fn says_last(self, nth: u16) -> bool {
        nth == self.length && self.streak >= self.patience
    }

    /// Returns the predicted number of writes, if any.
    pub fn predicted(self) -> Option<u16> {
        (self.length != 0 && self.streak >= self.patience).then_some(self.length)
    }

    /// Learns from a closed sibling: its habit if it had one, or else its latest burst as one of
    /// this rhythm's own (connections that serve one request have only one burst each).
    pub fn learn_from(&mut self, sibling: Self) {
        if sibling.predicted().is_some() {
            *self = sibling;
        } else if sibling.length != 0 {
            self.learn(sibling.length);
        }
    }

    /// Learns from a burst of `writes` that has ended.
    #[inline]
    pub(crate) fn learn(&mut self, writes: u16) {
        if writes == self.length {
            self.streak = (self.streak + 1).min(MOST_PATIENCE);
            return;
        }
        let went_on = self.streak >= self.patience && writes > self.length;
        if went_on {
            // The write that was predicted to be the last was not: a packet left too early.
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        } else if self.streak == MOST_PATIENCE {
            // A long streak earns trust back.
            self.patience = STEADY;
        }
        let habit = writes <= LONGEST;
        self.length = if habit { writes } else { 0 };
        self.streak = u8::from(habit);
    }

    /// The bits of the packed word that hold the length.
    pub(crate) const LENGTH_MASK: u32 = 0x7ff;

    /// The packed word of the steadiest rhythm, one write a packet, without its patience: a full
    /// streak is enough for a prediction whatever the patience.
    pub(crate) const ALWAYS_ONE: u32 = 1 | (MOST_PATIENCE as u32) << 11;

    /// Packs the rhythm into 11 + 4 + 4 bits.
    #[inline]
    pub fn to_bits(self) -> u32 {
        u32::from(self.length) | u32::from(self.streak) << 11 | u32::from(self.patience) << 15
    }

    /// Unpacks what [`Rhythm::to_bits`] has packed. A patience of 0 (the all-zero word) is read as
    /// that of a new socket.
    #[inline]
    pub fn from_bits(bits: u32) -> Self {
        let patience = (bits >> 15) as u8 & 0xf;
        Self {
            length: (bits & Self::LENGTH_MASK) as u16,
            streak: (bits >> 11) as u8 & 0xf,
            patience: if patience == 0 { STEADY } else { patience },
        }
    }
}
