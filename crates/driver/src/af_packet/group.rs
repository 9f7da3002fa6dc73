//! Packet sockets on one device among which a program chooses, frame by frame.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::SockType;

use super::open::open_socket;
use super::options;
use crate::OpenError;

/// linux/if_packet.h: PACKET_FANOUT_*.
const BY_PROGRAM: u16 = 7;
const NEW_NUMBER: u16 = 0x2000;
/// A group has its own idea of what is received: the socket's does not count any more.
pub(super) const IGNORE_OUTGOING: u16 = 0x4000;

/// So many sockets may be in one.
const MOST: u32 = 4096;

/// A group of a device, in one network namespace. Each of its sockets gets what is chosen for it, and of that what its own
/// filter lets in. There are 4,096 at the most, of which the first is nobody's: so the group is there for as long as this is,
/// whoever leaves it.
///
/// Nobody changes the filter of a socket that has come into a group, or what chooses: whoever is given the socket could take
/// what is others'. So it comes into the group before it is given away.
#[derive(Debug)]
pub struct Group {
    number: u16,
    _first: OwnedFd,
}

impl Group {
    /// A new one, on the device of this number. What is `choosing` says which socket of the group is to have a frame, modulo
    /// their number; it sees the frame from the network header on. The first one's filter is to let in nothing.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn begin(
        device: i32,
        choosing: BorrowedFd<'_>,
        nothing: BorrowedFd<'_>,
    ) -> Result<Self, OpenError> {
        // By its type who lists packet sockets tells it from those of stacks.
        let first = open_socket(SockType::Datagram)?;
        let number = begin_with(first.as_fd(), device, choosing, nothing);
        let number = number.map_err(OpenError::system("begin a group of packet sockets"))?;
        Ok(Self { number, _first: first })
    }

    /// This socket, which is bound to the device, is the last one from now on.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn join(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        options::lock_filter(socket)?;
        options::join_of(socket, self.number, BY_PROGRAM | IGNORE_OUTGOING, MOST)
    }
}

fn begin_with(
    socket: BorrowedFd<'_>,
    device: i32,
    choosing: BorrowedFd<'_>,
    nothing: BorrowedFd<'_>,
) -> io::Result<u16> {
    options::attach_filter(socket, nothing)?;
    options::bind(socket, device)?;
    options::join_of(socket, 0, BY_PROGRAM | NEW_NUMBER | IGNORE_OUTGOING, MOST)?;
    options::choose_by(socket, choosing)?;
    options::lock_filter(socket)?;
    options::group(socket)
}
