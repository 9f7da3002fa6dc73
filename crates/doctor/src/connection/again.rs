//! Retransmitted data: because of a loss, or needlessly.

use std::time::Duration;

use uncork_wire::{Segment, SeqNumber};

use super::{CAPTURED_TWICE, Connection, LATE};
use crate::What;
use crate::direction::{Again, Direction};
use crate::tally::{Cause, Stall};

/// A segment that fills a hole this soon was reordered, not lost.
const REORDERED: Duration = Duration::from_millis(3);

/// Sequence numbers that were missing when what follows them came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hole {
    /// Index of the direction whose data is missing.
    from: usize,
    begin: SeqNumber,
    end: SeqNumber,
    since: Duration,
    /// Timestamp value of the segment that showed it (RFC 7323).
    timestamp: Option<u32>,
}

impl Hole {
    /// Returns the hole before a segment, from `begin` on.
    pub(super) fn of(from: usize, begin: SeqNumber, segment: &Segment, since: Duration) -> Self {
        let timestamp = segment.timestamps.map(|(value, _)| value);
        Self { from, begin, end: segment.seq, since, timestamp }
    }

    /// Merges the hole with the one before, if the same flight left both.
    pub(super) fn behind(self, before: Option<&Self>) -> Self {
        let same = |before: &&Self| before.from == self.from && before.timestamp == self.timestamp;
        match before.filter(same).filter(|_| self.timestamp.is_some()) {
            Some(before) => Self { end: self.end, ..*before },
            None => self,
        }
    }

    fn holds(&self, segment: &Segment) -> bool {
        let end = segment.seq + segment.payload_bytes;
        !segment.seq.before(self.begin) && !end.after(self.end)
    }
}

impl Direction {
    /// Returns whether a segment left before others that have been seen, by its sender's own clock:
    /// it was reordered. A retransmission leaves a round trip after what showed the loss.
    fn was_overtaken(&self, segment: &Segment, hole: Option<&Hole>) -> bool {
        /// Slower clocks give a flight and the retransmission after it the same value.
        const FINE_HERTZ: u16 = 500;
        let Some((value, _)) = segment.timestamps else { return false };
        let older =
            self.last_timestamp.is_some_and(|last| SeqNumber(value).before(SeqNumber(last)));
        let of_that_flight = hole.and_then(|hole| hole.timestamp) == Some(value);
        older || (of_that_flight && !(1..FINE_HERTZ).contains(&self.tick_hertz))
    }
}

impl Connection {
    /// Takes in data that has been sent before, or that was reordered on its way here.
    pub(super) fn again(&mut self, at: Duration, segment: &Segment, from: usize) {
        let end = segment.seq + segment.payload_bytes;
        let direction = &self.directions[from];
        let hole = self.hole.as_deref().filter(|hole| hole.from == from && hole.holds(segment));
        if hole.is_some_and(|hole| at.saturating_sub(hole.since) <= REORDERED)
            || direction.was_overtaken(segment, hole)
        {
            return;
        }
        let acknowledged = direction.una.is_some_and(|una| !end.after(una));
        // A keepalive or a window probe repeats an octet that arrived long ago.
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
            // The ACK was lost beyond the capture point, or could not have reached the sender yet.
            let seen_well = direction.acked.filter(|acked| acked.sent_at > blind_at);
            let answered = seen_well.filter(|acked| at > acked.at + reaction);
            since = answered.map_or(at, |acked| acked.sent_at);
        } else if let Some(sent) = direction.flight.covering(end) {
            since = sent.at;
            sent.at = at;
            sent.again = true;
        }
        // Segments lost together are one stall, counted when the first is retransmitted.
        let same = direction.is_recovering();
        if same {
            since = since.max(direction.last_again());
        }
        direction.send_again(at);
        let lost = at.saturating_sub(since);
        // No sender retransmits that soon: the segment was captured twice, or nothing was lost.
        if lost <= CAPTURED_TWICE || (same && lost < LATE) {
            return;
        }
        direction.recovering_until = Some(until);
        let stall = Stall { cause: Cause::Again, since, until: at, lost };
        if acknowledged {
            return self.record(from, &stall);
        }
        let timestamp = segment.timestamps.map(|(value, _)| value);
        let again = Again { stall, lost_until: self.lost_until, waited: false, timestamp };
        let before = direction.again.replace(Box::new(again));
        if let Some(before) = before {
            self.had_to(from, &before);
        }
    }

    /// Counts a retransmission as needed: the data had been lost.
    pub(super) fn had_to(&mut self, from: usize, again: &Again) {
        let Again { stall, lost_until, waited, .. } = *again;
        let counted = if waited { lost_until } else { self.lost_until };
        let lost = stall.lost.min(stall.until.saturating_sub(stall.since.max(counted)));
        self.lost_until = self.lost_until.max(stall.until);
        let stall = Stall { lost, ..stall };
        self.tallies.record(from, &stall, self.first_seen, &self.recent);
    }
}

/// Returns whether an ACK shows that a retransmission was needless: it echoes a timestamp older
/// than that of the second time, so it answers the first (the Eifel algorithm, RFC 3522 §3.2).
pub(super) fn was_needless(again: &Again, ack: &Segment) -> bool {
    let echoed = ack.timestamps.map(|(_, echo)| echo);
    again
        .timestamp
        .zip(echoed)
        .is_some_and(|(sent, echoed)| SeqNumber(echoed).before(SeqNumber(sent)))
}
