//! Reasons why new data came when it did.
//!
//! Each test infers what must have held the data back from what released it: a window that opened, an
//! ACK, a timer, or nothing that TCP knows of.

use std::time::Duration;

use uncork_wire::tcp::Flags;
use uncork_wire::{Segment, SeqNumber};

use crate::Settings;
use crate::connection::Connection;
use crate::direction::{Acked, Direction};
use crate::tally::{Cause, Stall};

/// The time after which Linux sends a corked tail (TCP_RTO_MIN: tcp_check_probe_timer waits for the
/// retransmission timeout, which is no less).
const CORK_CEILING: Duration = Duration::from_millis(200);
/// How early, and how late, a timer of the kernel may be (two ticks of the wheel at 250 Hz, and a coarser
/// wheel at 1000 Hz).
const TIMER_EARLY: Duration = Duration::from_millis(3);
const TIMER_LATE: Duration = Duration::from_millis(18);
/// A path this short hardly changes the timer.
const SHORT_PATH: Duration = Duration::from_millis(30);
/// How much longer a busy host may take to react to an ACK, which is still far less than it waited for it.
const BUSY_HOST: Duration = Duration::from_millis(4);
/// How much shorter a round trip may be than the shortest that was measured.
const JITTER: Duration = Duration::from_millis(1);
/// What is sent this long after the last data was thought of meanwhile.
pub(crate) const WHILE: Duration = Duration::from_millis(5);
/// A hold of one round trip is reported from this length on.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(1);

/// Returns the stall that ended with this segment of new data, if one did. `from` is its sender's
/// index, `read_at` until when that sender was busy reading what it had been sent.
pub(crate) fn of(
    connection: &Connection,
    at: Duration,
    segment: &Segment,
    (from, read_at): (usize, Duration),
    settings: &Settings,
) -> Option<Stall> {
    let moment = Moment {
        at,
        read_at,
        seq: segment.seq,
        bytes: segment.payload_bytes,
        more_follows: !segment.flags.has(Flags::PSH),
        sender: &connection.directions[from],
        receiver: &connection.directions[1 - from],
    };
    moment
        .shut_window()
        .or_else(|| moment.narrow_window())
        .or_else(|| moment.acknowledged())
        .or_else(|| moment.recovering())
        .or_else(|| moment.corked(connection, from))
        .or_else(|| moment.program(connection, from, settings))
}

/// New data, and what was known before it came.
struct Moment<'a> {
    at: Duration,
    read_at: Duration,
    seq: SeqNumber,
    bytes: u32,
    /// Whether PSH is missing: Linux sets it at the end of each write, except one with MSG_MORE (tcp_push
    /// in net/ipv4/tcp.c).
    more_follows: bool,
    sender: &'a Direction,
    receiver: &'a Direction,
}

