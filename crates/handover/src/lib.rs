//! Hands a live TCP connection of the user-space stack over to the kernel: `Stack::detach` gives it away, and a socket
//! in the kernel's repair mode (TCP_REPAIR) takes it. The peer notices nothing.
//!
//! | step | who | what |
//! |---|---|---|
//! | [`open`] | CAP_NET_ADMIN | a socket in repair mode with the ends, numbers and options of the connection |
//! | [`fill`] | the process that has made it | unread and unacknowledged data, into its queues |
//! | | CAP_NET_ADMIN | from here on the connection's segments have to come to the kernel |
//! | [`start`] | CAP_NET_ADMIN, CAP_NET_RAW for what is half closed | windows, FINs, and the end of repair mode: the connection lives |
//! | [`send_rest`] | any process with the socket | what was not sent yet, and the FIN that belongs after it |
//! | [`bring`] | CAP_NET_RAW | what the peer has sent meanwhile to the former owner of the connection |
//!
//! [`to_kernel`] does all of it. Nothing waits for the network, and a failure leaves no trace: closing a socket in
//! repair mode sends nothing. Until [`start`] no process without the privilege may have the socket ([`open`] says why), so the
//! data of its queues passes through the process that has the privilege: [`queued`] puts it in memory that can be passed on.
//!
//! Traps that CRIU's libsoccr found before us:
//! - the sequence numbers are those of the queues' beginnings, set before connect(2); options are set after it and before
//!   any data;
//! - a queue takes as much as the buffers hold, so these are enlarged first, which takes them out of the
//!   kernel's hands until they are unlocked;
//! - a receive queue takes what memory allows at once, so what is refused is offered in smaller pieces;
//! - the windows can be set only once the receive queue has been filled, as they are checked against it;
//! - unsent data must not be put into the queue in repair mode, where everything counts as sent;
//! - a FIN that was received has to arrive again: nothing else makes a connection half closed.
//!
//! And four of our own:
//! - the segment size is computed by connect(2), which assumes that the peer has announced none, and
//!   is not computed again when it is told: segments would have 536 octets for ever;
//! - without window scales the kernel keeps the one that it would have asked for, and a peer that does
//!   not scale is told too small a window;
//! - an odd timestamp switches the clock to microseconds (Linux 6.7);
//! - the packet that stands in for the peer's FIN also announces the peer's window.
//!
//! A link-local address of IPv6 needs its device: set the scope of both ends in the snapshot.
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

/// Does all of it at once, for a process that has the privilege and knows that the connection's segments reach the kernel
/// by now.
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
