//! The fast path out, for a request or a response: all unsent data fits into one segment, nothing is in flight, and
//! the connection is steady. Then nothing can hold it back, and its headers are those of nearly every segment
//! ([`uncork_wire::plain`]), so that neither needs the general code. The same holds for an ACK when there is
//! nothing to send.

use uncork_packet::{Checksum, Owner, Transmit};
use uncork_wire::plain::{HEADER_BYTES, Plain};
use uncork_wire::tcp::{CHECKSUM_OFFSET, Fields, Flags};

use super::decision::Blocked;
#[cfg(debug_assertions)]
use super::decision::{Action, DataPlan};
use crate::connection::Connection;
use crate::connection::timers::Timer;
use crate::context::Context;

/// The header length as u32, so that a packet's length needs no conversion.
const HEADERS: u32 = HEADER_BYTES as u32;

/// Returns the octets of the whole frame.
#[expect(clippy::cast_possible_truncation, reason = "one header is short")]
fn frame_bytes(link_bytes: usize, bytes: u32) -> u32 {
    link_bytes as u32 + HEADERS + bytes
}

impl Connection {
    /// Returns the octets of the segment that leaves next, if it can take this path; zero for an ACK. Then
    /// [`Connection::decide`] decides the same.
    #[inline(always)]
    pub(crate) fn decide_plain(&mut self, cx: &Context, slot_bytes: u32) -> Option<u32> {
        if !self.sender.flight.is_empty() || !self.is_steady(cx) {
            return None;
        }
        // That is all of the buffer, as nothing is in flight.
        let bytes = self.sender.unsent_bytes();
        let leaves = if bytes > 0 {
            self.sender.buffer.piece().is_some()
                && bytes <= self.segment_bytes()
                && bytes <= self.sender.window_room()
                && bytes + HEADERS <= slot_bytes
                && !(cx.config.pacing && self.pacer.wait_until(cx.now).is_some())
        } else {
            self.ack.is_demanded()
        };
        leaves.then_some(bytes)
    }

    /// Returns the same decision as [`Connection::decide`] would.
    #[cfg(debug_assertions)]
    fn plain_action(&self, bytes: u32) -> Action {
        let seq = self.sender.nxt;
        let plan = DataPlan { seq, bytes, segments: 1, fin: false, again: false };
        if bytes > 0 { Action::Data(plan) } else { Action::Ack }
    }

    /// Sends the segment after the `link_bytes` octets of its link-layer header, with the effects of [`Connection::transmit`] and
    /// of its caller, which would find next that there is nothing more.
    #[inline(never)]
    pub(crate) fn transmit_plain(
        &mut self,
        cx: &mut Context,
        bytes: u32,
        link_bytes: usize,
        slot: &mut [u8],
    ) {
        if bytes > 0 {
            self.restart_if_idle(cx);
        }
        #[cfg(debug_assertions)]
        debug_assert_eq!(
            self.decide(cx, u32::try_from(slot.len() - link_bytes).unwrap_or(u32::MAX)),
            Ok(self.plain_action(bytes))
        );
        self.write_plain(cx, bytes, &mut slot[link_bytes..]);
        cx.counters.segments_out += 1;
        self.counts.segments_out += 1;
        if bytes > 0 {
            self.note_plain_sent(cx, bytes);
            if cx.device.reports_completions {
                self.device.add(frame_bytes(link_bytes, bytes));
            }
        }
        self.on_ack_sent(cx, 1);
        self.note_blocked_plain(cx, bytes);
    }

    /// Describes that frame.
    #[inline(always)]
    pub(crate) fn plain_transmit(&self, cx: &Context, bytes: u32, link_bytes: usize) -> Transmit {
        #[expect(clippy::cast_possible_truncation, reason = "two headers are short")]
        let checksum = if cx.device.completes_checksums {
            let start = (link_bytes + uncork_wire::ipv4::HEADER_BYTES) as u16;
            Checksum::Partial { start, offset: CHECKSUM_OFFSET as u16 }
        } else {
            Checksum::Complete
        };
        let frame_bytes = frame_bytes(link_bytes, bytes);
        let owner = (bytes > 0).then(|| Owner(self.id.as_u64()));
        Transmit { frame_bytes, checksum, segmentation: None, owner }
    }

    /// Updates the state for one segment, which is all that is in flight.
    #[inline(always)]
    fn note_plain_sent(&mut self, cx: &mut Context, bytes: u32) {
        let now = cx.now;
        let mss = self.segment_bytes();
        self.congestion.on_restart(self.counts.last_sent, now);
        self.recovery.progress_at = now;
        let sender = &mut self.sender;
        let seq = sender.nxt;
        let end = seq + bytes;
        sender.flight.push_first((seq, end), now, &mut cx.pool);
        sender.nxt = end;
        if bytes != mss {
            sender.small_end = end;
        }
        self.timers.stop(Timer::Cork);
        self.arm_plain(cx);
        let burst_bytes = cx.config.initial_window_segments * mss;
        self.pacer.on_sent(bytes + HEADERS, burst_bytes, now);
        self.counts.last_sent = now;
        self.counts.bytes_sent += u64::from(bytes);
        self.counts.data_segments_out += 1;
        self.ack.on_data_sent(now);
    }

    /// Does what [`Connection::note_blocked`] does.
    #[inline(always)]
    fn note_blocked_plain(&mut self, cx: &Context, bytes: u32) {
        self.note_spending(Blocked::Application, cx.now);
        if bytes > 0 {
            let full = self.congestion.window <= 1;
            let sender = &self.sender;
            self.congestion.note_usage(full, sender.una, sender.nxt, 1);
        }
    }

    #[inline(always)]
    fn write_plain(&mut self, cx: &Context, bytes: u32, packet: &mut [u8]) {
        let completes = cx.device.completes_checksums;
        let data = self.sender.buffer.piece().unwrap_or_default();
        let data = Plain::put_data(packet, data, completes);
        let seq = self.sender.nxt;
        let pushes = bytes > 0 && self.sender.pushes(seq, seq + bytes);
        let window = self.offer_window();
        let tuple = &self.tuple;
        let capable = self.peer.ecn && bytes > 0;
        let headers = Plain {
            tos: self.options.tos & !3 | if capable { super::emit::ECT0 } else { 0 },
            source: tuple.local_address.low_v4(),
            destination: tuple.remote_address.low_v4(),
            fields: Fields {
                source_port: tuple.local_port,
                destination_port: tuple.remote_port,
                seq,
                ack: self.receiver.nxt,
                flags: if pushes { Flags::ACK.with(Flags::PSH) } else { Flags::ACK },
                window,
            },
            timestamps: self.peer.stamps_now(cx.now),
        };
        headers.emit(packet, data);
    }
}
