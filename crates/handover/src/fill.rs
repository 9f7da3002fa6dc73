//! Puts the data of a connection's queues into those of a socket.

use std::io::Read;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, send, shutdown};
use uncork_stack::{Detached, Snapshot, SnapshotState};

use crate::error::Error;
use crate::options::{Queue, set_queue, unlock_buffers};

/// How many octets are offered at once. If that is too much, half of it is, down to a kibibyte.
const OFFER_BYTES: usize = 256 << 10;
const LEAST_BYTES: usize = 1 << 10;

/// Puts unread data, and data that was sent and is not acknowledged, into the queues of a socket that
/// [`crate::open`] has made: as many octets of either as the snapshot says, read one after the other.
///
/// # Errors
///
/// [`Error::NoRoom`]; too few octets; or what else the kernel says.
pub fn fill(
    socket: BorrowedFd<'_>,
    snapshot: &Snapshot,
    octets: &mut impl Read,
) -> Result<(), Error> {
    let queues =
        [(Queue::Receive, snapshot.unread_bytes), (Queue::Send, snapshot.unacknowledged_bytes)];
    let mut piece = Vec::new();
    for (queue, count) in queues.into_iter().filter(|(_, count)| *count > 0) {
        set_queue(socket, queue).map_err(Error::doing("choose a queue"))?;
        let mut left = count as usize;
        while left > 0 {
            piece.resize(left.min(OFFER_BYTES), 0);
            octets
                .read_exact(&mut piece)
                .map_err(Error::doing("read what was not read or acknowledged"))?;
            give(socket, &piece)?;
            left -= piece.len();
        }
    }
    set_queue(socket, Queue::None).map_err(Error::doing("leave the queues"))
}

/// Sends what was not sent yet on a socket that [`crate::start`] has released, and then the FIN that belongs after it;
/// afterwards it is a socket like any other. This takes no privilege.
///
/// # Errors
///
/// [`Error::NoRoom`], or what else the kernel says.
pub fn send_rest(socket: BorrowedFd<'_>, detached: &Detached) -> Result<(), Error> {
    give(socket, detached.unsent())?;
    let one = &detached.snapshot;
    let ends = matches!(one.state, SnapshotState::FinWait1 | SnapshotState::LastAck);
    let shut = one.reading_shut && one.state != SnapshotState::Reset;
    let directions = [(ends && !one.fin_sent, Shutdown::Write), (shut, Shutdown::Read)];
    for (_, direction) in directions.into_iter().filter(|(shut, _)| *shut) {
        shutdown(socket.as_raw_fd(), direction)
            .map_err(|error| Error::doing("shut it down")(error.into()))?;
    }
    match unlock_buffers(socket) {
        // Before Linux 5.14 the buffers stay as large as they are.
        Err(error) if error.raw_os_error() == Some(Errno::ENOPROTOOPT as i32) => Ok(()),
        unlocked => unlocked.map_err(Error::doing("unlock the buffers")),
    }
}

fn give(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Error> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let mut most = OFFER_BYTES;
    while !bytes.is_empty() {
        match send(socket.as_raw_fd(), &bytes[..bytes.len().min(most)], flags) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(Errno::EINTR) => {}
            Err(Errno::ENOMEM | Errno::EAGAIN) if most > LEAST_BYTES => most /= 2,
            Err(error) => {
                return Err(Error::NoRoom { left: bytes.len(), source: error.into() });
            }
        }
    }
    Ok(())
}
