//! The duration of stalls: a histogram on a logarithmic time axis.

use std::time::Duration;

use uncork_doctor::Bucket;

use crate::doctor::words;
use crate::page::svg::{Anchor, Picture};

const WIDTH: f64 = 390.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = 382.0;
const TOP: f64 = 40.0;
const FLOOR: f64 = 150.0;
/// Top of the tallest bar: its number stands above it.
const TALLEST: f64 = TOP + 10.0;

/// A duration that identifies a kind of stall: clusters form around it.
pub(super) struct Cluster {
    /// Its name.
    pub(super) name: &'static str,
    from: Duration,
    to: Duration,
    /// What ends after this time.
    pub(super) what: &'static str,
}

/// The timers of Linux (TCP_DELACK_MIN; TCP_DELACK_MAX, TCP_RTO_MIN and the cork's), with room for
/// a tick and the path.
pub(super) const CLUSTERS: [Cluster; 2] = [
    Cluster {
        name: "40 ms",
        from: Duration::from_micros(38_000),
        to: Duration::from_micros(54_000),
        what: "where Linux’s delayed ACK ends",
    },
    Cluster {
        name: "200 ms",
        from: Duration::from_micros(192_000),
        to: Duration::from_micros(240_000),
        what: "where a corked tail, the shortest retransmission timeout and the longest delayed \
               ACK end",
    },
];

/// Merges the distributions of several findings.
pub(super) fn sum<'a>(histograms: impl IntoIterator<Item = &'a Vec<Bucket>>) -> Vec<Bucket> {
    let mut all: Vec<Bucket> = histograms.into_iter().flatten().copied().collect();
    all.sort_by_key(|bucket| (bucket.from, bucket.to));
    let mut sum: Vec<Bucket> = Vec::new();
    for bucket in all {
        match sum.last_mut() {
            Some(last) if (last.from, last.to) == (bucket.from, bucket.to) => {
                last.count += bucket.count;
            }
            _ => sum.push(bucket),
        }
    }
    sum
}

/// Returns how many lie in a cluster: those whose bucket's middle does.
pub(super) fn within(buckets: &[Bucket], cluster: &Cluster) -> u64 {
    let middle = |bucket: &Bucket| (bucket.from + bucket.to) / 2;
    let inside = |bucket: &&Bucket| (cluster.from..cluster.to).contains(&middle(bucket));
    buckets.iter().filter(inside).map(|bucket| bucket.count).sum()
}

