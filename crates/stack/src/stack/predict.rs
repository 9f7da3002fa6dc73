//! The short way in, for the segments that conversations are made of (`connection/arrival/predicted.rs`).
//!
//! All questions come first and change nothing. If one is answered with no, the frame goes the general way
//! ([`Stack::arrive`]) from its beginning, so that only that way knows what to do about anything unusual.

use uncork_packet::{Instant, Received, Trust};
use uncork_wire::plain::{HEADER_BYTES, Plain};
use uncork_wire::tcp::Flags;

use super::{News, Stack};
use crate::demux::Tuple;

/// Of data in which a write ends. What has no PSH has more behind it, and is joined ([`super::join`]).
const DATA: Flags = Flags::ACK.with(Flags::PSH);

impl Stack {
    /// Takes a frame in, if it is such a segment; whether it was.
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
        // Whose two addresses were good when the connection was opened.
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
        // As `settle_open` does.
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
