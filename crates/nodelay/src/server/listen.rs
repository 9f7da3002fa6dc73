//! The listening socket.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;

/// Length of the accept queue.
const BACKLOG: i32 = 128;

/// Listens on `bind`, or on every address of IPv6 and IPv4 if that is `None`.
pub(super) fn listen(bind: Option<&str>, port: u16) -> Result<TcpListener, Error> {
    match bind {
        None => {
            everywhere(port).map_err(|cause| Error::Listen { place: format!("port {port}"), cause })
        }
        Some(host) => {
            let addresses = (host, port)
                .to_socket_addrs()
                .map_err(|cause| Error::Resolve { host: host.to_owned(), cause })?;
            first(addresses)
                .map_err(|cause| Error::Listen { place: format!("`{host}` port {port}"), cause })
        }
    }
}

/// Listens on one IPv6 socket that accepts IPv4 as well; on an IPv4 socket where the kernel has no IPv6.
fn everywhere(port: u16) -> io::Result<TcpListener> {
    match on(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
        Err(cause) if no_ipv6(&cause) => on(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        outcome => outcome,
    }
}

/// Returns whether IPv6 is off: if at boot, the family is missing; if by sysctl, its addresses are.
fn no_ipv6(cause: &io::Error) -> bool {
    let errno = cause.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

/// Listens on the first of the addresses that is available.
fn first(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpListener> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    for address in addresses {
        outcome = on(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // The server of the next run must not have to wait for the last connection's TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_everywhere_takes_ipv4_as_well() {
        let listener = listen(None, 0).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip().to_canonical(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn a_bound_server_is_not_reached_elsewhere() {
        let listener = listen(Some("127.0.0.2"), 0).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        std::net::TcpStream::connect(("127.0.0.2", port)).unwrap();
    }

    #[test]
    fn only_a_missing_ipv6_falls_back() {
        assert!(no_ipv6(&Errno::EAFNOSUPPORT.into()));
        assert!(no_ipv6(&Errno::EADDRNOTAVAIL.into()));
        assert!(!no_ipv6(&Errno::EADDRINUSE.into()));
    }
}
