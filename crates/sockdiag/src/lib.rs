//! Queries about the kernel's TCP sockets over netlink (sock_diag(7)), which needs no privilege.
#![forbid(unsafe_code)]

mod unix;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{
    AF_INET, AF_INET6, IPPROTO_TCP, TCP_FIN_WAIT2, TCP_TIME_WAIT,
};
use netlink_packet_sock_diag::inet::nlas::Nla;
pub use netlink_packet_sock_diag::inet::nlas::TcpInfo;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// Room for one datagram of the kernel.
const ANSWER_BYTES: usize = 64 * 1024;

/// Instead of a port: any.
const ANY_PORT: u16 = 0;

/// The kernel's errors for a socket that does not exist, or no longer.
const GONE: [Option<i32>; 2] = [Some(Errno::ENOENT as i32), Some(Errno::ESTALE as i32)];

/// The kernel's answer about one TCP socket.
#[derive(Debug)]
pub struct Answer {
    /// Inode, as `/proc/PID/fd` shows it; zero if no program has it any more.
    pub inode: u64,
    /// Cookie, which no other socket has until the machine restarts.
    pub cookie: u64,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// Octets that are not acknowledged, sent or not (`idiag_wqueue`); for a listener the limit of its
    /// accept queue.
    pub send_queue_bytes: u32,
    /// TCP_INFO of the socket.
    pub info: TcpInfo,
    /// The key by which it can be queried alone.
    pub name: Name,
}

/// The key by which the kernel finds a socket.
#[derive(Clone, Debug)]
pub struct Name {
    family: u8,
    id: SocketId,
}

impl Answer {
    /// Converts a response; `None` without TCP_INFO, which request socks and time-wait sockets lack.
    fn of(response: InetResponse) -> Option<Self> {
        let id = response.header.socket_id;
        let (local, remote) = ends(&id);
        let info = response.nlas.into_iter().find_map(|nla| match nla {
            Nla::TcpInfo(info) => Some(info),
            _ => None,
        });
        Some(Self {
            inode: response.header.inode.into(),
            cookie: u64::from_ne_bytes(id.cookie),
            local,
            remote,
            send_queue_bytes: response.header.send_queue,
            info: info?,
            name: Name { family: response.header.family, id },
        })
    }
}

/// Returns local and remote address.
fn ends(id: &SocketId) -> (SocketAddr, SocketAddr) {
    (
        SocketAddr::new(id.source_address, id.source_port),
        SocketAddr::new(id.destination_address, id.destination_port),
    )
}

impl Name {
    /// Names the connection between these addresses, whichever socket that is.
    #[must_use]
    pub fn of(local: SocketAddr, remote: SocketAddr) -> Self {
        let id = SocketId {
            source_port: local.port(),
            destination_port: remote.port(),
            source_address: local.ip(),
            destination_address: remote.ip(),
            interface_id: 0,
            // INET_DIAG_NOCOOKIE: any socket with these addresses.
            cookie: [0xff; 8],
        };
        let family = if matches!(local.ip(), IpAddr::V4(_)) { AF_INET } else { AF_INET6 };
        Self { family, id }
    }
}

/// A netlink socket for these queries.
#[derive(Debug)]
pub struct SockDiag {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl SockDiag {
    /// Opens the socket, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        Ok(Self { fd, buffer: vec![0; ANSWER_BYTES] })
    }

