//! What both stacks are measured over: frames in buffers that are used again, in one thread, without a
//! lock and without a copy.

use std::collections::VecDeque;

/// One direction. What a frame is beside its octets is up to the stack at its ends.
pub(crate) struct Cable<M> {
    queued: VecDeque<(Box<[u8]>, M)>,
    free: Vec<Box<[u8]>>,
    frame_bytes: usize,
}

impl<M> Cable<M> {
    /// Of frames that have at most so many octets.
    pub(crate) fn new(frame_bytes: usize) -> Self {
        Self { queued: VecDeque::new(), free: Vec::new(), frame_bytes }
    }

    /// A buffer to write a frame into.
    pub(crate) fn take(&mut self) -> Box<[u8]> {
        self.free.pop().unwrap_or_else(|| vec![0; self.frame_bytes].into_boxed_slice())
    }

    /// Gives one back that nothing was written into, or that was read.
    pub(crate) fn give(&mut self, buffer: Box<[u8]>) {
        self.free.push(buffer);
    }

    pub(crate) fn send(&mut self, buffer: Box<[u8]>, what: M) {
        self.queued.push_back((buffer, what));
    }

    pub(crate) fn receive(&mut self) -> Option<(Box<[u8]>, M)> {
        self.queued.pop_front()
    }

    /// Frames that were sent and not received.
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }
}
