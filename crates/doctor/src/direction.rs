//! One direction of a connection: what its sender has sent, and what is known of its sender.

use std::time::Duration;

use uncork_wire::tcp::Flags;
use uncork_wire::{Segment, SeqNumber};

use crate::flight::Flight;
use crate::message::Messages;
use crate::room::Room;
use crate::tally::Stall;
use crate::{Histogram, InForce};

/// A segment at least this long is taken for full where no MSS was announced: IPv6's minimum MTU less its
/// headers (RFC 8200 §5).
const LIKELY_MSS: u32 = 1220;

/// An acknowledgment of new data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked {
    /// When the ACK was seen.
    pub(crate) at: Duration,
    /// When the newest segment that it covers was seen.
    pub(crate) sent_at: Duration,
    /// How long it was held: the time since that segment, less the fastest answer that the other end has ever given.
    pub(crate) held: Duration,
    /// Whether that is long, with hardly anything in flight that would make a queue.
    pub(crate) late: bool,
    /// Whether few segments were in flight before it came.
    pub(crate) few: bool,
    /// Whether a small segment was among them: what Nagle's algorithm waits for.
    pub(crate) small_in_flight: bool,
    /// Whether it came without data.
    pub(crate) pure: bool,
}

/// Data that was retransmitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Again {
    /// The stall that it is, if the retransmission was needed.
    pub(crate) stall: Stall,
    /// The moment up to which time had been counted as lost by then.
    pub(crate) lost_until: Duration,
    /// Whether a later wait has been counted before it is known whether this retransmission was needed.
    pub(crate) waited: bool,
    /// Timestamp value of the retransmission (RFC 7323).
    pub(crate) timestamp: Option<u32>,
}

/// One direction of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Direction {
    /// First sequence number seen.
    pub(crate) first: Option<SeqNumber>,
    /// The number after the last one seen (SND.NXT, RFC 9293 §3.3.1).
    pub(crate) nxt: SeqNumber,
    /// First sequence number that the other end has not acknowledged (SND.UNA).
    pub(crate) una: Option<SeqNumber>,
    /// Segments in flight.
    pub(crate) flight: Flight,
    /// The segment size that the other end's SYN allows, in octets.
    announced_mss: Option<u32>,
    /// Largest segment seen, in octets; with segmentation offload one may hold many full ones.
    largest_bytes: u32,
    /// Data segments, not counting retransmissions.
    pub(crate) data_segments: u64,
    /// Octets of data, not counting retransmissions.
    pub(crate) payload_bytes: u64,
    /// Its messages.
    pub(crate) messages: Messages,
    /// When new data was last seen.
    pub(crate) last_data: Option<Duration>,
    /// The last acknowledgment of its data.
    pub(crate) acked: Option<Acked>,
    /// Fastest reaction of this end to a segment of the other.
    pub(crate) reaction_least: Option<Duration>,
    /// Shift of the window that this end advertises (RFC 7323 §2); unknown without its SYN.
    window_shift: Option<u8>,
    /// How wide that window was, and when it was shut.
    pub(crate) room: Room,
    /// Small segments that left while an earlier small one was in flight: Nagle's algorithm would have held them.
    pub(crate) small_behind_small: u32,
    /// How often it went on with a message after a pause that no ACK ended.
    pub(crate) unhurried: u32,
    /// How often it spoke again after a while, though the other end had said nothing meanwhile.
    pub(crate) unasked: u32,
    /// How long this end's ACKs without data took.
    pub(crate) ack_delay: Histogram,
    /// Which of its ACKs of new data were quick, and which late.
    pub(crate) quick: QuickAcks,
    /// How long the other end's ACKs took with much in flight.
    pub(crate) loaded: Option<Box<Histogram>>,
    /// Most octets in flight.
    pub(crate) most_in_flight_bytes: u32,
    /// Most octets that the path has carried in a round trip: what was in flight, less what stood in a queue.
    pub(crate) most_carried_bytes: u32,
    /// Retransmitted data, until it is known whether that was needed.
    pub(crate) again: Option<Box<Again>>,
    /// The end of the data that was lost together: up to here it is one stall.
    pub(crate) recovering_until: Option<SeqNumber>,
    /// When data was last retransmitted, in nanoseconds, which take less room than a `Duration`.
    last_again_ns: u64,
    /// Timestamp value of its last segment with data (RFC 7323).
    pub(crate) last_timestamp: Option<u32>,
    /// How fast that clock ticks, as far as it was learnt: ticks per second, 0 if unknown.
    pub(crate) tick_hertz: u16,
    /// How long after the last retransmission the last ACK came that acknowledged nothing new: microseconds,
    /// 0 if none has come since.
    duplicate_us: u32,
    /// Whether it has sent a FIN or a reset.
    pub(crate) ended: bool,
}

