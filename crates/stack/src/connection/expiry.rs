//! The connection's timers: how they are armed, and what they do when they expire.

use uncork_packet::Instant;

use super::deferral::Turn;
use super::recovery::Phase;
use super::recovery::judging::Judgement;
use super::timers::{LossTimer, Timer};
use super::{Cause, Connection, ConnectionError, Owed, State};
use crate::context::Context;
use crate::units::Micros;

/// The probe timeout while no round trip is known (RFC 8985 §7.2).
const UNMEASURED: Micros = Micros::from_millis(1000);
/// Time that a tail loss probe waits beyond two round trips for a lone segment, whose ACK the peer may delay
/// (TLP.max_ack_delay, RFC 8985 §7.2: 200 ms for a peer of unknown behaviour).
const ACK_DELAY: Micros = super::receive::ack_policy::LONGEST;
/// Least time until a peer is taken to have forgotten what it has told of with SACK (tcp_check_sack_reneging).
const FORGETTING: Micros = Micros::from_millis(10);
/// Time that the probe waits for several segments, of which the second is acknowledged at once.
const SLACK: Micros = Micros::from_millis(2);

impl Connection {
    /// Handles the timers that are due when the wheel has come up, and returns whether any was. A stopped timer is not taken out
    /// of the wheel, so that often none is due; then nothing else of the connection, which is in no cache, is touched.
    pub(crate) fn handle_timers(&mut self, cx: &mut Context) -> bool {
        self.timers.come_up();
        let mut was_due = false;
        while let Some(timer) = self.timers.expire(cx.now) {
            was_due = true;
            // The delayed-ACK timer is part of every conversation with pauses: the connection stays steady.
            if timer != Timer::Ack {
                self.disturb();
            }
            match timer {
                Timer::Loss => self.on_loss_timer(cx),
                Timer::Ack => self.on_ack_timer(cx),
                Timer::Idle => self.on_idle_timer(cx),
                // What was held by the cork has been held long enough.
                Timer::Cork => {
                    self.sender.hurry();
                    self.sender.pushed = self.sender.end;
                }
                // The next decision finds that the pacing time has come.
                Timer::Pace => {}
            }
        }
        was_due
    }

    fn on_ack_timer(&mut self, cx: &mut Context) {
        if self.ack.is_held() {
            // The user has sent no answer so far.
            self.ack.demand();
            return;
        }
        cx.counters.delayed_acks += 1;
        let rtt = &self.rtt;
        self.ack.on_timer(|| rtt.timeout(cx.timeouts));
    }

    fn timeout(&self, cx: &Context) -> Micros {
        self.rtt.timeout(cx.timeouts)
    }

    /// Starts the retransmission timer for a SYN or SYN-ACK that leaves.
    pub(crate) fn start_handshake_timer(&mut self, cx: &Context) {
        self.recovery.progress_at = cx.now;
        let deadline = self.within_user_timeout(cx.now + self.timeout(cx));
        self.timers.set_loss(LossTimer::Retransmit, deadline);
    }

    /// Arms the loss timer after something was sent or acknowledged.
    pub(crate) fn arm_loss_timer(&mut self, cx: &Context) {
        if self.is_fast_child() {
            // Before the handshake is over only the SYN-ACK is retransmitted (tcp_retransmit_timer).
            return;
        }
        if self.sender.flight.is_empty() {
            let waits = self.state.transmits_data()
                && (self.sender.unsent_bytes() > 0 || self.sender.owes_fin());
            // The persist timer (RFC 9293 §3.8.6.1): nothing else is sure to show that the window has opened.
            if waits && !self.timers.is_running(Timer::Loss) {
                let deadline = cx.now + self.timeout(cx);
                self.timers.set_loss(LossTimer::Window, self.within_user_timeout(deadline));
            }
            return;
        }
        if self.timers.loss == LossTimer::Reorder && self.timers.is_running(Timer::Loss) {
            return;
        }
        let wait = if self.seems_forgotten() { self.patience() } else { self.timeout(cx) };
        let retransmit = (self.recovery.progress_at + wait).max(cx.now);
        match self.tail_probe_delay() {
            // Never later than the retransmission timeout, which it then replaces (RFC 8985 §7.2).
            Some(delay) => self.timers.set_loss(LossTimer::Probe, retransmit.min(cx.now + delay)),
            None => {
                let deadline = self.within_user_timeout(retransmit);
                self.timers.set_loss(LossTimer::Retransmit, deadline);
            }
        }
    }

