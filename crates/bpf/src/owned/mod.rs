//! Ownership of packets, on an address that a user-space stack shares with the kernel.
//!
//! The stack receives its packets by a packet socket, and the kernel gets a copy. Which of the copies the
//! kernel must not see depends on who owns the address:
//!
//! | the stack's packets are for | without a filter the kernel would | so |
//! |---|---|---|
//! | an address of the kernel's | answer with resets and "port unreachable" | own each port and connection |
//! | an address of the stack's, the device's MAC | keep quiet, but pass them on where forwarding is on | own the address if it is |
//! | an address and a MAC of the stack's | ignore them | no filter |
//!
//! With AF_XDP sockets nothing has to be dropped: a third program ([`Redirect`]) redirects the stack's packets
//! to them before the kernel, and the filters, see them. Packets that both need (ARP, neighbour
//! discovery, ICMP errors) are assigned by the address or packet that they are about.
//!
//! The filter runs after packet sockets that are bound to all protocols and before IP, so the stack
//! sees what the kernel does not. A second filter, on the packet socket itself, keeps packets that are
//! not the stack's out of its ring. Fragments after the first have no ports: only an owned address
//! takes them.
//!
//! A stack may own a port only for what comes by one device from plausible sources ([`Whence`]): with several devices, each
//! has a stack that knows that device's addresses, and what the kernel accepts by another, or drops as martian, is the kernel's.
//!
//! A connection may be the kernel's although its port is not ([`Owned::keep`]), as with older connections.
//! And there may be several stacks, each an [`Engine`] with a packet socket: each connection to a
//! port that several engines have ([`Owned::share`]) goes to one of them, the same one as long as they are
//! the same. To keep its connections when they change, an engine has to own them ([`Owned::own_as`], [`Owned::enter_all`]). If
//! each socket had a filter, all would look at each frame; so they are one group, with one program ([`Programs::choosing`]).

mod connections;
mod counts;
mod layout;
mod link;
mod programs;
mod redirect;
mod seats;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object};

use self::counts::{COUNTS, Counts};
use self::layout::{Constants, connection_key, mapped, members, port_key, standing_key};
use self::programs::{load_only, open};

pub use self::connections::{Ends, Whose};
pub use self::link::Answering;
pub use self::programs::Programs;
pub use self::redirect::{Queues, Redirect, RedirectByQueue};
pub use self::seats::Seat;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/owned.bpf.o"));

const DROP: &str = "drop_owned";
const TAKE: &str = "take_owned";
const CHOOSE: &str = "choose_engine";
const TAKE_CHOSEN: &str = "take_chosen";

/// Maps that all filters share.
const MAPS: [&str; 11] = [
    "addresses",
    "listeners",
    "connections",
    "dropped",
    "begun",
    "standing",
    LIFE,
    COUNTS,
    "seats",
    "choices",
    "hosts",
];

/// The map with the futex of the thread that answers for the others.
const LIFE: &str = "life";

/// Instead of an engine (`owned/maps.h`).
const KERNEL: u32 = 0;
/// The mark of an engine that had a port which its user still has.
const LEFT: u32 = 1;

/// A stack, of which there may be several side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Engine(pub NonZeroU32);

impl Engine {
    /// The only engine, where no others are mentioned.
    pub const ONLY: Self = Self(NonZeroU32::MIN);
    /// Most engines that can share a port.
    pub const MOST: usize = 64;
}

/// The whereabouts of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In the same namespace as before.
    Here,
    /// Deleted, even if another device now has its index.
    Deleted,
    /// In another network namespace.
    Elsewhere,
    /// No filter is attached to a device of that index.
    Nothing,
}

/// The properties of the device and the stack that the filters depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether an Ethernet header precedes IP.
    pub ethernet: bool,
    /// Whether the stack resolves its neighbours itself, and so has to see ARP and neighbour
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

/// How the engines of a port may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// They stay: there will be no others.
    Alone = 0,
    /// They may change later.
    Shared = 1,
    /// They have just changed.
    Changed = 2,
}

/// Where packets to a port, or of a connection, must come from; all others are the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// By any device, and from any address.
    Anywhere,
    /// By any device, as several have the local address; a SYN of TCP only from an address that other hosts
    /// can have: not loopback, unspecified, multicast, or one of the host's own ([`Owned::host_has`]).
    Outside,
    /// As `Outside`, but by the device with this index, which has the local address: stacks on others do not know it.
    Device(u32),
}

