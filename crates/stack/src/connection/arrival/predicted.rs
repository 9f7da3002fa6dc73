//! Header prediction (Jacobson, 1990; Linux's `tcp_rcv_established`) for the next segment of a conversation,
//! data or an ACK. It is next in order, acknowledges everything that was sent, does not change the
//! window, and no recovery is under way in either direction. The result of the many steps of
//! [`Connection::handle_segment`] is then known in advance.

use uncork_wire::plain::Plain;

use crate::connection::Connection;
use crate::connection::congestion::Round;
use crate::connection::recovery::Record;
use crate::connection::timers::Timer;
use crate::context::Context;
use crate::event::Ready;
use crate::units::Micros;

impl Connection {
    /// Returns whether this is such a segment, with this many octets of data. Without data it must acknowledge something.
    #[inline(always)]
    pub(crate) fn predicts(&mut self, cx: &Context, segment: &Plain, bytes: u32) -> bool {
        let Self { sender, receiver, peer, .. } = &*self;
        let fields = &segment.fields;
        fields.seq == receiver.nxt
            && fields.ack == sender.nxt
            && u32::from(fields.window) << peer.send_shift == sender.window
            && bytes <= receiver.window_left()
            && !peer.is_old_stamp(segment.timestamps.0, cx.now)
            && sender.unsent_bytes() == 0
            && sender.flight.is_plain()
            && (bytes > 0 || !sender.flight.is_empty())
            && (bytes == 0 || !cx.pool.is_full())
            && (bytes == 0 || !peer.ecn || (segment.tos & 3 != 0) == self.counts.saw_capable)
            && self.is_steady(cx)
    }

    /// Processes a predicted segment. Its numbers are the expected ones.
    #[inline(never)]
    pub(crate) fn take_predicted(&mut self, cx: &mut Context, stamps: (u32, u32), data: &[u8]) {
        self.counts.segments_in += 1;
        self.counts.last_heard = cx.now;
        self.counts.unanswered = 0;
        // RFC 7323 §4.3, as in `note_timestamp`.
        if !self.receiver.nxt.after(self.receiver.acknowledged) {
            self.peer.note_stamp(stamps.0, cx.now);
        }
        self.sender.window_seq = self.receiver.nxt;
        self.sender.window_ack = self.sender.nxt;
        if let Some(record) = self.sender.flight.take_plain() {
            self.take_whole_ack(cx, &record);
            if !data.is_empty() {
                cx.requests.note(Micros::between(record.sent_at, cx.now));
            }
        }
        self.note_idleness(cx.now);
        if data.is_empty() {
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a frame is smaller than 4 GiB")]
        let bytes = data.len() as u32;
        self.hear_echo(cx, stamps.1, bytes);
        self.receiver.take_next(data, &mut cx.pool);
        self.counts.bytes_received += u64::from(bytes);
        self.counts.data_segments_in += 1;
        self.user.news |= Ready::READABLE;
        self.acknowledge_joined(cx, bytes, true);
    }

    /// Handles the acknowledgment of all that was in flight: one transmission, sent once.
    #[inline(always)]
    fn take_whole_ack(&mut self, cx: &mut Context, record: &Record) {
        let segments = u32::from(record.segments);
        let took = Micros::between(record.sent_at, cx.now);
        let mss = self.segment_bytes();
        self.counts.bytes_acked += u64::from((record.end - self.sender.una).unsigned_abs());
        self.counts.delivered += u64::from(segments);
        self.sender.acknowledge_all(&mut cx.pool);
        self.recovery.progress_at = cx.now;
        self.recovery.rack.deliver_next(record, took);
        self.rtt.sample(took);
        self.observe(record.passed(), record.end, cx.now);
        self.sender.flight.note_delivered(self.counts.delivered);
        self.congestion.watch_slow_start(Some(took), || Round {
            now: cx.now,
            una: record.end,
            nxt: record.end,
            paced: cx.config.pacing,
            rate: self.pacer.rate(),
        });
        self.congestion.on_ack(segments, cx.now, &self.rtt);
        self.pacer.update(&self.congestion, 0, mss, self.rtt.for_pacing());
        self.timers.stop(Timer::Loss);
    }
}
