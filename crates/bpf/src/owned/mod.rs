//! Whose a packet is, on an address that a stack in user space shares with the kernel.
//!
//! The stack gets its packets by a packet socket, and the kernel gets them, too. Which of them the
//! kernel must not see depends on whose the address is:
//!
//! | the stack's packets are for | without a filter the kernel would | so |
//! |---|---|---|
//! | an address of the kernel's | answer with resets and "port unreachable" | own each port and connection |
//! | an address of the stack's, the device's MAC | keep quiet, but pass them on where forwarding is on | own the address if it is |
//! | an address and a MAC of the stack's | ignore them | no filter |
//!
//! The filter sits behind packet sockets that are bound to all protocols and before IP, so the stack
//! sees what the kernel does not. Beside it there is one for the packet socket itself, which keeps out
//! of its ring what is not the stack's. Fragments behind the first have no ports: only an owned address
//! takes them.

mod link;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder};

use crate::tracer::is_section;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/owned.bpf.o"));

const DROP: &str = "drop_owned";
const TAKE: &str = "take_owned";

/// What the filters have to know of the device and the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether an Ethernet header stands in front of IP.
    pub ethernet: bool,
    /// Whether the stack finds its neighbours by itself, and so has to see ARP and neighbour
    /// discovery.
    pub neighbours: bool,
}

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// Something that is the stack's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// All that comes to an address.
    Address(IpAddr),
    /// All that comes to a port; of every address if that is unspecified (0.0.0.0 or ::, which both
    /// mean IPv4 and IPv6).
    Port(Protocol, SocketAddr),
    /// What comes from a remote to a local end.
    Connection(Protocol, SocketAddr, SocketAddr),
}

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel is too old.
    #[error(
        "this kernel cannot attach a filter to what comes into a device (tcx): it needs Linux 6.6; \
         without it, give the stack an address of its own"
    )]
    TooOld,
    /// There is no such device in this network namespace.
    #[error("there is no network device with the number {0} in this network namespace")]
    NoDevice(i32),
    /// A privilege is missing.
    #[error(
        "a filter on what comes into a device needs CAP_BPF and CAP_NET_ADMIN: run as root, or give \
         the program these"
    )]
    Privilege,
    /// The table is full.
    #[error(
        "the filter's table is full: it holds 1,024 addresses, 16,384 ports, 4,194,304 connections"
    )]
    Full,
    /// Something else of the system's.
    #[error("cannot attach the filter: {0}")]
    System(io::Error),
    /// Something else of libbpf's.
    #[error("eBPF: {0:#}")]
    Other(libbpf_rs::Error),
}

impl From<libbpf_rs::Error> for Error {
    fn from(error: libbpf_rs::Error) -> Self {
        match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::Privilege,
            _ => Self::Other(error),
        }
    }
}

