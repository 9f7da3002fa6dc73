//! The receive window: what to offer, and how large the receive buffer should be.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use super::Receiver;
use crate::units::{MaybeInstant, Micros};

/// Largest shift of the window scale option (RFC 7323 §2.3).
pub(crate) const LARGEST_SHIFT: u8 = 14;

/// Returns the least shift with which a window of `most` octets can be announced.
pub(crate) fn shift_for(most: u32) -> u8 {
    (0..LARGEST_SHIFT).find(|shift| most >> shift <= u32::from(u16::MAX)).unwrap_or(LARGEST_SHIFT)
}

/// Dynamic right-sizing: the buffer follows what the user reads in a round trip.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuning {
    /// When this round began, and up to where data had been read by then.
    began: MaybeInstant,
    from: SeqNumber,
    /// Most octets read in a round so far.
    best: u32,
}

impl Tuning {
    /// Returns the most octets read in a round so far.
    pub(crate) fn best_bytes(self) -> u32 {
        self.best
    }
}

impl Receiver {
    /// Returns what is left of the last announced window, in octets (RFC 9293: RCV.NXT to its right edge).
    pub(crate) fn window_left(&self) -> u32 {
        u32::try_from((self.acknowledged + self.window) - self.nxt).unwrap_or(0)
    }

    /// Returns the right edge of the window.
    pub(crate) fn window_end(&self) -> SeqNumber {
        self.nxt + self.window_left()
    }

    /// Returns the window that an ACK should offer now: never less than the last one (RFC 9293 §3.8.6), and
    /// more only if it grows by a segment or half the buffer (silly window avoidance, §3.8.6.2.2).
    #[inline(always)]
    pub(crate) fn window_to_offer(&self, segment_bytes: u32, shift: u8) -> u32 {
        let left = self.window_left();
        let free = self.limit.saturating_sub(self.readable_bytes());
        let silly = free < self.limit / 2 && (free < segment_bytes || free < self.limit / 16);
        let offered = if silly { 0 } else { free };
        // The shift cuts off what is less than a unit; the right edge must not move left because of that. It may, by less than
        // a unit, where rounding up has exhausted the buffer (RFC 7323 §2.4): a sender of few octets at a time would
        // otherwise fill a window that never closes (tcp_try_rmem_schedule drops what comes then).
        let rest = (1 << shift) - 1;
        let rounded = left.saturating_add(rest) & !rest;
        let fits = rounded.saturating_add(self.readable_bytes()) <= self.limit + rest + 1;
        let kept = if fits { rounded } else { left & !rest };
        let offered = kept.max(offered & !rest);
        offered.min(u32::from(u16::MAX) << shift)
    }

    /// Grows the buffer after a read if the user reads as fast as the peer sends (Linux's
    /// tcp_rcv_space_adjust, after Fisk and Feng's dynamic right-sizing). The round trip is the receiver's own
    /// estimate ([`super::RoundTrip`]).
    pub(crate) fn tune(&mut self, now: Instant, round_trip: Micros, segment_bytes: u32, most: u32) {
        let read = self.nxt - self.readable_bytes();
        let from = self.tuning.from;
        let Some(began) = self.tuning.began.get() else {
            self.tuning.began.set(now);
            self.tuning.from = read;
            return;
        };
        // No estimate before the first window has come, and a read in zero time would say nothing about the next.
        if round_trip == Micros::ZERO || now < began + round_trip {
            return;
        }
        let copied = (read - from).max(0).unsigned_abs();
        self.tuning.began.set(now);
        self.tuning.from = read;
        if copied <= self.tuning.best {
            return;
        }
        self.tuning.best = copied;
        // Twice what was read, for a sender in slow start, and some for its first segments.
        let wanted = copied.saturating_mul(2).saturating_add(16 * segment_bytes);
        self.limit = self.limit.max(wanted.min(most));
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;

    use super::{Micros, shift_for};
    use crate::connection::receive::Receiver;
    use crate::memory::Pool;

    fn receiver(limit: u32) -> Receiver {
        let mut receiver = Receiver::new(limit);
        receiver.begin(SeqNumber(0));
        receiver.window = limit;
        receiver
    }

    #[test]
    fn the_shift_fits_the_largest_window() {
        assert_eq!(shift_for(65_535), 0);
        assert_eq!(shift_for(65_536), 1);
        assert_eq!(shift_for(6 << 20), 7);
        assert_eq!(shift_for(u32::MAX), 14);
    }

    #[test]
    fn the_right_edge_never_moves_left_and_opens_in_worthwhile_steps() {
        let mut pool = Pool::new(0);
        let mut receiver = receiver(32_768);
        receiver.take(SeqNumber(1), &[0; 32_768], &mut pool);
        assert_eq!(receiver.window_left(), 0);
        assert_eq!(receiver.window_to_offer(1460, 0), 0);
        // Reading one segment's worth does not open the window, half of the buffer does.
        receiver.consume(1459, &mut pool);
        assert_eq!(receiver.window_to_offer(1460, 0), 0);
        receiver.consume(14_925, &mut pool);
        assert_eq!(receiver.window_to_offer(1460, 0), 16_384);
    }

    #[test]
    fn a_window_that_is_told_in_units_is_rounded_up_where_it_would_shrink() {
        let mut pool = Pool::new(0);
        let mut receiver = receiver(65_536);
        receiver.take(SeqNumber(1), &[0; 1], &mut pool);
        assert_eq!(receiver.window_to_offer(1460, 7), 65_536);
    }

    #[test]
    fn a_window_that_is_rounded_up_again_and_again_does_not_outgrow_the_buffer() {
        let mut pool = Pool::new(0);
        for most_bytes in [1, 100, 1460] {
            let mut receiver = receiver(65_536);
            // A sender that leaves an octet of the window has it rounded up with each ACK.
            for _ in 0..200_000 {
                let bytes = receiver.window_left().saturating_sub(1).min(most_bytes);
                receiver.take(receiver.nxt, &vec![0; bytes as usize], &mut pool);
                receiver.window = receiver.window_to_offer(1460, 7);
                receiver.acknowledged = receiver.nxt;
                let kept = receiver.readable_bytes() + receiver.window_left();
                assert!(kept <= 65_536 + 128, "{kept}");
            }
            assert!(receiver.readable_bytes() > 65_000 && receiver.window <= 128);
            // And once it is read the whole window is open again.
            receiver.consume(receiver.readable_bytes(), &mut pool);
            assert_eq!(receiver.window_to_offer(1460, 7), 65_536);
        }
    }

    #[test]
    fn the_buffer_follows_what_is_read_in_a_round_trip() {
        let mut pool = Pool::new(0);
        let mut receiver = receiver(65_536);
        let round = Micros::from_millis(10);
        receiver.tune(Instant::ZERO, round, 1000, 1 << 20);
        receiver.take(SeqNumber(1), &[0; 60_000], &mut pool);
        receiver.consume(60_000, &mut pool);
        receiver.tune(Instant::from_millis(9), round, 1000, 1 << 20);
        assert_eq!(receiver.limit, 65_536);
        // Nor while there is no estimate.
        receiver.tune(Instant::from_millis(10), Micros::ZERO, 1000, 1 << 20);
        assert_eq!(receiver.limit, 65_536);
        receiver.tune(Instant::from_millis(10), round, 1000, 1 << 20);
        assert_eq!(receiver.limit, 136_000);
        receiver.tune(Instant::from_millis(20), round, 1000, 1 << 20);
        assert_eq!(receiver.limit, 136_000);
    }
}
