//! CUBIC (RFC 9438): the window follows a cubic function of the time since the last reduction, with its
//! plateau at the window before that.

use std::num::NonZeroU32;
use std::time::Duration;

use uncork_packet::Instant;

use super::hystart::{HyStart, Round};
use crate::connection::recovery::Rtt;
use crate::units::Micros;

/// Time after a reduction in which HyStart does not judge slow start.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a growth rate is reused while the window stays the same: little changes meanwhile, and no cube has to be
/// computed for every ACK (a 32nd of a second in Linux's `bictcp_update`). No longer than a round trip.
const PACE_HOLDS: Duration = Duration::from_millis(31);
/// Scaling factor of the function, in segments per second³ (C, RFC 9438 §5).
const STEEPNESS: f64 = 0.4;
/// Factor by which the window is multiplied in a reduction (beta, §4.6).
const FACTOR: f64 = 0.7;
/// Growth per round trip with which an average flow gets as much as a NewReno flow
/// (alpha, §4.3, equation 4).
const FRIENDLY_GROWTH: f64 = 3.0 * (1.0 - FACTOR) / (1.0 + FACTOR);

/// CUBIC's state since the latest reduction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cubic {
    /// Beginning of this congestion avoidance stage, if it has begun.
    begun: Instant,
    /// Estimated window of a NewReno flow, in segments (W_est).
    friendly: f64,
    /// Plateau of the function, in segments (W_max): the window before the reduction, or less.
    most: f32,
    /// W_max before the latest reduction, in case that is undone.
    most_before: f32,
    /// Seconds from the beginning until the function reaches the plateau (K).
    inflection: f32,
    /// Window before the reduction (cwnd_prior).
    prior: u32,
    /// How many acknowledged segments grow the window by one; none before the first ACK of this stage. The fields after it
    /// hold the window and the time for which it was computed.
    pace: Option<NonZeroU32>,
    paced_window: u32,
    paced_at: Instant,
    hystart: HyStart,
}

impl Cubic {
    /// Returns how many acknowledged segments grow the window by one, after `segments` were acknowledged.
    pub(super) fn step(&mut self, window: u32, segments: u32, now: Instant, rtt: &Rtt) -> u32 {
        let current = f64::from(window);
        if self.pace.is_none() {
            self.begin(current, now);
        }
        // §4.3: alpha is 1 once W_est has reached cwnd_prior. Not W_max, which is less after fast
        // convergence.
        let growth = if self.friendly >= f64::from(self.prior) { 1.0 } else { FRIENDLY_GROWTH };
        self.friendly += growth * f64::from(segments) / current.max(1.0);
        let round_trip = rtt.smoothed().unwrap_or_default().as_duration();
        if let Some(pace) = self.pace
            && window == self.paced_window
            && now.since(self.paced_at) < PACE_HOLDS.min(round_trip)
        {
            return pace.get();
        }
        let pace = self.pace(current, now.since(self.begun) + round_trip);
        self.pace = NonZeroU32::new(pace);
        (self.paced_window, self.paced_at) = (window, now);
        pace
    }

    /// Begins a stage of congestion avoidance.
    fn begin(&mut self, current: f64, now: Instant) {
        let above = f64::from(self.most) - current;
        if above > 0.0 {
            self.inflection = narrow((above / STEEPNESS).cbrt());
        } else {
            self.most = narrow(current);
            self.inflection = 0.0;
        }
        self.friendly = current;
        self.begun = now;
    }

    /// Computes the growth rate at this time in congestion avoidance.
    fn pace(&self, current: f64, ahead: Duration) -> u32 {
        // The function's value one round trip from now (§4.2).
        let elapsed = ahead.as_secs_f64() - f64::from(self.inflection);
        let target = STEEPNESS * elapsed.powi(3) + f64::from(self.most);
        let target = target.clamp(current, 1.5 * current);
        // A NewReno flow's window has whole segments: a fraction does not count.
        let target = target.max(self.friendly.floor());
        let gain = target - current;
        // A window's worth of ACKs is to bring the whole gain (§4.4).
        let step = if gain > 0.0 { current / gain } else { 100.0 * current };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let step = step.ceil() as u32;
        // No faster than slow start.
        step.max(2)
    }

    /// Returns the reduced window (§4.6).
    pub(super) fn cut(&mut self, window: u32) -> u32 {
        let current = f64::from(window);
        self.most_before = self.most;
        self.prior = window;
        // Fast convergence: a flow that is reduced below its former W_max leaves room for others (§4.7).
        let converges = current < f64::from(self.most);
        self.most = narrow(if converges { current * f64::midpoint(1.0, FACTOR) } else { current });
        self.pace = None;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below a u32")]
        let target = (current * FACTOR) as u32;
        target
    }

