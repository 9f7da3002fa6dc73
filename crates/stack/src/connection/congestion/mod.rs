//! How much may be in flight: the window, what makes it grow, and what cuts it.
//!
//! Windows are in segments, as queues are: a router drops packets, not bytes. The algorithms decide
//! how the window grows in congestion avoidance and where it is cut to; slow start, and the window
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

/// No window is cut below this (RFC 5681 §3.1, equation 4).
const LEAST_THRESHOLD: u32 = 2;

/// The congestion window and what governs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Congestion {
    /// Congestion window, in segments (cwnd).
    pub(crate) window: u32,
    /// Slow start threshold, in segments (ssthresh).
    pub(crate) threshold: u32,
    /// The largest window before the latest cut, as far as it matters for a buffer.
    largest_cut: u16,
    /// Segments acknowledged that have not yet made the window grow.
    credit: u32,
    /// Whether the window, and not the user, has held segments back in the latest window of data
    /// (RFC 7661 §4.1).
    pub(crate) limited: bool,
    /// Most segments in flight in the latest window of data.
    most_in_flight: u32,
    /// Where that window of data ends.
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
            most_in_flight: 0,
            usage_end: SeqNumber(0),
            algorithm: match algorithm {
                Algorithm::NewReno => Controller::NewReno(NewReno),
                Algorithm::Cubic => Controller::Cubic(Cubic::default()),
            },
        }
    }

    /// Name of the algorithm, as Linux has it.
    pub(crate) fn name(&self) -> &'static str {
        match self.algorithm {
            Controller::NewReno(_) => "reno",
            Controller::Cubic(_) => "cubic",
        }
    }

    /// Changes the algorithm; the window stays.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.algorithm = Self::new(algorithm, 0).algorithm;
        self.credit = 0;
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// The largest window there was.
    pub(crate) fn largest(&self) -> u32 {
        self.window.max(self.largest_cut.into())
    }

    fn note_cut(&mut self) {
        self.largest_cut = u16::try_from(self.largest()).unwrap_or(u16::MAX);
    }

    /// All was sent that may be sent now. Notes how much of the window was used, and for a window of
    /// data the most that was.
    pub(crate) fn note_usage(&mut self, limited: bool, una: SeqNumber, nxt: SeqNumber, out: u32) {
        let over = !una.before(self.usage_end);
        if over || limited || !self.limited && out > self.most_in_flight {
            self.limited = limited;
            self.most_in_flight = out;
            self.usage_end = nxt;
        }
    }

    /// Whether the window has been in the way, so that it may grow (RFC 7661; in slow start it may
    /// as long as half of it is used).
    fn may_grow(&self) -> bool {
        self.limited || self.in_slow_start() && self.window < 2 * self.most_in_flight
    }

    /// Something was acknowledged in slow start: has it gone on for long enough?
    #[inline(always)]
    pub(crate) fn watch_slow_start(&mut self, took: Option<Micros>, round: impl Fn() -> Round) {
        if let Controller::Cubic(cubic) = &mut self.algorithm
            && self.window < self.threshold
            && cubic.leaves_slow_start(self.window, took, round)
        {
            self.threshold = self.window;
        }
    }

    /// Segments were acknowledged outside of recovery.
    #[inline]
    pub(crate) fn on_ack(&mut self, segments: u32, now: Instant, rtt: &Rtt) {
        if self.may_grow() {
            self.grow_for(segments, now, rtt);
        }
    }

    fn grow_for(&mut self, segments: u32, now: Instant, rtt: &Rtt) {
        let mut segments = segments;
        if self.in_slow_start() {
            // A segment for each acknowledged (RFC 5681 §3.1 with L unbounded, as Linux and
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
            Controller::Cubic(cubic) => cubic.step(self.window, segments, now, rtt),
        };
        self.grow(step, segments);
    }

    /// One segment more for every `step` acknowledged.
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

    /// Congestion: sets the threshold that the window is to come down to. The window itself follows
    /// in recovery.
    pub(crate) fn on_congestion(&mut self) {
        let window = self.window;
        self.note_cut();
        let target = match &mut self.algorithm {
            Controller::NewReno(newreno) => newreno.cut(window),
            Controller::Cubic(cubic) => cubic.cut(window),
        };
        self.threshold = target.max(LEAST_THRESHOLD);
        self.credit = 0;
    }

    /// A retransmission timeout: nothing is known of the path any more (RFC 5681 §3.1).
    pub(crate) fn on_timeout(&mut self) {
        self.note_cut();
        if let Controller::Cubic(cubic) = &mut self.algorithm {
            cubic.reset();
        }
        self.credit = 0;
    }

    /// Nothing was sent for a while: what is known of the path is old (RFC 5681 §4.1; RFC 2861 halves
    /// the window for every timeout that has passed).
    pub(crate) fn on_idle(&mut self, timeouts: u32, initial_window: u32) {
        self.threshold = self.threshold_remembered();
        self.note_cut();
        let restart = initial_window.min(self.window);
        self.window = (self.window.checked_shr(timeouts).unwrap_or(0)).max(restart);
        self.limited = false;
        self.most_in_flight = 0;
    }

    /// The first data in a while leaves: time that the user has spent elsewhere is not growth's.
    #[inline]
    pub(crate) fn on_restart(&mut self, last: Instant, now: Instant) {
        if let Controller::Cubic(cubic) = &mut self.algorithm {
            cubic.skip(last, now);
        }
    }

    /// Three quarters of the window count as threshold if it is higher (RFC 2861 §2).
    fn threshold_remembered(&self) -> u32 {
        if self.threshold == u32::MAX {
            return u32::MAX;
        }
        self.threshold.max(self.window / 2 + self.window / 4)
    }

    /// A congestion event was none: everything back.
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
