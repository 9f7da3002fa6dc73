//! The timers: what arms them, and what they do.

use uncork_packet::Instant;

use super::deferral::Turn;
use super::recovery::Phase;
use super::recovery::judging::Judgement;
use super::timers::{LossTimer, Timer};
use super::{Cause, Connection, ConnectionError, Owed, State};
use crate::context::Context;
use crate::units::Micros;

/// What a tail's probe waits beyond two round trips for a lone segment, whose ACK the peer may delay
/// (TLP.max_ack_delay, RFC 8985 §7.2: 200 ms for a peer of unknown habits).
const ACK_DELAY: Micros = super::receive::ack_policy::LONGEST;
/// And for several, of which the second is acknowledged at once.
const SLACK: Micros = Micros::from_millis(2);

impl Connection {
    /// The wheel has come up: does what is due, and says whether anything was. What a conversation stops needs
    /// not be taken out of the wheel, so that often nothing is, of a connection of which nothing else is in a cache.
    pub(crate) fn handle_timers(&mut self, cx: &mut Context) -> bool {
        self.timers.come_up();
        let mut was_due = false;
        while let Some(timer) = self.timers.expire(cx.now) {
            was_due = true;
            // It belongs to every conversation that pauses: the connection stays as steady as it was.
            if timer != Timer::Ack {
                self.disturb();
            }
            match timer {
                Timer::Loss => self.on_loss_timer(cx),
                Timer::Ack => self.on_ack_timer(cx),
                Timer::Idle => self.on_idle_timer(cx),
                // What was held has been held long enough.
                Timer::Cork => {
                    self.sender.hurry();
                    self.sender.pushed = self.sender.end;
                }
                // The next decision finds that the time has come.
                Timer::Pace => {}
            }
        }
        was_due
    }