    /// Returns whether the peer acknowledges less than what it has told of with SACK: it has discarded that (RFC 2018 §8), or a
    /// newer ACK is under way.
    pub(in crate::connection) fn seems_forgotten(&self) -> bool {
        self.sender.flight.first().is_some_and(super::Record::is_sacked)
    }

    /// Returns how long the newer ACK is waited for: half a round trip (tcp_check_sack_reneging).
    fn patience(&self) -> Micros {
        Micros(self.rtt.smoothed().unwrap_or_default().0 / 2).max(FORGETTING)
    }

    /// Arms the loss timer after a segment has left a steady connection that had nothing in flight: the probe timeout and the
    /// retransmission timeout then both count from now.
    #[inline(always)]
    pub(super) fn arm_plain(&mut self, cx: &Context) {
        let Some(smoothed) = self.rtt.smoothed() else { return self.arm_loss_timer(cx) };
        let delay = smoothed.saturating_mul(2).saturating_add(ACK_DELAY);
        let timeout = self.rtt.base_timeout(cx.timeouts);
        self.timers.set_loss(LossTimer::Probe, cx.now + timeout.min(delay));
    }

    fn within_user_timeout(&self, deadline: Instant) -> Instant {
        let limit = self.options.user_timeout().zip(self.recovery.stuck_since.get());
        limit.map_or(deadline, |(timeout, since)| deadline.min(since + timeout))
    }

    /// Returns the probe timeout (RFC 8985 §7.2), if a tail loss probe is to be sent at all.
    fn tail_probe_delay(&self) -> Option<Micros> {
        let flight = &self.sender.flight;
        let quiet = self.recovery.phase == Phase::Open && flight.sacked_segments() == 0;
        if !self.peer.sacks || !quiet || self.recovery.probe.is_some() || self.recovery.timeouts > 0
        {
            return None;
        }
        let Some(smoothed) = self.rtt.smoothed() else { return Some(UNMEASURED) };
        let extra = if flight.out_segments() == 1 { ACK_DELAY } else { SLACK };
        Some(smoothed.saturating_mul(2).saturating_add(extra))
    }

    fn on_loss_timer(&mut self, cx: &mut Context) {
        if self.is_to_give_way(cx) {
            return self.give_way(cx);
        }
        match std::mem::take(&mut self.timers.loss) {
            LossTimer::None => {}
            LossTimer::Retransmit if self.state.is_synchronised() => self.on_timeout(cx),
            LossTimer::Retransmit => self.on_handshake_timeout(cx),
            // There is nothing that may be sent as a probe: the retransmission timeout counts as before.
            LossTimer::Probe if self.plan_tail_probe().is_none() => {
                let deadline = self.recovery.progress_at + self.timeout(cx);
                let deadline = self.within_user_timeout(deadline.max(cx.now));
                self.timers.set_loss(LossTimer::Retransmit, deadline);
            }
            LossTimer::Probe => {
                cx.counters.tail_probes += 1;
                self.owed.add(Owed::TAIL_PROBE);
                // The retransmission timeout counts from the probe (§7.3).
                self.recovery.progress_at = cx.now;
                let deadline = cx.now + self.timeout(cx);
                self.timers.set_loss(LossTimer::Retransmit, deadline);
            }
            LossTimer::Reorder => self.on_reorder_timer(cx),
            LossTimer::Window => self.on_window_timer(cx),
        }
    }

    fn retries(&self, cx: &Context) -> u8 {
        let (data, orphan) = (cx.config.data_retries, cx.config.orphan_retries);
        if self.user.attached { data } else { orphan.min(data) }
    }

    /// Returns whether the connection has timed out (RFC 9293 §3.8.3).
    fn is_given_up(&mut self, cx: &Context, retries: u8) -> bool {
        let stuck = &mut self.recovery.stuck_since;
        let since = stuck.get().unwrap_or(self.recovery.progress_at);
        stuck.set(since);
        match self.options.user_timeout() {
            Some(timeout) => cx.now.since(since) >= timeout,
            None if self.keeps_window_shut() => self.is_silent_for_long(cx, since),
            None => self.recovery.timeouts >= retries && self.has_taken_as_long(cx, since, retries),
        }
    }

