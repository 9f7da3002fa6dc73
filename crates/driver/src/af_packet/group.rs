//! Packet sockets on one device among which a program chooses, frame by frame.

use std::io;
use std::os::fd::BorrowedFd;

use super::options;

/// linux/if_packet.h: PACKET_FANOUT_*.
const BY_PROGRAM: u16 = 7;
const NEW_NUMBER: u16 = 0x2000;
/// A group has its own idea of what is received: the socket's does not count any more.
pub(super) const IGNORE_OUTGOING: u16 = 0x4000;

/// So many sockets may be in one.
const MOST: u32 = 4096;

/// A group of a device, in one network namespace. Each of its sockets gets what is chosen for it, and of that what its own
/// filter lets in. It is gone with the last of them. There are 4,096 at the most.
///
/// Nobody changes the filter of a socket that has come into a group, or what chooses: whoever is given the socket could take
/// what is others'. So it comes into the group before it is given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    number: u16,
}

impl Group {
    /// A new one, with this socket as its first, which is bound to the device. What is `choosing` says which socket of the
    /// group is to have a frame, modulo their number; it sees the frame from the network header on.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn begin(socket: BorrowedFd<'_>, choosing: BorrowedFd<'_>) -> io::Result<Self> {
        options::join_of(socket, 0, BY_PROGRAM | NEW_NUMBER | IGNORE_OUTGOING, MOST)?;
        // Once: to exchange it the kernel waits for all of its processors (__fanout_set_data_bpf).
        options::choose_by(socket, choosing)?;
        options::lock_filter(socket)?;
        Ok(Self { number: options::group(socket)? })
    }

    /// This socket is the last one from now on. There is another one yet, or nothing would choose.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn join(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        options::lock_filter(socket)?;
        options::join_of(socket, self.number, BY_PROGRAM | IGNORE_OUTGOING, MOST)
    }
}
