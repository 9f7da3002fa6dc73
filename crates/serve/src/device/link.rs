//! Sets up the kernel's end of a TAP, with addresses (rtnetlink(7)).

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, SockaddrLike as _};
use uncork_netlink::{CREATE, EXCLUSIVE, Line, push};
use uncork_stack::Cidr;

use crate::error::Error;

// linux/rtnetlink.h, linux/if_addr.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// No duplicate address detection: nobody else on this link can have the address.
const IFA_F_NODAD: u8 = 2;
const IFF_UP: u32 = 1;

/// Returns the index of a device.
pub(super) fn index(device: &str) -> nix::Result<u32> {
    nix::net::if_::if_nametoindex(device)
}

/// Whether this is the loopback device.
pub(super) fn is_loopback(device: &str) -> Result<bool, Error> {
    let all = getifaddrs()
        .map_err(|error| Error::system("list the devices of this host")(error.into()))?;
    let is_it = |found: InterfaceAddress| {
        found.interface_name == device && found.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    };
    Ok(all.into_iter().any(is_it))
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

/// Whether the device is up.
fn is_up(device: &str) -> nix::Result<bool> {
    let is_it = |found: InterfaceAddress| {
        found.interface_name == device && found.flags.contains(InterfaceFlags::IFF_UP)
    };
    Ok(getifaddrs()?.any(is_it))
}

/// Changes to a device, which are undone on drop. A device that was created for the stack is gone by then.
#[derive(Debug)]
pub(crate) struct SetUp {
    index: u32,
    was_down: bool,
    /// Addresses that were added.
    given: Vec<Cidr>,
}

impl Drop for SetUp {
    fn drop(&mut self) {
        // Best effort: errors cannot be reported here.
        let Ok(mut line) = Line::open() else { return };
        // Removing a network's first address removes the others.
        for address in self.given.iter().rev() {
            let _ = line.order(RTM_DELADDR, 0, &address_of(self.index, address));
        }
        if self.was_down {
            let _ = line.order(RTM_NEWLINK, 0, &flags_of(self.index, 0));
        }
    }
}

/// Sets the device up and gives it addresses. An error comes with the step that failed.
pub(super) fn set_up(device: &str, addresses: &[Cidr]) -> Result<SetUp, (&'static str, io::Error)> {
    let index = index(device).map_err(|error| ("look it up", error.into()))?;
    let was_down = !is_up(device).map_err(|error| ("look it up", error.into()))?;
    let mut line = Line::open().map_err(|error| ("set it up", error))?;
    let up = flags_of(index, IFF_UP);
    line.order(RTM_NEWLINK, 0, &up).map_err(|error| ("set it up", error))?;
    let mut done = SetUp { index, was_down, given: Vec::new() };
    for address in addresses {
        match line.order(RTM_NEWADDR, CREATE | EXCLUSIVE, &address_of(index, address)) {
            Ok(()) => done.given.push(*address),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(("give it an address", error)),
        }
    }
    Ok(done)
}

/// Returns the message that sets or clears the flag IFF_UP.
fn flags_of(index: u32, flags: u32) -> Vec<u8> {
    let mut link = vec![0; 4];
    for word in [index, flags, IFF_UP] {
        link.extend(word.to_ne_bytes());
    }
    link
}

fn address_of(index: u32, address: &Cidr) -> Vec<u8> {
    let (family, octets) = match address.address {
        IpAddr::V4(address) => (libc_family(AddressFamily::Inet), address.octets().to_vec()),
        IpAddr::V6(address) => (libc_family(AddressFamily::Inet6), address.octets().to_vec()),
    };
    let mut body = vec![family, address.prefix, IFA_F_NODAD, 0];
    body.extend(index.to_ne_bytes());
    for kind in [IFA_LOCAL, IFA_ADDRESS] {
        push(&mut body, kind, &octets);
    }
    body
}

fn libc_family(family: AddressFamily) -> u8 {
    u8::try_from(family as i32).unwrap_or(0)
}