    /// Returns whether it has tried for as long as this many retries take. It has, unless the backoff was reverted, which ICMP
    /// errors of routers may do again and again: then the elapsed time counts (retransmits_timed_out).
    fn has_taken_as_long(&self, cx: &Context, since: Instant, retries: u8) -> bool {
        if self.recovery.timeouts <= self.rtt.backoff || !self.state.is_synchronised() {
            return true;
        }
        let base = self.rtt.base_timeout(cx.timeouts);
        let each = |tries: u8| base.doubled(tries.into()).min(cx.timeouts.most());
        let whole = (0..=retries).map(each).fold(Micros::ZERO, Micros::saturating_add);
        cx.now >= since + whole
    }

    /// Returns whether the peer's window is zero although data is in flight: retransmissions then serve as probes, and as long
    /// as they are answered the connection is not given up (RFC 9293 §3.8.6).
    fn keeps_window_shut(&self) -> bool {
        self.sender.window == 0 && self.user.attached && self.state.is_synchronised()
    }

    /// Returns whether there was neither progress nor any segment for twice the longest timeout (tcp_rtx_probe0_timed_out).
    fn is_silent_for_long(&self, cx: &Context, since: Instant) -> bool {
        let patience = cx.timeouts.most().saturating_mul(2);
        since.max(self.counts.last_heard) + patience < cx.now
    }

    fn on_handshake_timeout(&mut self, cx: &mut Context) {
        let opens = self.state == State::SynSent;
        let asked = self.options.syn_retries.unwrap_or(cx.config.syn_retries);
        let retries = if opens { asked } else { self.syn_ack_retries(cx) };
        let turn = self.turn_of_syn_ack();
        if turn == Turn::SitOut {
            self.sit_out(cx);
            return;
        }
        // A handshake is limited by both retries and time, whichever comes first (tcp_write_timeout).
        if turn == Turn::Ordinary
            && (self.is_given_up(cx, retries) || self.recovery.timeouts >= retries)
        {
            self.finish(Cause::GiveUp, Some(self.reason_to_give_up()), cx);
            return;
        }
        // A passive open is counted once the peer has answered, and then from the first SYN-ACK on (tcp_create_openreq_child).
        self.count_timeout(if opens { cx.now } else { self.recovery.progress_at });
        self.recovery.timeouts = self.recovery.timeouts.saturating_add(1);
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        self.owed.add(if opens { Owed::SYN } else { Owed::SYN_ACK });
    }

    /// Returns the number of SYN-ACK retries, less the timeouts at which it was not sent.
    fn syn_ack_retries(&self, cx: &Context) -> u8 {
        cx.config.syn_ack_retries.saturating_sub(self.deferral.sat_out())
    }

    /// Handles a retransmission timeout (RFC 6298 §5, rules 5.4 to 5.6, and RFC 5681 §3.1).
    fn on_timeout(&mut self, cx: &mut Context) {
        if self.is_given_up(cx, self.retries(cx)) {
            self.finish(Cause::GiveUp, Some(self.reason_to_give_up()), cx);
            return;
        }
        cx.counters.timeouts += 1;
        self.count_timeout(cx.now);
        let again = self.recovery.timeouts > 0;
        let space = (self.sender.una, self.sender.nxt);
        self.recovery.enter_loss(space, &mut self.congestion, again);
        self.owe_cwr();
        // Timeouts of retransmissions into a zero window count as one.
        let most = if self.keeps_window_shut() { 1 } else { u8::MAX };
        let timeouts = &mut self.recovery.timeouts;
        *timeouts = timeouts.saturating_add(1).min(most.max(*timeouts));
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        let mss = self.segment_bytes();
        if self.seems_forgotten() {
            self.sender.flight.forget_sacks(mss);
        }
        self.sender.flight.judge(|_| Judgement::Lost);
        self.owed.clear(Owed::TAIL_PROBE);
        self.recovery.progress_at = cx.now;
        self.arm_loss_timer(cx);
    }

    fn on_reorder_timer(&mut self, cx: &mut Context) {
        let recovering = self.recovery.is_recovering();
        let lost = self.sender.flight.lost_segments();
        let flight = &mut self.sender.flight;
        let wait = self.recovery.rack.detect(flight, cx.now, &self.rtt, recovering, true);
        if self.sender.flight.lost_segments() > lost && !recovering {
            self.begin_recovery(cx);
        }
        match wait {
            Some(wait) => self.timers.set_loss(LossTimer::Reorder, cx.now + wait),
            None => self.arm_loss_timer(cx),
        }
    }