    /// Returns all connections of this network namespace.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn connections(&mut self) -> io::Result<Vec<Answer>> {
        self.sockets(StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT | StateFlags::FIN_WAIT1)
    }

    /// Returns the ports on which sockets listen in it. (/proc/net/tcp would do, but reads all connections.)
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listening(&mut self) -> io::Result<Vec<u16>> {
        let listeners = self.sockets(StateFlags::LISTEN)?;
        Ok(listeners.iter().map(|answer| answer.local.port()).collect())
    }

    /// Returns both ends of every connection at a local port, from incomplete handshakes to any state before
    /// TIME-WAIT. An IPv4 address may be mapped into IPv6.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn at_port(&mut self, local: u16) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
        let mut found = Vec::new();
        let over = StateFlags::LISTEN | StateFlags::CLOSE | StateFlags::TIME_WAIT;
        let states = StateFlags::all().difference(over);
        self.dump(&states, local, |response| found.push(ends(&response.header.socket_id)))?;
        Ok(found)
    }

    /// Returns the cookies ([`Answer::cookie`]) of all listening sockets.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn all_listening(&mut self) -> io::Result<Vec<u64>> {
        self.listening_at(ANY_PORT)
    }

    /// Returns the cookies ([`Answer::cookie`]) of the sockets that listen at a port.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listening_at(&mut self, local: u16) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        self.dump(&StateFlags::LISTEN, local, |response| {
            found.push(u64::from_ne_bytes(response.header.socket_id.cookie));
        })?;
        Ok(found)
    }

    fn sockets(&mut self, states: StateFlags) -> io::Result<Vec<Answer>> {
        let mut answers = Vec::new();
        self.dump(&states, ANY_PORT, |response| answers.extend(Answer::of(response)))?;
        Ok(answers)
    }

    fn dump(
        &mut self,
        states: &StateFlags,
        port: u16,
        mut each: impl FnMut(InetResponse),
    ) -> io::Result<()> {
        for family in [AF_INET, AF_INET6] {
            let all = if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
            let id = SocketId { source_port: port, ..all };
            let request = request(family, states.clone(), id, NLM_F_REQUEST | NLM_F_DUMP);
            self.ask(&request, |answer| {
                if let SockDiagMessage::InetResponse(response) = answer {
                    each(*response);
                }
            })?;
        }
        Ok(())
    }

    /// Sends a dump request, and passes on all answers.
    fn ask(&mut self, request: &[u8], mut each: impl FnMut(SockDiagMessage)) -> io::Result<()> {
        sendto(self.fd.as_raw_fd(), request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        while self.receive_any(&mut each)? {}
        Ok(())
    }

    /// Returns one connection; `None` if it is over. However many others there are, this takes a few
    /// microseconds.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn connection(&mut self, name: &Name) -> io::Result<Option<Answer>> {
        Ok(self.one(name)?.and_then(Answer::of))
    }

    /// Returns both ends of the kernel's socket for these ends, in any state, incomplete handshakes and
    /// TIME-WAIT included, or of the listener that a connection with these ends would reach.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn ends(&mut self, name: &Name) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
        Ok(self.one(name)?.map(|response| ends(&response.header.socket_id)))
    }

    /// Returns both ends as [`SockDiag::ends`] does, but not of a socket in TIME-WAIT.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn living(&mut self, name: &Name) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
        let one = self.one(name)?.filter(|response| response.header.state != TCP_TIME_WAIT);
        Ok(one.map(|response| ends(&response.header.socket_id)))
    }

    /// Whether the kernel has a finished connection between these ends that no program holds: in TIME-WAIT, or in
    /// FIN-WAIT-2 as an orphan.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn is_over(&mut self, name: &Name) -> io::Result<bool> {
        let one = self.one(name)?;
        Ok(one.is_some_and(|InetResponse { header, .. }| {
            header.state == TCP_TIME_WAIT || (header.state == TCP_FIN_WAIT2 && header.inode == 0)
        }))
    }

    fn one(&mut self, name: &Name) -> io::Result<Option<InetResponse>> {
        let request = request(name.family, StateFlags::all(), name.id.clone(), NLM_F_REQUEST);
        sendto(self.fd.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut one = None;
        match self.receive(|response| one = Some(response)) {
            // The socket is gone, or another one has its ends.
            Err(error) if GONE.contains(&error.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(one),
        }
    }

    /// Receives one datagram; returns whether more will come.
    fn receive(&mut self, mut each: impl FnMut(InetResponse)) -> io::Result<bool> {
        self.receive_any(|answer| {
            if let SockDiagMessage::InetResponse(response) = answer {
                each(*response);
            }
        })
    }

    fn receive_any(&mut self, mut each: impl FnMut(SockDiagMessage)) -> io::Result<bool> {
        let bytes = recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
        let mut rest = &self.buffer[..bytes];
        while !rest.is_empty() {
            let broken = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{error}"));
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(broken)?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(false),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(answer) => each(answer),
                _ => {}
            }
            // Messages are aligned to four octets (NLMSG_ALIGN).
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
        }
        Ok(true)
    }
}

