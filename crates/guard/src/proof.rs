//! Proof that a program may have a port: that the kernel has given it the port, too.
//!
//! A program passes its kernel's socket, which is bound to the port, of this network namespace. To bind it took what the
//! kernel asks for: CAP_NET_BIND_SERVICE for a low port, and that nobody else listens there.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};

use nix::{getsockopt_impl, sockopt_impl};
use rustix::net::{SocketType, getpeername, getsockname, ipproto, sockopt};

use crate::steering::plain;
use uncork_closing::ClosedApart;

/// What a socket has proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Whether IPv4 comes to the socket, too, if it is of IPv6.
    pub(crate) both_versions: bool,
    /// The kernel's number of the socket (SO_COOKIE), which no other one ever has.
    pub(crate) socket: u64,
}

/// The number of a network namespace (SO_NETNS_COOKIE, asm-generic/socket.h; Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The number of the device that a socket is bound to (SO_BINDTOIFINDEX, asm-generic/socket.h; Linux 5.1).
const SO_BINDTOIFINDEX: libc::c_int = 62;

sockopt_impl!(
    /// The only device by which packets to a socket may come; zero for any.
    BoundDevice,
    GetOnly,
    libc::SOL_SOCKET,
    SO_BINDTOIFINDEX,
    libc::c_int
);

sockopt_impl!(
    /// The network namespace of a socket.
    NamespaceCookie,
    GetOnly,
    libc::SOL_SOCKET,
    SO_NETNS_COOKIE,
    u64
);

/// Returns what a socket proves of this place.
///
/// # Errors
///
/// A sentence that says what is missing.
pub(crate) fn of(
    socket: Option<&ClosedApart>,
    ours: BorrowedFd<'_>,
    place: SocketAddr,
    listening: bool,
) -> Result<Proof, String> {
    let verb = if listening { "listens" } else { "is bound" };
    let no = |why: &str| Err(format!("{place} needs the kernel's socket that {verb} there: {why}"));
    let Some(socket) = socket else { return no("none came") };
    let Ok(bound) = getsockname(socket)
        .map_err(|_| ())
        .and_then(|any| SocketAddr::try_from(any).map_err(|_| ()))
    else {
        return no("what came is no socket of IP");
    };
    if !is_tcp(socket) {
        return no("what came is not of TCP");
    }
    let only_six = bound.is_ipv6() && sockopt::ipv6_v6only(socket) != Ok(false);
    let is_there = covers(bound.ip(), only_six, place.ip());
    if bound.port() != place.port() || !is_there {
        return no(&format!(
            "what came is bound to {bound}{}",
            if only_six { " alone" } else { "" }
        ));
    }
    // Another socket may be at the same place for the other devices, and may be another user's.
    if nix::sys::socket::getsockopt(socket, BoundDevice) != Ok(0) {
        return no("what came is bound to one device (SO_BINDTODEVICE)");
    }
    if listening && sockopt::socket_acceptconn(socket) != Ok(true) {
        return no("what came does not listen");
    }
    if !is_here(socket.as_fd(), ours) {
        return no("what came is of another network namespace");
    }
    let Ok(socket) = sockopt::socket_cookie(socket) else { return no("what came has no number") };
    Ok(Proof { both_versions: !only_six, socket })
}

/// Tells whether connections to an address come to a socket that is bound to this one. A socket of IPv6 alone gets none of IPv4:
/// another socket may be there, and another user's.
fn covers(bound: IpAddr, only_six: bool, wanted: IpAddr) -> bool {
    let (bound, wanted) = (bound.to_canonical(), wanted.to_canonical());
    let is_of_both = bound.is_ipv6() && !only_six;
    let has_version = bound.is_ipv4() == wanted.is_ipv4() || (is_of_both && wanted.is_ipv4());
    bound == wanted || (bound.is_unspecified() && has_version)
}

/// Checks that a socket may take a connection of the stack's over, or stand for ports to open connections from.
///
/// # Errors
///
/// A sentence that says why not.
pub(crate) fn that_it_may_take<'a>(
    socket: Option<&'a ClosedApart>,
    ours: BorrowedFd<'_>,
) -> Result<&'a ClosedApart, String> {
    match socket {
        Some(socket) if is_tcp(socket) && is_here(socket.as_fd(), ours) => Ok(socket),
        _ => {
            Err("to take a connection over needs a socket of TCP of this network namespace".into())
        }
    }
}

/// Checks that a socket is a connection of the kernel's with this local end.
///
/// # Errors
///
/// A sentence that says why not.
pub(crate) fn that_it_is_at(
    socket: Option<ClosedApart>,
    ours: BorrowedFd<'_>,
    local: SocketAddr,
) -> Result<ClosedApart, String> {
    that_it_may_take(socket.as_ref(), ours)?;
    let end = |socket: &ClosedApart| SocketAddr::try_from(getsockname(socket).ok()?).ok();
    let is_at = |socket: &ClosedApart| {
        end(socket).is_some_and(|end| plain(end) == plain(local)) && getpeername(socket).is_ok()
    };
    let why = || format!("what is to be accepted at {local} has to be a connection to there");
    socket.filter(is_at).ok_or_else(why)
}

/// Checks that a socket is a connection of the kernel's between these ends.
///
/// # Errors
///
/// A sentence that says why not.
pub(crate) fn that_it_is_between(
    socket: Option<ClosedApart>,
    ours: BorrowedFd<'_>,
    (local, remote): (SocketAddr, SocketAddr),
) -> Result<(), String> {
    let socket = that_it_is_at(socket, ours, local)?;
    let other = getpeername(&socket).ok().and_then(|any| SocketAddr::try_from(any?).ok());
    if other.is_some_and(|other| plain(other) == plain(remote)) {
        return Ok(());
    }
    Err(format!("what is said to {local} has to come from {remote}"))
}

fn is_tcp(socket: &ClosedApart) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP))
}

/// Tells whether a socket is of the same network namespace as ours.
fn is_here(socket: BorrowedFd<'_>, ours: BorrowedFd<'_>) -> bool {
    let namespace =
        |socket: BorrowedFd<'_>| nix::sys::socket::getsockopt(&socket, NamespaceCookie).ok();
    namespace(socket).is_some_and(|its| namespace(ours) == Some(its))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_one_version_proves_nothing_of_the_other() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (four, six) = (["0.0.0.0", "10.0.0.1"], ["::", "fd00::1"]);
        for wanted in four {
            assert!(covers(ip("0.0.0.0"), false, ip(wanted)));
            assert!(covers(ip("::ffff:0.0.0.0"), false, ip(wanted)));
            assert!(covers(ip("::"), false, ip(wanted)));
            assert!(!covers(ip("::"), true, ip(wanted)));
            assert!(!covers(ip("fd00::1"), false, ip(wanted)));
        }
        for wanted in six {
            assert!(covers(ip("::"), true, ip(wanted)));
            assert!(!covers(ip("0.0.0.0"), false, ip(wanted)));
            assert!(!covers(ip("::ffff:0.0.0.0"), false, ip(wanted)));
        }
        assert!(covers(ip("::ffff:10.0.0.1"), false, ip("10.0.0.1")));
        assert!(!covers(ip("10.0.0.2"), false, ip("10.0.0.1")));
    }
}
