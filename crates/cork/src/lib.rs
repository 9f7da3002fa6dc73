//! The cork policy: what to do with each write, as a pure state machine over (event, time).
//!
//! An application that asks for TCP_NODELAY wants its *logical packet* out at once, not each small
//! write. A burst of writes ends when the program turns to something else; until then its bytes are
//! held. [`Cork`] makes that decision for one socket:
//!
//! ```text
//!   handle_write(bytes) ──▶ Hold            keep it: more will follow
//!                      └──▶ Send(Reason)    send it now, with all that is held
//!   handle_end() ──▶ burst closed, rhythm learnt
//!   Hold::is_due(now), next_look(now) ──▶ what the timer asks
//! ```
//!
//! No I/O, no clock, no lock: the caller passes the time in and performs what is decided.
#![forbid(unsafe_code)]

mod hold;
mod rhythm;

pub use hold::{Hold, Instant, next_look};
pub use rhythm::Rhythm;

/// The limits within which a burst may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Send when this many writes are held (0: no such limit; `AUTOCORK_MAX_QLEN`).
    pub writes: u16,
    /// Send when this many bytes are held: there is nothing to gain past a full buffer.
    pub bytes: u32,
    /// Whether a steady rhythm may send its last write unheld (the library of 2007 did not).
    pub predict: bool,
}

/// The decision about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Keep it back: the burst goes on.
    Hold,
    /// Send it now, together with everything held before it.
    Send(Reason),
}

/// Why a write is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rhythm says that this is the last write of the logical packet.
    Predicted,
    /// As many writes are held as the limit allows.
    Writes,
    /// As many bytes are held as the limit allows.
    Bytes,
}

/// One socket's burst, and what was learnt from earlier ones.
///
/// Fits into one word ([`Cork::to_bits`]), so that a caller can keep it in an atomic: a lost
/// update between two threads that write to one socket costs a packet at worst, never a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cork {
    /// Writes seen in this burst, sent or held (saturating).
    writes: u16,
    /// Bytes held in this burst (saturating at [`Cork::MAX_BYTES`]).
    bytes: u32,
    rhythm: Rhythm,
}

impl Cork {
    /// The largest number of held bytes that is counted: 22 bits of the packed word.
    pub const MAX_BYTES: u32 = (1 << 22) - 1;

    /// Creates the state of a socket that begins with what a sibling has learnt.
    pub fn with_rhythm(rhythm: Rhythm) -> Self {
        Self { rhythm, ..Self::default() }
    }

    /// Decides about a write of `bytes` that is about to be made.
    #[inline]
    pub fn handle_write(&mut self, bytes: usize, limits: Limits) -> Verdict {
        self.writes = self.writes.saturating_add(1);
        let added = u32::try_from(bytes).unwrap_or(Self::MAX_BYTES);
        self.bytes = self.bytes.saturating_add(added).min(Self::MAX_BYTES);
        if limits.predict && self.rhythm.says_last(self.writes) {
            self.bytes = 0;
            return Verdict::Send(Reason::Predicted);
        }
        if limits.writes != 0 && self.writes >= limits.writes {
            // A limit on the number of writes ends the burst as the program's turning away would.
            self.handle_push();
            self.writes = 0;
            return Verdict::Send(Reason::Writes);
        }
        if self.bytes >= limits.bytes {
            self.bytes = 0;
            return Verdict::Send(Reason::Bytes);
        }
        Verdict::Hold
    }

    /// [`Cork::handle_write`] on the packed word, for the write that is plainly held: neither
    /// predicted to be the last nor near a limit. `None` leaves the decision to it.
    #[inline]
    pub fn hold_another(bits: u64, bytes: usize, limit_bytes: u32) -> Option<u64> {
        let next = (bits & 0xffff) + 1;
        let predicted = bits >> 38 & u64::from(Rhythm::LENGTH_MASK);
        let held = (bits >> 16 & u64::from(Self::MAX_BYTES)) + bytes as u64;
        let limit = u64::from(limit_bytes.min(Self::MAX_BYTES));
        (next != predicted && next < 0xffff && held < limit)
            .then(|| bits + 1 + ((bytes as u64) << 16))
    }

    /// [`Cork::handle_write`] on the packed word, for a socket that has long made one write a
    /// packet: nothing is open, and this write is predicted to be the last. `None` leaves the
    /// decision to it.
    #[inline]
    pub fn send_only(bits: u64) -> Option<u64> {
        (bits & Self::ALL_BUT_PATIENCE == Self::ALWAYS_ONE).then_some(bits + 1)
    }

    /// [`Cork::handle_end`] after [`Cork::send_only`]. `None` if something else has happened.
    #[inline]
    pub fn end_only(bits: u64) -> Option<u64> {
        (bits & Self::ALL_BUT_PATIENCE == Self::ALWAYS_ONE + 1).then(|| bits - 1)
    }

    /// The packed word of a socket with nothing open and a full streak of bursts of one write.
    const ALWAYS_ONE: u64 = (Rhythm::ALWAYS_ONE as u64) << 38;
    const ALL_BUT_PATIENCE: u64 = (1 << 53) - 1;

    /// Notes that what was held has left. The program has not turned away: the burst goes on.
    #[inline]
    pub fn handle_push(&mut self) {
        self.bytes = 0;
    }

    /// Ends the burst: the program has turned away. `timed_out` says that the timer had to push
    /// within the burst, whose length is then no evidence of a rhythm.
    #[inline]
    pub fn handle_end(&mut self, timed_out: bool) {
        if self.writes != 0 && !timed_out {
            self.rhythm.learn(self.writes);
        }
        self.writes = 0;
        self.bytes = 0;
    }

    /// Returns whether a burst is open: something was written since the program last turned away.
    #[inline]
    pub fn is_open(self) -> bool {
        self.writes != 0
    }

    /// Returns the number of writes in the open burst.
    pub fn writes(self) -> u16 {
        self.writes
    }

    /// Returns the number of bytes held in the open burst.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// Returns what has been learnt.
    pub fn rhythm(self) -> Rhythm {
        self.rhythm
    }

    /// Packs the state into one word.
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.writes)
            | u64::from(self.bytes) << 16
            | u64::from(self.rhythm.to_bits()) << 38
    }

    /// Unpacks what [`Cork::to_bits`] has packed.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            writes: bits as u16,
            bytes: (bits >> 16) as u32 & Self::MAX_BYTES,
            rhythm: Rhythm::from_bits((bits >> 38) as u32),
        }
    }
}

#[cfg(test)]
mod tests;
