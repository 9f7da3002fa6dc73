//! From writes and timestamps to segments and their ACKs. Pure: events go in with their time, and
//! what is known of each segment comes out when it is acknowledged.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use crate::stamps::{Event, Stamp};

/// Two ACK stamps this close together are from one ACK: the kernel stamps what an ACK covers in one
/// loop, a microsecond or two apart.
const ONE_ACK: Duration = Duration::from_micros(20);

/// A second stamp of a departure at least this much after the first is a retransmission, and not
/// the next device on the path, which stamps as well.
const SENT_AGAIN: Duration = Duration::from_millis(2);

/// An acknowledged segment: the last one of a write, with what left together with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// Number of the first write in it, from 1.
    pub first: u64,
    /// Number of the last write in it.
    pub last: u64,
    /// Bytes of these writes.
    pub bytes: u64,
    /// Time from the write to the departure, in nanoseconds; Nagle's algorithm shows here.
    #[serde(rename = "held_ns", serialize_with = "nanoseconds")]
    pub held: Option<Duration>,
    /// Time from the departure to the ACK, in nanoseconds; `None` if a stamp was lost.
    #[serde(rename = "ack_delay_ns", serialize_with = "nanoseconds")]
    pub ack_delay: Option<Duration>,
    /// Whether its ACK was also that of the segment before.
    pub shares_ack: bool,
    /// Whether it was retransmitted, so that its delay tells nothing about the receiver.
    pub resent: bool,
}

fn nanoseconds<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    let nanoseconds = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    nanoseconds.serialize(to)
}

#[derive(Debug)]
struct Write {
    number: u64,
    bytes: u64,
    /// Offset of its last byte, modulo 2^32.
    last_byte: u32,
    at: Duration,
    queued: Option<Duration>,
    sent: Option<Duration>,
    resent: bool,
}

/// The writes that have not been acknowledged yet.
#[derive(Debug, Default)]
pub struct Ledger {
    writes: VecDeque<Write>,
    written_bytes: u64,
    written: u64,
    last_ack: Option<Duration>,
}

impl Ledger {
    /// Notes that a write of `bytes` bytes, which must not be 0, began at this time.
    pub fn wrote(&mut self, bytes: usize, at: Duration) {
        let bytes = bytes as u64;
        self.written_bytes += bytes;
        self.written += 1;
        // Offsets are modulo 2^32, on purpose.
        let last_byte = self.written_bytes.wrapping_sub(1) as u32;
        self.writes.push_back(Write {
            number: self.written,
            bytes,
            last_byte,
            at,
            queued: None,
            sent: None,
            resent: false,
        });
    }

    /// Returns how many writes have not been acknowledged yet.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.writes.len()
    }

    /// Returns the bytes written.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Takes in a stamp. For an ACK, returns its segment, preceded by those whose own stamps were
    /// lost.
    pub fn stamped(&mut self, stamp: Stamp) -> Vec<Segment> {
        match stamp.event {
            Event::Acknowledged => self.acknowledged(stamp.offset, stamp.at),
            Event::Queued => {
                if let Some(write) = self.find(stamp.offset) {
                    write.queued.get_or_insert(stamp.at);
                }
                Vec::new()
            }
            Event::Sent => {
                if let Some(write) = self.find(stamp.offset) {
                    let first = *write.sent.get_or_insert(stamp.at);
                    write.resent |= stamp.at.saturating_sub(first) > SENT_AGAIN;
                }
                Vec::new()
            }
        }
    }

    fn find(&mut self, last_byte: u32) -> Option<&mut Write> {
        let index = self.writes.partition_point(|write| before(write.last_byte, last_byte));
        self.writes.get_mut(index).filter(|write| write.last_byte == last_byte)
    }

    fn acknowledged(&mut self, last_byte: u32, at: Duration) -> Vec<Segment> {
        let covered = self.writes.partition_point(|write| !before(last_byte, write.last_byte));
        let mut segments = Vec::new();
        let mut first = None;
        let mut bytes = 0;
        for write in self.writes.drain(..covered) {
            bytes += write.bytes;
            let begins = *first.get_or_insert(write.number);
            let departed = write.sent.or(write.queued);
            let own = write.last_byte == last_byte;
            // A write that never left by itself left with the next that did.
            if !own && departed.is_none() {
                continue;
            }
            let previous_ack = self.last_ack.filter(|_| own);
            let in_flight_then = previous_ack.is_some_and(|ack| departed.is_some_and(|d| d <= ack));
            let at_once = previous_ack.is_some_and(|ack| at.saturating_sub(ack) <= ONE_ACK);
            segments.push(Segment {
                first: begins,
                last: write.number,
                bytes,
                held: departed.and_then(|departed| departed.checked_sub(write.at)),
                ack_delay: departed.filter(|_| own).and_then(|departed| at.checked_sub(departed)),
                shares_ack: in_flight_then && at_once,
                resent: write.resent,
            });
            (first, bytes) = (None, 0);
        }
        if covered > 0 {
            self.last_ack = Some(at);
        }
        segments
    }
}

