//! TCP_INFO of a kernel socket, queried over netlink (sock_diag(7)), which needs no pointer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use crate::conversation::{HOST, PEER};

/// linux/sock_diag.h, linux/inet_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
/// Length of a message's header, and of what precedes the attributes of an answer.
const HEADER_BYTES: usize = 16;
const ANSWER_BYTES: usize = HEADER_BYTES + 72;

/// Returns the kernel's TCP_INFO of the connection between a port of the host and one of the peer.
pub(super) fn of(local: &SocketAddr, peer_port: u16) -> io::Result<Vec<u8>> {
    let line = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let request = request(local.port(), peer_port);
    sendto(line.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = vec![0; 4096];
    let bytes = recv(line.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answer.truncate(bytes);
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the kernel tells nothing of it");
    let kind = answer.get(4..).and_then(<[u8]>::first_chunk).copied().map(u16::from_ne_bytes);
    let mut rest = answer.get(ANSWER_BYTES..).filter(|_| kind == Some(SOCK_DIAG_BY_FAMILY));
    while let Some(attribute) = rest.filter(|rest| rest.len() >= 4) {
        let word = |at: usize| u16::from_ne_bytes([attribute[at], attribute[at + 1]]);
        let length = usize::from(word(0));
        if word(2) == INET_DIAG_INFO {
            return attribute.get(4..length).map(<[u8]>::to_vec).ok_or_else(missing);
        }
        rest = attribute.get(length.max(4).next_multiple_of(4)..);
    }
    Err(missing())
}

/// Returns a struct inet_diag_req_v2 for one connection.
fn request(local_port: u16, peer_port: u16) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(72_u32.to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend(1_u16.to_ne_bytes());
    out.extend([0; 8]);
    // AF_INET, TCP, with TCP_INFO, in any state.
    out.extend([2, 6, 1 << (INET_DIAG_INFO - 1), 0]);
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(local_port.to_be_bytes());
    out.extend(peer_port.to_be_bytes());
    for address in [HOST, PEER] {
        out.extend(address.octets());
        out.extend([0; 12]);
    }
    // Any device, any cookie.
    out.extend([0; 4]);
    out.extend([0xff; 8]);
    out
}