/// The filters, and what is the stack's. All of it is gone when this is dropped or the process ends.
pub struct Owned {
    /// What drops what the kernel must not see.
    dropping: OwnedFd,
    /// What takes in what the packet socket is to see.
    taking: OwnedFd,
    addresses: MapHandle,
    listeners: MapHandle,
    connections: MapHandle,
    dropped: MapHandle,
    links: Vec<OwnedFd>,
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owned").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Owned {
    /// Loads both filters. Nothing is the stack's yet.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn load(settings: Settings) -> Result<Self, Error> {
        // What libbpf has to say is said by our own errors.
        libbpf_rs::set_print(None);
        let mut object = ObjectBuilder::default().name("uncork_owned")?.open_memory(OBJECT)?;
        for mut map in object.maps_mut() {
            if is_section(map.name(), ".rodata")
                && let Some(values) = map.initial_value_mut()
                && let Some(place) = values.get_mut(..2)
            {
                place.copy_from_slice(&[settings.ethernet.into(), settings.neighbours.into()]);
            }
        }
        let object = object.load()?;
        let map = |name: &str| -> Result<MapHandle, Error> {
            let found = object.maps().find(|map| map.name() == name).ok_or_else(|| absent(name))?;
            Ok(MapHandle::try_from(&found)?)
        };
        // Descriptors keep programs and maps; the object is not needed any more.
        Ok(Self {
            dropping: program(&object, DROP)?,
            taking: program(&object, TAKE)?,
            addresses: map("addresses")?,
            listeners: map("listeners")?,
            connections: map("connections")?,
            dropped: map("dropped")?,
            links: Vec::new(),
        })
    }

    /// Takes what is the stack's away from the kernel, of what comes into the device of this number in
    /// the network namespace of this thread. Attach it after the packet socket is bound, or what comes
    /// in between is nobody's.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn attach(&mut self, device: i32) -> Result<(), Error> {
        let link = link::attach_ingress(self.dropping.as_fd(), device).map_err(|error| {
            match (error.kind(), error.raw_os_error()) {
                // Of a kind of attachment that it does not know, or is not built with.
                (io::ErrorKind::InvalidInput, _) => Error::TooOld,
                (io::ErrorKind::PermissionDenied, _) => Error::Privilege,
                (_, Some(19)) => Error::NoDevice(device),
                _ => Error::System(error),
            }
        })?;
        self.links.push(link);
        Ok(())
    }

    /// The program for the packet socket (SO_ATTACH_BPF): it lets in what is the stack's, errors of
    /// ICMP, and ARP and neighbour discovery where the settings ask for them.
    #[must_use]
    pub fn for_packet_socket(&self) -> BorrowedFd<'_> {
        self.taking.as_fd()
    }

    /// From now on this is the stack's.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
    pub fn own(&self, what: Ours) -> Result<(), Error> {
        let (map, key) = self.entry(what);
        map.update(&key, &[1], MapFlags::ANY).map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::TooBig => Error::Full,
            _ => error.into(),
        })
    }

    /// From now on this is the kernel's again; it may not have been the stack's.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn disown(&self, what: Ours) -> Result<(), Error> {
        let (map, key) = self.entry(what);
        match map.delete(&key) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Packets that were taken away from the kernel so far.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn dropped(&self) -> Result<u64, Error> {
        let counts = self.dropped.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let number =
            |octets: Vec<u8>| octets.first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets));
        Ok(counts.into_iter().flatten().map(number).sum())
    }

    fn entry(&self, what: Ours) -> (&MapHandle, Vec<u8>) {
        match what {
            Ours::Address(address) => (&self.addresses, mapped(address).to_vec()),
            Ours::Port(protocol, local) => (&self.listeners, port_key(protocol, local).to_vec()),
            Ours::Connection(protocol, local, remote) => {
                (&self.connections, connection_key(protocol, local, remote).to_vec())
            }
        }
    }
}

fn program(object: &Object, name: &str) -> Result<OwnedFd, Error> {
    let found = object.progs().find(|program| program.name() == name);
    let program = found.ok_or_else(|| absent(name))?;
    program.as_fd().try_clone_to_owned().map_err(Error::System)
}

fn absent(name: &str) -> Error {
    Error::System(io::Error::new(io::ErrorKind::NotFound, format!("the object has no {name}")))
}

/// An address as the programs see it: IPv4's are mapped into IPv6, and what is unspecified is all
/// zeros in both.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// `struct listener` of `owned/maps.h`.
fn port_key(protocol: Protocol, local: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    if !local.ip().is_unspecified() {
        key[..16].copy_from_slice(&mapped(local.ip()));
    }
    key[16..18].copy_from_slice(&local.port().to_be_bytes());
    key[18] = protocol.number();
    key
}

/// `struct connection` of `owned/maps.h`.
fn connection_key(protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> [u8; 40] {
    let mut key = [0; 40];
    key[..16].copy_from_slice(&mapped(local.ip()));
    key[16..32].copy_from_slice(&mapped(remote.ip()));
    key[32..34].copy_from_slice(&local.port().to_be_bytes());
    key[34..36].copy_from_slice(&remote.port().to_be_bytes());
    key[36] = protocol.number();
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_as_the_compiler_laid_them_out() {
        let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        let key_bytes = |name: &str| {
            let map = object.maps().find(|map| map.name() == name).unwrap();
            map.key_size() as usize
        };
        let end = SocketAddr::from(([10, 0, 0, 1], 80));
        assert_eq!(key_bytes("addresses"), 16);
        assert_eq!(key_bytes("listeners"), port_key(Protocol::Tcp, end).len());
        assert_eq!(key_bytes("connections"), connection_key(Protocol::Tcp, end, end).len());
        let map = object.maps().find(|map| is_section(map.name(), ".rodata")).unwrap();
        // As packet.h has them: Ethernet, and neighbours are the kernel's.
        assert_eq!(map.initial_value().unwrap()[..2], [1, 0]);
    }

    #[test]
    fn any_address_is_the_same_in_both_versions() {
        let any = |address: &str| port_key(Protocol::Tcp, address.parse().unwrap());
        assert_eq!(any("0.0.0.0:80"), any("[::]:80"));
        assert_ne!(any("10.0.0.1:80"), any("0.0.0.0:80"));
    }
}