    /// Starts over after a timeout: the path may have changed, slow start begins again, and the plateau is where it ends
    /// (§4.8).
    pub(super) fn reset(&mut self) {
        self.most = 0.0;
        self.pace = None;
        self.hystart.reset();
    }

    /// Returns whether HyStart ends slow start.
    #[inline(always)]
    pub(super) fn leaves_slow_start(
        &mut self,
        window: u32,
        took: Option<Micros>,
        round: impl Fn() -> Round,
    ) -> bool {
        // Round trips right after a recovery include its queue.
        let recovered = self.pace.is_some() && round().now.since(self.begun) < SETTLING;
        !recovered && took.is_some_and(|took| self.hystart.leaves(window, took, round))
    }

    /// Undoes the latest reduction, which was spurious (§4.9).
    pub(super) fn undo(&mut self) {
        self.most = self.most.max(self.most_before);
        self.pace = None;
    }

    /// Excludes the time in which the user has sent nothing (§5.8).
    #[inline]
    pub(super) fn skip(&mut self, last: Instant, now: Instant) {
        if self.pace.is_some() {
            let idle = now.as_nanos().saturating_sub(last.as_nanos());
            self.begun = Instant::from_nanos(self.begun.as_nanos().saturating_add(idle));
        }
    }
}

/// Narrows a window or a number of seconds to save memory in each connection.
#[expect(clippy::cast_possible_truncation, reason = "exact up to 2²⁴ segments")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_packet::Instant;

    use super::super::Congestion;
    use crate::config::Algorithm;
    use crate::connection::recovery::Rtt;
    use crate::units::Micros;

    /// Makes a fully used window, with round trips that all took the same time.
    fn begin(window: u32, round_trip_ms: u32) -> (Congestion, Rtt) {
        let mut rtt = Rtt::default();
        rtt.sample(Micros::from_millis(round_trip_ms));
        (Congestion { limited: true, ..Congestion::new(Algorithm::Cubic, window) }, rtt)
    }

    /// Returns the window at the end of each second after a reduction at 1000 segments, with round trips of 100 ms.
    fn seconds_after_a_cut(seconds: usize) -> Vec<u32> {
        let (mut congestion, rtt) = begin(1000, 100);
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
        // §4.3: in the Reno-friendly region, 0.53 segments per round trip.
        let (mut congestion, rtt) = begin(40, 1);
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
        // §4.3 and §4.7: reduced at 30, below 40, the plateau is at 25.5, and yet growth is 0.53 segments per
        // round trip up to 30.
        let (mut congestion, rtt) = begin(40, 1);
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

    #[test]
    fn after_a_timeout_the_function_is_flat_where_slow_start_ends() {
        // §4.8: the window before the timeout no longer says anything about the path.
        let (mut congestion, rtt) = begin(1000, 100);
        congestion.on_congestion();
        congestion.on_timeout();
        congestion.window = congestion.threshold;
        for round in 0..10 {
            congestion.on_ack(congestion.window, Instant::from_millis(100 * round), &rtt);
        }
        // Flat: the old function would have added over a hundred and fifty in the first of them already. But as nothing is known
        // of the path, 5 % per round trip (bictcp_update).
        assert!((1120..=1141).contains(&congestion.window), "{}", congestion.window);
    }

    #[test]
    fn as_long_as_nothing_was_lost_the_window_grows_by_a_twentieth_in_a_round_trip() {
        // bictcp_update, last_max_cwnd == 0: HyStart may have ended slow start far too early.
        let (mut congestion, rtt) = begin(100, 10);
        congestion.threshold = 100;
        let grow = |congestion: &mut Congestion| {
            for n in 0..14 {
                congestion.on_ack(congestion.window, Instant::from_millis(10 * n), &rtt);
            }
            congestion.window
        };
        let window = grow(&mut congestion);
        assert!((190..=198).contains(&window), "{window}");
        congestion.on_congestion();
        congestion.window = congestion.threshold;
        let cut = congestion.window;
        assert!(grow(&mut congestion) < cut + 20);
    }

    #[test]
    fn a_part_of_a_segment_is_not_made_up_for() {
        // Seven segments per round trip, 0.53 segments for them: the first one comes after 13.2, when
        // the growth rate is computed again (cubic-rto-ss-ca-cwnd-bump.pkt of packetdrill).
        let (mut congestion, rtt) = begin(10, 100);
        congestion.on_congestion();
        congestion.on_timeout();
        congestion.window = congestion.threshold;
        assert_eq!(congestion.window, 7);
        let mut acked = 0;
        while congestion.window == 7 {
            let now = Instant::from_millis(100 * (acked / 7) + 2 * (acked % 7));
            congestion.on_ack(1, now, &rtt);
            acked += 1;
        }
        assert_eq!(acked, 15);
    }
}
