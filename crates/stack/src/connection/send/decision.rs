//! What leaves next, or why nothing does. Everything that can hold bytes back is in this one
//! function, which changes nothing: asking it is how `uncork stack stat` knows.

use serde::{Deserialize, Serialize};
use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use crate::connection::{Connection, Owed};
use crate::context::Context;

/// Why a connection is not sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Blocked {
    /// The user has given nothing that was not sent.
    Application,
    /// The connection is not yet open.
    Handshake,
    /// The peer's receive window is full: the program there does not read.
    Window,
    /// The congestion window is full: ACKs are awaited.
    CongestionWindow,
    /// Nagle's algorithm: a small segment is under way, and what is left is another one.
    Nagle,
    /// The user has corked (TCP_CORK) or said that more follows (MSG_MORE).
    Cork,
    /// Earlier bytes are still in the device, and what is left is less than a segment.
    Autocork,
    /// The device holds as much of this connection as it may.
    SmallQueue,
    /// The next segment's time has not come.
    Pacing,
    /// The user holds the connection.
    Held,
}

/// A transmission of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataPlan {
    pub(crate) seq: SeqNumber,
    pub(crate) bytes: u32,
    pub(crate) segments: u16,
    pub(crate) fin: bool,
    /// It was sent before.
    pub(crate) again: bool,
}

/// What leaves next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Reset,
    Syn,
    SynAck,
    /// An octet in front of what is acknowledged, so that the peer answers (keepalive, shut window).
    Probe,
    Data(DataPlan),
    Ack,
}

impl Connection {
    /// What leaves next if a slot has room for packets of `slot_bytes`, or why not.
    pub(crate) fn decide(&self, cx: &Context, slot_bytes: u32) -> Result<Action, Blocked> {
        if self.owed.has(Owed::RESET) {
            return Ok(Action::Reset);
        }
        if self.owed.has(Owed::SYN) {
            return Ok(Action::Syn);
        }
        if self.owed.has(Owed::SYN_ACK) {
            return Ok(Action::SynAck);
        }
        if self.user.held {
            return Err(Blocked::Held);
        }
        // A data segment has no room for SACK blocks: what is missing is told first.
        let tells =
            self.ack.is_demanded() && self.receiver.has_gaps() || self.owed.duplicate_acks > 0;
        if tells && self.state.is_synchronised() {
            return Ok(Action::Ack);
        }
        if self.owed.has(Owed::PROBE) {
            return Ok(Action::Probe);
        }
        let blocked = match self.decide_data(cx, slot_bytes) {
            Ok(plan) => return Ok(Action::Data(plan)),
            Err(blocked) => blocked,
        };
        // In SYN-RECEIVED for what is not acceptable (RFC 9293 §3.10.7.4, first and fourth step).
        if self.ack.is_demanded() && self.state.has_peer() {
            return Ok(Action::Ack);
        }
        Err(blocked)
    }

    fn decide_data(&self, cx: &Context, slot_bytes: u32) -> Result<DataPlan, Blocked> {
        if !self.state.transmits_data() && !self.is_fast_child() {
            let handshake = !self.state.is_synchronised() && self.sender.unsent_bytes() > 0;
            return Err(if handshake { Blocked::Handshake } else { Blocked::Application });
        }
        if self.owed.has(Owed::TAIL_PROBE)
            && let Some(plan) = self.plan_tail_probe()
        {
            return Ok(plan);
        }
        let lost = self.sender.flight.next_lost();
        let unsent = self.sender.unsent_bytes();
        if lost.is_none() && unsent == 0 && !self.sender.owes_fin() {
            return Err(Blocked::Application);
        }
        let limits = self.limits(cx, slot_bytes)?;
        let tries_new = self.recovery.tries_new(self.sender.nxt);
        match (lost, tries_new) {
            (Some(_), Some(true)) if unsent == 0 => Err(Blocked::Application),
            (None, _) | (Some(_), Some(true)) => self.plan_new(cx, unsent, &limits),
            (Some(record), None) => self.plan_again(record, &limits),
            // F-RTO; what cannot be tried is not waited for (RFC 5682 §3.1, step 2.b).
            (Some(record), Some(false)) => {
                if unsent == 0 {
                    return self.plan_again(record, &limits);
                }
                let new = self.plan_new(cx, unsent, &limits);
                new.or_else(|_| self.plan_again(record, &limits))
            }
        }
    }

