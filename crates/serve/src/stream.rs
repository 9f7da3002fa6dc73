//! One connection as a server sees it, whoever's stack it is on.

use uncork_stack::{Instant, RecvError, SendError, Shutdown, SocketId, Stack};

/// Why nothing was read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Not now; whoever watches the connection will know when.
    WouldBlock,
    /// Never: the connection has failed.
    Failed,
}

/// Bytes both ways.
pub(crate) trait Stream {
    /// Reads what has come; zero octets are the end.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Stop>;

    /// Writes what there is room for. With `more`, the rest of a message follows at once.
    fn write(&mut self, bytes: &[u8], more: bool) -> Result<usize, Stop>;

    /// Says that nothing more will be written.
    fn end_writing(&mut self);
}

/// A connection of ours.
pub(crate) struct OnStack<'a> {
    pub(crate) stack: &'a mut Stack,
    pub(crate) now: Instant,
    pub(crate) socket: SocketId,
}

impl Stream for OnStack<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Stop> {
        // Mostly a second look, which is to cost less than reading.
        if !self.stack.is_readable(self.socket) {
            return Err(Stop::WouldBlock);
        }
        self.stack.recv(self.now, self.socket, into).map_err(|error| match error {
            RecvError::WouldBlock => Stop::WouldBlock,
            RecvError::NoSocket | RecvError::Failed(_) => Stop::Failed,
        })
    }

    fn write(&mut self, bytes: &[u8], more: bool) -> Result<usize, Stop> {
        self.stack.send(self.now, self.socket, bytes, more).map_err(|error| match error {
            SendError::WouldBlock => Stop::WouldBlock,
            SendError::NoSocket | SendError::Closed | SendError::Failed(_) => Stop::Failed,
        })
    }

    fn end_writing(&mut self) {
        self.stack.shutdown(self.now, self.socket, Shutdown::Write);
    }
}