/// The order of an end's quick and late ACKs of new data.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QuickAcks {
    /// ACKs without data before the first late one.
    pub(crate) quick_first: u32,
    /// Late ACKs.
    pub(crate) late: u32,
    /// Quick ACKs after the first late one.
    pub(crate) quick_after: u32,
    /// Data segments that this end sent before its first late ACK.
    pub(crate) sent_before: u32,
}

impl QuickAcks {
    /// Counts an ACK without data of an end that has sent `data_segments` segments with data.
    pub(crate) fn record(&mut self, late: bool, data_segments: u64) {
        if late {
            if self.late == 0 {
                self.sent_before = u32::try_from(data_segments).unwrap_or(u32::MAX);
            }
            self.late += 1;
        } else if self.late == 0 {
            self.quick_first += 1;
        } else {
            self.quick_after += 1;
        }
    }
}

impl Direction {
    /// Notes what a SYN of the sender says, and the first sequence number in any case.
    pub(crate) fn begin(&mut self, segment: &Segment) {
        if segment.flags.has(Flags::SYN) && self.data_segments == 0 {
            self.window_shift = Some(segment.window_scale.unwrap_or(0));
            self.first = Some(segment.seq + 1);
            self.nxt = segment.seq + 1;
        } else if self.first.is_none() {
            self.first = Some(segment.seq);
            self.nxt = segment.seq;
        }
    }

    /// Notes the segment size that the other end's SYN allows.
    pub(crate) fn allow(&mut self, other_syn: &Segment) {
        // The timestamps option takes room of each segment (RFC 6691 §2).
        let options = if other_syn.timestamps.is_some() { 12 } else { 0 };
        let announced = u32::from(other_syn.mss.unwrap_or(536));
        self.announced_mss = Some(announced.saturating_sub(options).max(1));
    }

    /// Returns the largest segment that it may send, in octets, if known.
    pub(crate) fn mss(&self) -> Option<u32> {
        self.announced_mss
    }

    /// Notes how long a data segment is.
    pub(crate) fn measure(&mut self, payload_bytes: u32) {
        self.largest_bytes = self.largest_bytes.max(payload_bytes);
    }

    /// Returns whether a segment of that length is shorter than a full one.
    pub(crate) fn is_small(&self, payload_bytes: u32) -> bool {
        payload_bytes < self.full_bytes()
    }

    /// Returns the length of a full segment, as far as is known, in octets.
    pub(crate) fn full_bytes(&self) -> u32 {
        match self.announced_mss {
            // The announced size may never be reached, on a path with a smaller MTU.
            Some(mss) => mss,
            None => self.largest_bytes.max(LIKELY_MSS),
        }
    }

    /// Returns whether a retransmission, or what was sent before it, is not acknowledged yet.
    pub(crate) fn is_recovering(&self) -> bool {
        let both = self.recovering_until.zip(self.una);
        // After a wrap of the sequence numbers, one from long ago may seem to lie ahead.
        both.is_some_and(|(until, una)| until.after(una) && !until.after(self.nxt))
    }

