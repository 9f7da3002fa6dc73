//! A live TCP connection of the user-space stack becomes one of the kernel's: `Stack::detach` gives it away,
//! and a socket in the kernel's repair mode takes it. The peer notices nothing.
//!
//! | step | who | what |
//! |---|---|---|
//! | [`open`] | CAP_NET_ADMIN | a socket in repair mode with the ends, numbers and options of the connection |
//! | [`fill`] | who has made it | what was not read and what is not acknowledged, into its queues |
//! | | CAP_NET_ADMIN | from here on its segments have to come to the kernel |
//! | [`start`] | CAP_NET_ADMIN, CAP_NET_RAW for what is half closed | windows, ends, and out of repair mode: it lives |
//! | [`send_rest`] | anybody with the socket | what was not sent yet, and the end that belongs behind it |
//! | [`bring`] | CAP_NET_RAW | what the peer has said meanwhile to who had the connection before |
//!
//! [`to_kernel`] does all of it. Nothing waits for the network, and what fails leaves no trace: a socket in
//! repair mode that is closed says nothing to anybody. Up to [`start`] the socket is for nobody without the privilege
//! ([`open`] says why), so the octets of its queues pass through whoever has it: [`queued`] keeps them in memory that can be
//! passed on.
//!
//! Traps, which CRIU's libsoccr has found before:
//! - the numbers are those of the queues' beginnings, set before connect(2), options after it and before any
//!   data;
//! - a queue takes as much as the buffers hold, so these are made larger first, which takes them out of the
//!   kernel's hands until they are unlocked;
//! - a receive queue takes what memory allows at once, so what is refused is offered in smaller pieces;
//! - the windows can be set only when the receive queue has been filled, as they are checked against it;
//! - what was not sent must not be put into the queue in repair mode, where all counts as sent;
//! - a FIN that was taken has to come again: nothing else makes a connection half closed.
//!
//! And four of our own:
//! - the size of segments is reckoned by connect(2), which believes that the peer has said nothing of it, and
//!   not anew when it is told: segments would have 536 octets for ever;
//! - without shifts for the windows the kernel keeps the one that it would have asked for, and a peer that does
//!   not scale is told a window that is too small;
//! - a timestamp that is odd switches the clock to microseconds (Linux 6.7);
//! - the packet that stands in for the peer's FIN tells his window, too.
//!
//! An address of IPv6's own link needs its device: set the scope of both ends in the snapshot.
#![deny(unsafe_code)]

mod error;
mod fill;
mod open;
mod options;
mod queued;
mod segment;
mod start;

use std::os::fd::{AsFd as _, OwnedFd};

use uncork_stack::Detached;

pub use error::Error;
pub use fill::{fill, send_rest};
pub use open::{Family, open};
pub use queued::{octets, queued};
pub use segment::bring;
pub use start::start;

/// All of it at once, for who has the privilege and knows that the connection's segments come to the kernel by
/// now.
///
/// # Errors
///
/// [`Error`] says what is missing.
pub fn to_kernel(detached: &Detached, family: Family) -> Result<OwnedFd, Error> {
    let socket = open(&detached.snapshot, family)?;
    let octets = [detached.unread(), detached.unacknowledged()].concat();
    fill(socket.as_fd(), &detached.snapshot, &mut &octets[..])?;
    start(socket.as_fd(), &detached.snapshot)?;
    send_rest(socket.as_fd(), detached)?;
    Ok(socket)
}
