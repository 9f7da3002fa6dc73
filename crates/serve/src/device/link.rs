//! The kernel's end of a TAP: up, and with addresses (rtnetlink(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, SockaddrLike as _,
    recv, sendto, socket,
};
use uncork_stack::Cidr;

use crate::error::Error;

// linux/rtnetlink.h, linux/netlink.h, linux/if_addr.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Nobody else can have it on this link: it need not be asked for.
const IFA_F_NODAD: u8 = 2;
const IFF_UP: u32 = 1;
const HEAD_BYTES: usize = 16;

/// The number of a device.
pub(super) fn index(device: &str) -> nix::Result<u32> {
    nix::net::if_::if_nametoindex(device)
}

/// Whether the kernel has this address itself.
pub(super) fn is_local(address: IpAddr) -> Result<bool, Error> {
    let all = getifaddrs()
        .map_err(|error| Error::system("list the addresses of this host")(error.into()))?;
    let is_it = |found: nix::sys::socket::SockaddrStorage| match found.family() {
        Some(AddressFamily::Inet) => {
            found.as_sockaddr_in().is_some_and(|found| address == IpAddr::V4(found.ip()))
        }
        Some(AddressFamily::Inet6) => {
            found.as_sockaddr_in6().is_some_and(|found| address == IpAddr::V6(found.ip()))
        }
        _ => false,
    };
    Ok(all.filter_map(|interface| interface.address).any(is_it))
}

/// Sets the device up and gives it addresses. What fails comes with what it was.
pub(super) fn set_up(device: &str, addresses: &[Cidr]) -> Result<(), (&'static str, io::Error)> {
    let index = index(device).map_err(|error| ("look it up", error.into()))?;
    let mut link = vec![0; 4];
    link.extend(index.to_ne_bytes());
    link.extend(IFF_UP.to_ne_bytes());
    link.extend(IFF_UP.to_ne_bytes());
    order(RTM_NEWLINK, 0, &link).map_err(|error| ("set it up", error))?;
    for address in addresses {
        let (family, octets) = match address.address {
            IpAddr::V4(address) => (libc_family(AddressFamily::Inet), address.octets().to_vec()),
            IpAddr::V6(address) => (libc_family(AddressFamily::Inet6), address.octets().to_vec()),
        };
        let mut body = vec![family, address.prefix, IFA_F_NODAD, 0];
        body.extend(index.to_ne_bytes());
        for kind in [IFA_LOCAL, IFA_ADDRESS] {
            // Addresses are multiples of what attributes are aligned to.
            let bytes = u16::try_from(4 + octets.len()).unwrap_or(0);
            body.extend(bytes.to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(&octets);
        }
        order(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body)
            .map_err(|error| ("give it an address", error))?;
    }
    Ok(())
}

fn libc_family(family: AddressFamily) -> u8 {
    u8::try_from(family as i32).unwrap_or(0)
}

fn order(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let line = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let length = u32::try_from(HEAD_BYTES + body.len()).map_err(io::Error::other)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    sendto(line.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let bytes = recv(line.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let answer = &answer[..bytes];
    // struct nlmsgerr: a negative errno, or zero.
    match (answer.get(4..6), answer.get(HEAD_BYTES..HEAD_BYTES + 4)) {
        (Some(kind), Some(&[a, b, c, d])) if *kind == NLMSG_ERROR.to_ne_bytes() => {
            match i32::from_ne_bytes([a, b, c, d]) {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(-code)),
            }
        }
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
