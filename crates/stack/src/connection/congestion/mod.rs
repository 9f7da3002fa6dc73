//! Congestion control: the congestion window, its growth and its reductions.
//!
//! Windows are in segments, as queues are: a router drops packets, not bytes. The algorithms decide
//! how the window grows in congestion avoidance and to what it is reduced; slow start, and the window
//! during recovery, are the same for all.

mod cubic;
mod hystart;
mod newreno;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use cubic::Cubic;
pub(crate) use hystart::Round;
use newreno::NewReno;

use super::recovery::Rtt;
use crate::config::Algorithm;
use crate::units::Micros;

/// Least slow start threshold after a reduction (RFC 5681 §3.1, equation 4).
const LEAST_THRESHOLD: u32 = 2;

/// Most acknowledged segments that grow CUBIC's window by one before any reduction: its function begins flat, but that is where
/// slow start has ended, which says little about the path (last_max_cwnd in Linux's `bictcp_update`). 5 % per round trip.
const MOST_UNTOLD: u32 = 20;

/// The congestion window and its state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Congestion {
    /// Congestion window, in segments (cwnd).
    pub(crate) window: u32,
    /// Slow start threshold, in segments (ssthresh).
    pub(crate) threshold: u32,
    /// The largest window before any reduction, as far as it matters for the size of a buffer.
    largest_cut: u16,
    /// Acknowledged segments that have not yet made the window grow.
    credit: u32,
    /// Whether the flow was window-limited in the latest window of data, not limited by the user
    /// (RFC 7661 §4.1).
    pub(crate) limited: bool,
    /// The window was reduced since the beginning, or since the latest timeout.
    was_cut: bool,
    /// Most segments in flight in the latest window of data.
    most_in_flight: u32,
    /// Sequence number at which that window of data ends.
    usage_end: SeqNumber,
    algorithm: Controller,
}

#[derive(Debug, Clone, Copy)]
enum Controller {
    NewReno(NewReno),
    Cubic(Cubic),
}

impl Congestion {
    pub(crate) fn new(algorithm: Algorithm, initial_window: u32) -> Self {
        Self {
            window: initial_window,
            threshold: u32::MAX,
            largest_cut: 0,
            credit: 0,
            limited: false,
            was_cut: false,
            most_in_flight: 0,
            usage_end: SeqNumber(0),
            algorithm: match algorithm {
                Algorithm::NewReno => Controller::NewReno(NewReno),
                Algorithm::Cubic => Controller::Cubic(Cubic::default()),
            },
        }
    }

