//! When to acknowledge: at once, or delayed together with something else (RFC 9293 §3.8.6.3,
//! RFC 5681 §4.2), as Linux decides it.
//!
//! A connection begins with credits for quick ACKs, so that a sender in slow start is not held up.
//! Once they are spent an ACK waits for a second segment, for data in the other direction, or for a
//! timer that adapts to the rate at which segments come. A side that answers soon after each request is in
//! "pingpong" mode: its answers carry the ACKs.
//!
//! A quick ACK of a lone segment, and that of a FIN, may wait for a user that has not read yet: its answer, or
//! its own FIN, carries the ACK (`Config::answer_patience`; Linux has no such thing, as it cannot know when the program
//! is about to read). The ACK waits until the user has read without answering, or for as long as is configured.
//!
//! **What a credit is spent on** is where stacks go wrong: here, as in Linux since commit
//! 059217c18be6, an ACK that newly acknowledges data spends one, never the segments of an
//! answer. The old counting is available for comparison (`QuickAckCounting`).

use std::time::Duration;

use uncork_packet::Instant;

use crate::config::QuickAckCounting;
use crate::units::Micros;

/// Shortest delay (TCP_DELACK_MIN and TCP_ATO_MIN).
pub(crate) const SHORTEST: Micros = Micros::from_millis(40);
/// Longest delay (TCP_DELACK_MAX).
pub(crate) const LONGEST: Micros = Micros::from_millis(200);
/// Longest delay where neither pingpong mode nor a small segment suggests that an answer will come.
const LONGEST_ONE_WAY: Micros = Micros::from_millis(500);
/// Assumed segment size before any was seen (TCP_MSS_DEFAULT).
const FIRST_GUESS: u16 = 536;

/// State of the ACK policy of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckPolicy {
    /// Quick-ACK credits left.
    quick: u8,
    /// Pingpong mode: the user answers requests, and its data carries the ACKs.
    ping_pong: bool,
    /// Delayed-ACK timeout, adapted to the rate of arrivals; none before the first data.
    delay: Option<Micros>,
    /// When data was last received.
    received_at: Instant,
    /// Data was received that no ACK has acknowledged.
    scheduled: bool,
    /// An ACK must be sent now.
    now: bool,
    /// An ACK that is due waits for the user's answer.
    held: bool,
    /// 1 after a segment below full size or at the end of a write, 2 after a second one below full size.
    pushed: u8,
    /// Estimated size of the peer's full segments, in octets.
    segment_bytes: u16,
    last_bytes: u16,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self {
            quick: 0,
            ping_pong: false,
            delay: None,
            received_at: Instant::ZERO,
            scheduled: false,
            now: false,
            held: false,
            pushed: 0,
            segment_bytes: FIRST_GUESS,
            last_bytes: 0,
        }
    }
}

/// A data arrival, for [`AckPolicy::on_data`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) now: Instant,
    /// Data octets of one segment, as it was on the wire.
    pub(crate) segment_bytes: u32,
    /// The segment, or the last of several, has the PSH flag.
    pub(crate) pushed: bool,
    /// The receive window that the peer knows.
    pub(crate) window: u32,
    /// Largest segment that was announced.
    pub(crate) most_bytes: u16,
    /// Most credits that may be granted.
    pub(crate) credits: u8,
}

impl AckPolicy {
    /// Sets the first estimate of the peer's segment size after the handshake
    /// (tcp_initialize_rcv_mss).
    pub(crate) fn begin(&mut self, mss: u32, window: u32, now: Instant) {
        self.received_at = now;
        let guess = mss.min(window / 2).min(u32::from(FIRST_GUESS)).max(88);
        self.segment_bytes = u16::try_from(guess).unwrap_or(FIRST_GUESS);
    }

    /// Returns the estimated size of the peer's full segments.
    pub(crate) fn segment_bytes(&self) -> u32 {
        self.segment_bytes.into()
    }