    fn on_ack_timer(&mut self, cx: &mut Context) {
        if self.ack.is_held() {
            // The user has said nothing so far.
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

    /// A SYN or SYN-ACK leaves.
    pub(crate) fn start_handshake_timer(&mut self, cx: &Context) {
        self.recovery.progress_at = cx.now;
        let deadline = self.within_user_timeout(cx.now + self.timeout(cx));
        self.timers.set_loss(LossTimer::Retransmit, deadline);
    }

    /// Chooses what to wait for, now that something was sent or acknowledged.
    pub(crate) fn arm_loss_timer(&mut self, cx: &Context) {
        if self.is_fast_child() {
            // Before the handshake is over nothing but the SYN-ACK is sent again (tcp_retransmit_timer).
            return;
        }
        if self.sender.flight.is_empty() {
            let waits = self.state.transmits_data()
                && (self.sender.unsent_bytes() > 0 || self.sender.owes_fin());
            // RFC 9293 §3.8.6.1: nobody else will say when the window opens.
            if waits && !self.timers.is_running(Timer::Loss) {
                let deadline = cx.now + self.timeout(cx);
                self.timers.set_loss(LossTimer::Window, self.within_user_timeout(deadline));
            }
            return;
        }
        if self.timers.loss == LossTimer::Reorder && self.timers.is_running(Timer::Loss) {
            return;
        }
        let retransmit = (self.recovery.progress_at + self.timeout(cx)).max(cx.now);
        match self.tail_probe_delay() {
            // Never later than the timeout, in whose place it comes then (RFC 8985 §7.2).
            Some(delay) => self.timers.set_loss(LossTimer::Probe, retransmit.min(cx.now + delay)),
            None => {
                let deadline = self.within_user_timeout(retransmit);
                self.timers.set_loss(LossTimer::Retransmit, deadline);
            }
        }
    }

    /// The same after a segment has left from a steady connection that had nothing under way: then its probe and its
    /// timeout both count from now on.
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

    /// How long to wait before the tail is probed (RFC 8985 §7.2), if it is to be at all.
    fn tail_probe_delay(&self) -> Option<Micros> {
        let flight = &self.sender.flight;
        let quiet = self.recovery.phase == Phase::Open && flight.sacked_segments() == 0;
        if !self.peer.sacks || !quiet || self.recovery.probe.is_some() || self.recovery.timeouts > 0
        {
            return None;
        }
        let smoothed = self.rtt.smoothed()?;
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
            LossTimer::Probe => {
                cx.counters.tail_probes += 1;
                self.owed.add(Owed::TAIL_PROBE);
                // The timeout counts from the probe (§7.3).
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

    /// Has the user's patience ended (RFC 9293 §3.8.3)?
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

    /// Whether it has gone on for as long as it takes to try so often. It has, unless the time between two tries was
    /// taken back, as routers may have it again and again: then it is time that counts (retransmits_timed_out).
    fn has_taken_as_long(&self, cx: &Context, since: Instant, retries: u8) -> bool {
        if self.recovery.timeouts <= self.rtt.backoff || !self.state.is_synchronised() {
            return true;
        }
        let base = self.rtt.base_timeout(cx.timeouts);
        let each = |tries: u8| base.doubled(tries.into()).min(cx.timeouts.most());
        let whole = (0..=retries).map(each).fold(Micros::ZERO, Micros::saturating_add);
        cx.now >= since + whole
    }

    /// Whether the peer has taken his window back from what is under way: then that is sent again as a probe would be, and no
    /// answered one is a reason to give up (RFC 9293 §3.8.6).
    fn keeps_window_shut(&self) -> bool {
        self.sender.window == 0 && self.user.attached && self.state.is_synchronised()
    }

    /// Neither progress since then nor a word for twice the longest timeout (tcp_rtx_probe0_timed_out).
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
        // A handshake has both ends, whichever comes first (tcp_write_timeout).
        if turn == Turn::Ordinary
            && (self.is_given_up(cx, retries) || self.recovery.timeouts >= retries)
        {
            self.finish(Cause::GiveUp, Some(self.reason_to_give_up()), cx);
            return;
        }
        // Who has come is not told of before he has answered, and then from the first SYN-ACK on (tcp_create_openreq_child).
        self.count_timeout(if opens { cx.now } else { self.recovery.progress_at });
        self.recovery.timeouts = self.recovery.timeouts.saturating_add(1);
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        self.owed.add(if opens { Owed::SYN } else { Owed::SYN_ACK });
    }

    /// Timeouts at which it sat out count.
    fn syn_ack_retries(&self, cx: &Context) -> u8 {
        cx.config.syn_ack_retries.saturating_sub(self.deferral.sat_out())
    }

    /// RFC 6298 §5, rules 5.4 to 5.6, and RFC 5681 §3.1.
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
        // Those that a shut window answers count as one.
        let most = if self.keeps_window_shut() { 1 } else { u8::MAX };
        let timeouts = &mut self.recovery.timeouts;
        *timeouts = timeouts.saturating_add(1).min(most.max(*timeouts));
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        let mss = self.segment_bytes();
        let flight = &mut self.sender.flight;
        if flight.first().is_some_and(super::Record::is_sacked) {
            flight.forget_sacks(mss);
        }
        flight.judge(|_| Judgement::Lost);
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

    /// The window is shut, or too small for a segment: send what fits, or ask.
    fn on_window_timer(&mut self, cx: &mut Context) {
        let since = self.recovery.stuck_since.get().unwrap_or(cx.now);
        self.recovery.stuck_since.set(since);
        // As long as the peer answers, a shut window is no reason to give up (RFC 9293 §3.8.6.1), unless nobody is left whose
        // patience could end, or his has an end that he has told (tcp_probe_timer).
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

    /// Chooses how long silence may last.
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

    /// RFC 9293 §3.8.4.
    fn on_keep_alive(&mut self, cx: &mut Context) {
        let Some(keep_alive) = self.options.keep_alive.as_deref().copied() else { return };
        let silence = cx.now.since(self.counts.last_heard);
        // What is in flight, or waits for a window, has its own timer (tcp_keepalive_timer), and whoever speaks is alive.
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
