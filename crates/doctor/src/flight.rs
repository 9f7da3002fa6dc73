//! What one end has sent and the other has not acknowledged yet.

use std::collections::VecDeque;
use std::time::Duration;

use uncork_wire::SeqNumber;

/// How many segments are remembered one by one. A longer flight is a bulk transfer, of which a
/// sample tells enough.
const REMEMBERED: usize = 64;
/// A segment in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// The number after its last octet.
    pub(crate) end: SeqNumber,
    /// When it was seen.
    pub(crate) at: Duration,
    /// Whether it has been retransmitted since: then it is unknown which of the two an ACK answers
    /// (Karn's algorithm, RFC 6298 §3).
    pub(crate) again: bool,
    /// Octets in flight, itself included, when it was sent.
    pub(crate) flight_bytes: u32,
    /// Whether it is shorter than a full segment.
    pub(crate) small: bool,
}

/// The segments of one direction that wait for their ACK, oldest first.
///
/// The oldest is stored in line: a connection of requests and replies hardly ever has more than one
/// segment in flight, and then allocates nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flight {
    oldest: Option<Sent>,
    // Boxed, to cost one word and not four where there is none: in almost every connection.
    #[allow(clippy::box_collection)]
    newer: Option<Box<VecDeque<Sent>>>,
}

impl Flight {
    /// Remembers a segment.
    pub(crate) fn push(&mut self, sent: Sent) {
        if self.oldest.is_none() {
            self.oldest = Some(sent);
            return;
        }
        if self.len() == REMEMBERED {
            // The oldest tells how long an ACK took, the newest what it covers: the middle goes.
            self.newer.as_mut().and_then(|newer| newer.remove(REMEMBERED / 2));
        }
        self.newer.get_or_insert_default().push_back(sent);
    }

    /// Removes what an ACK covers, and returns the newest of it.
    pub(crate) fn acknowledge(&mut self, ack: SeqNumber) -> Option<Sent> {
        let mut newest = None;
        while let Some(first) = self.oldest.filter(|sent| !sent.end.after(ack)) {
            newest = Some(first);
            self.oldest = self.newer.as_mut().and_then(|newer| newer.pop_front());
        }
        if self.newer.as_ref().is_some_and(|newer| newer.is_empty()) {
            // An idle connection takes little memory.
            self.newer = None;
        }
        newest
    }

    fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.oldest.iter().chain(self.newer.iter().flat_map(|newer| newer.iter()))
    }

    /// Returns the segment that ends there or after, if it is remembered.
    pub(crate) fn covering(&mut self, end: SeqNumber) -> Option<&mut Sent> {
        let mut all =
            self.oldest.iter_mut().chain(self.newer.iter_mut().flat_map(|newer| newer.iter_mut()));
        all.find(|sent| !sent.end.before(end))
    }

    /// Returns whether a segment shorter than a full one is among them.
    pub(crate) fn has_small(&self) -> bool {
        self.iter().any(|sent| sent.small)
    }

    /// Returns how many segments are remembered.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.oldest.is_some()) + self.newer.as_ref().map_or(0, |newer| newer.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_wire::SeqNumber;

    use super::{Flight, REMEMBERED, Sent};

    fn sent(end: u32) -> Sent {
        Sent {
            end: SeqNumber(end),
            at: Duration::from_millis(u64::from(end)),
            again: false,
            flight_bytes: 1,
            small: false,
        }
    }

    #[test]
    fn an_ack_takes_all_that_it_covers_and_tells_the_newest() {
        let mut flight = Flight::default();
        (1..=5).for_each(|end| flight.push(sent(end)));
        assert_eq!(flight.acknowledge(SeqNumber(3)).unwrap().end, SeqNumber(3));
        assert!(flight.acknowledge(SeqNumber(3)).is_none());
        assert_eq!(flight.len(), 2);
    }

    #[test]
    fn a_long_flight_keeps_its_ends_in_bounded_memory() {
        let mut flight = Flight::default();
        (1..=10_000).for_each(|end| flight.push(sent(end)));
        assert_eq!(flight.len(), REMEMBERED);
        assert_eq!(flight.acknowledge(SeqNumber(1)).unwrap().end, SeqNumber(1));
        let newest = flight.acknowledge(SeqNumber(10_000)).unwrap();
        assert_eq!(newest.end, SeqNumber(10_000));
        assert_eq!(flight.len(), 0);
    }
}
