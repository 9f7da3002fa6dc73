//! Frames that are longer than a slot of the receive ring, which the kernel queues beside it (PACKET_COPY_THRESH): mostly
//! trains of segments. If each slot had room for one, there would be few slots.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::open::{LINK_BYTES, LONGEST_PACKET};
use crate::vnet::{self, Arrival};

/// A buffer for one such frame at a time.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// vnet header and frame. Allocated when the first one comes.
    bytes: Vec<u8>,
}

impl Long {
    /// Receives the oldest frame beside the ring, the one that the oldest slot marked so is about. The kernel
    /// returns it as long as nobody else receives from the socket.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<(Arrival, &[u8]), Errno> {
        self.bytes.resize(vnet::BYTES + LINK_BYTES + LONGEST_PACKET as usize, 0);
        // With MSG_TRUNC the kernel returns the full length even if it exceeds the buffer.
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        // Not through libc: a thread of a program that knows nothing of it must not be cancelled in here.
        let (_, length) = recv(socket, &mut self.bytes, flags)?;
        let whole = self.bytes.get(..length).ok_or(Errno::MSGSIZE)?;
        let (header, frame) = whole.split_first_chunk().ok_or(Errno::BADMSG)?;
        Ok((vnet::read(header), frame))
    }
}
