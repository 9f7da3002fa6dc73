//! TCP small queues: how much of a connection is in the device queue, and what waits for it.
//!
//! Nobody can take back, mark, or overtake what a device queue holds; every packet of all other
//! connections waits after it. So a connection may have only a bounded number of bytes in there.
//! When it has, it waits for completions rather than for ACKs, and continues in
//! order, in the batch that the stack makes of all that waited (never from inside a completion).
//!
//! Autocorking uses the same count: a small write gains nothing by leaving while earlier bytes
//! of its connection have not even left the device.

use super::pacer::Pacer;

/// The bytes of one connection in the device queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceQueue {
    bytes: u32,
    /// The connection waits for a completion.
    waiting: bool,
    /// It waits because there is no room.
    for_room: bool,
    /// How much more often than not, lately, the device was empty when the connection had waited for room or its turn.
    starved: u8,
}

/// So much of `starved` doubles the limit once.
const STARVED_DOUBLES: u8 = 4;
/// Six doublings lead from two segments to the configured limit.
const STARVED_MOST: u8 = 6 * STARVED_DOUBLES;

impl DeviceQueue {
    /// Returns the bytes of frames in the device, headers included.
    pub(crate) fn bytes(self) -> u32 {
        self.bytes
    }

    /// Returns the limit: less than a millisecond of the connection's delivery rate, but at least two
    /// segments and at most what is configured. More than that only adds to everybody's delay.
    ///
    /// The limit grows if the device repeatedly runs empty before it is filled again: then it is not the device
    /// that limits the rate but this limit, which would shrink with the rate, down to two segments
    /// (where wake-ups are late, on a busy machine, and a device is as fast as memory).
    pub(crate) fn limit(self, pacer: &Pacer, configured: u32, segment_bytes: u32) -> u32 {
        let least = 2 * segment_bytes;
        let worth = pacer.device_bytes().unwrap_or(u32::MAX).max(least);
        let worth = worth.saturating_mul(1 << (self.starved / STARVED_DOUBLES));
        worth.min(configured).max(least)
    }

    /// Counts a frame that was handed to the device.
    pub(crate) fn add(&mut self, frame_bytes: u32) {
        self.bytes = self.bytes.saturating_add(frame_bytes);
    }

    /// Waits for the next completion, for room or only to send more at once.
    pub(crate) fn wait(&mut self, for_room: bool) {
        self.waiting = true;
        self.for_room = for_room;
    }

    /// Returns whether the connection waits.
    pub(crate) fn is_waiting(self) -> bool {
        self.waiting
    }

    /// Handles a completion, and returns whether the connection waited for it. `goes_on` says that it has more to send
    /// but has not had its turn: with thousands of others that takes a while.
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
        // Once does not count.
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