impl Whence {
    /// Returns the device's index, or its substitute (`owned/maps.h`).
    fn device(self) -> u32 {
        match self {
            Self::Anywhere => 0,
            Self::Outside => u32::MAX,
            Self::Device(number) => number,
        }
    }
}

/// Something that a stack owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// All packets to an address.
    Address(IpAddr),
    /// All packets to a port; at every address if the address is unspecified (0.0.0.0 or ::, which both
    /// mean IPv4 and IPv6).
    Port(Protocol, SocketAddr),
    /// A connection: the packets from a remote to a local end.
    Connection(Protocol, SocketAddr, SocketAddr),
}

/// Errors of loading, attaching and filling the filters.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel is too old.
    #[error(
        "this kernel cannot attach a filter to what comes into a device (tcx): it needs Linux 6.6"
    )]
    TooOld,
    /// There is no such device in this network namespace.
    #[error("there is no network device with the number {0} in this network namespace")]
    NoDevice(i32),
    /// A privilege is missing.
    #[error(
        "a filter on what comes into a device needs CAP_BPF and CAP_NET_ADMIN (and CAP_PERFMON for \
         AF_XDP over veth): run as root, or give the program these"
    )]
    Privilege,
    /// The device has an XDP program that is not ours.
    #[error(
        "the device {device} has an XDP program already (bpftool prog show id {program} says which): detach \
         that, or use a packet socket"
    )]
    Occupied {
        /// Index of the device.
        device: i32,
        /// Id of the program.
        program: u32,
    },
    /// The driver has no native XDP.
    #[error(
        "the driver of the device {0} has no XDP of its own, and without that AF_XDP is no better than a \
         packet socket: use one"
    )]
    NoXdp(i32),
    /// The table is full.
    #[error(
        "the filter's table is full: it holds 1,024 addresses, 16,384 of the host's own, 16,384 ports of \
         64 engines each, 4,194,304 connections, 65,536 shares of ports"
    )]
    Full,
    /// Any other error of the system.
    #[error("cannot attach the filter: {0}")]
    System(io::Error),
    /// Any other error of libbpf.
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

/// The filters, and the tables of what the stack owns. All of it is removed when this is dropped or the process ends.
pub struct Owned {
    programs: Programs,
    /// The program that drops what the kernel must not see.
    dropping: OwnedFd,
    /// The program that lets in what the only engine's packet socket is to see.
    taking: OwnedFd,
    counts: Counts,
    /// The links, each with the index of its device.
    links: Vec<(i32, OwnedFd)>,
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owned").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Owned {
    /// Loads both filters. The stack owns nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn load(settings: Settings) -> Result<Self, Error> {
        // libbpf does not print; our own errors say what happened.
        libbpf_rs::set_print(None);
        // RandomState has new keys in every process, which is random enough.
        let seed = RandomState::new().build_hasher().finish() as u32;
        let mut object = open(OBJECT, Constants::new(settings, seed))?;
        load_only(&mut object, &[DROP, TAKE]);
        let object = object.load()?;
        let maps =
            MAPS.map(|name| map(&object, name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        // Descriptors keep programs and maps alive; the object is no longer needed.
        Ok(Self {
            programs: Programs::new(settings, seed, maps),
            dropping: program(&object, DROP)?,
            taking: program(&object, TAKE)?,
            counts: Counts::in_map(map(&object, COUNTS)?),
            links: Vec::new(),
        })
    }

    /// Keeps what the stack owns from the kernel, on the ingress of the device with this index in
    /// the network namespace of this thread. Attach it after the packet socket is bound, or packets
    /// in between reach neither.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn attach(&mut self, device: i32) -> Result<(), Error> {
        let link = link::attach_ingress(self.dropping.as_fd(), device).map_err(|error| {
            match (error.kind(), error.raw_os_error()) {
                // The kernel does not know this kind of attachment, or was built without it.
                (io::ErrorKind::InvalidInput, _) => Error::TooOld,
                (io::ErrorKind::PermissionDenied, _) => Error::Privilege,
                (_, Some(19)) => Error::NoDevice(device),
                _ => Error::System(error),
            }
        })?;
        self.links.push((device, link));
        Ok(())
    }

