//! The device below a stack with an address of its own: a TAP that is created, or an existing device, by a
//! packet socket, AF_XDP sockets, or DPDK.

#[cfg(feature = "dpdk")]
mod dpdk;
mod link;
mod xdp;

use std::borrow::Cow;
use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use uncork_bpf::owned::{self, Ours, Owned, Redirect};
use uncork_driver::{Driver, OpenError, af_packet, tap};
use uncork_packet::{Capabilities, Medium};
use uncork_stack::{Cidr, Config, Mac, Route, Stack};

use crate::error::Error;

/// The kind of port to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A TAP, which is created unless there is one of this name.
    Tap,
    /// A packet socket on an existing device.
    Packet,
    /// AF_XDP sockets on an existing device, one for each of its queues.
    Xdp,
    /// A DPDK device, if this program was built with the feature `dpdk`.
    Dpdk,
}

/// A device, and the addresses on it.
#[derive(Debug, Clone)]
pub struct Place {
    /// Name of the device; for DPDK with its arguments.
    pub device: String,
    /// The port to use; by default a packet socket on an existing device that is no TAP.
    pub kind: Option<Kind>,
    /// MTU of a TAP, or of a DPDK device.
    pub mtu: Option<u16>,
    /// Addresses for the kernel's end of a TAP.
    pub host: Vec<Cidr>,
    /// The stack's addresses.
    pub addresses: Vec<Cidr>,
    /// Default routers, at most one for each version of IP.
    pub gateways: Vec<IpAddr>,
    /// How long to poll before sleeping.
    pub spin: std::time::Duration,
    /// Longest time that frames may wait for others; not used while spinning.
    pub moderation: std::time::Duration,
    /// Most bytes of one connection in the device queue; by default the stack's own ([`Config::small_queue_bytes`]).
    pub small_queue_bytes: Option<u32>,
    /// The file to record frames into.
    pub record: Option<std::path::PathBuf>,
    /// Called with a sentence about a failure that is no reason to end.
    pub warn: fn(&str),
    /// The Unix socket for queries; by default the usual one of this process.
    pub socket: Option<std::path::PathBuf>,
}

/// An open device.
pub(crate) struct Opened {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) device: String,
    pub(crate) how: Cow<'static, str>,
    pub(crate) mac: Mac,
    /// A problem that is no reason to give up.
    pub(crate) note: Option<String>,
    /// Keeps the kernel from interfering, while it exists.
    pub(crate) owned: Option<Hold>,
}

/// What the stack owns, or was created for it, released on drop.
#[derive(Debug)]
#[expect(dead_code, reason = "to be dropped is all that it is for")]
pub(crate) enum Hold {
    /// A packet socket sees the frames before the kernel.
    Packets(Owned),
    /// The frames are redirected to AF_XDP sockets.
    Sockets(Owned, Redirect),
    /// The kernel's end of a TAP, which is restored on drop.
    Host(link::SetUp),
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("device", &self.device).finish_non_exhaustive()
    }
}

/// Whether no host can have this address: broadcast, multicast, unspecified, or loopback.
fn is_nobodys(ours: &Cidr) -> bool {
    let address = ours.address;
    let is_broadcast = match address {
        IpAddr::V4(address) => {
            let of_host = u32::MAX.checked_shr(ours.prefix.into()).unwrap_or(0);
            address.is_broadcast() || ours.prefix < 31 && u32::from(address) & of_host == of_host
        }
        IpAddr::V6(_) => false,
    };
    address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_broadcast
}

/// fe80::/10, which every IPv6 link has (RFC 4291, 2.5.6).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

impl Place {
    /// Checks that the routers can be routers. One outside of all networks is resolved on the link all the
    /// same, which is intended where the stack's address has no network.
    fn check_gateways(&self) -> Result<(), Error> {
        for (at, &gateway) in self.gateways.iter().enumerate() {
            let same = |other: &IpAddr| other.is_ipv4() == gateway.is_ipv4();
            if let Some(first) = self.gateways[..at].iter().find(|other| same(other)) {
                return Err(Error::Gateways(*first, gateway));
            }
            let alone = Cidr { address: gateway, prefix: if gateway.is_ipv4() { 32 } else { 128 } };
            let mut ours = self.addresses.iter().filter(|ours| same(&ours.address)).peekable();
            if is_nobodys(&alone) || ours.clone().any(|ours| ours.address == gateway) {
                return Err(Error::NoGateway(gateway));
            }
            if ours.peek().is_none() {
                return Err(Error::Version(gateway));
            }
            let is_met = |ours: &Cidr| ours.contains(gateway) || ours.prefix == alone.prefix;
            if !is_link_local(gateway) && !ours.any(is_met) {
                return Err(Error::FarGateway(gateway));
            }
        }
        Ok(())
    }

    /// Opens the device.
    pub(crate) fn open(&self) -> Result<Opened, Error> {
        self.check_gateways()?;
        for ours in &self.addresses {
            let address = ours.address;
            if is_nobodys(ours) {
                return Err(Error::Nobodys(address));
            }
            if link::is_local(address)? || self.host.iter().any(|host| host.address == address) {
                return Err(Error::Taken(address));
            }
        }
        match self.kind.unwrap_or_else(|| self.usual_kind()) {
            Kind::Tap => self.open_tap(),
            Kind::Packet => self.open_packet(),
            Kind::Xdp => xdp::open(self),
            #[cfg(feature = "dpdk")]
            Kind::Dpdk => dpdk::open(self),
            #[cfg(not(feature = "dpdk"))]
            Kind::Dpdk => Err(OpenError::Settings(
                "this uncork was built without DPDK: cargo build --release --features dpdk makes one that has it \
                 (Debian: apt-get install libdpdk-dev)",
            )
            .into()),
        }
    }

