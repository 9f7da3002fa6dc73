//! Decides what leaves next, or why nothing does. Everything that can hold data back is in this one
//! function, which has no side effects: `uncork stack stat` calls it to tell the reason.

use serde::{Deserialize, Serialize};
use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use crate::connection::{Connection, Owed};
use crate::context::Context;

/// Why a connection is not sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Blocked {
    /// The user has queued no new data.
    Application,
    /// The connection is not yet open.
    Handshake,
    /// The peer's receive window is full: its program does not read.
    Window,
    /// The congestion window is full: ACKs are awaited.
    CongestionWindow,
    /// Nagle's algorithm: a small segment is in flight, and the rest is another one.
    Nagle,
    /// The user has set TCP_CORK or announced more data (MSG_MORE).
    Cork,
    /// Earlier bytes are still in the device queue, and the rest is less than a segment.
    Autocork,
    /// The device queue holds as much of this connection as it may.
    SmallQueue,
    /// Pacing: the next segment's time has not come.
    Pacing,
    /// The user holds back the connection's output.
    Held,
}

/// A planned transmission of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataPlan {
    pub(crate) seq: SeqNumber,
    pub(crate) bytes: u32,
    pub(crate) segments: u16,
    pub(crate) fin: bool,
    /// It is a retransmission.
    pub(crate) again: bool,
}

/// The next segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Reset,
    Syn,
    SynAck,
    /// An octet before SND.UNA, to which the peer must answer (keepalive, zero window).
    Probe,
    Data(DataPlan),
    Ack,
}

