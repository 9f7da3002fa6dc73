//! Medians and spreads.

use serde::Serialize;

/// Minimum, median and maximum of some samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Median; of an even number of samples the mean of the two in the middle.
    pub median: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `samples`; all zero if there are none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Self {
        let sorted = sorted(samples);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Self { min: 0.0, median: 0.0, max: 0.0 };
        };
        Self { min, median: middle(&sorted), max }
    }
}

/// Returns the median of `samples` (0 if there are none).
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    middle(&sorted(samples))
}

/// Returns the value below which the share `q` (0 to 1) of `sorted` lies.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (q.clamp(0.0, 1.0) * last as f64).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// Returns `samples` in ascending order.
#[must_use]
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        let spread = Spread::of(&[9.0, -1.0, 4.0]);
        assert_eq!((spread.min, spread.median, spread.max), (-1.0, 4.0, 9.0));
    }

    #[test]
    fn nothing_measured_is_zero_and_does_not_panic() {
        assert_eq!(Spread::of(&[]), Spread { min: 0.0, median: 0.0, max: 0.0 });
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn quantiles_reach_both_ends() {
        let values = sorted(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.5), 3.0);
        assert_eq!(quantile(&values, 1.0), 5.0);
    }
}
