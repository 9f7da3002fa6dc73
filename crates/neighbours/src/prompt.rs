//! Makes the kernel resolve a neighbour. Requesting that (RTM_NEWNEIGH with NTF_USE) takes a privilege;
//! sending it a datagram does not.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6, sendmsg,
    socket,
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

    /// Sends an empty datagram, out of the hop's device: other hops may have the same address on other devices. It
    /// comes from the source of what is to go there, if that is given: rules may depend on it. An error shows as when
    /// nobody answers: no notification follows, and the caller asks again.
    pub(crate) fn prompt(&self, source: Option<IpAddr>, (device, hop): (u32, IpAddr)) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = match (hop, &self.v4, &self.v6) {
            (IpAddr::V4(hop), Some(fd), _) => {
                let to = SockaddrIn::from(SocketAddrV4::new(hop, DISCARD));
                let source = match source {
                    Some(IpAddr::V4(source)) => source,
                    _ => Ipv4Addr::UNSPECIFIED,
                };
                // ip(7), IP_PKTINFO.
                let info = libc::in_pktinfo {
                    ipi_ifindex: device.cast_signed(),
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                // The hop is on the link, whatever the routes by this device say of others: no router stands before it.
                let flags = flags | MsgFlags::from_bits_retain(libc::MSG_DONTROUTE);
                let info = [ControlMessage::Ipv4PacketInfo(&info)];
                sendmsg(fd.as_raw_fd(), &[], &info, flags, Some(&to))
            }
            (IpAddr::V6(hop), _, Some(fd)) => {
                // Only a link-local address may name the link (ipv6(7), sin6_scope_id).
                let scope = if hop.is_unicast_link_local() { device } else { 0 };
                let to = SockaddrIn6::from(SocketAddrV6::new(hop, DISCARD, 0, scope));
                let source = match source {
                    Some(IpAddr::V6(source)) => source,
                    _ => Ipv6Addr::UNSPECIFIED,
                };
                // RFC 3542 6.
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
                    ipi6_ifindex: device,
                };
                let info = [ControlMessage::Ipv6PacketInfo(&info)];
                sendmsg(fd.as_raw_fd(), &[], &info, flags, Some(&to))
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
