//! CUBIC (RFC 9438): the window follows a cubic function of the time since it was cut, flat where it
//! was cut before.

use std::time::Duration;

use uncork_packet::Instant;

use super::hystart::{HyStart, Round};
use crate::connection::recovery::Rtt;

/// Time after a cut in which slow start is not judged.
const SETTLING: Duration = Duration::from_secs(1);
/// How steep the function is, in segments a second³ (C, RFC 9438 §5).
const STEEPNESS: f64 = 0.4;
/// What is left of the window after a cut (beta, §4.6).
const FACTOR: f64 = 0.7;
/// What the window of an average NewReno flow grows by in a round trip, so that it gets as much as
/// one (alpha, §4.3, equation 4).
const FRIENDLY_GROWTH: f64 = 3.0 * (1.0 - FACTOR) / (1.0 + FACTOR);

/// State since the latest cut.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cubic {
    /// Where the window was when it was cut, in segments (W_max).
    most: f64,
    /// The same before the latest cut, should that prove wrong.
    most_before: f32,
    /// The window itself at the latest cut, in segments (cwnd_prior, §4.3).
    prior: f32,
    /// Beginning of this stage of congestion avoidance; none before the first ACK in it.
    begun: Option<Instant>,
    /// Seconds from there until the function reaches `most` again (K).
    inflection: f64,
    /// What a NewReno flow would have now, in segments (W_est).
    friendly: f64,
    hystart: HyStart,
}

impl Cubic {
    /// How many segments must be acknowledged for one more, now that `segments` were.
    pub(super) fn step(&mut self, window: u32, segments: u32, now: Instant, rtt: &Rtt) -> u32 {
        let current = f64::from(window);
        let begun = *self.begun.get_or_insert_with(|| {
            self.inflection = if self.most > current {
                ((self.most - current) / STEEPNESS).cbrt()
            } else {
                self.most = current;
                0.0
            };
            self.friendly = current;
            now
        });
        let round_trip = rtt.smoothed().unwrap_or_default().as_duration();
        // Where the function will be one round trip from now (§4.2).
        let elapsed = (now.since(begun) + round_trip).as_secs_f64() - self.inflection;
        let target = STEEPNESS * elapsed.powi(3) + self.most;
        let target = target.clamp(current, 1.5 * current);
        // §4.3: from where it was cut on, a NewReno flow grows by one again. Not from `most` on, which is less
        // where room was left for others.
        let growth = if self.friendly >= f64::from(self.prior) { 1.0 } else { FRIENDLY_GROWTH };
        self.friendly += growth * f64::from(segments) / current.max(1.0);
        let target = target.max(self.friendly);
        let gain = target - current;
        // A window's worth of acknowledgments is to bring the whole gain (§4.4).
        let step = if gain > 0.0 { current / gain } else { 100.0 * current };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let step = step.ceil() as u32;
        // Slow start's pace is the limit.
        step.max(2)
    }

    /// What the window is cut to (§4.6).
    pub(super) fn cut(&mut self, window: u32) -> u32 {
        let current = f64::from(window);
        #[expect(clippy::cast_possible_truncation, reason = "exact below 16 million segments")]
        let (most, prior) = (self.most as f32, current as f32);
        (self.most_before, self.prior) = (most, prior);
        // Fast convergence: whoever is cut below where it was before leaves room (§4.7).
        self.most =
            if current < self.most { current * f64::midpoint(1.0, FACTOR) } else { current };
        self.begun = None;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below a u32")]
        let target = (current * FACTOR) as u32;
        target
    }

    /// The path may be another one now, and slow start begins anew.
    pub(super) fn reset(&mut self) {
        self.begun = None;
        self.hystart.reset();
    }

    /// Whether slow start has gone on for long enough.
    pub(super) fn leaves_slow_start(&mut self, window: u32, round: Round) -> bool {
        // Round trips right after a recovery are those of its queue.
        let recovered = self.begun.is_some_and(|begun| round.now.since(begun) < SETTLING);
        !recovered && self.hystart.leaves(window, round)
    }

    /// The latest cut was wrong (§4.9).
    pub(super) fn undo(&mut self) {
        self.most = self.most.max(f64::from(self.most_before));
        self.begun = None;
    }

    /// Time in which the user has sent nothing does not count (§5.8).
    pub(super) fn skip(&mut self, idle: Duration) {
        if let Some(begun) = &mut self.begun {
            *begun += idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_packet::Instant;

    use super::super::Congestion;
    use crate::config::Algorithm;
    use crate::connection::recovery::Rtt;
    use crate::units::Micros;

    /// The window at the end of each second after a cut at 1000 segments, 100 ms of round trip.
    fn seconds_after_a_cut(seconds: usize) -> Vec<u32> {
        let mut rtt = Rtt::default();
        rtt.sample(Micros::from_millis(100));
        let mut congestion =
            Congestion { limited: true, ..Congestion::new(Algorithm::Cubic, 1000) };
        congestion.on_congestion();
        congestion.window = congestion.threshold;
        let mut now = Instant::ZERO;
        let mut windows = vec![congestion.window];
        for _ in 0..seconds {
            for _ in 0..10 {
                congestion.on_ack(congestion.window, now, &rtt);
                now += Duration::from_millis(100);
            }
            windows.push(congestion.window);
        }
        windows
    }

    #[test]
    fn the_window_is_back_after_k_seconds_and_flat_around_there() {
        // K = cbrt(300 / 0.4) = 9.09 s (RFC 9438 §4.2, equation 2).
        let windows = seconds_after_a_cut(14);
        assert_eq!(windows[0], 700);
        assert!((995..=1001).contains(&windows[9]), "{windows:?}");
        let steps: Vec<_> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps[0] > 60 && steps[8] <= 3 && steps[13] >= 20, "{steps:?}");
    }

    #[test]
    fn at_short_round_trips_it_gets_what_newreno_gets() {
        // §4.3: in the region that is friendly to NewReno, 0.53 segments a round trip.
        let mut rtt = Rtt::default();
        rtt.sample(Micros::from_millis(1));
        let mut congestion = Congestion { limited: true, ..Congestion::new(Algorithm::Cubic, 40) };
        congestion.on_congestion();
        congestion.window = congestion.threshold;
        assert_eq!(congestion.window, 28);
        for n in 0..10 {
            congestion.on_ack(congestion.window, Instant::from_millis(n), &rtt);
        }
        assert!((32..=34).contains(&congestion.window), "{}", congestion.window);
    }

    #[test]
    fn whoever_leaves_room_for_others_does_not_take_it_back_faster() {
        // §4.3 and §4.7: cut at 30 below 40, the function aims at 25.5, and yet growth is 0.53 segments a
        // round trip up to 30.
        let mut rtt = Rtt::default();
        rtt.sample(Micros::from_millis(1));
        let mut congestion = Congestion { limited: true, ..Congestion::new(Algorithm::Cubic, 40) };
        congestion.on_congestion();
        congestion.window = 30;
        congestion.on_congestion();
        congestion.window = congestion.threshold;
        assert_eq!(congestion.window, 21);
        for n in 0..16 {
            congestion.on_ack(congestion.window, Instant::from_millis(n), &rtt);
        }
        assert!((28..=30).contains(&congestion.window), "{}", congestion.window);
    }
}