impl Moment<'_> {
    /// Returns when the sender's last data came, if the other end has sent none since: the new data then
    /// continues the same message.
    fn continues(&self) -> Option<Duration> {
        self.sender.last_data.filter(|_| self.sender.last_data > self.receiver.last_data)
    }

    /// Returns whether the data can be a reaction to what was seen at that time.
    fn reacts_to(&self, then: Duration) -> bool {
        self.at.saturating_sub(then) <= self.sender.reaction_limit()
    }

    /// Returns whether what was seen at that time can have reached the sender, and this come back from it:
    /// where a capture was made at the other end, what left takes half a round trip to have any effect.
    fn can_react_to(&self, then: Duration) -> bool {
        let least = self.sender.reaction_least.unwrap_or_default();
        self.at.saturating_sub(then) + JITTER >= least - least / 4
    }

    fn stall(&self, cause: Cause, since: Duration) -> Stall {
        Stall { cause, since, until: self.at, lost: self.at.saturating_sub(since) }
    }

    /// Tests whether the other end reopened its window.
    fn shut_window(&self) -> Option<Stall> {
        let (shut, opened) = self.receiver.room.was_shut()?;
        let last = self.sender.last_data.unwrap_or_default();
        if opened <= last || !self.reacts_to(opened) {
            return None;
        }
        // The window was full from the last data on, even if the ACK that says so came late.
        let path = self.receiver.reaction_least.unwrap_or_default();
        let since = shut.max(last).min(last + path);
        Some(self.stall(Cause::Window, since))
    }

    /// Tests whether the other end had no room for this segment, and made some when its program read. The
    /// path's own delay, and two programs taking turns, do not count.
    fn narrow_window(&self) -> Option<Stall> {
        let last = self.continues()?;
        let full_bytes = self.sender.full_bytes();
        let opened = self.receiver.room.opened_for(self.seq, self.bytes, full_bytes)?;
        let path = self.receiver.reaction_least.unwrap_or_default();
        let late = opened >= last + path + WHILE;
        (late && self.reacts_to(opened)).then(|| self.stall(Cause::Window, last + path))
    }

    /// Tests whether the other end acknowledged what was in flight.
    fn acknowledged(&self) -> Option<Stall> {
        let last = self.continues()?;
        let acked = self.sender.acked?;
        if !acked.pure || acked.at < last {
            return None;
        }
        if !self.reacts_to(acked.at) {
            let near = acked.late && self.reacts_to(acked.at + BUSY_HOST);
            let held = near && self.nagle_may_hold(&acked);
            return held.then(|| self.stall(Cause::NearLateAck, last));
        }
        if acked.late && self.can_react_to(acked.at) {
            return self.late_ack(&acked, last);
        }
        if self.window_was_larger() && self.at.saturating_sub(last) >= LONG_ROUND_TRIP {
            return Some(self.stall(Cause::ReducedWindow, last));
        }
        // Not late: then Nagle's algorithm is to blame only if hardly anything else was in flight, and it
        // is only reported if the round trip is long.
        let long = self.at.saturating_sub(last) >= LONG_ROUND_TRIP;
        (acked.few && long && self.can_react_to(acked.at) && self.nagle_may_hold(&acked))
            .then(|| self.stall(self.held_until(false), last))
    }

    /// Tests for data still missing at the other end, whose ACK of later segments made room in the
    /// congestion window (RFC 6675): what has left the path lets data go, not only an ACK that advances.
    fn recovering(&self) -> Option<Stall> {
        let last = self.continues()?.max(self.sender.last_again());
        let duplicate = self.sender.duplicate_at().filter(|duplicate| *duplicate >= last)?;
        let waits = self.sender.is_recovering() && self.window_was_larger();
        let long = self.at.saturating_sub(last) >= LONG_ROUND_TRIP;
        (waits && long && self.reacts_to(duplicate)).then(|| self.stall(Cause::ReducedWindow, last))
    }

    /// Returns whether data has been lost, and one round trip before that carried as much as this message.
    fn window_was_larger(&self) -> bool {
        let message_bytes = self.sender.messages.now().bytes.saturating_add(self.bytes);
        !self.sender.last_again().is_zero() && self.sender.most_carried_bytes >= message_bytes
    }

    fn late_ack(&self, acked: &Acked, last: Duration) -> Option<Stall> {
        if !self.nagle_may_hold(acked) {
            // Without the hold the data would have left a round trip after the last. A small
            // segment that Nagle's algorithm does not hold waits for no ACK.
            let mut stall = self.stall(Cause::LateAck, acked.sent_at);
            stall.lost = acked.held;
            return (!self.sender.is_small(self.bytes)).then_some(stall);
        }
        Some(self.stall(self.held_until(true), last))
    }

    /// Returns the cause of a hold until an ACK.
    fn held_until(&self, late: bool) -> Cause {
        let runt = self.sender.messages.now().full > 0;
        match (self.more_follows, runt, late) {
            (true, _, true) => Cause::MoreLateAck,
            (true, _, false) => Cause::MoreRoundTrip,
            (_, true, true) => Cause::RuntLateAck,
            (_, true, false) => Cause::RuntRoundTrip,
            (_, false, true) => Cause::NagleLateAck,
            (_, false, false) => Cause::NagleRoundTrip,
        }
    }

    /// Returns whether Nagle's algorithm can have held it: a small segment, with one in flight, of a
    /// sender that has not shown otherwise (RFC 9293 §3.7.4; Linux waits for small ones only). What was
    /// sent with MSG_MORE waits for an ACK under TCP_NODELAY, too.
    fn nagle_may_hold(&self, acked: &Acked) -> bool {
        self.sender.is_small(self.bytes)
            && (acked.small_in_flight || self.sender.messages.now().full > 0)
            && (self.sender.small_behind_small == 0 || self.more_follows)
    }

    /// Tests whether the time that the kernel holds a corked tail has passed, with nothing in flight.
    fn corked(&self, connection: &Connection, from: usize) -> Option<Stall> {
        if self.sender.flight.len() > 0 || !self.sender.is_small(self.bytes) {
            return None;
        }
        let acked = self.sender.acked.map(|acked| acked.at);
        let armed = self.sender.last_data.max(self.receiver.last_data).max(acked)?;
        let armed = armed.max(self.sender.last_again()).max(self.receiver.last_again());
        let armed = armed.max(self.read_at);
        let path = self.sender.reaction_least.unwrap_or_default();
        let waited = self.at.saturating_sub(armed).saturating_sub(path);
        let rtt = connection.rtt().unwrap_or_default();
        let behind_full = self.continues().filter(|_| self.sender.messages.now().full > 0);
        // The retransmission timeout is 200 ms more than the round trip, or four times its
        // variance, which begins at half of it (RFC 6298 §2). Without a full segment before it
        // only a short path tells the timer from a program that takes its time.
        let variance = if behind_full.is_some() { 5 * rtt } else { rtt };
        let longest = CORK_CEILING + variance + TIMER_LATE;
        if waited + TIMER_EARLY < CORK_CEILING || waited > longest {
            return None;
        }
        // A beat of 200 ms is that of a server that sends events as they come, asked once or never; or
        // that of a client that never gets an answer.
        let unasked = if from == connection.client() {
            self.receiver.data_segments == 0
        } else {
            !connection.exchanges.waiting()
        };
        let paused = connection.exchanges.has_paused();
        let beats = self.continues().is_some() && (paused || unasked);
        match behind_full {
            Some(last) => Some(self.stall(Cause::Cork, last)),
            None if beats => Some(self.stall(Cause::Event, armed)),
            None if rtt <= SHORT_PATH => Some(self.stall(Cause::CorkOrProgram, armed)),
            None => None,
        }
    }

    /// Returns the stall that is not TCP's: the server took that long to reply, or to go on with its reply.
    fn program(&self, connection: &Connection, from: usize, settings: &Settings) -> Option<Stall> {
        if from == connection.client() || !connection.exchanges.waiting() {
            return None;
        }
        let last = self.sender.last_data.max(self.receiver.last_data)?;
        let last =
            last.max(self.sender.last_again()).max(self.receiver.last_again()).max(self.read_at);
        // In the middle of a message only what follows no ACK is the program's own pause: with data in
        // flight, or just acknowledged, a window may have held it.
        let acked = self.sender.acked.map(|acked| acked.at);
        let windowed = self.sender.flight.len() > 0 || acked.is_some_and(|at| self.reacts_to(at));
        if self.continues().is_some() && windowed {
            return None;
        }
        // One pause of a reply may be its program's; more may be events that it sends as they come.
        let more = self.continues().is_some() && connection.exchanges.has_paused();
        let path = self.sender.reaction_least.unwrap_or_default();
        let took = self.at.saturating_sub(last).saturating_sub(path);
        (took >= settings.slow_application).then_some(Stall {
            cause: if more { Cause::Event } else { Cause::Program },
            since: last,
            until: self.at,
            lost: took,
        })
    }
}
