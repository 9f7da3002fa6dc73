//! What segments tell of their sender's receive window.

use std::time::Duration;

use uncork_wire::Segment;
use uncork_wire::tcp::Flags;

use super::Connection;
use crate::room::Told;
use crate::stall::WHILE;
use crate::tally::{Cause, Stall};

impl Connection {
    /// Takes in what the segment tells of its sender's window.
    pub(super) fn window(&mut self, at: Duration, segment: &Segment, from: usize) {
        if segment.flags.has(Flags::SYN) || segment.flags.has(Flags::RST) {
            return;
        }
        let sender = &self.directions[1 - from];
        let (nxt, full_bytes) = (sender.nxt, sender.full_bytes());
        let sender_seen = sender.first.is_some();
        let receiver = &mut self.directions[from];
        receiver.room.tell_shut(at, segment.window == 0);
        if let (Some(window_bytes), Some(ack), true) =
            (receiver.window_bytes(segment), segment.ack, sender_seen)
        {
            let pure = segment.payload_bytes == 0;
            receiver.room.tell(Told { at, ack, window_bytes, pure }, nxt, full_bytes);
        }
    }

    /// Returns the stall of an end that had to read the whole request before it replied: if its
    /// window has held the request up, reading what was left in its buffer at the end took time, too.
    pub(super) fn unread(&self, at: Duration, from: usize) -> Option<Stall> {
        let (reader, writer) = (&self.directions[from], &self.directions[1 - from]);
        if reader.room.longest() < WHILE {
            return None;
        }
        let sent = writer.last_data.filter(|_| writer.last_data > reader.last_data)?;
        let since = sent + reader.reaction_least.unwrap_or_default();
        let until = reader.room.read_by(sent).min(at);
        let lost = until.saturating_sub(since);
        (!lost.is_zero()).then_some(Stall { cause: Cause::Unread, since, until, lost })
    }
}
