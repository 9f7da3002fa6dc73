//! Small types for quantities of which a connection keeps many.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use uncork_packet::Instant;

/// A span of time in microseconds, in half the room of a `Duration`: up to 71 minutes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Micros(pub(crate) u32);

impl Micros {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const MAX: Self = Self(u32::MAX);

    pub(crate) const fn from_millis(millis: u32) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Converts a duration, rounded up: a deadline that is early by less than a microsecond would still be early.
    pub(crate) fn from_duration(duration: Duration) -> Self {
        let seconds = duration.as_secs().saturating_mul(1_000_000);
        let micros = seconds.saturating_add(duration.subsec_nanos().div_ceil(1000).into());
        Self(u32::try_from(micros).unwrap_or(u32::MAX))
    }

    /// Returns the time from one moment to a later one, rounded up likewise. It avoids a `Duration`, whose seconds cost
    /// a division each time.
    #[inline]
    pub(crate) fn between(earlier: Instant, later: Instant) -> Self {
        let nanos = later.as_nanos().saturating_sub(earlier.as_nanos());
        let micros = nanos.saturating_add(999) / 1000;
        Self(u32::try_from(micros).unwrap_or(u32::MAX))
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0 as u64 * 1000
    }

    pub(crate) const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }

    pub(crate) const fn saturating_mul(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    pub(crate) const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the span doubled `times` times.
    pub(crate) fn doubled(self, times: u32) -> Self {
        Self(u32::try_from(u64::from(self.0) << times.min(32)).unwrap_or(u32::MAX))
    }
}

impl Add<Micros> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, span: Micros) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(span.as_nanos()))
    }
}

/// An optional moment, in the size of a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaybeInstant(Instant);

impl Default for MaybeInstant {
    fn default() -> Self {
        Self(Instant::NEVER)
    }
}

impl MaybeInstant {
    pub(crate) fn get(self) -> Option<Instant> {
        (self.0 != Instant::NEVER).then_some(self.0)
    }

    pub(crate) fn set(&mut self, moment: Instant) {
        self.0 = moment;
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl fmt::Debug for MaybeInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_duration())
    }
}
