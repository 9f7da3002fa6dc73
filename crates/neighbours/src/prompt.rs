//! Makes the kernel resolve a neighbour. Requesting that (RTM_NEWNEIGH with NTF_USE) takes a privilege;
//! sending it a datagram does not.

use std::io;
use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6, sendto, socket,
};
use uncork_high::high;

/// The discard protocol (RFC 863), which throws the datagram away.
const DISCARD: u16 = 9;

/// The sockets for that, in the network namespace in which they were opened. A host without a version of IP
/// has no neighbours to resolve in it.
#[derive(Debug)]
pub(crate) struct Prompter {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
}

impl Prompter {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { v4: line(AddressFamily::Inet)?, v6: line(AddressFamily::Inet6)? })
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [&self.v4, &self.v6].into_iter().flatten().map(AsRawFd::as_raw_fd)
    }

    /// Sends an empty datagram. An error shows as when nobody answers: no notification follows, and
    /// the caller asks again.
    pub(crate) fn prompt(&self, (device, hop): (u32, IpAddr)) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = match (hop, &self.v4, &self.v6) {
            (IpAddr::V4(hop), Some(fd), _) => {
                let to = SockaddrIn::from(SocketAddrV4::new(hop, DISCARD));
                sendto(fd.as_raw_fd(), &[], &to, flags)
            }
            (IpAddr::V6(hop), _, Some(fd)) => {
                // Only a link-local address may name the link (ipv6(7), sin6_scope_id).
                let scope = if hop.is_unicast_link_local() { device } else { 0 };
                let to = SockaddrIn6::from(SocketAddrV6::new(hop, DISCARD, 0, scope));
                sendto(fd.as_raw_fd(), &[], &to, flags)
            }
            _ => Ok(0),
        };
    }
}

fn line(family: AddressFamily) -> io::Result<Option<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    match socket(family, SockType::Datagram, flags, None) {
        Err(Errno::EAFNOSUPPORT) => Ok(None),
        opened => Ok(Some(high(opened?))),
    }
}
