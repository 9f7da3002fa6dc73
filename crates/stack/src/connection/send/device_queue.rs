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
}

impl DeviceQueue {
    /// Frames in the device, from their first octet to their last.
    pub(crate) fn bytes(self) -> u32 {
        self.bytes
    }

    /// The limit: less than a millisecond of what the connection gets through, between two
    /// segments and what is configured. More than that only adds to everybody's delay.
    pub(crate) fn limit(pacer: &Pacer, configured: u32, segment_bytes: u32) -> u32 {
        let least = 2 * segment_bytes;
        let worth = pacer.device_bytes().unwrap_or(u32::MAX);
        worth.min(configured).max(least)
    }

    /// A frame was handed over.
    pub(crate) fn add(&mut self, frame_bytes: u32) {
        self.bytes = self.bytes.saturating_add(frame_bytes);
    }

    /// Something waits for the next completion.
    pub(crate) fn wait(&mut self) {
        self.waiting = true;
    }

    /// Whether something waits.
    pub(crate) fn is_waiting(self) -> bool {
        self.waiting
    }

    /// Frames have left. Whether somebody has waited for that.
    pub(crate) fn complete(&mut self, bytes: u32) -> bool {
        self.bytes = self.bytes.saturating_sub(bytes);
        std::mem::take(&mut self.waiting)
    }
}