/// Returns whether `a` comes before `b` in the stream, modulo 2^32.
fn before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use Event::{Acknowledged, Queued, Sent};

    fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    fn stamp(event: Event, offset: u32, at: u64) -> Stamp {
        Stamp { event, offset, at: us(at) }
    }

    /// Returns a ledger with writes of 1000 bytes each, at these times.
    fn ledger(times: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        for time in times {
            ledger.wrote(1000, us(*time));
        }
        ledger
    }

    #[test]
    fn a_segment_is_timed_from_its_departure_to_its_ack() {
        let mut ledger = ledger(&[100]);
        assert_eq!(ledger.stamped(stamp(Queued, 999, 101)), []);
        assert_eq!(ledger.stamped(stamp(Sent, 999, 103)), []);
        let segments = ledger.stamped(stamp(Acknowledged, 999, 40_103));
        let [segment] = segments.as_slice() else { panic!("{segments:?}") };
        assert_eq!((segment.first, segment.last, segment.bytes), (1, 1, 1000));
        assert_eq!(segment.held, Some(us(3)));
        assert_eq!(segment.ack_delay, Some(us(40_000)));
        assert!(!segment.shares_ack && !segment.resent);
        assert_eq!(ledger.unacknowledged(), 0);
    }

    #[test]
    fn writes_that_left_together_are_one_segment() {
        let mut ledger = ledger(&[0, 10, 20]);
        ledger.stamped(stamp(Sent, 2999, 50));
        let segments = ledger.stamped(stamp(Acknowledged, 2999, 70));
        assert_eq!(segments.len(), 1, "{segments:?}");
        assert_eq!((segments[0].first, segments[0].last, segments[0].bytes), (1, 3, 3000));
        assert_eq!(segments[0].held, Some(us(30)), "counts from its last write");
    }

    #[test]
    fn segments_of_one_ack_are_told_from_acks_in_quick_succession() {
        let mut ledger = ledger(&[0, 100, 30_000]);
        ledger.stamped(stamp(Sent, 999, 1));
        ledger.stamped(stamp(Sent, 1999, 101));
        assert!(!ledger.stamped(stamp(Acknowledged, 999, 20_000))[0].shares_ack);
        assert!(ledger.stamped(stamp(Acknowledged, 1999, 20_002))[0].shares_ack);
        // Sent after that ACK, so acknowledged by another, however soon that came.
        ledger.stamped(stamp(Sent, 2999, 20_005));
        assert!(!ledger.stamped(stamp(Acknowledged, 2999, 20_012))[0].shares_ack);
    }

    #[test]
    fn a_lost_stamp_leaves_a_segment_without_a_time() {
        let mut ledger = ledger(&[0, 100]);
        ledger.stamped(stamp(Sent, 999, 1));
        ledger.stamped(stamp(Sent, 1999, 101));
        let segments = ledger.stamped(stamp(Acknowledged, 1999, 200));
        assert_eq!(segments.len(), 2, "{segments:?}");
        assert_eq!(segments[0].ack_delay, None);
        assert_eq!(segments[1].ack_delay, Some(us(99)));
    }

    #[test]
    fn a_retransmission_is_marked_and_a_second_device_is_not() {
        let mut ledger = ledger(&[0, 0]);
        ledger.stamped(stamp(Sent, 999, 10));
        ledger.stamped(stamp(Sent, 999, 14));
        ledger.stamped(stamp(Sent, 1999, 20));
        ledger.stamped(stamp(Sent, 1999, 200_020));
        assert!(!ledger.stamped(stamp(Acknowledged, 999, 30))[0].resent);
        assert!(ledger.stamped(stamp(Acknowledged, 1999, 200_050))[0].resent);
    }

    #[test]
    fn offsets_go_round_at_four_gibibytes() {
        let mut ledger = Ledger::default();
        let half = 1 << 30;
        for number in 0..9_u64 {
            ledger.wrote(half, us(number));
            let offset = ((number + 1) * half as u64).wrapping_sub(1) as u32;
            ledger.stamped(stamp(Sent, offset, number + 1));
            let segments = ledger.stamped(stamp(Acknowledged, offset, number + 3));
            assert_eq!((segments.len(), segments[0].last), (1, number + 1));
            assert_eq!(segments[0].ack_delay, Some(us(2)));
        }
    }

    #[test]
    fn stamps_of_nothing_that_was_written_are_passed_over() {
        let mut ledger = ledger(&[5]);
        for event in [Queued, Sent, Acknowledged] {
            assert_eq!(ledger.stamped(stamp(event, u32::MAX, 9)), []);
        }
        assert_eq!(ledger.unacknowledged(), 1);
        let segments = ledger.stamped(stamp(Acknowledged, 999, 2));
        assert_eq!(segments.len(), 1);
        assert_eq!(segments[0].ack_delay, None, "no stamp of its departure");
    }

    #[test]
    fn a_clock_that_was_set_back_gives_no_time() {
        let mut ledger = ledger(&[5000]);
        ledger.stamped(stamp(Sent, 999, 5001));
        assert_eq!(ledger.stamped(stamp(Acknowledged, 999, 100))[0].ack_delay, None);
    }
}