    /// Returns where the filter's device with this index is by now, seen from the network namespace of this thread.
    #[must_use]
    pub fn presence(&self, device: i32) -> Presence {
        let link = self.links.iter().rev().find(|(other, _)| *other == device);
        let Some((_, link)) = link else { return Presence::Nothing };
        match (link::device_of(link.as_fd()), link::is_on(link.as_fd(), device)) {
            (Some(0), _) => Presence::Deleted,
            (_, Some(false)) => Presence::Elsewhere,
            (Some(of), None) if of != device => Presence::Elsewhere,
            _ => Presence::Here,
        }
    }

    /// Detaches the filter from this device, wherever it is.
    pub fn detach(&mut self, device: i32) {
        self.links.retain(|(other, _)| *other != device);
    }

    /// Makes this thread answer for what is entered here. If it ends before it gives that back, everything is the kernel's at
    /// once, and no longer a stack's, for all filters at the same time. That happens before anybody can hear of the end of its
    /// process, and before the filters are detached, which would otherwise come some time before or after a stack
    /// hears of it: in between, both would answer, or nobody.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn answer_for(&self) -> io::Result<Answering> {
        Answering::by(self.programs.maps()[6].as_fd())
    }

    /// Returns the program for the packet socket (SO_ATTACH_BPF): it lets in what the stack owns, ICMP
    /// errors, and ARP and neighbour discovery where the settings ask for them.
    #[must_use]
    pub fn for_packet_socket(&self) -> BorrowedFd<'_> {
        self.taking.as_fd()
    }

    /// Returns a loader of such programs for further engines, in any thread: verifying them takes time.
    #[must_use]
    pub fn programs(&self) -> Programs {
        self.programs.clone()
    }

    /// Notes that an engine is, or no longer is, among a port's changing engines ([`Owned::share`]): while they change, a
    /// retransmitted SYN goes to the same engine as before only if that still is.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn stand(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        engine: Engine,
        stands: bool,
    ) -> Result<(), Error> {
        let key = standing_key(protocol, local, engine);
        if stands {
            return self.programs.maps()[5].update(&key, &[0; 4], MapFlags::ANY).map_err(full);
        }
        unless_absent(self.programs.maps()[5].delete(&key))
    }

    /// Notes that an engine no longer has a port, but another one of the same user has, which does it no harm: its connections
    /// stay its own, even if new ones begin with their ends.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn leave_to_user(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        engine: Engine,
    ) -> Result<(), Error> {
        let key = standing_key(protocol, local, engine);
        self.programs.maps()[5].update(&key, &LEFT.to_ne_bytes(), MapFlags::ANY).map_err(full)
    }

    /// Enters something that the only stack owns from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn own(&self, what: Ours) -> Result<(), Error> {
        self.own_as(Engine::ONLY, what)
    }

    /// Enters something that one engine alone owns from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn own_as(&self, engine: Engine, what: Ours) -> Result<(), Error> {
        match what {
            Ours::Port(protocol, local) => {
                self.share(protocol, local, Whence::Anywhere, &[engine], Sharing::Alone)
            }
            Ours::Connection(..) => self.enter_connection(engine, Whence::Anywhere, what),
            Ours::Address(_) => self.enter(what, &engine.0.get().to_ne_bytes()),
        }
    }

    /// Enters a TCP connection that one engine has from now on; what does not come from `whence` is the kernel's.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn own_connection(
        &self,
        engine: Engine,
        whence: Whence,
        (local, remote): Ends,
    ) -> Result<(), Error> {
        self.enter_connection(engine, whence, Ours::Connection(Protocol::Tcp, local, remote))
    }

    fn enter_connection(&self, engine: Engine, whence: Whence, what: Ours) -> Result<(), Error> {
        self.enter(what, &layout::entered(engine.0.get(), whence))
    }

    /// Enters an address of the host's own, on the device with this index, or on several: packets that come over a wire with this
    /// source address are the kernel's to refuse ([`Whence`]).
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn host_has(&self, address: IpAddr, whence: Whence) -> Result<(), Error> {
        let device = whence.device().to_ne_bytes();
        self.programs.maps()[10].update(&mapped(address), &device, MapFlags::ANY).map_err(full)
    }

    /// Distributes connections to this port that come from `whence` among these engines from now on; with none, they are
    /// the kernel's. Segments of a TCP connection that began before go to the engine that had the port then, as long
    /// as the engines are marked as changed.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn share(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        whence: Whence,
        engines: &[Engine],
        sharing: Sharing,
    ) -> Result<(), Error> {
        let port = Ours::Port(protocol, local);
        if engines.is_empty() && sharing != Sharing::Changed {
            return self.disown(port);
        }
        self.enter(port, &members(whence, engines, sharing).ok_or(Error::Full)?)
    }

    /// Gives this connection to the kernel, regardless of its port's owner, until it is disowned.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn keep(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        let entered = layout::entered(KERNEL, Whence::Anywhere);
        self.enter(Ours::Connection(protocol, local, remote), &entered)
    }

    fn enter(&self, what: Ours, value: &[u8]) -> Result<(), Error> {
        let (map, key) = self.entry(what);
        match map.update(&key, value, MapFlags::NO_EXIST) {
            Ok(()) => self.counts.one_more(what),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => {
                map.update(&key, value, MapFlags::ANY).map_err(full)
            }
            Err(error) => Err(full(error)),
        }
    }

    /// Removes an entry: its packets are the kernel's again or, for a connection, its port's owner's.
    /// There need not be an entry.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn disown(&self, what: Ours) -> Result<(), Error> {
        let (map, key) = self.entry(what);
        match map.delete(&key) {
            Ok(()) => self.counts.one_less(what),
            deleted => unless_absent(deleted),
        }
    }

    /// Returns the number of packets that were dropped before the kernel so far and not redirected to an AF_XDP socket: a packet
    /// socket has received them, or nobody.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn dropped(&self) -> Result<u64, Error> {
        let counts = self.programs.maps()[3].lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let number =
            |octets: Vec<u8>| octets.first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets));
        Ok(counts.into_iter().flatten().map(number).sum())
    }

    fn entry(&self, what: Ours) -> (&MapHandle, Vec<u8>) {
        match what {
            Ours::Address(address) => (&self.programs.maps()[0], mapped(address).to_vec()),
            Ours::Port(protocol, local) => {
                (&self.programs.maps()[1], port_key(protocol, local).to_vec())
            }
            Ours::Connection(protocol, local, remote) => {
                (&self.programs.maps()[2], connection_key(protocol, local, remote).to_vec())
            }
        }
    }
}

