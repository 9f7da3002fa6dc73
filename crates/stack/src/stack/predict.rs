//! Header prediction, the fast path in, for the segments that conversations are made of (`connection/arrival/predicted.rs`).
//!
//! All checks come first and change nothing. If one fails, the frame takes the general path
//! ([`Stack::arrive`]) from its beginning, so that only that path has to handle anything unusual.

use uncork_packet::{Instant, Received, Trust};
use uncork_wire::plain::{HEADER_BYTES, Plain};
use uncork_wire::tcp::Flags;

use super::{News, Stack};
use crate::demux::Tuple;

/// Flags of a segment that ends a write. One without PSH has more data after it, and is joined ([`super::join`]).
const DATA: Flags = Flags::ACK.with(Flags::PSH);

impl Stack {
    /// Processes a frame if it is such a segment; returns whether it was.
    #[inline(never)]
    pub(super) fn arrive_predicted(&mut self, now: Instant, frame: &Received<'_>) -> bool {
        if self.joined.is_some() || frame.segment_bytes.is_some() {
            return false;
        }
        let Some((segment, packet)) = self.interface.packet_v4(frame.bytes).and_then(Plain::read)
        else {
            return false;
        };
        let data = &packet[HEADER_BYTES..];
        let expected = if data.is_empty() { Flags::ACK } else { DATA };
        let marked = segment.tos & 3 == 3;
        if segment.fields.flags != expected || marked {
            return false;
        }
        // Its addresses need no check, as they were checked when the connection was opened.
        let latest = self.demux.latest_plain(&segment);
        let Some(place) = latest.or_else(|| self.look_up(&Tuple::of_plain(&segment))) else {
            return false;
        };
        let Some(connection) = self.connections.get_quietly(place) else { return false };
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let cx = self.shared.at(now);
        if !connection.predicts(cx, &segment, bytes)
            || !Plain::is_good(packet, frame.trust == Trust::Unknown)
        {
            return false;
        }
        cx.counters.segments_in += 1;
        cx.counters.predicted += 1;
        let before = connection.sender.una;
        connection.take_predicted(cx, segment.timestamps, data);
        if connection.sender.una != before
            && let Some(neighbour) = connection.path.neighbour
        {
            self.interface.neighbours.confirm(neighbour, now);
        }
        // As in `settle_open`.
        let user = &mut connection.user;
        if !user.news.is_empty() && !user.in_news {
            user.in_news = true;
            self.news.push_back(News::Socket(place));
        }
        if !connection.user.in_ready && connection.has_plain_output() {
            connection.user.in_ready = true;
            self.ready.push_back(place);
        }
        let early = connection.timers.take_early();
        self.enter_timers(place, early);
        true
    }
}
