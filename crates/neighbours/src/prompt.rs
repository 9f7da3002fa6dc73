//! Making the kernel look for a neighbour. To order that (RTM_NEWNEIGH with NTF_USE) takes a privilege; to
//! send him something does not.

use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6, sendto, socket,
};

/// The discard protocol (RFC 863): whoever is there throws it away.
const DISCARD: u16 = 9;

/// Sockets to do it with, made when they are needed first.
#[derive(Debug, Default)]
pub(crate) struct Prompter {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
}

impl Prompter {
    /// Sends an empty datagram. What goes wrong shows, as when nobody answers: no news come of it, and
    /// whoever waits for those asks again.
    pub(crate) fn prompt(&mut self, (device, hop): (u32, IpAddr)) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = match hop {
            IpAddr::V4(hop) => line(&mut self.v4, AddressFamily::Inet).and_then(|fd| {
                let to = SockaddrIn::from(SocketAddrV4::new(hop, DISCARD));
                sendto(fd.as_raw_fd(), &[], &to, flags)
            }),
            IpAddr::V6(hop) => line(&mut self.v6, AddressFamily::Inet6).and_then(|fd| {
                // Only an address of the link itself may say of which (ipv6(7), sin6_scope_id).
                let scope = if hop.is_unicast_link_local() { device } else { 0 };
                let to = SockaddrIn6::from(SocketAddrV6::new(hop, DISCARD, 0, scope));
                sendto(fd.as_raw_fd(), &[], &to, flags)
            }),
        };
    }
}

fn line(kept: &mut Option<OwnedFd>, family: AddressFamily) -> nix::Result<&OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let opened = match kept.take() {
        Some(opened) => opened,
        None => socket(family, SockType::Datagram, flags, None)?,
    };
    Ok(kept.insert(opened))
}