    /// Notes that a segment sent with so much in flight was acknowledged after `delay`; `least` is the path. What
    /// takes longer by half, and by more than a network's jitter, stood in a queue for the rest of the time.
    pub(crate) fn carried(&mut self, flight_bytes: u32, delay: Duration, least: Duration) {
        let bytes = if delay <= least + least / 2 + Duration::from_millis(5) {
            flight_bytes
        } else {
            let share = least.as_secs_f64() / delay.as_secs_f64();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // less than flight_bytes
            let bytes = (f64::from(flight_bytes) * share) as u32;
            bytes
        };
        self.most_carried_bytes = self.most_carried_bytes.max(bytes);
    }

    /// Notes that data was retransmitted.
    pub(crate) fn send_again(&mut self, at: Duration) {
        self.last_again_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.duplicate_us = 0;
    }

    /// Returns when data was last retransmitted; zero if it never was.
    pub(crate) fn last_again(&self) -> Duration {
        Duration::from_nanos(self.last_again_ns)
    }

    /// Notes an ACK that acknowledges nothing new: while data is missing, it tells that later segments have arrived.
    pub(crate) fn duplicate(&mut self, at: Duration) {
        if self.is_recovering() {
            let after = at.saturating_sub(self.last_again()).as_micros().max(1);
            self.duplicate_us = u32::try_from(after).unwrap_or(u32::MAX);
        }
    }

    /// Returns when the last of those ACKs came since data was last retransmitted.
    pub(crate) fn duplicate_at(&self) -> Option<Duration> {
        let after = Duration::from_micros(self.duplicate_us.into());
        (!after.is_zero()).then(|| self.last_again() + after)
    }

    /// Returns the octets in flight.
    pub(crate) fn flight_bytes(&self) -> u32 {
        match self.una {
            Some(una) if self.nxt.after(una) => self.nxt.0.wrapping_sub(una.0),
            _ => 0,
        }
    }

    /// Returns the window that a segment of this end advertises, in octets, if its scale is known.
    pub(crate) fn window_bytes(&self, segment: &Segment) -> Option<u32> {
        Some(u32::from(segment.window) << self.window_shift?)
    }

    /// Notes a reaction of this end, if it is the fastest.
    pub(crate) fn reacted(&mut self, after: Duration) {
        self.reaction_least = Some(self.reaction_least.map_or(after, |least| least.min(after)));
    }

    /// Returns how late a reaction may come without being a coincidence: the fastest seen, plus what a
    /// scheduler and a network's jitter add.
    pub(crate) fn reaction_limit(&self) -> Duration {
        let least = self.reaction_least.unwrap_or_default();
        least + least / 8 + Duration::from_millis(1)
    }

    /// Returns the offset of a sequence number in this direction's stream.
    pub(crate) fn offset(&self, seq: SeqNumber) -> u32 {
        let first = self.first.unwrap_or(seq);
        if seq.before(first) { 0 } else { seq.0.wrapping_sub(first.0) }
    }

    /// Returns whether Nagle's algorithm held its sender's bytes, given how many stalls it alone explains.
    pub(crate) fn nagle(&self, held: u64) -> InForce {
        match (held > 0, self.small_behind_small > 0) {
            (true, false) => InForce::On,
            (false, true) => InForce::Off,
            (true, true) => InForce::Changed,
            (false, false) => InForce::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_gigabytes_ago_is_over() {
        let (una, nxt) = (Some(SeqNumber(1000)), SeqNumber(9000));
        let recovering_until = Some(SeqNumber(5000));
        let mut direction = Direction { una, nxt, recovering_until, ..Direction::default() };
        assert!(direction.is_recovering());
        for gib in 1..4 {
            (direction.una, direction.nxt) =
                (Some(SeqNumber(1000 + (gib << 30))), SeqNumber(9000 + (gib << 30)));
            assert!(!direction.is_recovering(), "{gib} GiB");
        }
    }
}