fn request(family: u8, states: StateFlags, socket_id: SocketId, flags: u16) -> Vec<u8> {
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states,
        socket_id,
    };
    message(SockDiagMessage::InetRequest(request), flags)
}

fn message(request: SockDiagMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, request.into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let _server = listener.accept().unwrap();
        let answers = SockDiag::open().unwrap().connections().unwrap();
        let ours = |answer: &&Answer| answer.local == address || answer.remote == address;
        let mut kernel = SockDiag::open().unwrap();
        let one = answers.iter().find(|answer| answer.remote == address).unwrap();
        let again = kernel.connection(&one.name).unwrap().unwrap();
        assert_eq!((again.inode, again.local), (one.inode, one.local));
        let stranger = Name { id: SocketId { cookie: [1; 8], ..one.name.id.clone() }, ..one.name };
        assert!(kernel.connection(&stranger).unwrap().is_none());
        assert!(SockDiag::open().unwrap().listening().unwrap().contains(&address.port()));
        let ours: Vec<_> = answers.iter().filter(ours).collect();
        assert_eq!(ours.len(), 2);
        let local = client.local_addr().unwrap();
        assert!(ours.iter().any(|answer| answer.local == local && answer.inode != 0));
    }

    #[test]
    fn at_a_port_are_those_that_live_and_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut kernel = SockDiag::open().unwrap();
        assert_eq!(kernel.at_port(address.port()).unwrap(), []);
        let client = TcpStream::connect(address).unwrap();
        let local = client.local_addr().unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(kernel.at_port(address.port()).unwrap(), [(address, local)]);
        assert_eq!(kernel.at_port(local.port()).unwrap(), [(local, address)]);
        assert_eq!(kernel.living(&Name::of(address, local)).unwrap(), Some((address, local)));
        assert!(!kernel.is_over(&Name::of(address, local)).unwrap());
        // The side that closes first stays in TIME-WAIT, and no program has that socket any more.
        drop(server);
        drop(client);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let waiting = |answer: &Answer| answer.local == address || answer.local == local;
        while kernel.connections().unwrap().iter().any(waiting) {
            assert!(std::time::Instant::now() < end);
        }
        assert_eq!(kernel.at_port(address.port()).unwrap(), []);
        let waiting = Name::of(address, local);
        assert_eq!(kernel.ends(&waiting).unwrap(), Some((address, local)));
        assert_eq!(kernel.living(&waiting).unwrap(), None);
        assert!(kernel.is_over(&waiting).unwrap());
        assert!(kernel.connection(&waiting).unwrap().is_none());
    }

    #[test]
    fn what_nobody_has_read_waits_in_both_queues() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (_server, peer) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 65_536]).is_ok() {}
        let mut kernel = SockDiag::open().unwrap();
        let name = Name::of(peer, address);
        let sender = kernel.connection(&name).unwrap().unwrap();
        assert!(sender.send_queue_bytes > 0, "{sender:?}");
        assert!(sender.info.notsent_bytes <= sender.send_queue_bytes, "{sender:?}");
        let nobody = Name::of("[::1]:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        assert!(kernel.connection(&nobody).unwrap().is_none());
    }
}