    /// Octets of new data that the next frame has, if there are so many.
    pub(crate) fn next_frame_bytes(&self, cx: &Context) -> u32 {
        self.limits(cx, u32::MAX).map_or(0, |limits| limits.segments * limits.mss)
    }

    /// What bounds a transmission of any kind.
    fn limits(&self, cx: &Context, slot_bytes: u32) -> Result<Limits, Blocked> {
        let mss = self.segment_bytes();
        let room = self.congestion.window.saturating_sub(self.in_flight());
        if room == 0 {
            return Err(Blocked::CongestionWindow);
        }
        let headers = self.header_bytes();
        let limit = self.device_limit(cx);
        // What was all acknowledged has left, whatever the device says or forgets to say.
        let held = if self.sender.flight.is_empty() { 0 } else { self.device.bytes() };
        let device_room = limit.saturating_sub(held);
        if device_room < mss + headers {
            return Err(Blocked::SmallQueue);
        }
        if cx.config.pacing && self.pacer.wait_until(cx.now).is_some() {
            return Err(Blocked::Pacing);
        }
        // A train is at most half of the limit, so that the next one can be made while it leaves.
        let half = limit / 2;
        let paced = self.paced_bytes(cx).max(u32::from(cx.config.least_train_segments) * mss);
        let packet = cx.device.max_train_bytes.min(slot_bytes).min(half).min(device_room);
        let train = packet.saturating_sub(headers).min(paced);
        // At least two trains in a window, so that ACKs come while there is something left to send
        // (tcp_cwnd_test).
        let room = room.min((self.congestion.window / 2).max(1));
        // A device that takes no trains is not given one that happens to fit into its MTU: the peer would
        // get segments larger than it has asked for.
        let takes_trains = cx.device.max_train_bytes > u32::from(cx.device.mtu);
        let segments = if takes_trains && train >= 2 * mss { train / mss } else { 1 };
        let segments = segments.min(room).clamp(1, u32::from(u16::MAX));
        Ok(Limits { mss, segments })
    }

    /// Bytes of a train that is as long as the path is worth: what leaves in a millisecond, and more where
    /// a round trip is short, the longest there is below half a millisecond and half of that for each half more
    /// (tcp_tso_autosize, tcp_tso_rtt_log). Who shares the sender with thousands has a low rate, but
    /// not because of the path. Only where the device says what it holds: what it holds for long bounds trains, too.
    fn paced_bytes(&self, cx: &Context) -> u32 {
        const RTT_LOG: u32 = 9;
        let Some(bytes) = self.pacer.bytes_in_a_millisecond() else { return u32::MAX };
        let Some(shortest) = self.rtt.shortest().filter(|_| cx.device.reports_completions) else {
            return bytes;
        };
        let near = cx.device.max_train_bytes.checked_shr(shortest.0 >> RTT_LOG).unwrap_or(0);
        bytes.saturating_add(near)
    }

    /// Bytes of this connection that may sit in the device.
    pub(crate) fn device_limit(&self, cx: &Context) -> u32 {
        if !cx.device.reports_completions {
            return u32::MAX;
        }
        let frame_bytes = self.segment_bytes() + self.header_bytes();
        self.device.limit(&self.pacer, cx.config.small_queue_bytes, frame_bytes)
    }

    /// What is lost goes out again, as far as it fits. A window that has shrunk is waited for (RFC 9293 §3.8.6), but by what is
    /// first: its answers tell of the window (tcp_retransmit_skb).
    fn plan_again(
        &self,
        record: &crate::connection::Record,
        limits: &Limits,
    ) -> Result<DataPlan, Blocked> {
        let fin = self.sender.fin_sent && record.end.after(self.sender.end);
        let octets = record.len() - u32::from(fin);
        let room = self.sender.window_room_from(record.seq);
        let least = u32::from(record.seq == self.sender.una);
        let fits = if octets <= room { u32::MAX } else { (room / limits.mss).max(least) };
        let segments = limits.segments.min(fits);
        if segments == 0 {
            return Err(Blocked::Window);
        }
        if u32::from(record.segments) <= segments {
            return Ok(DataPlan {
                seq: record.seq,
                bytes: octets,
                segments: record.segments,
                fin,
                again: true,
            });
        }
        let bytes = octets.min(segments * limits.mss);
        #[expect(clippy::cast_possible_truncation, reason = "fewer than the record has")]
        let segments = segments as u16;
        // Where segments have become longer meanwhile all of it may fit into fewer.
        let fin = fin && bytes == octets;
        Ok(DataPlan { seq: record.seq, bytes, segments, fin, again: true })
    }

