//! Whether a change helped: a pure function of what was seen.

use std::time::Duration;

use serde::Serialize;

use crate::rounds::Round;
use crate::watch::BUSY_SHARE;

/// The share by which the round trip must become shorter, or else by half of the target; and at
/// least by this share of the target: less is not worth five settings.
const SHORTER_BY: f64 = 0.1;
/// The share of the throughput that must be kept.
const KEPT: f64 = 0.97;

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Round trips became shorter in each round, and the throughput was kept.
    Helped {
        /// The new round trip, as a fraction of the old.
        round_trip: f64,
        /// The new throughput, as a fraction of the old.
        throughput: f64,
    },
    /// In one measurement there was too little to send.
    NoLoad {
        /// The smallest share of the time in which there was more to send.
        busy_share: f64,
    },
    /// None of the load was acknowledged in one measurement, so that there is no round trip.
    NoRoundTrip,
    /// The throughput has suffered.
    Slower {
        /// The new throughput, as a fraction of the old.
        throughput: f64,
    },
    /// Round trips are not shorter, or hardly.
    NoShorter {
        /// The new round trip, as a fraction of the old.
        round_trip: f64,
    },
    /// They were shorter in some rounds and longer in others.
    Unclear {
        /// The best round.
        least: f64,
        /// The worst.
        largest: f64,
    },
}

impl Verdict {
    /// Returns whether the change is worth keeping.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Helped { .. })
    }
}

/// Judges all rounds together. Each is compared with itself, as loads come and go; the throughput is
/// judged first. `target` is how long others may wait: on a long path the queue is a small part of a
/// round trip, and gaining half of the target is much all the same.
#[must_use]
pub fn judge(rounds: &[Round], target: Duration) -> Verdict {
    let looks = rounds.iter().flat_map(|round| [&round.before, &round.after]);
    let busy_share = looks.map(|seen| seen.busy_share).min_by(f64::total_cmp).unwrap_or(0.0);
    if busy_share < BUSY_SHARE {
        return Verdict::NoLoad { busy_share };
    }
    let round_trips: Option<Vec<f64>> = rounds.iter().map(round_trip).collect();
    let Some(mut round_trips) = round_trips else { return Verdict::NoRoundTrip };
    let mut throughputs: Vec<f64> = rounds.iter().map(throughput).collect();
    let mut worth: Vec<f64> = rounds.iter().filter_map(|round| worth(round, target)).collect();
    let (throughput, round_trip) = (middle(&mut throughputs), middle(&mut round_trips));
    let (least, largest) =
        (round_trips.first().copied().unwrap_or(1.0), round_trips.last().copied().unwrap_or(1.0));
    match () {
        () if throughput < KEPT => Verdict::Slower { throughput },
        () if middle(&mut worth) < 0.0 => Verdict::NoShorter { round_trip },
        () if largest >= 1.0 => Verdict::Unclear { least, largest },
        () => Verdict::Helped { round_trip, throughput },
    }
}

fn round_trip(round: &Round) -> Option<f64> {
    let (before, after) = (round.before.round_trip()?, round.after.round_trip()?);
    Some(after.as_secs_f64() / before.as_secs_f64().max(1e-6))
}

/// Returns by how many seconds a round's gain exceeds what is required.
fn worth(round: &Round, target: Duration) -> Option<f64> {
    let before = round.before.round_trip()?.as_secs_f64();
    let gain = before - round.after.round_trip()?.as_secs_f64();
    let target = target.as_secs_f64();
    let least = (before * SHORTER_BY).min(target / 2.0).max(target * SHORTER_BY);
    Some(gain - least)
}

fn throughput(round: &Round) -> f64 {
    round.after.payload_bits_per_second / round.before.payload_bits_per_second.max(1.0)
}

/// Sorts, and returns the median; of an even number the mean of the two in the middle.
fn middle(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => 1.0,
        n if n % 2 == 1 => figures[n / 2],
        n => f64::midpoint(figures[n / 2 - 1], figures[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::{Seen, Spread};

    const TARGET: Duration = Duration::from_millis(1);

    fn seen(us: u64, megabits: f64) -> Seen {
        Seen {
            busy_share: 1.0,
            senders: 1.0,
            payload_bits_per_second: megabits * 1e6,
            bulk_us: Spread { count: 100, p50: us, p99: us },
            ..Seen::default()
        }
    }

    fn of(pairs: [((u64, f64), (u64, f64)); 3]) -> Verdict {
        let round = |(before, after): ((u64, f64), (u64, f64))| Round {
            before: seen(before.0, before.1),
            after: seen(after.0, after.1),
        };
        judge(&pairs.map(round), TARGET)
    }

    #[test]
    fn a_shorter_queue_at_the_same_throughput_is_kept() {
        let same = ((9500, 95.5), (770, 95.4));
        assert!(of([same; 3]).is_kept());
        // One bad minute is not the change's fault, …
        assert!(of([same, ((9500, 95.5), (800, 60.0)), same]).is_kept());
        // … as long as it is one.
        let slower = ((9500, 95.5), (800, 80.0));
        assert!(matches!(of([same, slower, slower]), Verdict::Slower { .. }));
    }

    #[test]
    fn what_does_not_shorten_round_trips_every_time_is_not_kept() {
        let bit = ((1000, 95.0), (950, 95.0));
        assert!(matches!(of([bit; 3]), Verdict::NoShorter { .. }));
        let much = ((1000, 95.0), (100, 95.0));
        let worse = ((1000, 95.0), (1100, 95.0));
        assert!(matches!(of([much, worse, much]), Verdict::Unclear { .. }));
        // On a long path a gain of more than half the target counts.
        assert!(of([((53_000, 95.0), (50_500, 95.0)); 3]).is_kept());
        assert!(!of([((53_000, 95.0), (52_800, 95.0)); 3]).is_kept());
        // A queue that is already short is not worth it, however large a part of it goes.
        assert!(matches!(of([((300, 94.5), (240, 95.4)); 3]), Verdict::NoShorter { .. }));
        // Where nothing queues, trains only get shorter: 0.04 ms against 0.17.
        let idle = ((40, 843.0), (170, 952.0));
        assert!(matches!(of([idle; 3]), Verdict::NoShorter { .. }));
    }

    #[test]
    fn without_a_load_all_the_time_nothing_is_judged() {
        let (before, after) = (seen(9500, 95.0), Seen { busy_share: 0.5, ..seen(100, 95.0) });
        let verdict = judge(&[Round { before: before.clone(), after }], TARGET);
        assert_eq!(verdict, Verdict::NoLoad { busy_share: 0.5 });
        let after = Seen { bulk_us: Spread::default(), ..before.clone() };
        assert_eq!(judge(&[Round { before, after }], TARGET), Verdict::NoRoundTrip);
        assert!(!judge(&[], TARGET).is_kept());
    }

    #[test]
    fn a_ping_counts_more_than_what_tcp_has_smoothed() {
        let ping = |us, seen: Seen| Seen {
            ping_us: Some(Spread { count: 100, p50: us, p99: us }),
            ..seen
        };
        let round = Round { before: ping(9000, seen(1, 95.0)), after: ping(700, seen(1, 95.0)) };
        assert!(judge(&[round], TARGET).is_kept());
    }
}
