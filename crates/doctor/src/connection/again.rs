//! Data that is sent again: for a loss, or for nothing.

use std::time::Duration;

use uncork_wire::{Segment, SeqNumber};

use super::{CAPTURED_TWICE, Connection, LATE};
use crate::What;
use crate::direction::Again;
use crate::tally::{Cause, Stall};

/// A segment that fills a hole this soon has been overtaken, not lost.
const REORDERED: Duration = Duration::from_millis(3);

impl Connection {
    /// Data that has been sent before, or that was overtaken on its way here.
    pub(super) fn again(&mut self, at: Duration, segment: &Segment, from: usize) {
        let end = segment.seq + segment.payload_bytes;
        if let Some((hole, hole_end, since)) = self.hole.as_deref().copied() {
            let fills = !segment.seq.before(hole) && !end.after(hole_end);
            if fills && at.saturating_sub(since) <= REORDERED {
                return;
            }
        }
        let direction = &self.directions[from];
        let acknowledged = direction.una.is_some_and(|una| !end.after(una));
        // A keepalive or a window probe repeats an octet that has long arrived.
        if acknowledged && segment.payload_bytes <= 1 {
            return;
        }
        let offset = direction.offset(segment.seq);
        self.see(at, from, What::Again, segment.payload_bytes, offset);
        let until = self.directions[from].nxt;
        let blind_at = self.blind_at;
        let direction = &mut self.directions[from];
        let reaction = direction.reaction_limit();
        let mut since = at;
        if acknowledged {
            // The ACK was lost on its way from here, or it could not be there yet.
            let seen_well = direction.acked.filter(|acked| acked.sent_at > blind_at);
            let answered = seen_well.filter(|acked| at > acked.at + reaction);
            since = answered.map_or(at, |acked| acked.sent_at);
        } else if let Some(sent) = direction.flight.covering(end) {
            since = sent.at;
            sent.at = at;
            sent.again = true;
        }
        // Segments lost together are one stall, counted by the first that is sent again.
        let same = direction.recovering_until.zip(direction.una);
        let same = same.is_some_and(|(until, una)| until.after(una));
        if same {
            since = since.max(direction.last_again);
        }
        direction.last_again = at;
        let lost = at.saturating_sub(since);
        // Nobody sends again that soon: another capture of the same, or nobody's loss.
        if lost <= CAPTURED_TWICE || (same && lost < LATE) {
            return;
        }
        direction.recovering_until = Some(until);
        let stall = Stall { cause: Cause::Again, since, until: at, lost };
        if acknowledged {
            return self.record(from, &stall);
        }
        let timestamp = segment.timestamps.map(|(value, _)| value);
        let before = direction.again.replace(Box::new(Again { stall, timestamp }));
        if let Some(before) = before {
            self.record(from, &before.stall);
        }
    }
}

/// Whether an ACK shows that data was sent again for nothing: it echoes a timestamp older than
/// that of the second time, so it answers the first (the Eifel algorithm, RFC 3522 §3.2).
pub(super) fn was_needless(again: &Again, ack: &Segment) -> bool {
    let echoed = ack.timestamps.map(|(_, echo)| echo);
    again
        .timestamp
        .zip(echoed)
        .is_some_and(|(sent, echoed)| SeqNumber(echoed).before(SeqNumber(sent)))
}
