//! What one end has sent and the other has not acknowledged yet.

use std::collections::VecDeque;
use std::time::Duration;

use uncork_wire::SeqNumber;

/// Segments that are remembered one by one. A longer flight is a bulk transfer, of which a sample
/// tells enough.
const REMEMBERED: usize = 64;
/// Room that is kept while nothing is in flight: to allocate it anew for each request takes longer
/// than all else that is done with it.
const AT_REST: usize = 4;

/// A segment in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// The number after its last octet.
    pub(crate) end: SeqNumber,
    /// When it was seen.
    pub(crate) at: Duration,
    /// When it was seen first, if it has been sent again since: nobody knows which of the two an
    /// ACK answers (Karn's algorithm, RFC 6298 §3).
    pub(crate) again: bool,
    /// Octets in flight, itself included, when it was sent.
    pub(crate) flight_bytes: u32,
    /// Whether it is shorter than a full segment.
    pub(crate) small: bool,
}

/// The segments of one direction that wait for their ACK, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flight {
    sent: VecDeque<Sent>,
}

impl Flight {
    /// Remembers a segment.
    pub(crate) fn push(&mut self, sent: Sent) {
        if self.sent.len() == REMEMBERED {
            // The oldest tells how long an ACK took, the newest what it covers: the middle goes.
            self.sent.remove(REMEMBERED / 2);
        }
        self.sent.push_back(sent);
    }

    /// Takes away what an ACK covers, and returns the newest of it.
    pub(crate) fn acknowledge(&mut self, ack: SeqNumber) -> Option<Sent> {
        let mut newest = None;
        while let Some(first) = self.sent.front().filter(|sent| !sent.end.after(ack)) {
            newest = Some(*first);
            self.sent.pop_front();
        }
        if self.sent.is_empty() && self.sent.capacity() > AT_REST {
            // A connection that rests costs little memory.
            self.sent.shrink_to(0);
        }
        newest
    }

    /// The segment that ends there or after, if it is remembered.
    pub(crate) fn covering(&mut self, end: SeqNumber) -> Option<&mut Sent> {
        self.sent.iter_mut().find(|sent| !sent.end.before(end))
    }

    /// Whether a segment shorter than a full one is among them.
    pub(crate) fn has_small(&self) -> bool {
        self.sent.iter().any(|sent| sent.small)
    }

    /// How many there are, as far as they are remembered.
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
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
