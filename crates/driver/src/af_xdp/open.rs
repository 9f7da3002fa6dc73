//! Opening a socket of AF_XDP on a queue of a device: the half of [`Port::open`](super::Port::open) that needs
//! the privilege.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::area::{self, Area};
use super::geometry::Geometry;
use super::handed::{Description, Device, Handed};
use super::locked::Locked;
use super::options::{self, Ring};
use super::rings::Fill;
use crate::{OpenError, ioctl, wakeup};

/// An Ethernet header with a VLAN tag.
const LINK_BYTES: u32 = 18;
/// Longest IP packet, in octets.
const LONGEST_PACKET: u32 = 65_535;
/// What the kernel counts of a frame beside its octets, roughly: the buffer's own structures.
const BUFFER_BYTES: usize = 1024;

/// The driver that tells the program which redirects frames what it knows of their checksums.
const TELLS: &str = "veth";
/// Drivers whose frames come from programs and guests of this host with checksums that were left to a device,
/// and that run an XDP program before they say so (drivers/net/tun.c, tun_build_skb; xen-netfront.c,
/// xennet_poll).
const CONCEAL: [&str; 2] = ["tun", "vif"];

/// Who moves a frame between the device and where we see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copying {
    /// The device if its driver can, or else the kernel.
    #[default]
    Any,
    /// The kernel, which every device can.
    Copy,
    /// The device.
    ZeroCopy,
}

/// Receiving is done by whoever asks for frames (SO_PREFER_BUSY_POLL, Linux 5.11), not by interrupts. The
/// device must be told to wait with those (napi_defer_hard_irqs and gro_flush_timeout in its sysfs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// For how long one call looks, at most.
    pub time: Duration,
    /// How many frames it takes, at most.
    pub frames: u16,
}

/// Which queue of which device, and how it is to be used.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the device.
    pub device: String,
    /// Number of the queue, from 0. Each needs a port of its own ([`Nature::queues`]).
    pub queue: u32,
    /// Frames that may have come and not been looked at, at least so many.
    pub receive_frames: usize,
    /// Frames that may be under way.
    pub transmit_frames: usize,
    /// Who copies.
    pub copying: Copying,
    /// Whether asking for frames does the work of receiving them.
    pub busy_poll: Option<BusyPoll>,
}

impl Settings {
    /// For one engine on the first queue of this device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            queue: 0,
            // What one turn may be late for: 25 ms of full frames at a gigabit.
            receive_frames: 2048,
            transmit_frames: 1024,
            copying: Copying::Any,
            busy_poll: None,
        }
    }
}

/// What of a device decides how frames are to be redirected to its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Number of the device.
    pub index: i32,
    /// Queues that receive. One that has no socket receives nothing for us.
    pub queues: u32,
    /// Whether a word has to stand right before each frame that says whether its checksum is known to be good,
    /// because frames come whose checksum is not filled in (uncork-bpf, `Redirect::marks`).
    pub marks: bool,
}

impl Nature {
    /// Looks at a device of the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says why AF_XDP is nothing for it.
    pub fn of(device: &str) -> Result<Self, OpenError> {
        // A socket of AF_XDP answers no such questions.
        let line = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|error| OpenError::system("open a socket")(error.into()))?;
        let index =
            ioctl::index(&line, device).map_err(|_| OpenError::NoDevice(device.to_owned()))?;
        // Of one that does not tell: it has one.
        let queues = ioctl::queues(&line, device).unwrap_or(1).max(1);
        let driver = ioctl::driver(&line, device).unwrap_or_default();
        if CONCEAL.contains(&driver.as_str()) {
            return Err(OpenError::Checksums { device: device.to_owned(), driver });
        }
        Ok(Self { index, queues, marks: driver == TELLS })
    }
}

impl Handed {
    /// Opens a queue of a device, in the network namespace of this thread, and leaves it for whoever is given
    /// this. Nothing comes before frames are redirected to it (uncork-bpf, `Owned::enter` and
    /// `Owned::redirect`).
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        let nature = Nature::of(&settings.device)?;
        let device = look_at(settings, nature)?;
        let socket = open_socket()?;
        let fd = socket.as_fd();
        let (frames, area) = make_area(fd, settings, device.mtu)?;
        make_rings(fd, &area)?;
        if let Some(BusyPoll { time, frames }) = settings.busy_poll {
            let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
            options::poll_busily(fd, micros, frames.into())
                .map_err(OpenError::system("make the socket poll busily (SO_PREFER_BUSY_POLL)"))?;
        }
        bind(fd, settings, device.index, &area)?;
        // What an older kernel does not know takes more calls.
        let _ = options::send_at_once(fd, area.transmit_entries());
        let zero_copy = options::is_zero_copy(fd)
            .map_err(OpenError::system("ask whether frames are copied"))?;
        let description = Description {
            device,
            area,
            zero_copy,
            // Whether a driver that copies nothing does, it does not say here.
            completes_checksums: area.metadata_bytes > 0 && !zero_copy,
            marks: nature.marks,
            polls_busily: settings.busy_poll.is_some(),
        };
        Ok(Self { socket, frames, description })
    }
}

