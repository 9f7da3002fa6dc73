//! Makes a socket in repair mode, with the ends, sequence numbers and options of a connection.

use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use uncork_stack::Snapshot;

use crate::error::Error;
use crate::options::{
    Agreed, Queue, set_agreed, set_queue, set_repair, set_segment, set_sequence, set_timestamp,
};

/// Room in a buffer beyond its octets, at least.
const SLACK_BYTES: usize = 64 << 10;

/// Smallest and largest value of TCP_MAXSEG (TCP_MIN_MSS, MAX_TCP_WINDOW).
const SEGMENT_BYTES: (u16, u16) = (88, 32_767);

/// The family of the socket that takes over an IPv4 connection: that of the socket which the program has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The family of the address.
    OfAddress,
    /// AF_INET6, with IPv4 addresses as mapped ones.
    Inet6,
}

/// Makes a socket in repair mode for the connection, in the network namespace of this thread. Its queues are
/// empty; see [`crate::fill`].
///
/// No process without the privilege may have this socket before [`crate::start`], nor any socket that was in repair mode and is
/// not connected: it could disconnect it, bind it where another process listens, and listen there itself
/// (`SK_FORCE_REUSE`). So the same cannot be done with a socket that a program already has.
///
/// # Errors
///
/// [`Error::Privilege`] without CAP_NET_ADMIN; [`Error::Ends`] if the kernel has such a connection itself, or does not have
/// the address; or what else the kernel says.
pub fn open(snapshot: &Snapshot, family: Family) -> Result<OwnedFd, Error> {
    let domain = match family {
        Family::OfAddress if snapshot.local.is_ipv4() => AddressFamily::Inet,
        _ => AddressFamily::Inet6,
    };
    let opened = socket(domain, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|error| Error::doing("open a socket")(error.into()))?;
    prepare(opened.as_fd(), snapshot, family)?;
    Ok(opened)
}

fn prepare(fd: BorrowedFd<'_>, snapshot: &Snapshot, family: Family) -> Result<(), Error> {
    let (local, remote) = match family {
        Family::OfAddress => (snapshot.local, snapshot.remote),
        Family::Inet6 => (mapped(snapshot.local), mapped(snapshot.remote)),
    };
    if domain_differs(family, snapshot) {
        // Whatever net.ipv6.bindv6only says for new sockets.
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)
            .map_err(|error| Error::doing("let IPv4 come to it")(error.into()))?;
    }
    set_repair(fd, true).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::EPERM as i32 => Error::Privilege,
        _ => Error::doing("begin to repair a socket")(error),
    })?;
    make_room(fd, snapshot)?;
    let numbers = [(Queue::Receive, snapshot.receive_first), (Queue::Send, snapshot.send_first)];
    for (queue, first) in numbers {
        set_queue(fd, queue)
            .and_then(|()| set_sequence(fd, first))
            .map_err(Error::doing("set the connection's numbers"))?;
    }
    let ends = |error: Errno| Error::Ends {
        local: snapshot.local,
        remote: snapshot.remote,
        source: error.into(),
    };
    let segment = snapshot.segment_bytes.clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1);
    set_segment(fd, Some(segment)).map_err(Error::doing("set the size of segments"))?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(local)).map_err(ends)?;
    connect(fd.as_raw_fd(), &SockaddrStorage::from(remote)).map_err(ends)?;
    set_segment(fd, None).map_err(Error::doing("set the size of segments"))?;
    set_agreed(fd, &agreed(snapshot)).map_err(Error::doing("set what the SYNs have agreed on"))?;
    if let Some(stamp) = snapshot.timestamp {
        // An odd one would mean microseconds; and the clock must not go back.
        set_timestamp(fd, stamp.wrapping_add(1) & !1)
            .map_err(Error::doing("set the clock of the timestamps"))?;
    }
    set_queue(fd, Queue::None).map_err(Error::doing("leave the queues"))
}

/// Tells whether the socket is of IPv6 and its ends are not.
fn domain_differs(family: Family, snapshot: &Snapshot) -> bool {
    family == Family::Inet6 && snapshot.local.is_ipv4()
}

/// Returns what the SYNs have agreed on. Without shifts the kernel would scale by what it would have offered itself.
fn agreed(snapshot: &Snapshot) -> Vec<Agreed> {
    let (send, receive) = snapshot.window_shifts.unwrap_or_default();
    let mut agreed = vec![Agreed::Segment(snapshot.segment_bytes), Agreed::Shifts(send, receive)];
    if snapshot.sack {
        agreed.push(Agreed::Sack);
    }
    if snapshot.timestamp.is_some() {
        agreed.push(Agreed::Timestamps);
    }
    agreed
}

/// Enlarges the buffers for the queued data, and for what the peer may still send into the window that it was told. The kernel
/// doubles the sizes that it is given, for what packets cost beside their octets (socket(7)).
fn make_room(opened: BorrowedFd<'_>, snapshot: &Snapshot) -> Result<(), Error> {
    let bytes = |counts: [u32; 2]| {
        counts.into_iter().map(|count| count as usize).sum::<usize>() * 2 + SLACK_BYTES
    };
    let sending = bytes([snapshot.unacknowledged_bytes, snapshot.unsent_bytes]);
    let receiving = bytes([snapshot.unread_bytes, snapshot.receive_window_bytes]);
    setsockopt(&opened, sockopt::SndBufForce, &sending)
        .and_then(|()| setsockopt(&opened, sockopt::RcvBufForce, &receiving))
        .map_err(|error| match error {
            Errno::EPERM => Error::Privilege,
            error => Error::doing("make the buffers larger")(error.into()),
        })
}

fn mapped(end: SocketAddr) -> SocketAddr {
    match end {
        SocketAddr::V4(end) => {
            SocketAddrV6::new(end.ip().to_ipv6_mapped(), end.port(), 0, 0).into()
        }
        end @ SocketAddr::V6(_) => end,
    }
}
