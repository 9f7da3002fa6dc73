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
const MOST: u32 = 1024;

/// A group of a device, in one network namespace. Each of its sockets gets what is chosen for it, and of that what its own
/// filter lets in. It is gone with the last of them. There are 1,024 at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    number: u16,
}

/// A socket that comes into a group.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Bound to the device already: what comes by it goes on coming.
    pub socket: BorrowedFd<'a>,
    /// In place of the filter that the socket has. From now on nobody changes it, or what chooses: who has been given the socket
    /// could take what is others'.
    pub filter: BorrowedFd<'a>,
}

impl Group {
    /// A new one, with this as its first member. What is `choosing` says which socket of the group is to have a frame, modulo their
    /// number; it sees the frame from the network header on.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn begin(first: Member<'_>, choosing: BorrowedFd<'_>) -> io::Result<Self> {
        let socket = first.socket;
        options::join_of(socket, 0, BY_PROGRAM | NEW_NUMBER | IGNORE_OUTGOING, MOST)?;
        // Once: to exchange it the kernel waits for all of its processors (__fanout_set_data_bpf).
        options::choose_by(socket, choosing)?;
        first.settle()?;
        Ok(Self { number: options::group(socket)? })
    }

    /// This is the last member from now on. There is another one yet, or nothing would choose.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn join(self, member: Member<'_>) -> io::Result<()> {
        options::join_of(member.socket, self.number, BY_PROGRAM | IGNORE_OUTGOING, MOST)?;
        member.settle()
    }
}

impl Member<'_> {
    fn settle(self) -> io::Result<()> {
        options::attach_filter(self.socket, self.filter)?;
        options::lock_filter(self.socket)
    }
}
