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
//! Where the stack has sockets of AF_XDP there is nothing to be taken away: a third program ([`Redirect`]) hands
//! what is its over to them before the kernel, and the filters, see it. What both need (ARP, neighbour
//! discovery, errors of ICMP) is told apart by whom it is about.
//!
//! The filter sits behind packet sockets that are bound to all protocols and before IP, so the stack
//! sees what the kernel does not. Beside it there is one for the packet socket itself, which keeps out
//! of its ring what is not the stack's. Fragments behind the first have no ports: only an owned address
//! takes them.
//!
//! A port may be a stack's for what comes by one device only, and from where others can be ([`Whence`]): with several devices
//! each has a stack that knows that one's addresses, and what the kernel takes in by another one, or drops as nobody's, is the kernel's.
//!
//! A connection may be the kernel's although its port is not ([`Owned::keep`]): those that were there before.
//! And there may be several stacks, each an [`Engine`] with a packet socket: of a
//! port that several have ([`Owned::share`]), each connection goes to one of them, the same as long as they are
//! the same. Who is to keep his when they change has to own them ([`Owned::own_as`], [`Owned::enter_all`]). Were each to have such a filter, all
//! would look at each frame; so their sockets are one group, for which one program does ([`Programs::choosing`]).

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

/// The map with the futex of who answers for the others.
const LIFE: &str = "life";

/// In place of an engine (`owned/maps.h`).
const KERNEL: u32 = 0;
/// Of an engine that was one of a port's.
const LEFT: u32 = 1;

/// A stack, of which there may be several beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Engine(pub NonZeroU32);

impl Engine {
    /// The only one, where nothing is said of others.
    pub const ONLY: Self = Self(NonZeroU32::MIN);
    /// So many can share a port.
    pub const MOST: usize = 64;
}

/// Where a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Where it was.
    Here,
    /// Nowhere: it was deleted, be it that another one has its number.
    Deleted,
    /// In another network namespace.
    Elsewhere,
    /// Nothing is attached to one of that number.
    Nothing,
}

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

/// What is to be expected of a port's engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// There will be no others.
    Alone = 0,
    /// There may be others at another time.
    Shared = 1,
    /// They have just become others.
    Changed = 2,
}

/// Whence that has to come which comes to a port, or it is the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// By any device, and from any address.
    Anywhere,
    /// By any device, as several have the port's address; what opens a connection of TCP from an address that others
    /// can have: no loopback, none that is unspecified or a group's, none of the host's own ([`Owned::host_has`]).
    Outside,
    /// The same by the device of this number, which has the port's address: the stacks on others do not know it.
    Device(u32),
}

