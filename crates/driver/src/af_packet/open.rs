//! Opening a packet socket with rings on a device: the half of [`Port::open`](super::Port::open) that
//! needs the privilege.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use uncork_packet::Medium;

use super::geometry::Geometry;
use super::group::IGNORE_OUTGOING;
use super::handed::{Description, Device, Handed, Rings};
use super::options::{self, Switch};
use super::slots::HEADER_BYTES;
use crate::{OpenError, ioctl, vnet, wakeup};

/// Longest IP packet, in octets.
pub(super) const LONGEST_PACKET: u32 = 65_535;
/// An Ethernet header with a VLAN tag, the longest that is seen before IP here.
pub(super) const LINK_BYTES: usize = 18;
/// The largest offset at which the kernel puts the network header of a received frame: after the slot's
/// header, an address and room for the link layer, aligned, and the vnet header (tpacket_rcv).
pub(super) const RECEIVED_AT: usize = 80 + vnet::BYTES;

/// Longest packet that comes in a slot, whatever the MTU: with all that precedes it, one cache line less than 4 KiB.
const SHORT_PACKET: usize = 3900;
/// Number of such slots that take the memory of one with room for the longest train.
const SHORT_FOR_LONG: usize = 16;
/// Limit for longer packets that wait to be received, in octets of kernel memory.
const LONG_BYTES: usize = 32 << 20;

/// Raw IP, as modems have it (linux/if_arp.h).
const ARPHRD_RAWIP: u16 = 519;

/// How frames are distributed among the sockets of one group (PACKET_FANOUT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// By flow: frames of one flow, in either direction, go to the same socket.
    Flow,
    /// By the processor that received them.
    Processor,
    /// By the device's receive queue.
    Queue,
}

/// The fanout group of one of several engines on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fanout {
    /// The group's number, in this network namespace: all of its sockets are on one device and share
    /// in the same way.
    pub group: u16,
    /// How the group distributes frames.
    pub share: Share,
}

/// The device, and how to use it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the device.
    pub device: String,
    /// Slots to receive into, a minimum, of 4 KiB each. Longer frames, mostly trains of segments, the kernel queues beside
    /// them. Without the privilege for that (CAP_NET_ADMIN), each slot has room for the
    /// longest train, and there is one for 16 of these.
    pub receive_slots: usize,
    /// Slots to send from.
    pub transmit_slots: usize,
    /// Longest train of segments either way, in octets of IP; the MTU if that is larger.
    pub max_train_bytes: u32,
    /// Whether frames for other Ethernet addresses are received, too: for a stack with an address of its own.
    pub promiscuous: bool,
    /// Whether frames bypass all queueing disciplines on the way to the device's driver. Frames for which the
    /// driver has no room are lost then, and there are no trains, as the kernel does not segment them
    /// there (dev_direct_xmit).
    pub bypass_queues: bool,
    /// The group that shares the received frames.
    pub fanout: Option<Fanout>,
}

impl Settings {
    /// Returns the settings for one engine on this device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            // Bounds how late a turn may be: 100 ms of full frames at a gigabit, 5 ms of the shortest.
            receive_slots: 8192,
            transmit_slots: 256,
            max_train_bytes: LONGEST_PACKET,
            promiscuous: false,
            bypass_queues: false,
            fanout: None,
        }
    }
}

impl Handed {
    /// Opens the device, in the network namespace of this thread, as [`Port::open`](super::Port::open)
    /// does, but leaves the rings to be mapped by the process that is given this.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn open(settings: &Settings, filter: Option<BorrowedFd<'_>>) -> Result<Self, OpenError> {
        Prepared::new(settings)?.finish(settings, filter)
    }
}

/// A packet socket with its rings that does not receive yet. Making the rings takes long, as the kernel waits
/// twice for all of its processors; this part can be done ahead of time.
#[derive(Debug)]
pub struct Prepared {
    socket: OwnedFd,
    device: Device,
    rings: Rings,
}

impl Prepared {
    /// Prepares a socket, in the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn new(settings: &Settings) -> Result<Self, OpenError> {
        let socket = open_socket(SockType::Raw)?;
        let fd = socket.as_fd();
        let device = look_at(fd, settings)?;
        set_up(fd, settings)?;
        let rings = make_rings(fd, settings, &device)?;
        Ok(Self { socket, device, rings })
    }

    /// Whether [`Prepared::new`] would make the same now: the device is the same one, and unchanged.
    #[must_use]
    pub fn is_of(&self, settings: &Settings) -> bool {
        look_at(self.socket.as_fd(), settings).is_ok_and(|device| device == self.device)
    }

    /// Index of the device.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.device.index
    }

    /// Lets frames in from now on. The settings must be those that it was made with.
    ///
    /// # Errors
    ///
    /// As [`Prepared::new`].
    pub fn finish(
        self,
        settings: &Settings,
        filter: Option<BorrowedFd<'_>>,
    ) -> Result<Handed, OpenError> {
        let Self { socket, device, rings } = self;
        let fd = socket.as_fd();
        if let Some(filter) = filter {
            options::attach_filter(fd, filter)
                .map_err(OpenError::system("attach the filter of what comes in (SO_ATTACH_BPF)"))?;
        }
        if settings.promiscuous {
            options::be_promiscuous(fd, device.index)
                .map_err(OpenError::system("make the device promiscuous"))?;
        }
        // Frames are received only from here on.
        options::bind(fd, device.index).map_err(OpenError::system("bind the packet socket"))?;
        if let Some(fanout) = settings.fanout {
            join(fd, fanout)?;
        }
        Ok(Handed { socket, description: Description { device, rings } })
    }
}

impl From<Prepared> for OwnedFd {
    fn from(prepared: Prepared) -> Self {
        prepared.socket
    }
}

