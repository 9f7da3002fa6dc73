//! NewReno: a segment a round trip, and half on loss (RFC 5681, RFC 6582).

/// It has no state of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewReno;

impl NewReno {
    /// What the window is cut to (RFC 5681 §3.1, equation 4).
    #[expect(clippy::unused_self, reason = "a controller as the others are")]
    pub(super) fn cut(&mut self, window: u32) -> u32 {
        window / 2
    }
}
