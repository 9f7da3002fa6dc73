//! Timestamps in the units of a file.

use std::time::Duration;

const NANOSECONDS: u64 = 1_000_000_000;

/// The end of the year 9999. A later time in a file counts as this: far from where sums of times would overflow.
const LATEST_SECONDS: u64 = 253_402_300_799;

/// The resolution of timestamps (`if_tsresol` of pcapng).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Units per second: a power of ten up to a nanosecond.
    Coarse { per_second: u64 },
    /// Units per second, and units per nanosecond.
    Fine { per_second: u64, per_nanosecond: u64 },
    /// Two to this power units per second.
    Binary { bits: u32 },
}

impl Resolution {
    /// The default, unless an interface has another.
    pub(crate) const MICROSECONDS: Self = Self::Coarse { per_second: 1_000_000 };

    /// Decodes the octet of pcapng: the exponent, of two if the highest bit is set, otherwise of ten. `None` if a
    /// second has more units than the counter can hold. (The parser itself does not support powers of two.)
    pub(crate) fn from_pcapng(octet: u8) -> Option<Self> {
        let exponent = u32::from(octet & 0x7f);
        if octet & 0x80 != 0 {
            return (exponent < 64).then_some(Self::Binary { bits: exponent });
        }
        let per_second = 10_u64.checked_pow(exponent)?;
        Some(match per_second / NANOSECONDS {
            0 | 1 => Self::Coarse { per_second },
            per_nanosecond => Self::Fine { per_second, per_nanosecond },
        })
    }

    /// Returns the time after `units`, and `offset_seconds` (`if_tsoffset`) later; 1970 if that is before, and
    /// never after the year 9999.
    pub(crate) fn time(self, units: u64, offset_seconds: i64) -> Duration {
        let (seconds, nanoseconds) = match self {
            Self::Coarse { per_second } => {
                (units / per_second, units % per_second * (NANOSECONDS / per_second))
            }
            Self::Fine { per_second, per_nanosecond } => {
                (units / per_second, units % per_second / per_nanosecond)
            }
            Self::Binary { bits } => {
                let seconds = units >> bits;
                let rest = u128::from(units - (seconds << bits));
                (seconds, u64::try_from((rest * u128::from(NANOSECONDS)) >> bits).unwrap_or(0))
            }
        };
        let seconds = seconds.saturating_add_signed(offset_seconds).min(LATEST_SECONDS);
        // Less than a second in all three cases.
        Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(octet: u8, units: u64) -> Duration {
        Resolution::from_pcapng(octet).unwrap().time(units, 0)
    }

    #[test]
    fn units_of_every_kind_are_the_same_time() {
        let expected = Duration::from_millis(3_500);
        assert_eq!(time(0, 3), Duration::from_secs(3));
        assert_eq!(time(3, 3_500), expected);
        assert_eq!(time(6, 3_500_000), expected);
        assert_eq!(time(9, 3_500_000_000), expected);
        assert_eq!(time(12, 3_500_000_000_000), expected);
        assert_eq!(time(19, 15 * 10_u64.pow(18)), Duration::from_millis(1_500));
        assert_eq!(time(0x80, 3), Duration::from_secs(3));
        assert_eq!(time(0x81, 7), expected);
        assert_eq!(time(0x80 | 32, 7 << 31), expected);
        assert_eq!(time(0x80 | 63, u64::MAX).as_secs(), 1);
    }

    #[test]
    fn units_that_no_counter_can_hold_are_refused() {
        for octet in [20, 127, 0x80 | 64, 0xff] {
            assert_eq!(Resolution::from_pcapng(octet), None, "{octet:#x}");
        }
    }

    #[test]
    fn an_offset_moves_and_never_wraps() {
        let resolution = Resolution::MICROSECONDS;
        assert_eq!(resolution.time(5_000_001, -3), Duration::from_micros(2_000_001));
        assert_eq!(resolution.time(5_000_000, i64::MIN), Duration::ZERO);
        let end = Resolution::from_pcapng(0).unwrap().time(u64::MAX, i64::MAX);
        assert_eq!(end, Duration::from_secs(LATEST_SECONDS));
    }
}