    fn plan_new(&self, cx: &Context, unsent: u32, limits: &Limits) -> Result<DataPlan, Blocked> {
        let seq = self.sender.nxt;
        let room = self.sender.window_room();
        let mss = limits.mss;
        let most = limits.segments * mss;
        // A record that ends before the rest leaves by itself, and waits for nobody.
        let record = self.sender.record_bytes();
        let unsent = record.unwrap_or(unsent);
        let fin = self.sender.owes_fin() && record.is_none();
        // Everything, if it fits: then its tail may be less than a segment, and its FIN comes along.
        if unsent <= most && unsent + u32::from(fin) <= room {
            let tail = if unsent < mss { unsent } else { unsent % mss };
            let held =
                if tail == 0 || fin || record.is_some() { None } else { self.holds_tail(cx) };
            match held {
                None => return Ok(DataPlan { seq, ..plan(unsent, mss, fin) }),
                Some(blocked) if unsent == tail => return Err(blocked),
                Some(_) => return Ok(DataPlan { seq, ..plan(unsent - tail, mss, false) }),
            }
        }
        // Whole segments, as many as fit (RFC 9293 §3.8.6.2.1: no less, or windows become silly).
        let whole = most.min(room).min(unsent) / mss * mss;
        if whole == 0 {
            // Unless this was waited for long enough (§3.8.6.2.1, the override timeout).
            if self.owed.has(Owed::WINDOW_FILL) && room > 0 && unsent > 0 {
                return Ok(DataPlan { seq, ..plan(room.min(unsent), mss, false) });
            }
            return Err(Blocked::Window);
        }
        Ok(DataPlan { seq, ..plan(whole, mss, false) })
    }

    /// What holds back the last octets that do not fill a segment.
    fn holds_tail(&self, cx: &Context) -> Option<Blocked> {
        let sender = &self.sender;
        if sender.is_hurried() {
            return None;
        }
        if self.options.cork || sender.more {
            return Some(Blocked::Cork);
        }
        // RFC 9293 §3.7.4, in the variant of Minshall and Mogul (and Linux): only an outstanding
        // *small* segment holds the next one back.
        if !self.options.no_delay && sender.is_small_out() && !sender.is_whole() {
            return Some(Blocked::Nagle);
        }
        // The end of what was given at once leaves with its beginning, as Linux has both in one buffer (tcp_should_autocork).
        let waits = cx.config.autocork && !self.user.goes_on && self.is_in_device();
        waits.then_some(Blocked::Autocork)
    }

    /// Whether the device still has something of what is not acknowledged.
    pub(crate) fn is_in_device(&self) -> bool {
        self.device.bytes() > 0 && !self.sender.flight.is_empty()
    }

    /// A probe repeats the last segment, or sends a new one if there is any (RFC 8985 §7.3).
    fn plan_tail_probe(&self) -> Option<DataPlan> {
        let sender = &self.sender;
        let mss = self.segment_bytes();
        let unsent = sender.unsent_bytes();
        let fits = unsent.min(mss);
        if fits > 0 && fits <= sender.window_room() {
            return Some(DataPlan { seq: sender.nxt, ..plan(fits, mss, false) });
        }
        let last = sender.flight.last()?;
        let fin = sender.fin_sent && last.end.after(sender.end);
        let octets = last.len() - u32::from(fin);
        let bytes = if octets == 0 { 0 } else { (octets - 1) % mss + 1 };
        let seq = last.seq + (octets - bytes);
        Some(DataPlan { seq, bytes, segments: 1, fin, again: true })
    }

    /// Why the connection is not sending, if it is not.
    pub(crate) fn blocked(&self, cx: &Context) -> Option<Blocked> {
        self.decide(cx, u32::MAX).err()
    }

    /// When the pacer lets the next frame go, if that is what it waits for.
    pub(crate) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.pacer.wait_until(now)
    }
}

struct Limits {
    mss: u32,
    /// At least one.
    segments: u32,
}

/// New data; a lone FIN is a segment too.
fn plan(bytes: u32, mss: u32, fin: bool) -> DataPlan {
    // Requests and responses are mostly less than a segment: no division for those.
    let segments = if bytes <= mss { 1 } else { bytes.div_ceil(mss) };
    let segments = u16::try_from(segments).unwrap_or(u16::MAX);
    DataPlan { seq: SeqNumber(0), bytes, segments, fin, again: false }
}
