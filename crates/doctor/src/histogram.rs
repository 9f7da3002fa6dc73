//! Distributions of times, in little memory.
//!
//! A doctor that looks at a hundred thousand connections has several of these for each: an empty
//! one allocates nothing, one with a few values takes a few dozen octets, and none grows with the
//! number of values.

use std::time::Duration;

use crate::{Bucket, Spread};

/// Each power of two is cut into this many buckets (2⁵) of equal width: the middle of a bucket is
/// at most 1/64 off from any value in it.
const SUB_BITS: u32 = 5;
const SUBS: u64 = 1 << SUB_BITS;

/// Times shorter than 2¹⁰ ns fall into [`SUBS`] buckets of 32 ns: no capture has a better clock.
const LINEAR_BITS: u32 = 10;

/// Times longer than 2⁴⁴ ns (almost five hours) share a bucket; only the maximum tells more.
const LONGEST_BITS: u32 = 44;

/// Buckets for each power of two in [`Histogram::buckets`]: a tenth of the value wide.
const SHOWN_BITS: u32 = 3;

/// A distribution of times: median and 99th percentile within 3 % (or 16 ns), maximum exact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of the bucket and how many fell into it, in order; none is empty. At most
    /// 1,120 of them, and rarely more than a hundred.
    counts: Vec<(u16, u32)>,
    total: u64,
    shortest_ns: u64,
    longest_ns: u64,
}

impl Histogram {
    /// Creates an empty histogram; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: Vec::new(), total: 0, shortest_ns: 0, longest_ns: 0 }
    }

    /// Adds a time.
    pub fn record(&mut self, time: Duration) {
        self.record_times(time, 1);
    }

    /// Adds the same time `times` times.
    pub fn record_times(&mut self, time: Duration, times: u32) {
        if times == 0 {
            return;
        }
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.total == 0 {
            (self.shortest_ns, self.longest_ns) = (ns, ns);
        } else {
            self.shortest_ns = self.shortest_ns.min(ns);
            self.longest_ns = self.longest_ns.max(ns);
        }
        self.total = self.total.saturating_add(u64::from(times));
        self.count(bucket_of(ns), times);
    }

    /// Adds all that `other` holds.
    pub fn merge(&mut self, other: &Self) {
        if other.total == 0 {
            return;
        }
        if self.total == 0 {
            self.clone_from(other);
            return;
        }
        self.shortest_ns = self.shortest_ns.min(other.shortest_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.total = self.total.saturating_add(other.total);
        for &(bucket, times) in &other.counts {
            self.count(bucket, times);
        }
    }

    /// Returns how many times were recorded.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns whether no time was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the median, 99th percentile and maximum; all zero if nothing was recorded.
    #[must_use]
    pub fn spread(&self) -> Spread {
        Spread {
            count: self.total,
            p50: self.percentile(50),
            p99: self.percentile(99),
            max: Duration::from_nanos(self.longest_ns),
        }
    }

    /// Returns a time that `percent` of the values do not exceed, and the rest do (nearest rank).
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Duration {
        let counted: u64 = self.counts.iter().map(|&(_, times)| u64::from(times)).sum();
        let rank = (u128::from(counted) * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut below = 0;
        let reached = self.counts.iter().find(|(_, times)| {
            below += u128::from(*times);
            below >= rank
        });
        let Some(&(bucket, _)) = reached else { return Duration::ZERO };
        let (from, to) = bounds(bucket);
        // No value was shorter or longer than these, so a single value is exact.
        let middle = (from + (to - from) / 2).clamp(self.shortest_ns, self.longest_ns);
        Duration::from_nanos(middle)
    }

    /// Returns all times, each as the middle of its bucket, shortest first, with how many there were.
    pub fn times(&self) -> impl Iterator<Item = (Duration, u32)> {
        self.counts.iter().map(|&(bucket, times)| {
            let (from, to) = bounds(bucket);
            let middle = (from + (to - from) / 2).clamp(self.shortest_ns, self.longest_ns);
            (Duration::from_nanos(middle), times)
        })
    }

    /// Returns the distribution for a picture: the buckets that are not empty, in order, each about
    /// a tenth of its value wide.
    #[must_use]
    pub fn buckets(&self) -> Vec<Bucket> {
        let mut shown: Vec<Bucket> = Vec::new();
        // The first buckets are one octave of 32: they shrink by the same factor.
        let each = 1 << (SUB_BITS - SHOWN_BITS);
        for &(bucket, times) in &self.counts {
            let first = bucket / each * each;
            let from = Duration::from_nanos(bounds(first).0);
            match shown.last_mut() {
                Some(last) if last.from == from => last.count += u64::from(times),
                _ => {
                    let to = Duration::from_nanos(bounds(first + each - 1).1);
                    shown.push(Bucket { from, to, count: u64::from(times) });
                }
            }
        }
        shown
    }

    fn count(&mut self, bucket: u16, times: u32) {
        match self.counts.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(times),
            Err(at) => self.counts.insert(at, (bucket, times)),
        }
    }
}

