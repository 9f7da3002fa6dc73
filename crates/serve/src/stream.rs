//! One connection as a server sees it, on either stack.

use uncork_stack::{Instant, RecvError, SendError, Shutdown, SocketId, Stack};

/// Why nothing was read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Not now; watching the connection tells when.
    WouldBlock,
    /// The connection has failed.
    Failed,
}

/// A stream of bytes in both directions.
pub(crate) trait Stream {
    /// Reads received data; zero octets mean the end.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Stop>;

    /// Writes as much as there is room for. With `more`, the rest of a message follows at once.
    fn write(&mut self, bytes: &[u8], more: bool) -> Result<usize, Stop>;

    /// Sends the end of the stream.
    fn end_writing(&mut self);
}

/// A connection on our stack.
pub(crate) struct OnStack<'a> {
    pub(crate) stack: &'a mut Stack,
    pub(crate) now: Instant,
    pub(crate) socket: SocketId,
}

impl Stream for OnStack<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Stop> {
        // Mostly a second attempt, which is to cost less than a read.
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