    /// Notes new data, in order or not. `timeout` computes the current retransmission timeout.
    #[inline(always)]
    pub(crate) fn on_data(&mut self, arrival: Arrival, timeout: impl Fn() -> Micros) {
        self.scheduled = true;
        self.measure(arrival);
        let before = self.received_at;
        self.received_at = arrival.now;
        match self.delay {
            // The most common case, without a division.
            Some(delay) if arrival.now <= before + Micros(SHORTEST.0 / 2) => {
                self.delay = Some(Micros(delay.0 / 2 + SHORTEST.0 / 2));
            }
            _ => self.slow_down(arrival, Micros::between(before, arrival.now), timeout),
        }
    }

    /// Adapts the delay to a longer gap between arrivals.
    fn slow_down(&mut self, arrival: Arrival, gap: Micros, timeout: impl Fn() -> Micros) {
        match self.delay {
            None => {
                self.grant(arrival);
                self.delay = Some(SHORTEST);
            }
            Some(delay) if gap < delay => {
                self.delay = Some(Micros(delay.0 / 2).saturating_add(gap).min(timeout()));
            }
            // Such a long gap means that the sender has restarted with a small window.
            Some(_) if gap > timeout() => self.grant(arrival),
            Some(_) => {}
        }
    }

    /// Estimates the peer's segment size (tcp_measure_rcv_mss).
    #[inline(always)]
    fn measure(&mut self, arrival: Arrival) {
        let bytes = u16::try_from(arrival.segment_bytes).unwrap_or(u16::MAX);
        if bytes >= self.segment_bytes {
            self.segment_bytes = bytes.min(arrival.most_bytes);
            // The end of a write that just fills a segment: nothing follows, and the sender may wait for
            // the ACK (Linux 4720852ed9af).
            if arrival.pushed {
                self.pushed = self.pushed.max(1);
            }
            return;
        }
        // Two of the same size in a row, unless very small, are full segments of a smaller size.
        let repeated = bytes == self.last_bytes;
        self.last_bytes = bytes;
        if repeated && bytes >= FIRST_GUESS {
            self.segment_bytes = bytes;
            return;
        }
        self.pushed = (self.pushed + 1).min(2);
    }

    fn grant(&mut self, arrival: Arrival) {
        let fitting = arrival.window / (2 * u32::from(self.segment_bytes.max(1)));
        let credits = u8::try_from(fitting).unwrap_or(u8::MAX).max(2).min(arrival.credits);
        self.quick = self.quick.max(credits);
    }

    /// Enters quick-ACK mode: after reordering, duplicates or a mark the peer is in trouble and needs an ACK for every segment
    /// (tcp_enter_quickack_mode).
    pub(crate) fn quicken(&mut self, window: u32, credits: u8) {
        let fitting = window / (2 * u32::from(self.segment_bytes.max(1)));
        let credits = u8::try_from(fitting).unwrap_or(u8::MAX).max(2).min(credits);
        self.quick = self.quick.max(credits);
        self.ping_pong = false;
        self.delay = Some(SHORTEST);
    }

    /// Schedules an ACK for something other than data.
    pub(crate) fn schedule(&mut self) {
        self.scheduled = true;
    }

    /// Handles TCP_QUICKACK: 1 leaves pingpong mode, and unacknowledged data counts as small and pushed, so
    /// that it is acknowledged if all was read; 0 enters pingpong mode (__tcp_sock_set_quickack).
    pub(crate) fn set_quick(&mut self, quick: bool, unacknowledged: u32, drained: bool) {
        self.ping_pong = !quick;
        if quick && self.scheduled {
            self.pushed = self.pushed.max(1);
            self.on_read(unacknowledged, drained, false);
        }
    }

