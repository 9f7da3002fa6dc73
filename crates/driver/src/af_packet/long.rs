//! Frames that are longer than a slot of the receive ring, which the kernel keeps beside it (PACKET_COPY_THRESH): trains of
//! segments, by and large. Were each slot to have room for one, there would be few.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::open::{LINK_BYTES, LONGEST_PACKET};
use crate::vnet::{self, Arrival};

/// Room for one at a time.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// Behind the vnet header. Made when the first one comes.
    bytes: Vec<u8>,
}

impl Long {
    /// The oldest frame that is beside the ring, which the oldest slot that says so is about. The kernel gives
    /// it as long as nobody else receives from the socket.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<(Arrival, &[u8]), Errno> {
        self.bytes.resize(vnet::BYTES + LINK_BYTES + LONGEST_PACKET as usize, 0);
        // With this flag it tells of its length if it is longer than the room.
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        // Not by libc: a thread of a program that knows nothing of it must not be cancelled in here.
        let (_, length) = recv(socket, &mut self.bytes, flags)?;
        let whole = self.bytes.get(..length).ok_or(Errno::MSGSIZE)?;
        let (header, frame) = whole.split_first_chunk().ok_or(Errno::BADMSG)?;
        Ok((vnet::read(header), frame))
    }
}