pub(super) fn open_socket(kind: SockType) -> Result<OwnedFd, OpenError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // With no protocol, so nothing is received before all is set up.
    socket(AddressFamily::Packet, kind, flags, None).map_err(|error| match error {
        nix::Error::EPERM | nix::Error::EACCES => {
            OpenError::Privilege { doing: "a packet socket", capability: "CAP_NET_RAW" }
        }
        nix::Error::EAFNOSUPPORT => {
            OpenError::Feature { feature: "packet sockets", since: "2.2", option: "CONFIG_PACKET" }
        }
        error => OpenError::System { doing: "open a packet socket", error: error.into() },
    })
}

/// Reads the device's properties. The ioctls go through the socket, so the device is one of the socket's network namespace.
fn look_at(fd: BorrowedFd<'_>, settings: &Settings) -> Result<Device, OpenError> {
    let name = settings.device.clone();
    let index = ioctl::index(fd, &name).map_err(|_| OpenError::NoDevice(name.clone()))?;
    let asked = OpenError::system;
    let mtu = ioctl::mtu(fd, &name).map_err(asked("read the MTU of the device"))?;
    let (kind, mac) = ioctl::address(fd, &name).map_err(asked("read the device's address"))?;
    let flags = ioctl::flags(fd, &name).map_err(asked("read the flags of the device"))?;
    if flags & libc::IFF_UP == 0 {
        return Err(OpenError::Down(name));
    }
    let medium = match kind {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Medium::Ethernet,
        libc::ARPHRD_NONE | ARPHRD_RAWIP => Medium::Ip,
        kind => return Err(OpenError::Medium { device: name, kind }),
    };
    // Loopback has 65,536, one more than the longest packet.
    let mtu = u16::try_from(mtu.min(LONGEST_PACKET)).unwrap_or(u16::MAX);
    let train = settings.max_train_bytes.min(LONGEST_PACKET).max(u32::from(mtu));
    Ok(Device {
        name,
        index,
        mac,
        ethernet: medium == Medium::Ethernet,
        mtu,
        max_train_bytes: if settings.bypass_queues { u32::from(mtu) } else { train },
    })
}

fn set_up(fd: BorrowedFd<'_>, settings: &Settings) -> Result<(), OpenError> {
    let lacks = |feature: &'static str, since: &'static str| {
        move |error: io::Error| match error.raw_os_error() {
            Some(libc::ENOPROTOOPT | libc::EINVAL) => {
                OpenError::Feature { feature, since, option: "CONFIG_PACKET" }
            }
            _ => OpenError::System { doing: "set up the packet socket", error },
        }
    };
    options::use_version_2(fd).map_err(lacks("version 2 of packet rings", "2.6.27"))?;
    options::switch_on(fd, Switch::VnetHeader)
        .map_err(lacks("PACKET_VNET_HDR for packet rings", "4.6"))?;
    options::switch_on(fd, Switch::Loss).map_err(lacks("PACKET_LOSS", "2.6.31"))?;
    options::switch_on(fd, Switch::IgnoreOutgoing)
        .map_err(lacks("PACKET_IGNORE_OUTGOING", "4.20"))?;
    if settings.bypass_queues {
        options::switch_on(fd, Switch::QdiscBypass)
            .map_err(lacks("PACKET_QDISC_BYPASS", "3.14"))?;
    }
    Ok(())
}

fn make_rings(
    fd: BorrowedFd<'_>,
    settings: &Settings,
    device: &Device,
) -> Result<Rings, OpenError> {
    // The peer's trains may have any length, whatever ours have.
    let longest = settings.max_train_bytes.min(LONGEST_PACKET).max(device.max_train_bytes);
    let frame_bytes = LINK_BYTES + usize::try_from(longest).unwrap_or(usize::MAX);
    let slots = |count, bytes| {
        let ring = Geometry::new(count, bytes)?;
        Some((ring, ring.request()?))
    };
    let too_many = OpenError::Settings("the rings have more slots than a packet socket can have");
    let long_beside = options::may_keep(fd, LONG_BYTES);
    if long_beside {
        options::keep_long(fd)
            .map_err(OpenError::system("have long frames kept (PACKET_COPY_THRESH)"))?;
    }
    let (count, bytes) = if long_beside {
        (settings.receive_slots, LINK_BYTES + SHORT_PACKET)
    } else {
        (settings.receive_slots.div_ceil(SHORT_FOR_LONG), frame_bytes)
    };
    let Some(((receive, for_receive), (transmit, for_transmit))) =
        slots(count, RECEIVED_AT + bytes)
            .zip(slots(settings.transmit_slots, HEADER_BYTES + vnet::BYTES + frame_bytes))
    else {
        return Err(too_many);
    };
    let bytes = receive.bytes() + transmit.bytes();
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOMEM) => OpenError::Memory { bytes },
        _ => OpenError::System { doing: "make the rings of the packet socket", error },
    };
    options::make_receive_ring(fd, &for_receive).map_err(refused)?;
    options::make_transmit_ring(fd, &for_transmit).map_err(refused)?;
    wakeup::allow_in_flight(fd, transmit.bytes());
    Ok(Rings { receive, long_beside, transmit })
}

/// linux/if_packet.h: PACKET_FANOUT_*.
fn join(fd: BorrowedFd<'_>, fanout: Fanout) -> Result<(), OpenError> {
    let how = match fanout.share {
        Share::Flow => 0,
        Share::Processor => 2,
        Share::Queue => 5,
    };
    options::join(fd, fanout.group, how | IGNORE_OUTGOING).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EINVAL) => OpenError::Settings(
                "the fanout group is of another device or shares in another way: give it another \
                 number",
            ),
            _ => OpenError::System { doing: "join the fanout group", error },
        }
    })
}