/// Returns the number of the bucket that `ns` falls into.
#[allow(clippy::cast_possible_truncation)] // at most 1,119
fn bucket_of(ns: u64) -> u16 {
    let ns = ns.min((1 << LONGEST_BITS) - 1);
    let power = ns.checked_ilog2().unwrap_or(0);
    if power < LINEAR_BITS {
        return (ns >> (LINEAR_BITS - SUB_BITS)) as u16;
    }
    let octave = u64::from(power - LINEAR_BITS) + 1;
    (octave * SUBS + (ns >> (power - SUB_BITS)) % SUBS) as u16
}

/// Returns the bounds of a bucket, in nanoseconds: from the first, below the second.
fn bounds(bucket: u16) -> (u64, u64) {
    let (octave, sub) = (u64::from(bucket) / SUBS, u64::from(bucket) % SUBS);
    if octave == 0 {
        let width = 1 << (LINEAR_BITS - SUB_BITS);
        return (sub * width, (sub + 1) * width);
    }
    let first = 1 << (u64::from(LINEAR_BITS) + octave - 1);
    let width = first >> SUB_BITS;
    (first + sub * width, first + (sub + 1) * width)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: impl IntoIterator<Item = Duration>) -> Histogram {
        let mut histogram = Histogram::new();
        times.into_iter().for_each(|time| histogram.record(time));
        histogram
    }

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    fn heap_bytes(histogram: &Histogram) -> usize {
        histogram.counts.capacity() * size_of::<(u16, u32)>()
    }

    #[test]
    fn a_single_value_is_exact() {
        let only = Duration::from_nanos(40_012_345);
        let spread = of([only]).spread();
        assert_eq!(spread, Spread { count: 1, p50: only, p99: only, max: only });
    }

    #[test]
    fn an_empty_one_says_zero_and_allocates_nothing() {
        let empty = Histogram::new();
        assert_eq!(empty.spread(), Spread::default());
        assert!(empty.is_empty() && empty.buckets().is_empty());
        assert_eq!(heap_bytes(&empty), 0);
    }

    #[test]
    fn few_values_take_little_memory_and_many_no_more() {
        let few = of((0..32).map(|i| ms(0.05 * f64::from(i * i))));
        assert!(size_of::<Histogram>() + heap_bytes(&few) <= 512, "{}", heap_bytes(&few));
        let delays = of((0..1_000_000).map(|i| ms(40.0 + f64::from(i % 1000) / 500.0)));
        assert!(size_of::<Histogram>() + heap_bytes(&delays) <= 512, "{}", heap_bytes(&delays));
        let all = of((0..2000).map(|i| Duration::from_secs_f64(1e-9 * 1.02f64.powi(i))));
        assert!(heap_bytes(&all) <= 16 * 1024, "{}", heap_bytes(&all));
    }

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap() {
        let last = bucket_of(u64::MAX);
        assert_eq!(bounds(0).0, 0);
        assert_eq!(bounds(last).1, 1 << LONGEST_BITS);
        for bucket in 0..last {
            assert_eq!(bounds(bucket).1, bounds(bucket + 1).0, "{bucket}");
            assert_eq!(bucket_of(bounds(bucket).0), bucket);
            assert_eq!(bucket_of(bounds(bucket).1 - 1), bucket);
        }
    }

    #[test]
    fn the_picture_keeps_the_clusters_apart() {
        let mut times: Vec<_> = (0..120).map(|i| ms(40.0 + f64::from(i % 4))).collect();
        times.extend((0..20).map(|_| ms(204.0)));
        let buckets = of(times).buckets();
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 140);
        assert!(buckets.len() <= 5, "{buckets:?}");
        let last = buckets.last().unwrap();
        assert_eq!(last.count, 20);
        assert!(last.from <= ms(204.0) && ms(204.0) < last.to);
        assert!(last.to - last.from < last.from / 7);
    }

    #[test]
    fn longer_than_five_hours_is_counted_and_the_maximum_exact() {
        let spread = of([ms(1.0), Duration::from_secs(86_400)]).spread();
        assert_eq!(spread.max, Duration::from_secs(86_400));
        assert!(spread.p99 >= Duration::from_secs(4 * 3600));
    }

    proptest! {
        #[test]
        fn percentiles_are_within_three_percent(
            times in prop::collection::vec(0u64..20_000_000_000, 1..300), percent in 1u8..=100
        ) {
            let histogram = of(times.iter().copied().map(Duration::from_nanos));
            let mut sorted = times;
            sorted.sort_unstable();
            let rank = (sorted.len() * usize::from(percent)).div_ceil(100);
            let (exact, told) = (sorted[rank - 1] as f64, histogram.percentile(percent));
            let off = (told.as_nanos() as f64 - exact).abs();
            prop_assert!(off <= (exact * 0.03).max(16.0), "{told:?} for {exact} ns");
            prop_assert_eq!(histogram.spread().max.as_nanos(), u128::from(sorted[sorted.len() - 1]));
        }

        #[test]
        fn merging_is_recording_all(
            left in prop::collection::vec(0u64..20_000_000_000, 0..60),
            right in prop::collection::vec(0u64..20_000_000_000, 0..60)
        ) {
            let times = |of: &[u64]| of.iter().copied().map(Duration::from_nanos).collect::<Vec<_>>();
            let mut merged = of(times(&left));
            merged.merge(&of(times(&right)));
            prop_assert_eq!(merged, of(times(&[left, right].concat())));
        }
    }
}