    /// Returns whether each segment is acknowledged at once.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick > 0 && !self.ping_pong
    }

    /// Returns the quick-ACK credits left.
    pub(crate) fn credits(&self) -> u8 {
        self.quick
    }

    /// Returns whether answers carry the ACKs.
    pub(crate) fn is_ping_pong(&self) -> bool {
        self.ping_pong
    }

    /// Returns the timeout of the next delayed ACK.
    pub(crate) fn delay(&self) -> Micros {
        self.delay.unwrap_or_default()
    }

    /// Returns when data was last received.
    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }

    /// Demands an ACK at once.
    pub(crate) fn demand(&mut self) {
        self.now = true;
    }

    /// Returns whether an ACK is demanded.
    pub(crate) fn is_demanded(&self) -> bool {
        self.now
    }

    /// Demands an ACK, unless the user's answer may carry it: then returns until when it waits for that.
    pub(crate) fn hold(&mut self, patience: Duration, now: Instant) -> Option<Instant> {
        self.held = !self.now && !patience.is_zero();
        self.now = !self.held;
        self.held.then(|| now + patience)
    }

    /// Returns whether an ACK waits for the user's answer.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Decides after an arrival whether to send an ACK now, or when (__tcp_ack_snd_check). `unacknowledged` octets were
    /// received since the last ACK; `window_moved` says whether an ACK would open the window again;
    /// if not, the program's read sends one soon. A quick ACK waits for the user for up to `patience`.
    #[inline(always)]
    pub(crate) fn decide(
        &mut self,
        unacknowledged: u32,
        window_moved: impl FnOnce() -> bool,
        patience: Duration,
        now: Instant,
        smoothed: Option<Micros>,
        standing: Option<Instant>,
    ) -> Option<Instant> {
        if !self.scheduled || self.now {
            return None;
        }
        // RFC 9293 §3.8.6.3: at least every second full segment.
        if unacknowledged > u32::from(self.segment_bytes) && window_moved() {
            self.now = true;
            return None;
        }
        if self.is_quick() {
            let deadline = self.hold(patience, now)?;
            return Some(standing.map_or(deadline, |standing| standing.min(deadline)));
        }
        let mut delay = self.delay.unwrap_or(SHORTEST);
        if delay > SHORTEST {
            let mut most =
                if self.ping_pong || self.pushed > 0 { LONGEST } else { LONGEST_ONE_WAY };
            if let Some(smoothed) = smoothed {
                most = most.min(smoothed.max(SHORTEST));
            }
            delay = delay.min(most);
        }
        delay = delay.min(LONGEST);
        let deadline = now + delay;
        match standing {
            // It has nearly expired: waiting for the rest is no use.
            Some(standing)
                if standing <= Instant::from_nanos(now.as_nanos() + delay.as_nanos() / 4) =>
            {
                self.now = true;
                None
            }
            Some(standing) => Some(standing.min(deadline)),
            None => Some(deadline),
        }
    }

    /// Handles the delayed-ACK timer (tcp_delack_timer_handler).
    pub(crate) fn on_timer(&mut self, timeout: impl FnOnce() -> Micros) {
        if !self.scheduled {
            return;
        }
        if self.ping_pong {
            // No answer came: pingpong mode ends.
            self.ping_pong = false;
            self.delay = Some(SHORTEST);
        } else {
            // The peer sends more slowly than expected.
            let delay = self.delay.unwrap_or(SHORTEST);
            self.delay = Some(delay.saturating_mul(2).min(timeout()));
        }
        self.now = true;
    }

    /// Handles a read (tcp_cleanup_rbuf), by the user itself or by a reader that passes the data on. `drained` says that
    /// nothing is left to read.
    #[inline(always)]
    pub(crate) fn on_read(&mut self, unacknowledged: u32, drained: bool, hands_on: bool) {
        if !self.scheduled {
            return;
        }
        let small = self.pushed == 2 || self.pushed == 1 && !self.ping_pong;
        // A user that has read and sent nothing has no answer.
        let haste = if self.held { !hands_on } else { drained && small };
        if haste || unacknowledged > u32::from(self.segment_bytes) {
            self.now = true;
        }
    }

    /// Notes that data is sent. Soon after data was received this is an answer (tcp_event_data_sent).
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        let answers = self.delay.is_some_and(|delay| now < self.received_at + delay);
        if answers {
            self.ping_pong = true;
        }
    }

    /// Notes that `segments` with an ACK leave, which acknowledge all that was received.
    pub(crate) fn on_ack_sent(&mut self, segments: u32, counting: QuickAckCounting) {
        let spent = match counting {
            QuickAckCounting::AcksOfNewData => u32::from(self.scheduled),
            QuickAckCounting::EverySegmentSent => segments,
        };
        if self.quick > 0 && spent > 0 {
            let spent = u8::try_from(spent).unwrap_or(u8::MAX);
            self.quick = self.quick.saturating_sub(spent);
            if self.quick == 0 {
                self.delay = Some(SHORTEST);
            }
        }
        self.scheduled = false;
        self.now = false;
        self.held = false;
        self.pushed = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_packet::Instant;

    use super::{AckPolicy, Arrival, Micros, QuickAckCounting, SHORTEST};

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn arrive(policy: &mut AckPolicy, now: Instant, segment_bytes: u32) -> Option<Instant> {
        let arrival = Arrival {
            pushed: false,
            now,
            segment_bytes,
            window: 65_535,
            most_bytes: 1460,
            credits: 16,
        };
        policy.on_data(arrival, || Micros::from_millis(200));
        policy.decide(segment_bytes, || true, Duration::ZERO, now, None, None)
    }

    /// Plays ten requests of 100 octets, each answered with `answer` segments; returns
    /// the credits left after each.
    fn exchange(counting: QuickAckCounting, answer: u32) -> Vec<u8> {
        let mut policy = AckPolicy::default();
        policy.begin(1460, 65_535, Instant::ZERO);
        (0..10)
            .map(|n| {
                arrive(&mut policy, at(n), 100);
                policy.on_data_sent(at(n));
                policy.on_ack_sent(answer, counting);
                policy.credits()
            })
            .collect()
    }

    #[test]
    fn a_credit_is_spent_by_an_ack_of_new_data_and_not_by_the_segments_of_an_answer() {
        // Linux 059217c18be6.
        let new = exchange(QuickAckCounting::AcksOfNewData, 8);
        assert_eq!(new, [15, 14, 13, 12, 11, 10, 9, 8, 7, 6]);
        let old = exchange(QuickAckCounting::EverySegmentSent, 8);
        assert_eq!(old, [8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn sixteen_lone_segments_are_acknowledged_at_once_and_the_next_after_40_ms() {
        let mut policy = AckPolicy::default();
        policy.begin(1460, 65_535, Instant::ZERO);
        for n in 0..16 {
            assert_eq!(arrive(&mut policy, at(n), 100), None);
            assert!(policy.is_demanded(), "segment {n}");
            policy.on_ack_sent(1, QuickAckCounting::AcksOfNewData);
        }
        assert_eq!(arrive(&mut policy, at(16), 100), Some(at(16) + SHORTEST.as_duration()));
        assert!(!policy.is_demanded());
    }

    #[test]
    fn the_second_full_segment_is_acknowledged_at_once() {
        // RFC 9293 §3.8.6.3, RFC 5681 §4.2.
        let mut policy = AckPolicy { delay: Some(SHORTEST), ..AckPolicy::default() };
        assert!(arrive(&mut policy, at(1), 1460).is_some());
        let arrival = Arrival {
            pushed: false,
            now: at(1),
            segment_bytes: 1460,
            window: 65_535,
            most_bytes: 1460,
            credits: 16,
        };
        policy.on_data(arrival, || Micros::from_millis(200));
        assert_eq!(policy.decide(2920, || true, Duration::ZERO, at(1), None, None), None);
        assert!(policy.is_demanded());
    }

    #[test]
    fn a_delay_that_no_answer_has_used_ends_ping_pong() {
        let mut policy = AckPolicy { delay: Some(SHORTEST), ..AckPolicy::default() };
        arrive(&mut policy, at(1), 100);
        policy.on_data_sent(at(2));
        policy.on_ack_sent(1, QuickAckCounting::AcksOfNewData);
        assert!(policy.is_ping_pong());
        arrive(&mut policy, at(3), 100);
        policy.on_timer(|| Micros::from_millis(200));
        assert!(!policy.is_ping_pong() && policy.is_demanded());
        policy.on_ack_sent(1, QuickAckCounting::AcksOfNewData);
        // Expired again without an answer: the sender is slow, so the delay grows.
        arrive(&mut policy, at(103), 100);
        policy.on_timer(|| Micros::from_millis(200));
        assert_eq!(policy.delay(), Micros::from_millis(80));
    }
}
