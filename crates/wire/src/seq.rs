//! Sequence numbers, which wrap (RFC 9293 §3.4).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A sequence or acknowledgment number: compared by distance, modulo 2³².
///
/// There is no `Ord`: among numbers that wrap, "before" holds only between two that are less than
/// 2³¹ apart, and is no total order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Whether `self` is earlier in the stream than `other`.
    #[must_use]
    pub fn before(self, other: Self) -> bool {
        self - other < 0
    }

    /// Whether `self` is later in the stream than `other`.
    #[must_use]
    pub fn after(self, other: Self) -> bool {
        self - other > 0
    }

    /// The later of the two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    fn add(self, octets: u32) -> Self {
        Self(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;

    fn sub(self, octets: u32) -> Self {
        Self(self.0.wrapping_sub(octets))
    }
}

/// The signed distance in octets: positive if `self` is later.
impl Sub for SeqNumber {
    type Output = i32;

    fn sub(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::SeqNumber;

    #[test]
    fn order_holds_across_the_wrap() {
        let last = SeqNumber(u32::MAX);
        let next = last + 2;
        assert_eq!(next, SeqNumber(1));
        assert!(last.before(next) && next.after(last));
        assert_eq!(next - last, 2);
        assert_eq!(next - 2, last);
        assert_eq!(last.max(next), next);
    }
}