fn look_at(settings: &Settings, nature: Nature) -> Result<Device, OpenError> {
    let name = settings.device.clone();
    if settings.queue >= nature.queues {
        let Settings { queue, .. } = *settings;
        return Err(OpenError::NoQueue { device: name, queue, queues: nature.queues });
    }
    let line = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|error| OpenError::system("open a socket")(error.into()))?;
    let asked = OpenError::system;
    let mtu = ioctl::mtu(&line, &name).map_err(asked("read the MTU of the device"))?;
    let (kind, mac) = ioctl::address(&line, &name).map_err(asked("read the device's address"))?;
    let flags = ioctl::flags(&line, &name).map_err(asked("read the flags of the device"))?;
    if flags & libc::IFF_UP == 0 {
        return Err(OpenError::Down(name));
    }
    if kind != libc::ARPHRD_ETHER {
        return Err(OpenError::Settings(
            "AF_XDP is used on devices that carry Ethernet only: use a packet socket",
        ));
    }
    let mtu = u16::try_from(mtu.min(LONGEST_PACKET)).unwrap_or(u16::MAX);
    Ok(Device { name, index: nature.index, queue: settings.queue, mac, mtu })
}

fn open_socket() -> Result<OwnedFd, OpenError> {
    options::socket().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            OpenError::Privilege { doing: "a socket of AF_XDP", capability: "CAP_NET_RAW" }
        }
        Some(libc::EAFNOSUPPORT) => {
            OpenError::Feature { feature: "AF_XDP", since: "5.10", option: "CONFIG_XDP_SOCKETS" }
        }
        _ => OpenError::System { doing: "open a socket of AF_XDP", error },
    })
}

/// Makes the memory of the frames, which the kernel takes a hold of.
fn make_area(
    fd: BorrowedFd<'_>,
    settings: &Settings,
    mtu: u16,
) -> Result<(OwnedFd, Geometry), OpenError> {
    let frame_bytes = LINK_BYTES + u32::from(mtu);
    let mut geometry =
        Geometry::new(settings.receive_frames, settings.transmit_frames, frame_bytes)
            .ok_or(OpenError::Settings("the rings have more frames than a socket can have"))?;
    let bytes = geometry.bytes();
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOMEM) => OpenError::Memory { bytes },
        Some(libc::ENOBUFS) => OpenError::Locked(Locked::now(&settings.device, bytes)),
        _ => OpenError::System { doing: "make the memory of the frames (XDP_UMEM_REG)", error },
    };
    let frames = area::create(bytes).map_err(refused)?;
    // Only for the kernel to find its pages by.
    let area = Area::map(frames.as_fd(), bytes).map_err(refused)?;
    let registered = register(fd, &area, &geometry);
    match registered {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // The kernel knows no metadata: that came with Linux 6.8, and in this form with 6.11.
            geometry.metadata_bytes = 0;
            register(fd, &area, &geometry).map_err(refused)?;
        }
        registered => registered.map_err(refused)?,
    }
    Ok((frames, geometry))
}

fn register(fd: BorrowedFd<'_>, area: &Area, geometry: &Geometry) -> io::Result<()> {
    let metadata_bytes = geometry.metadata_bytes;
    options::register(
        fd,
        &options::Area {
            at: area.address(),
            bytes: geometry.bytes() as u64,
            chunk_bytes: geometry.chunk_bytes,
            headroom_bytes: 0,
            flags: if metadata_bytes > 0 { libc::XDP_UMEM_TX_METADATA_LEN } else { 0 },
            metadata_bytes,
        },
    )
}

fn make_rings(fd: BorrowedFd<'_>, area: &Geometry) -> Result<(), OpenError> {
    let made = || {
        options::make_ring(fd, Ring::Fill, area.receive_chunks)?;
        options::make_ring(fd, Ring::Receive, area.receive_chunks)?;
        options::make_ring(fd, Ring::Transmit, area.transmit_entries())?;
        options::make_ring(fd, Ring::Completion, area.transmit_entries())?;
        // Before it is bound: drivers want some of it at once.
        Fill::fill(fd, area)
    };
    made().map_err(OpenError::system("make the rings of the socket"))?;
    let slot_bytes = usize::try_from(area.slot_bytes()).unwrap_or(usize::MAX) + BUFFER_BYTES;
    wakeup::allow_in_flight(fd, slot_bytes.saturating_mul(area.slots as usize));
    Ok(())
}

fn bind(
    fd: BorrowedFd<'_>,
    settings: &Settings,
    index: i32,
    area: &Geometry,
) -> Result<(), OpenError> {
    let copying = match settings.copying {
        Copying::Any => 0,
        Copying::Copy => libc::XDP_COPY,
        Copying::ZeroCopy => libc::XDP_ZEROCOPY,
    };
    let pieces = if area.has_pieces() { libc::XDP_USE_SG } else { 0 };
    let flags = libc::XDP_USE_NEED_WAKEUP | copying | pieces;
    let bound = options::bind(fd, index, settings.queue, flags);
    bound.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => {
            OpenError::Busy(format!("{} (its queue {})", settings.device, settings.queue))
        }
        Some(libc::EOPNOTSUPP) if settings.copying == Copying::ZeroCopy => {
            OpenError::Settings("the driver of the device cannot do without copying for AF_XDP")
        }
        Some(libc::EINVAL) if area.has_pieces() => OpenError::Feature {
            feature: "frames of several pieces (XDP_USE_SG), which the MTU of the device asks for",
            since: "6.6",
            option: "CONFIG_XDP_SOCKETS",
        },
        _ => OpenError::System { doing: "bind the socket to the queue", error },
    })
}
