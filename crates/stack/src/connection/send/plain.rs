//! A request or a response leaves: all that there is to be sent fits into one segment, nothing is under way, and
//! nothing is amiss. Then nothing can hold it back, and its headers are those of nearly every segment
//! ([`uncork_wire::plain`]), so that neither has to be found out step by step. So it is with an ACK when there is
//! nothing to be sent.

use uncork_packet::{Checksum, Owner, Transmit};
use uncork_wire::plain::{HEADER_BYTES, Plain};
use uncork_wire::tcp::{CHECKSUM_OFFSET, Fields, Flags};

use super::decision::{Action, DataPlan};
use crate::connection::{Connection, State};
use crate::context::Context;

/// So that a packet's length is known without a conversion.
const HEADERS: u32 = HEADER_BYTES as u32;

impl Connection {
    /// Octets of the segment that leaves next, if that is such a one, none for an ACK: then
    /// [`Connection::decide`] says the same.
    #[inline]
    pub(super) fn decide_plain(&self, cx: &Context, slot_bytes: u32) -> Option<u32> {
        let plain = self.sender.flight.is_empty()
            && self.state == State::Established
            && self.owed.is_empty()
            && !self.user.held
            && self.peer.sends_plain()
            && !self.tuple.is_ipv6()
            && !self.receiver.has_gaps()
            && cx.config.short_ways;
        if !plain {
            return None;
        }
        let bytes = self.sender.plain_bytes();
        let leaves = if bytes > 0 {
            self.lets_out(cx, bytes, slot_bytes)
        } else {
            self.ack.is_demanded() && self.sender.unsent_bytes() == 0 && !self.sender.fin_queued
        };
        debug_assert!(!leaves || self.decide(cx, slot_bytes) == Ok(self.plain_action(bytes)));
        leaves.then_some(bytes)
    }

    /// Whether so many octets, which are all, may leave at once.
    #[inline]
    fn lets_out(&self, cx: &Context, bytes: u32, slot_bytes: u32) -> bool {
        bytes <= self.segment_bytes()
            && !self.options.cork
            && self.recovery.is_quiet()
            && self.congestion.window > 0
            && bytes <= self.sender.window_room()
            && bytes + HEADERS <= slot_bytes
            && !(cx.config.pacing && self.pacer.wait_until(cx.now).is_some())
    }

    fn plain_action(&self, bytes: u32) -> Action {
        if bytes > 0 { Action::Data(self.plan(bytes)) } else { Action::Ack }
    }

    #[inline]
    fn plan(&self, bytes: u32) -> DataPlan {
        DataPlan { seq: self.sender.nxt, bytes, segments: 1, fin: false, again: false }
    }

    /// Sends it, as [`Connection::transmit`] would.
    #[inline]
    pub(super) fn transmit_plain(
        &mut self,
        cx: &mut Context,
        bytes: u32,
        link_bytes: usize,
        slot: &mut [u8],
    ) -> Transmit {
        let plan = self.plan(bytes);
        let mut flags = Flags::ACK;
        if bytes > 0 {
            if self.sender.pushes(plan.seq, plan.seq + bytes) {
                flags = flags.with(Flags::PSH);
            }
            self.on_sent_new(cx, plan, false);
            self.note_data_sent(cx, plan, HEADERS);
        }
        let window = self.offer_window();
        let transmit = self.write_plain(cx, plan, (flags, window), (link_bytes, slot));
        cx.counters.segments_out += 1;
        self.counts.segments_out += 1;
        self.on_ack_sent(cx, 1);
        if bytes > 0 && cx.device.reports_completions {
            self.device.add(transmit.frame_bytes);
        }
        transmit
    }

    #[inline]
    fn write_plain(
        &self,
        cx: &Context,
        plan: DataPlan,
        (flags, window): (Flags, u16),
        (link_bytes, slot): (usize, &mut [u8]),
    ) -> Transmit {
        let tuple = &self.tuple;
        let capable = self.peer.ecn && plan.bytes > 0;
        let headers = Plain {
            tos: self.options.tos & !3 | if capable { super::emit::ECT0 } else { 0 },
            source: tuple.local_address.low_v4(),
            destination: tuple.remote_address.low_v4(),
            fields: Fields {
                source_port: tuple.local_port,
                destination_port: tuple.remote_port,
                seq: plan.seq,
                ack: self.receiver.nxt,
                flags,
                window,
            },
            timestamps: self.peer.stamps_now(cx.now),
        };
        let data = self.sender.bytes(plan.seq, plan.bytes);
        let completes = cx.device.completes_checksums;
        headers.emit(&mut slot[link_bytes..], data, completes);
        #[expect(clippy::cast_possible_truncation, reason = "two headers are short")]
        let checksum = if completes {
            let start = (link_bytes + uncork_wire::ipv4::HEADER_BYTES) as u16;
            Checksum::Partial { start, offset: CHECKSUM_OFFSET as u16 }
        } else {
            Checksum::Complete
        };
        #[expect(clippy::cast_possible_truncation, reason = "one header is short")]
        let frame_bytes = link_bytes as u32 + HEADERS + plan.bytes;
        let owner = (plan.bytes > 0).then(|| Owner(self.id.as_u64()));
        Transmit { frame_bytes, checksum, segmentation: None, owner }
    }
}