    /// Returns the name of the algorithm in Linux.
    pub(crate) fn name(&self) -> &'static str {
        match self.algorithm {
            Controller::NewReno(_) => "reno",
            Controller::Cubic(_) => "cubic",
        }
    }

    /// Changes the algorithm; the window stays the same.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.algorithm = Self::new(algorithm, 0).algorithm;
        self.was_cut = false;
        self.credit = 0;
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Returns the largest window so far.
    pub(crate) fn largest(&self) -> u32 {
        self.window.max(self.largest_cut.into())
    }

    fn note_cut(&mut self) {
        self.largest_cut = u16::try_from(self.largest()).unwrap_or(u16::MAX);
    }

    /// Notes how much of the window is used, after everything was sent that may be sent now: for each window of
    /// data the maximum.
    pub(crate) fn note_usage(&mut self, limited: bool, una: SeqNumber, nxt: SeqNumber, out: u32) {
        let over = !una.before(self.usage_end);
        if over || limited || !self.limited && out > self.most_in_flight {
            self.limited = limited;
            self.most_in_flight = out;
            self.usage_end = nxt;
        }
    }

    /// Returns whether the window was the limit, so that it may grow (RFC 7661; in slow start it may
    /// as long as half of it is used).
    fn may_grow(&self) -> bool {
        self.limited || self.in_slow_start() && self.window < 2 * self.most_in_flight
    }

    /// Lets the algorithm decide on an ACK in slow start whether to leave it.
    #[inline(always)]
    pub(crate) fn watch_slow_start(&mut self, took: Option<Micros>, round: impl Fn() -> Round) {
        if let Controller::Cubic(cubic) = &mut self.algorithm
            && self.window < self.threshold
            && cubic.leaves_slow_start(self.window, took, round)
        {
            self.threshold = self.window;
        }
    }

    /// Grows the window for segments that were acknowledged outside recovery.
    #[inline]
    pub(crate) fn on_ack(&mut self, segments: u32, now: Instant, rtt: &Rtt) {
        if self.may_grow() {
            self.grow_for(segments, now, rtt);
        }
    }

    fn grow_for(&mut self, segments: u32, now: Instant, rtt: &Rtt) {
        let mut segments = segments;
        if self.in_slow_start() {
            // One segment per acknowledged segment (RFC 5681 §3.1 with L unbounded, as Linux and
            // RFC 9438 §4.10 allow with pacing or ABC).
            let target = (self.window + segments).min(self.threshold);
            segments -= target - self.window;
            self.window = target;
            if segments == 0 {
                return;
            }
        }
        let step = match &mut self.algorithm {
            Controller::NewReno(_) => self.window,
            Controller::Cubic(cubic) => {
                let step = cubic.step(self.window, segments, now, rtt);
                if self.was_cut { step } else { step.min(MOST_UNTOLD) }
            }
        };
        self.grow(step, segments);
    }

    /// Grows the window by one segment for every `step` acknowledged.
    fn grow(&mut self, step: u32, segments: u32) {
        let step = step.max(1);
        if self.credit >= step {
            self.credit = 0;
            self.window += 1;
        }
        self.credit += segments;
        self.window += self.credit / step;
        self.credit %= step;
    }

    /// Handles congestion: sets the threshold to which the window is to be reduced. Recovery reduces the window
    /// itself.
    pub(crate) fn on_congestion(&mut self) {
        let window = self.window;
        self.note_cut();
        let target = match &mut self.algorithm {
            Controller::NewReno(newreno) => newreno.cut(window),
            Controller::Cubic(cubic) => cubic.cut(window),
        };
        self.threshold = target.max(LEAST_THRESHOLD);
        self.was_cut = true;
        self.credit = 0;
    }

    /// Handles a retransmission timeout: all knowledge of the path is void (RFC 5681 §3.1).
    pub(crate) fn on_timeout(&mut self) {
        self.note_cut();
        if let Controller::Cubic(cubic) = &mut self.algorithm {
            cubic.reset();
        }
        self.was_cut = false;
        self.credit = 0;
    }

    /// Handles idleness: knowledge of the path is outdated (RFC 5681 §4.1; RFC 2861 halves
    /// the window for every timeout that has passed).
    pub(crate) fn on_idle(&mut self, timeouts: u32, initial_window: u32) {
        self.threshold = self.threshold_remembered();
        self.note_cut();
        let restart = initial_window.min(self.window);
        self.window = (self.window.checked_shr(timeouts).unwrap_or(0)).max(restart);
        self.limited = false;
        self.most_in_flight = 0;
    }

    /// Handles the first data after a pause: the pause does not count as time for growth.
    #[inline]
    pub(crate) fn on_restart(&mut self, last: Instant, now: Instant) {
        if let Controller::Cubic(cubic) = &mut self.algorithm {
            cubic.skip(last, now);
        }
    }

    /// Returns the threshold, or three quarters of the window if that is higher (RFC 2861 §2).
    fn threshold_remembered(&self) -> u32 {
        if self.threshold == u32::MAX {
            return u32::MAX;
        }
        self.threshold.max(self.window / 2 + self.window / 4)
    }

    /// Undoes a spurious congestion event.
    pub(crate) fn undo(&mut self, window: u32, threshold: u32) {
        self.window = self.window.max(window);
        self.threshold = self.threshold.max(threshold);
        if let Controller::Cubic(cubic) = &mut self.algorithm {
            cubic.undo();
        }
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;

    use super::Congestion;
    use crate::config::Algorithm;
    use crate::connection::recovery::Rtt;
    use crate::units::Micros;

    fn rtt(millis: u32) -> Rtt {
        let mut rtt = Rtt::default();
        rtt.sample(Micros::from_millis(millis));
        rtt
    }

    fn full(algorithm: Algorithm) -> Congestion {
        Congestion { limited: true, ..Congestion::new(algorithm, 10) }
    }

    #[test]
    fn slow_start_doubles_in_a_round_trip_and_ends_at_the_threshold() {
        // RFC 5681 §3.1.
        let mut congestion = full(Algorithm::NewReno);
        congestion.on_ack(10, Instant::ZERO, &rtt(20));
        assert_eq!(congestion.window, 20);
        congestion.threshold = 25;
        congestion.on_ack(5 + 25, Instant::ZERO, &rtt(20));
        assert_eq!(congestion.window, 26);
    }

    #[test]
    fn newreno_grows_by_a_segment_in_a_round_trip_and_halves() {
        let mut congestion = full(Algorithm::NewReno);
        congestion.threshold = 10;
        for _ in 0..10 {
            congestion.on_ack(1, Instant::ZERO, &rtt(20));
        }
        assert_eq!(congestion.window, 11);
        congestion.window = 100;
        congestion.on_congestion();
        assert_eq!((congestion.window, congestion.threshold), (100, 50));
        congestion.window = 1;
        congestion.on_congestion();
        assert_eq!(congestion.threshold, 2);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        // RFC 7661 §4.1.
        let mut congestion = Congestion::new(Algorithm::Cubic, 10);
        congestion.most_in_flight = 4;
        congestion.on_ack(4, Instant::ZERO, &rtt(20));
        assert_eq!(congestion.window, 10);
        congestion.most_in_flight = 6;
        congestion.on_ack(6, Instant::ZERO, &rtt(20));
        assert_eq!(congestion.window, 16);
    }

    #[test]
    fn idleness_halves_the_window_down_to_where_it_began() {
        let mut congestion = Congestion::new(Algorithm::Cubic, 80);
        congestion.threshold = 40;
        congestion.on_idle(2, 10);
        assert_eq!((congestion.window, congestion.threshold), (20, 60));
        congestion.on_idle(9, 10);
        assert_eq!(congestion.window, 10);
    }
}