impl Whence {
    /// In place of a device's number (`owned/maps.h`).
    fn device(self) -> u32 {
        match self {
            Self::Anywhere => 0,
            Self::Outside => u32::MAX,
            Self::Device(number) => number,
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
        /// Number of the device.
        device: i32,
        /// Number of the program.
        program: u32,
    },
    /// The driver has no XDP.
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
    programs: Programs,
    /// What drops what the kernel must not see.
    dropping: OwnedFd,
    /// What takes in what the packet socket of the only engine is to see.
    taking: OwnedFd,
    counts: Counts,
    /// Each with the number of its device.
    links: Vec<(i32, OwnedFd)>,
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
        // Keys of a hash that is new in every process: of chance enough.
        let seed = RandomState::new().build_hasher().finish() as u32;
        let mut object = open(OBJECT, Constants::new(settings, seed))?;
        load_only(&mut object, &[DROP, TAKE]);
        let object = object.load()?;
        let maps =
            MAPS.map(|name| map(&object, name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        // Descriptors keep programs and maps; the object is not needed any more.
        Ok(Self {
            programs: Programs::new(settings, seed, maps),
            dropping: program(&object, DROP)?,
            taking: program(&object, TAKE)?,
            counts: Counts::in_map(map(&object, COUNTS)?),
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
        self.links.push((device, link));
        Ok(())
    }

    /// Where what is attached to the device of this number is by now, seen from the network namespace of this thread.
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

    /// What is the stack's is not taken away any more from what comes into this device, wherever it is.
    pub fn detach(&mut self, device: i32) {
        self.links.retain(|(other, _)| *other != device);
    }

    /// This thread answers for what is entered here. Should it end before it gives that back, all is the kernel's at
    /// once, and nothing a stack's any more, to all filters at the same time. That is so before anybody can hear of the
    /// end of its process, and before the filters are detached, which otherwise comes some time before or after a stack
    /// hears of it: in between two would answer, or nobody.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn answer_for(&self) -> io::Result<Answering> {
        Answering::by(self.programs.maps()[6].as_fd())
    }

    /// The program for the packet socket (SO_ATTACH_BPF): it lets in what is the stack's, errors of
    /// ICMP, and ARP and neighbour discovery where the settings ask for them.
    #[must_use]
    pub fn for_packet_socket(&self) -> BorrowedFd<'_> {
        self.taking.as_fd()
    }

    /// What loads such programs for further engines, in any thread: they are verified, which takes its time.
    #[must_use]
    pub fn programs(&self) -> Programs {
        self.programs.clone()
    }

    /// An engine is, or is no more, one of a port's whose engines change ([`Owned::share`]): while they do, a SYN that
    /// is sent again goes to whom it went before only if he is.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
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

    /// An engine is no more one of a port's, but another one of the same user's is, to whom it does no harm: its connections stay
    /// its own, whoever begins anew.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
    pub fn leave_to_user(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        engine: Engine,
    ) -> Result<(), Error> {
        let key = standing_key(protocol, local, engine);
        self.programs.maps()[5].update(&key, &LEFT.to_ne_bytes(), MapFlags::ANY).map_err(full)
    }

    /// From now on this is the only stack's.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
    pub fn own(&self, what: Ours) -> Result<(), Error> {
        self.own_as(Engine::ONLY, what)
    }

    /// From now on this is one engine's, and nobody else's.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
    pub fn own_as(&self, engine: Engine, what: Ours) -> Result<(), Error> {
        match what {
            Ours::Port(protocol, local) => {
                self.share(protocol, local, Whence::Anywhere, &[engine], Sharing::Alone)
            }
            _ => self.enter(what, &engine.0.get().to_ne_bytes()),
        }
    }

    /// From now on this is an address of the host's own, on the device of this number, or on several: who says over a wire
    /// that he comes from there is the kernel's to refuse ([`Whence`]).
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
    pub fn host_has(&self, address: IpAddr, whence: Whence) -> Result<(), Error> {
        let device = whence.device().to_ne_bytes();
        self.programs.maps()[10].update(&mapped(address), &device, MapFlags::ANY).map_err(full)
    }

    /// From now on connections to this port that come from there go to these engines, each to one of them; none: they are
    /// the kernel's. What belongs to a connection of TCP that began before goes to whoever had the port then, as long
    /// as the engines are said to have changed.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
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

    /// From now on this connection is the kernel's, whosever its port is, until it is disowned.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
    pub fn keep(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.enter(Ours::Connection(protocol, local, remote), &KERNEL.to_ne_bytes())
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

    /// From now on nothing is said of this: it is the kernel's again, or, of a connection, whose its port is.
    /// It may not have been owned.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn disown(&self, what: Ours) -> Result<(), Error> {
        let (map, key) = self.entry(what);
        match map.delete(&key) {
            Ok(()) => self.counts.one_less(what),
            deleted => unless_absent(deleted),
        }
    }

    /// Packets that were taken away from the kernel so far and not handed to a socket of AF_XDP: a packet
    /// socket has had them before, or nobody.
    ///
    /// # Errors
    ///
    /// What the kernel says.
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

/// Of an entry that may not have been there.
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
        // As packet.h has them: Ethernet, neighbours are the kernel's, one engine, no marks.
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
