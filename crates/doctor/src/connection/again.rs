//! Data that is sent again: for a loss, or for nothing.

use std::time::Duration;

use uncork_wire::{Segment, SeqNumber};

use super::{CAPTURED_TWICE, Connection, LATE};
use crate::What;
use crate::direction::{Again, Direction};
use crate::tally::{Cause, Stall};

/// A segment that fills a hole this soon has been overtaken, not lost.
const REORDERED: Duration = Duration::from_millis(3);

/// Sequence numbers that were missing when what follows them came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hole {
    /// Whose data is missing: index of the direction.
    from: usize,
    begin: SeqNumber,
    end: SeqNumber,
    since: Duration,
    /// Timestamp value of the segment that showed it (RFC 7323).
    timestamp: Option<u32>,
}

impl Hole {
    /// The hole before a segment, from `begin` on.
    pub(super) fn of(from: usize, begin: SeqNumber, segment: &Segment, since: Duration) -> Self {
        let timestamp = segment.timestamps.map(|(value, _)| value);
        Self { from, begin, end: segment.seq, since, timestamp }
    }

    /// Together with the one before, if both were torn by the same flight.
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
    /// Whether a segment left before others that have been seen, by its sender's own clock: it was
    /// overtaken on its way. What is sent again leaves a round trip after what showed the loss.
    fn was_overtaken(&self, segment: &Segment, hole: Option<&Hole>) -> bool {
        /// Slower clocks say the same of a flight and of what is sent again behind it.
        const FINE_HERTZ: u16 = 500;
        let Some((value, _)) = segment.timestamps else { return false };
        let older =
            self.last_timestamp.is_some_and(|last| SeqNumber(value).before(SeqNumber(last)));
        let of_that_flight = hole.and_then(|hole| hole.timestamp) == Some(value);
        older || (of_that_flight && !(1..FINE_HERTZ).contains(&self.tick_hertz))
    }
}

impl Connection {
    /// Data that has been sent before, or that was overtaken on its way here.
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
        let same = direction.is_recovering();
        if same {
            since = since.max(direction.last_again());
        }
        direction.send_again(at);
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
        let again = Again { stall, lost_until: self.lost_until, waited: false, timestamp };
        let before = direction.again.replace(Box::new(again));
        if let Some(before) = before {
            self.had_to(from, &before);
        }
    }

    /// What was sent again had been lost.
    pub(super) fn had_to(&mut self, from: usize, again: &Again) {
        let Again { stall, lost_until, waited, .. } = *again;
        let counted = if waited { lost_until } else { self.lost_until };
        let lost = stall.lost.min(stall.until.saturating_sub(stall.since.max(counted)));
        self.lost_until = self.lost_until.max(stall.until);
        let stall = Stall { lost, ..stall };
        self.tallies.record(from, &stall, self.first_seen, &self.recent);
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