/// Tolerates that an entry was missing.
fn unless_absent(deleted: libbpf_rs::Result<()>) -> Result<(), Error> {
    match deleted {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn full(error: libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::TooBig => Error::Full,
        _ => error.into(),
    }
}

fn program(object: &Object, name: &str) -> Result<OwnedFd, Error> {
    let found = object.progs().find(|program| program.name() == name);
    let program = found.ok_or_else(|| absent(name))?;
    program.as_fd().try_clone_to_owned().map_err(Error::System)
}

fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let found = object.maps().find(|map| map.name() == name).ok_or_else(|| absent(name))?;
    Ok(MapHandle::try_from(&found)?)
}

fn absent(name: &str) -> Error {
    Error::System(io::Error::new(io::ErrorKind::NotFound, format!("the object has no {name}")))
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ObjectBuilder;

    use super::layout::Constants;
    use super::*;
    use crate::tracer::is_section;

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
        assert_eq!(key_bytes("standing"), standing_key(Protocol::Tcp, end, Engine::ONLY).len());
        assert_eq!(key_bytes("seats"), layout::seat_key(1, Engine::ONLY).len());
        assert_eq!(key_bytes("connections"), connection_key(Protocol::Tcp, end, end).len());
        // As in packet.h: Ethernet, neighbours are the kernel's, one engine, no marks.
        let by_default = Settings { ethernet: true, neighbours: false };
        let values = Constants::new(by_default, 0).bytes();
        for programs in [OBJECT, redirect::OBJECT] {
            let object = ObjectBuilder::default().open_memory(programs).unwrap();
            let map = object.maps().find(|map| is_section(map.name(), ".rodata")).unwrap();
            assert_eq!(map.initial_value().unwrap()[..values.len()], values);
        }
        let value_bytes = |name: &str| {
            let map = object.maps().find(|map| map.name() == name).unwrap();
            map.value_size() as usize
        };
        let alone = members(Whence::Anywhere, &[], Sharing::Alone).unwrap();
        assert_eq!(value_bytes("listeners"), alone.len());
        assert_eq!((key_bytes("hosts"), value_bytes("hosts")), (16, 4));
        let seat = Seat(NonZeroU32::MIN);
        assert_eq!(value_bytes("seats"), layout::seat_value(seat, 0).len());
        assert_eq!(value_bytes(LIFE), link::LIFE_BYTES);
    }
}
