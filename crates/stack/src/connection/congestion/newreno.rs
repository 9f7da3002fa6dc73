//! NewReno: one segment more per round trip, and half the window on loss (RFC 5681, RFC 6582).

/// NewReno, which has no state of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewReno;

impl NewReno {
    /// Returns the reduced window (RFC 5681 §3.1, equation 4).
    #[expect(clippy::unused_self, reason = "a controller as the others are")]
    pub(super) fn cut(&mut self, window: u32) -> u32 {
        window / 2
    }
}
