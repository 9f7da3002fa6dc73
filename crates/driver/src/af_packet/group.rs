//! Packet sockets on one device among which an eBPF program distributes frames.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::SockType;

use super::open::open_socket;
use super::options;
use crate::OpenError;

/// linux/if_packet.h: PACKET_FANOUT_*.
const BY_PROGRAM: u16 = 7;
const NEW_NUMBER: u16 = 0x2000;
/// A fanout group has its own setting for outgoing frames: the socket's no longer counts.
pub(super) const IGNORE_OUTGOING: u16 = 0x4000;

/// Most sockets in a group.
const MOST: u32 = 4096;

/// A fanout group on one device, in one network namespace. Each of its sockets gets the frames that the program chooses for
/// it and that its own filter lets in. It holds at most 4,096 sockets, the first of which receives nothing: so the group
/// exists for as long as this value, whichever sockets leave it.
///
/// The filter of a socket in the group, and the choosing program, can no longer be changed: otherwise a process that is given
/// the socket could take frames of others. So a socket joins the group before it is handed over.
#[derive(Debug)]
pub struct Group {
    number: u16,
    _first: OwnedFd,
}

impl Group {
    /// Creates a group on the device with this index. The program `choosing` returns which socket gets a frame, modulo their
    /// number; it sees the frame from the network header on. `nothing` is the first socket's filter, which drops everything.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn begin(
        device: i32,
        choosing: BorrowedFd<'_>,
        nothing: BorrowedFd<'_>,
    ) -> Result<Self, OpenError> {
        // The socket type distinguishes it from the stacks' sockets in a list of packet sockets.
        let first = open_socket(SockType::Datagram)?;
        let number = begin_with(first.as_fd(), device, choosing, nothing);
        let number = number.map_err(OpenError::system("begin a group of packet sockets"))?;
        Ok(Self { number, _first: first })
    }

    /// Adds this socket, which is bound to the device, as the last one of the group.
    ///
    /// # Errors
    ///
    /// The kernel's error.
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
