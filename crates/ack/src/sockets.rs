//! Socket functions that both ends need and the standard crates lack: addresses by name, a few
//! options, and waiting with microsecond precision.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{GetSockOpt as _, SetSockOpt as _};
use nix::sys::time::TimeSpec;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;

/// Length of the accept queue.
const BACKLOG: i32 = 128;

sockopt_impl!(
    /// SO_RCVLOWAT (socket(7)).
    ReceiveLowMark,
    Both,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    i32
);

/// The part of `struct tcp_info` that every kernel since 4.6 has.
const TCP_INFO_BYTES: usize = 156;

sockopt_impl!(
    /// TCP_INFO (tcp(7)), as bytes: the kernel truncates it to the requested length, and extends it
    /// only at its end.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; TCP_INFO_BYTES]
);

/// The sender's kernel's data on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Shortest round-trip time seen, the handshake's included.
    pub(crate) shortest_round_trip: Duration,
    /// Segments with data that the peer has sent.
    pub(crate) data_segments_in: u32,
    /// Segments that were retransmitted.
    pub(crate) retransmitted: u32,
}

/// Asks the kernel about a connection.
pub(crate) fn known(socket: &TcpStream) -> io::Result<Known> {
    let info = TcpInfo.get(socket)?;
    // Offsets in struct tcp_info (include/uapi/linux/tcp.h), which never change.
    let field = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&info[at..at + 4]);
        u32::from_ne_bytes(bytes)
    };
    Ok(Known {
        retransmitted: field(100),
        shortest_round_trip: Duration::from_micros(u64::from(field(148))),
        data_segments_in: field(152),
    })
}

/// Sets SO_RCVLOWAT and returns what is in force.
pub(crate) fn set_receive_low_mark(socket: &Socket, bytes: i32) -> io::Result<i32> {
    ReceiveLowMark.set(socket, &bytes)?;
    Ok(ReceiveLowMark.get(socket)?)
}

/// Waits for one of the descriptors or the time, and marks those that are ready: none if the time
/// is over or a signal came.
pub(crate) fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    let left =
        until.map(|until| TimeSpec::from_duration(until.saturating_duration_since(Instant::now())));
    match ppoll(fds, left, None) {
        Ok(_) => Ok(()),
        Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns a descriptor to wait for.
pub(crate) fn awaited<'a>(fd: &'a impl AsFd, events: PollFlags) -> PollFd<'a> {
    PollFd::new(fd.as_fd(), events)
}

/// Returns the events of a descriptor after [`wait`].
pub(crate) fn ready(fd: &PollFd<'_>) -> PollFlags {
    fd.revents().unwrap_or(PollFlags::empty())
}

/// Listens on `bind`, or on every address of IPv6 and IPv4 if that is `None`.
pub(crate) fn listen(bind: Option<&str>, port: u16) -> Result<TcpListener, Error> {
    match bind {
        None => {
            everywhere(port).map_err(|cause| Error::Listen { place: format!("port {port}"), cause })
        }
        Some(host) => {
            let addresses = resolve(host, port)?;
            first(&addresses, listen_on)
                .map_err(|cause| Error::Listen { place: format!("`{host}` port {port}"), cause })
        }
    }
}

/// Resolves the addresses of a host.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|cause| Error::Resolve { host: host.to_owned(), cause })?;
    Ok(found.collect())
}

/// Returns the first success of `attempt` on these addresses.
pub(crate) fn first<T>(
    addresses: &[SocketAddr],
    attempt: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    for address in addresses {
        outcome = attempt(*address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Creates a socket for a TCP connection to or from this address.
pub(crate) fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
}

/// Listens on one IPv6 socket that accepts IPv4 as well; on an IPv4 socket where the kernel has no IPv6.
fn everywhere(port: u16) -> io::Result<TcpListener> {
    match listen_on(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
        Err(cause) if no_ipv6(&cause) => listen_on(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        outcome => outcome,
    }
}

/// Returns whether IPv6 is off: if at boot, the family is missing; if by sysctl, its addresses are.
fn no_ipv6(cause: &io::Error) -> bool {
    let errno = cause.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = tcp_socket(address)?;
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
    use std::io::{Read as _, Write as _};

    #[test]
    fn the_kernel_tells_the_round_trip_and_what_came_in() {
        let listener = listen(Some("127.0.0.1"), 0).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let before = known(&server).unwrap();
        assert!(before.shortest_round_trip < Duration::from_secs(1), "{before:?}");
        assert_eq!(before.data_segments_in, 0);
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(known(&server).unwrap().data_segments_in, 1);
    }

    #[test]
    fn the_low_mark_is_the_kernels() {
        let socket = tcp_socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        assert_eq!(set_receive_low_mark(&socket, 5000).unwrap(), 5000);
    }

    #[test]
    fn a_wait_ends_in_time() {
        let begun = Instant::now();
        wait(&mut [], Some(begun + Duration::from_micros(1500))).unwrap();
        assert!(begun.elapsed() >= Duration::from_micros(1500));
    }
}
