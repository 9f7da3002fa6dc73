//! The loopback device as a network: up, and with Ethernet's MTU.

use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// Ethernet's MTU. With the usual 64 KiB of loopback, segments would be larger than anywhere else,
/// and TCP would treat them accordingly.
const MTU: u32 = 1500;

/// Sets the loopback device of this thread's namespace up, with Ethernet's MTU. It uses netlink and
/// not ip(8), which a guest lacks.
///
/// # Errors
/// Without CAP_NET_ADMIN in the namespace.
pub fn prepare() -> Result<()> {
    let index = if_nametoindex("lo").context("there is no loopback device")?;
    let (kind, family) = (SockType::Raw, AddressFamily::Netlink);
    let netlink = socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
        .context("there is no netlink socket to be had")?;
    let request = request(index);
    sendto(netlink.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut buffer = vec![0; 4096];
    let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer[..length])
        .context("the kernel's answer cannot be read")?;
    match answer.payload {
        // The acknowledgement is an error with the code 0 (netlink(7)).
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => bail!("the loopback device cannot be set up: {error}"),
        other => bail!("the kernel answers {other:?}"),
    }
}

fn request(index: u32) -> Vec<u8> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link.attributes.push(LinkAttribute::Mtu(MTU));
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let request = RouteNetlinkMessage::NewLink(link);
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}