/// The axis: powers of ten of a millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    /// Returns an axis that holds all buckets, and the clusters for comparison.
    fn of(buckets: &[Bucket]) -> Self {
        let first = buckets.first().map_or(1.0, |bucket| ms(bucket.from));
        let last = buckets.iter().map(|bucket| ms(bucket.to)).fold(1.0, f64::max);
        let low = (first.max(1e-3).log10().floor() as i32).min(0);
        let high = (last.log10().ceil() as i32).max(3);
        Self { low, high }
    }

    fn x(self, time: Duration) -> f64 {
        let place = ms(time).max(1e-6).log10() - f64::from(self.low);
        LEFT + (place / f64::from(self.high - self.low)).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Renders the picture, if anything was measured.
pub(super) fn render(buckets: &[Bucket]) -> Option<String> {
    let most = buckets.iter().map(|bucket| bucket.count).max()?;
    let axis = Axis::of(buckets);
    let mut picture = Picture::new(WIDTH);
    for cluster in &CLUSTERS {
        let (from, to) = (axis.x(cluster.from), axis.x(cluster.to));
        let title = format!("{}: {}", cluster.name, cluster.what);
        picture.rect((from, TOP - 16.0), (to - from, FLOOR - TOP + 16.0), "cluster", &title);
        let middle = f64::midpoint(from, to);
        picture.text((middle, TOP - 21.0), Anchor::Middle, "clustername", cluster.name);
    }
    ticks(&mut picture, axis);
    for bucket in buckets {
        let (from, to) = (axis.x(bucket.from), axis.x(bucket.to));
        // Rare durations must be visible, too.
        let height = (bucket.count as f64 / most as f64 * (FLOOR - TALLEST)).max(2.5);
        let title = format!(
            "{} to {}: {}",
            words::time(bucket.from),
            words::time(bucket.to),
            words::thousands(bucket.count)
        );
        let width = (to - from - 0.8).max(1.2);
        picture.rect((from, FLOOR - height), (width, height), "bar", &title);
    }
    tallest(&mut picture, axis, buckets, most);
    Some(picture.finish(FLOOR + 24.0, &told(buckets)))
}

fn ticks(picture: &mut Picture, axis: Axis) {
    picture.line((LEFT, FLOOR), (RIGHT, FLOOR), "axis");
    for power in axis.low..=axis.high {
        let time = Duration::from_secs_f64(10f64.powi(power) / 1e3);
        let x = axis.x(time);
        picture.line((x, FLOOR), (x, FLOOR + 4.0), "axis");
        let anchor = match power {
            power if power == axis.low => Anchor::Start,
            power if power == axis.high => Anchor::End,
            _ => Anchor::Middle,
        };
        picture.text((x, FLOOR + 17.0), anchor, "ruler", &round(power));
    }
}

/// Formats a power of ten milliseconds.
fn round(power: i32) -> String {
    match power {
        -3..0 => format!("{:.0} µs", 10f64.powi(power + 3)),
        0..3 => format!("{:.0} ms", 10f64.powi(power)),
        _ => format!("{:.0} s", 10f64.powi(power - 3)),
    }
}

/// Writes the number at the tallest bar: there is no axis of counts.
fn tallest(picture: &mut Picture, axis: Axis, buckets: &[Bucket], most: u64) {
    let Some(bucket) = buckets.iter().find(|bucket| bucket.count == most) else { return };
    let x = f64::midpoint(axis.x(bucket.from), axis.x(bucket.to));
    let x = x.clamp(LEFT + 14.0, RIGHT - 14.0);
    picture.text((x, TALLEST - 4.0), Anchor::Middle, "most", &words::thousands(most));
}

fn told(buckets: &[Bucket]) -> String {
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    format!("Distribution of {} by length", words::count(all, "stall"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from: u64, to: u64, count: u64) -> Bucket {
        Bucket { from: Duration::from_micros(from), to: Duration::from_micros(to), count }
    }

    #[test]
    fn the_axis_holds_everything_and_always_the_clusters() {
        assert_eq!(Axis::of(&[bucket(40_000, 44_000, 1)]), Axis { low: 0, high: 3 });
        let wide = [bucket(30, 33, 1), bucket(60_000_000, 65_000_000, 1)];
        assert_eq!(Axis::of(&wide), Axis { low: -2, high: 5 });
        let axis = Axis::of(&[bucket(40_000, 44_000, 1)]);
        assert_eq!(axis.x(Duration::from_millis(1)), LEFT);
        assert_eq!(axis.x(Duration::from_secs(1)), RIGHT);
    }

    #[test]
    fn sums_keep_every_count() {
        let sum = sum([
            &vec![bucket(37_000, 41_000, 3), bucket(41_000, 46_000, 1)],
            &vec![bucket(900, 1_000, 2), bucket(37_000, 41_000, 4)],
        ]);
        let counts: Vec<_> = sum.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [2, 7, 1]);
        assert_eq!(within(&sum, &CLUSTERS[0]), 8);
        assert_eq!(within(&sum, &CLUSTERS[1]), 0);
    }

    #[test]
    fn a_bar_for_each_bucket_and_both_marks() {
        let picture = render(&[bucket(37_000, 41_000, 900), bucket(201_000, 218_000, 1)]).unwrap();
        assert_eq!(picture.matches("class=\"bar\"").count(), 2);
        assert_eq!(picture.matches("class=\"cluster\"").count(), 2);
        assert!(picture.contains(">900<"));
        assert!(render(&[]).is_none());
    }

    #[test]
    fn marks_have_round_names() {
        assert_eq!(
            [-3, -1, 0, 2, 3, 5].map(round),
            ["1 µs", "100 µs", "1 ms", "100 ms", "1 s", "100 s"]
        );
    }
}