    fn usual_kind(&self) -> Kind {
        let is_there = link::index(&self.device).is_ok();
        let is_tap = Path::new("/sys/class/net").join(&self.device).join("tun_flags").exists();
        if is_there && !is_tap { Kind::Packet } else { Kind::Tap }
    }

    fn open_tap(&self) -> Result<Opened, Error> {
        let port = tap::Port::open(&tap::Settings {
            device: self.device.clone(),
            medium: Medium::Ethernet,
            mtu: self.mtu,
            offload: true,
        })?;
        let device = port.device().to_owned();
        let host = self.set_up_host(&device)?;
        Ok(Opened {
            driver: Box::new(port),
            device,
            how: "TAP".into(),
            mac: own_mac()?,
            note: None,
            owned: Some(Hold::Host(host)),
        })
    }

    /// Sets up the kernel's end of a TAP.
    fn set_up_host(&self, device: &str) -> Result<link::SetUp, Error> {
        link::set_up(device, &self.host).map_err(|(doing, error)| Error::Setup {
            device: device.to_owned(),
            doing,
            error,
        })
    }

    /// Refuses an MTU for a device that has its own from the kernel.
    fn refuse_mtu(&self) -> Result<(), Error> {
        match self.mtu {
            Some(mtu) => Err(Error::Mtu { device: self.device.clone(), mtu }),
            None => Ok(()),
        }
    }

    fn refuse_host(&self) -> Result<(), Error> {
        if self.host.is_empty() {
            return Ok(());
        }
        Err(OpenError::Settings(
            "--host gives addresses to a TAP: a device that is there has its own (ip address)",
        )
        .into())
    }

    fn open_packet(&self) -> Result<Opened, Error> {
        self.refuse_mtu()?;
        self.refuse_host()?;
        let settings = af_packet::Settings::new(&self.device);
        // A device without Ethernet is only discovered by opening it, which takes the filter.
        let (owned, trouble) =
            match Owned::load(owned::Settings { ethernet: true, neighbours: true }) {
                Ok(owned) => (Some(owned), None),
                Err(error) => (None, Some(error)),
            };
        let filter = owned.as_ref().map(Owned::for_packet_socket);
        let port = af_packet::Port::open(&settings, filter)?;
        if link::is_loopback(&self.device)? {
            return Err(OpenError::Settings(
                "the loopback device brings the stack nothing: nobody answers there to ARP or neighbour \
                 discovery, the kernel included; use a TAP (any other name with --dev), or kernel sockets \
                 (--kernel)",
            )
            .into());
        }
        let Some(mac) = port.mac() else {
            return Err(OpenError::Settings(
                "the device carries bare IP: only those that carry Ethernet are served on by a packet \
                 socket",
            )
            .into());
        };
        let (owned, trouble) = self.own(owned, port.index(), trouble);
        let note = trouble.map(|error| seen_by_kernel(&error));
        Ok(Opened {
            driver: Box::new(port),
            device: self.device.clone(),
            how: "packet socket".into(),
            mac: Mac(mac),
            note,
            owned: owned.map(Hold::Packets),
        })
    }

    /// Keeps what the stack owns from the kernel, as far as possible.
    fn own(
        &self,
        owned: Option<Owned>,
        index: i32,
        trouble: Option<owned::Error>,
    ) -> (Option<Owned>, Option<owned::Error>) {
        let Some(mut owned) = owned else { return (None, trouble) };
        let mut trouble = owned.attach(index).err();
        for ours in &self.addresses {
            // The packet socket's filter lets in what is owned, whether or not the other one works.
            trouble = owned.own(Ours::Address(ours.address)).err().or(trouble);
        }
        (Some(owned), trouble)
    }

    /// Makes a stack with these addresses and routes over the opened device.
    pub(crate) fn stack(&self, device: Capabilities, mac: Mac) -> Result<Stack, Error> {
        let mut config = Config::default();
        config.small_queue_bytes = self.small_queue_bytes.unwrap_or(config.small_queue_bytes);
        let mut stack = Stack::new(config, device, mac, random()?);
        for &address in &self.addresses {
            stack.add_address(address);
        }
        stack.report_groups();
        for &gateway in &self.gateways {
            let any: IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
            let destination = Cidr { address: any, prefix: 0 };
            stack.add_route(Route { destination, gateway: Some(gateway) });
        }
        Ok(stack)
    }
}

/// Returns the note about packets that the kernel should not see.
fn seen_by_kernel(error: &owned::Error) -> String {
    format!(
        "the kernel sees the packets to these addresses, too, and would forward them where forwarding is on: {error}"
    )
}

/// Returns an Ethernet address that no other host on a link of two has.
fn own_mac() -> Result<Mac, Error> {
    // Locally administered and unicast (IEEE 802): the other bits are free.
    let mut mac: [u8; 6] = random()?;
    mac[0] = mac[0] & 0xfc | 2;
    Ok(Mac(mac))
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], Error> {
    let mut random = [0; BYTES];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(Error::system("read /dev/urandom"))?;
    Ok(random)
}
