//! The cable that both stacks are measured over: frames in buffers that are reused, in one thread,
//! without a lock and without a copy.

use std::collections::VecDeque;

/// One direction of a cable. What a frame carries besides octets is up to the stack at its ends.
pub(crate) struct Cable<M> {
    queued: VecDeque<(Box<[u8]>, M)>,
    free: Vec<Box<[u8]>>,
    frame_bytes: usize,
}

impl<M> Cable<M> {
    /// Makes a cable for frames of up to `frame_bytes` octets.
    pub(crate) fn new(frame_bytes: usize) -> Self {
        Self { queued: VecDeque::new(), free: Vec::new(), frame_bytes }
    }

    /// Takes a buffer to write a frame into.
    pub(crate) fn take(&mut self) -> Box<[u8]> {
        self.free.pop().unwrap_or_else(|| vec![0; self.frame_bytes].into_boxed_slice())
    }

    /// Returns a buffer that nothing was written into, or that was read.
    pub(crate) fn give(&mut self, buffer: Box<[u8]>) {
        self.free.push(buffer);
    }

    pub(crate) fn send(&mut self, buffer: Box<[u8]>, what: M) {
        self.queued.push_back((buffer, what));
    }

    pub(crate) fn receive(&mut self) -> Option<(Box<[u8]>, M)> {
        self.queued.pop_front()
    }

    /// Returns the number of frames that were sent and not received.
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }
}