    /// Handles the persist timer, when the window is zero or too small for a segment: sends what fits, or a probe.
    fn on_window_timer(&mut self, cx: &mut Context) {
        let since = self.recovery.stuck_since.get().unwrap_or(cx.now);
        self.recovery.stuck_since.set(since);
        // As long as the peer answers, a zero window is no reason to give up (RFC 9293 §3.8.6.1), unless the user has closed the
        // connection, or has set a user timeout (tcp_probe_timer).
        if self.counts.last_heard >= self.recovery.progress_at {
            self.recovery.timeouts = 0;
        }
        let retries = self.retries(cx);
        let is_impatient = self.options.user_timeout().is_some_and(|it| cx.now.since(since) >= it);
        let is_orphaned = !self.user.attached && self.rtt.backoff >= retries;
        if is_impatient || is_orphaned || self.recovery.timeouts >= retries {
            if !is_impatient {
                self.owed.add(Owed::RESET);
            }
            self.finish(Cause::GiveUp, Some(self.reason_to_give_up()), cx);
            return;
        }
        self.recovery.progress_at = cx.now;
        self.recovery.timeouts = self.recovery.timeouts.saturating_add(1);
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        let fits = self.sender.window_room() > 0;
        self.owed.add(if fits { Owed::WINDOW_FILL } else { Owed::PROBE });
        self.arm_loss_timer(cx);
    }

    /// Arms the idle timer: keepalive, or the wait in FIN-WAIT-2.
    pub(crate) fn arm_idle_timer(&mut self, cx: &Context) {
        let deadline = match (self.state, self.options.keep_alive.as_deref()) {
            (State::TimeWait, _) => return,
            (State::FinWait2, _) if !self.user.attached => Some(cx.now + cx.config.fin_wait_2),
            (state, Some(keep_alive)) if state.is_synchronised() => {
                let unanswered = self.counts.unanswered > 0;
                let wait = if unanswered { keep_alive.interval } else { keep_alive.idle };
                Some(if unanswered { cx.now } else { self.counts.last_heard } + wait)
            }
            _ => None,
        };
        match deadline {
            Some(deadline) => self.timers.set(Timer::Idle, deadline.max(cx.now)),
            None => self.timers.stop(Timer::Idle),
        }
    }

    fn on_idle_timer(&mut self, cx: &mut Context) {
        match self.state {
            State::TimeWait => self.finish(Cause::TimeWaitOver, None, cx),
            State::FinWait2 if !self.user.attached => {
                self.finish(Cause::GiveUp, Some(ConnectionError::TimedOut), cx);
            }
            _ => self.on_keep_alive(cx),
        }
    }

    /// Handles the keepalive timer (RFC 9293 §3.8.4).
    fn on_keep_alive(&mut self, cx: &mut Context) {
        let Some(keep_alive) = self.options.keep_alive.as_deref().copied() else { return };
        let silence = cx.now.since(self.counts.last_heard);
        // Data in flight, or waiting for a window, has its own timer (tcp_keepalive_timer), and a peer that sends is alive.
        let sender = &self.sender;
        let waits = !sender.flight.is_empty() || sender.unsent_bytes() > 0 || sender.owes_fin();
        if silence < keep_alive.idle || waits {
            self.counts.unanswered = 0;
            let deadline = self.counts.last_heard + keep_alive.idle;
            let deadline = if deadline > cx.now { deadline } else { cx.now + keep_alive.idle };
            self.timers.set(Timer::Idle, deadline);
            return;
        }
        let given_up = match self.options.user_timeout() {
            Some(timeout) => self.counts.unanswered > 0 && silence >= timeout,
            None => self.counts.unanswered >= keep_alive.probes,
        };
        if given_up {
            self.owed.add(Owed::RESET);
            self.finish(Cause::GiveUp, Some(self.reason_to_give_up()), cx);
            return;
        }
        self.counts.unanswered += 1;
        self.owed.add(Owed::PROBE);
        self.timers.set(Timer::Idle, cx.now + keep_alive.interval);
    }
}
