//! Small queues: how much of a connection sits in the device, and what waits for it.
//!
//! What a device queue holds, nobody can take back, mark, or overtake; every packet of everybody
//! else waits behind it. So a connection may have no more than a bounded number of bytes in there.
//! When it has, it waits for completions rather than for ACKs, and goes on from where it was, in
//! order, in the batch that the stack makes of all that waited (never from inside a completion).
//!
//! Autocorking stands on the same count: a small write gains nothing by leaving while earlier bytes
//! of its connection have not even left the device.

use super::pacer::Pacer;

/// Bytes in the device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceQueue {
    bytes: u32,
    /// Something waits for a completion.
    waiting: bool,
    /// It does because there is no room.
    for_room: bool,
    /// How much more often than not whoever waited, for room or for his turn, found the device empty, lately.
    starved: u8,
}

/// So much of it doubles the limit once.
const STARVED_DOUBLES: u8 = 4;
/// From two segments to the configured limit are six times.
const STARVED_MOST: u8 = 6 * STARVED_DOUBLES;

impl DeviceQueue {
    /// Frames in the device, from their first octet to their last.
    pub(crate) fn bytes(self) -> u32 {
        self.bytes
    }

    /// The limit: less than a millisecond of what the connection gets through, between two
    /// segments and what is configured. More than that only adds to everybody's delay.
    ///
    /// Unless the device runs dry before it is filled again, time after time: then it is not the device
    /// that lets so little through but this limit, which would become less with it, down to two segments
    /// (where wake-ups are late, on a busy machine, and a device is as fast as memory).
    pub(crate) fn limit(self, pacer: &Pacer, configured: u32, segment_bytes: u32) -> u32 {
        let least = 2 * segment_bytes;
        let worth = pacer.device_bytes().unwrap_or(u32::MAX).max(least);
        let worth = worth.saturating_mul(1 << (self.starved / STARVED_DOUBLES));
        worth.min(configured).max(least)
    }

    /// A frame was handed over.
    pub(crate) fn add(&mut self, frame_bytes: u32) {
        self.bytes = self.bytes.saturating_add(frame_bytes);
    }

    /// Something waits for the next completion, for room or only to go with others.
    pub(crate) fn wait(&mut self, for_room: bool) {
        self.waiting = true;
        self.for_room = for_room;
    }

    /// Whether something waits.
    pub(crate) fn is_waiting(self) -> bool {
        self.waiting
    }

    /// Frames have left. Whether somebody has waited for that. `goes_on` says that more would have been
    /// sent already, were it the connection's turn: with thousands of others it is a while until then.
    pub(crate) fn complete(&mut self, bytes: u32, goes_on: bool) -> bool {
        self.bytes = self.bytes.saturating_sub(bytes);
        let waited = std::mem::take(&mut self.waiting);
        if waited && self.for_room || goes_on {
            self.starved = match self.bytes {
                0 => (self.starved + 1).min(STARVED_MOST),
                _ => self.starved.saturating_sub(1),
            };
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceQueue, Pacer};

    const FRAME: u32 = 1514;

    #[test]
    fn a_device_that_is_found_empty_time_after_time_may_have_more_and_then_less_again() {
        let (mut queue, pacer) = (DeviceQueue::default(), Pacer::of_rate(1_000_000));
        let limit = |queue: DeviceQueue| queue.limit(&pacer, 131_072, FRAME);
        let round = |queue: &mut DeviceQueue, left: u32| {
            let filled = limit(*queue);
            queue.add(filled - queue.bytes());
            queue.wait(true);
            assert!(queue.complete(filled - left, false));
        };
        assert_eq!(limit(queue), 2 * FRAME);
        // Once is nobody's fault.
        round(&mut queue, 0);
        assert_eq!(limit(queue), 2 * FRAME);
        for _ in 0..30 {
            round(&mut queue, 0);
        }
        assert_eq!(limit(queue), 131_072);
        for _ in 0..30 {
            round(&mut queue, FRAME);
        }
        assert_eq!(limit(queue), 2 * FRAME);
    }
}