impl Connection {
    /// Returns what leaves next if a slot has room for packets of `slot_bytes`, or why nothing does.
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
        // A data segment has no room for SACK blocks, so gaps are reported first.
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
        // In SYN-RECEIVED for an unacceptable segment (RFC 9293 §3.10.7.4, first and fourth step).
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
            // F-RTO; if no new data can be sent there is no wait for it (RFC 5682 §3.1, step 2.b).
            (Some(record), Some(false)) => {
                if unsent == 0 {
                    return self.plan_again(record, &limits);
                }
                let new = self.plan_new(cx, unsent, &limits);
                new.or_else(|_| self.plan_again(record, &limits))
            }
        }
    }

    /// Returns how many octets of new data the next frame may have.
    pub(crate) fn next_frame_bytes(&self, cx: &Context) -> u32 {
        self.limits(cx, u32::MAX).map_or(0, |limits| limits.segments * limits.mss)
    }

    /// Returns the limits of a transmission of any kind.
    fn limits(&self, cx: &Context, slot_bytes: u32) -> Result<Limits, Blocked> {
        let mss = self.segment_bytes();
        let room = self.congestion.window.saturating_sub(self.in_flight());
        if room == 0 {
            return Err(Blocked::CongestionWindow);
        }
        let headers = self.header_bytes();
        let limit = self.device_limit(cx);
        // Acknowledged data has left the device, even if its completion is late or lost.
        let held = if self.sender.flight.is_empty() { 0 } else { self.device.bytes() };
        let device_room = limit.saturating_sub(held);
        if device_room < mss + headers {
            return Err(Blocked::SmallQueue);
        }
        if cx.config.pacing && self.pacer.wait_until(cx.now).is_some() {
            return Err(Blocked::Pacing);
        }
        // A train is at most half of the limit, so that the next one can be built while it leaves.
        let half = limit / 2;
        let paced = self.paced_bytes(cx).max(u32::from(cx.config.least_train_segments) * mss);
        let packet = cx.device.max_train_bytes.min(slot_bytes).min(half).min(device_room);
        let train = packet.saturating_sub(headers).min(paced);
        // At least two trains per window, so that ACKs come while there is still something to send
        // (tcp_cwnd_test).
        let room = room.min((self.congestion.window / 2).max(1));
        // A device without TSO gets no train even if one fits into its MTU: the peer would
        // get segments larger than its MSS.
        let takes_trains = cx.device.max_train_bytes > u32::from(cx.device.mtu);
        let segments = if takes_trains && train >= 2 * mss { train / mss } else { 1 };
        let segments = segments.min(room).clamp(1, u32::from(u16::MAX));
        Ok(Limits { mss, segments })
    }

    /// Returns how long a train may be on this path: what leaves in a millisecond, plus, below a round trip of half a
    /// millisecond, the device's longest train, which is halved for each further half millisecond
    /// (tcp_tso_autosize, tcp_tso_rtt_log). A connection that shares the sender with thousands has a low rate, but not
    /// because of the path. Only for a device that reports completions: the limit on what it holds bounds trains, too.
    fn paced_bytes(&self, cx: &Context) -> u32 {
        const RTT_LOG: u32 = 9;
        let Some(bytes) = self.pacer.bytes_in_a_millisecond() else { return u32::MAX };
        let Some(shortest) = self.rtt.shortest().filter(|_| cx.device.reports_completions) else {
            return bytes;
        };
        let near = cx.device.max_train_bytes.checked_shr(shortest.0 >> RTT_LOG).unwrap_or(0);
        bytes.saturating_add(near)
    }

    /// Returns how many bytes of this connection may be in the device queue.
    pub(crate) fn device_limit(&self, cx: &Context) -> u32 {
        if !cx.device.reports_completions {
            return u32::MAX;
        }
        let frame_bytes = self.segment_bytes() + self.header_bytes();
        self.device.limit(&self.pacer, cx.config.small_queue_bytes, frame_bytes)
    }

    /// Plans a retransmission, as far as it fits. If the window has shrunk it waits (RFC 9293 §3.8.6), except for the first
    /// segment, whose ACKs report the window (tcp_retransmit_skb).
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
        // If segments have become longer meanwhile, all of it may fit into fewer.
        let fin = fin && bytes == octets;
        Ok(DataPlan { seq: record.seq, bytes, segments, fin, again: true })
    }

    fn plan_new(&self, cx: &Context, unsent: u32, limits: &Limits) -> Result<DataPlan, Blocked> {
        let seq = self.sender.nxt;
        let room = self.sender.window_room();
        let mss = limits.mss;
        let most = limits.segments * mss;
        // A record that ends before the rest leaves on its own, and waits for nothing.
        let record = self.sender.record_bytes();
        let unsent = record.unwrap_or(unsent);
        let fin = self.sender.owes_fin() && record.is_none();
        // Everything, if it fits: then its tail may be less than a segment, and the FIN is included.
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
        // Whole segments, as many as fit (RFC 9293 §3.8.6.2.1: silly window avoidance).
        let whole = most.min(room).min(unsent) / mss * mss;
        if whole == 0 {
            // Less than a segment only after the override timeout (§3.8.6.2.1).
            if self.owed.has(Owed::WINDOW_FILL) && room > 0 && unsent > 0 {
                return Ok(DataPlan { seq, ..plan(room.min(unsent), mss, false) });
            }
            return Err(Blocked::Window);
        }
        Ok(DataPlan { seq, ..plan(whole, mss, false) })
    }

    /// Returns what holds back a tail that does not fill a segment.
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
        // The tail of one write leaves with its beginning, as Linux has both in one buffer (tcp_should_autocork).
        let waits = cx.config.autocork && !self.user.goes_on && self.is_in_device();
        waits.then_some(Blocked::Autocork)
    }

    /// Returns whether unacknowledged data of this connection is still in the device queue.
    pub(crate) fn is_in_device(&self) -> bool {
        self.device.bytes() > 0 && !self.sender.flight.is_empty()
    }

    /// Plans a tail loss probe: new data if there is any, or the last segment again (RFC 8985 §7.3). None beyond a window that the
    /// peer has taken back, except for the first segment, whose ACK reports the window (tcp_retransmit_skb).
    pub(in crate::connection) fn plan_tail_probe(&self) -> Option<DataPlan> {
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
        let fits = seq == sender.una || bytes.max(1) <= sender.window_room_from(seq);
        fits.then_some(DataPlan { seq, bytes, segments: 1, fin, again: true })
    }

    /// Returns why the connection is not sending; none if it is about to send.
    pub(crate) fn blocked(&self, cx: &Context) -> Option<Blocked> {
        self.decide(cx, u32::MAX).err()
    }

    /// Returns when the pacer releases the next frame, if that is awaited.
    pub(crate) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.pacer.wait_until(now)
    }
}

struct Limits {
    mss: u32,
    /// At least one segment.
    segments: u32,
}

/// Plans new data; a lone FIN counts as a segment.
fn plan(bytes: u32, mss: u32, fin: bool) -> DataPlan {
    // Requests and responses are mostly less than a segment: no division for those.
    let segments = if bytes <= mss { 1 } else { bytes.div_ceil(mss) };
    let segments = u16::try_from(segments).unwrap_or(u16::MAX);
    DataPlan { seq: SeqNumber(0), bytes, segments, fin, again: false }
}
