//! Messages: runs of data in one direction, as a program's logical packets look on the wire.

use std::time::Duration;

use crate::median::Median;

/// Data that follows this soon belongs to the same message: from a program that writes in a loop,
/// not one that received another request or waited for something.
const SAME_BURST: Duration = Duration::from_millis(1);

/// The messages of one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Messages {
    now: Message,
    /// Finished messages.
    pub(crate) count: u32,
    /// Segments per message.
    pub(crate) segments: Median,
    /// Octets per message.
    pub(crate) bytes: Median,
    /// Short last segments that followed full ones at once: they were not held.
    pub(crate) prompt_tails: u32,
    /// Messages that were sent in needlessly many segments.
    pub(crate) tiny: Tiny,
}

/// Segments that could have been fewer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tiny {
    /// Messages that had several times more segments than they needed.
    pub(crate) messages: u32,
    /// Segments in those.
    pub(crate) segments: u32,
    /// Segments that would have been enough.
    pub(crate) needed: u32,
    /// Octets of data in those.
    pub(crate) bytes: u64,
}

/// The message that is under way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Message {
    /// Segments so far.
    pub(crate) segments: u32,
    /// Octets so far.
    pub(crate) bytes: u32,
    /// Segments of full size (a segment train counts as one).
    pub(crate) full: u32,
    /// Segments that followed the one before at once, without a hold or a pause between.
    at_once: u32,
}

impl Messages {
    /// Returns the message under way.
    pub(crate) fn now(&self) -> &Message {
        &self.now
    }

    /// Takes in a segment with new data, `pause` after the one before. `held`: it is late because
    /// it was held, so it belongs to the message before.
    pub(crate) fn data(&mut self, pause: Duration, bytes: u32, full_bytes: u32, held: bool) {
        let soon = pause <= SAME_BURST;
        if self.now.segments > 0 && !soon && !held {
            self.finish(full_bytes);
        }
        if soon && self.now.full > 0 && bytes < full_bytes {
            self.prompt_tails += 1;
        }
        self.now.at_once += u32::from(soon && self.now.segments > 0);
        self.now.segments += 1;
        self.now.bytes = self.now.bytes.saturating_add(bytes);
        self.now.full += u32::from(bytes >= full_bytes);
    }

    /// Ends the message: the other end has answered, or the connection is over.
    pub(crate) fn finish(&mut self, full_bytes: u32) {
        let message = std::mem::take(&mut self.now);
        if message.segments == 0 {
            return;
        }
        self.count += 1;
        self.segments.record(message.segments);
        self.bytes.record(message.bytes);
        let needed = message.bytes.div_ceil(full_bytes.max(1)).max(1);
        // Four times as many segments as needed, most of them back to back.
        if message.segments >= 4 * needed && message.at_once * 2 >= message.segments {
            self.tiny.messages += 1;
            self.tiny.segments = self.tiny.segments.saturating_add(message.segments);
            self.tiny.needed = self.tiny.needed.saturating_add(needed);
            self.tiny.bytes += u64::from(message.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Messages;

    fn after(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn a_pause_ends_a_message_and_a_hold_does_not() {
        let mut messages = Messages::default();
        messages.data(after(0), 100, 1460, false);
        messages.data(after(10), 100, 1460, false);
        messages.data(after(40_000), 100, 1460, true);
        messages.data(after(50_000), 100, 1460, false);
        assert_eq!(messages.count, 1);
        assert_eq!(messages.segments.get(), 3);
        assert_eq!(messages.bytes.get(), 300);
    }

    #[test]
    fn only_needless_segments_are_tiny() {
        let mut messages = Messages::default();
        for _ in 0..15 {
            messages.data(after(3), 2, 1460, false);
        }
        messages.finish(1460);
        assert_eq!((messages.tiny.segments, messages.tiny.needed), (15, 1));
        for _ in 0..15 {
            messages.data(after(3), 1460, 1460, false);
        }
        messages.finish(1460);
        assert_eq!(messages.tiny.messages, 1);
    }
}
