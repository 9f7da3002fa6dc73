//! Opens an AF_XDP socket on a queue of a device: the half of [`Port::open`](super::Port::open) that needs
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
/// Overhead that the kernel charges for a frame beside its octets, roughly: the buffer's own structures.
const BUFFER_BYTES: usize = 1024;

/// The driver that reports what it knows of checksums to the program that redirects frames.
const TELLS: &str = "veth";
/// Drivers whose frames come from programs and guests of this host with checksums that were left to a device,
/// and that run an XDP program without reporting so (drivers/net/tun.c, tun_build_skb; xen-netfront.c,
/// xennet_poll).
const CONCEAL: [&str; 2] = ["tun", "vif"];

/// How a frame gets between the device and the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copying {
    /// Zero copy if the device's driver can, otherwise copied by the kernel.
    #[default]
    Any,
    /// Copied by the kernel, which works on every device.
    Copy,
    /// Zero copy by the device.
    ZeroCopy,
}

/// Busy polling: receive processing runs in calls for frames (SO_PREFER_BUSY_POLL, Linux 5.11), not in
/// interrupts. The device must be told to defer those (napi_defer_hard_irqs and gro_flush_timeout in its sysfs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// Longest time that one call polls.
    pub time: Duration,
    /// Most frames that one call takes.
    pub frames: u16,
}

/// The device and queue, and how to use them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the device.
    pub device: String,
    /// Number of the queue, from 0. Each needs a port of its own ([`Nature::queues`]).
    pub queue: u32,
    /// Capacity for received frames that have not been looked at, a minimum.
    pub receive_frames: usize,
    /// Capacity for frames in flight.
    pub transmit_frames: usize,
    /// How frames are copied.
    pub copying: Copying,
    /// Whether calls for frames also do the work of receiving them.
    pub busy_poll: Option<BusyPoll>,
}

impl Settings {
    /// Returns the settings for one engine on the first queue of this device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            queue: 0,
            // Bounds how late a turn may be: 25 ms of full frames at a gigabit.
            receive_frames: 2048,
            transmit_frames: 1024,
            copying: Copying::Any,
            busy_poll: None,
        }
    }
}

/// The properties of a device that decide how frames are redirected to its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Index of the device.
    pub index: i32,
    /// Number of receive queues. A queue without a socket receives nothing for us.
    pub queues: u32,
    /// Whether a word has to precede each frame that says whether its checksum is known to be good,
    /// because frames come whose checksum is not filled in (uncork-bpf, `Redirect::marks`).
    pub marks: bool,
}

impl Nature {
    /// Looks at a device of the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says why AF_XDP cannot be used on it.
    pub fn of(device: &str) -> Result<Self, OpenError> {
        // An AF_XDP socket does not answer these ioctls.
        let line = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|error| OpenError::system("open a socket")(error.into()))?;
        let index =
            ioctl::index(&line, device).map_err(|_| OpenError::NoDevice(device.to_owned()))?;
        // A device that does not report its queues has one.
        let queues = ioctl::queues(&line, device).unwrap_or(1).max(1);
        let driver = ioctl::driver(&line, device).unwrap_or_default();
        if CONCEAL.contains(&driver.as_str()) {
            return Err(OpenError::Checksums { device: device.to_owned(), driver });
        }
        Ok(Self { index, queues, marks: driver == TELLS })
    }
}

impl Handed {
    /// Opens a queue of a device, in the network namespace of this thread, for the process that is given
    /// this. Nothing is received before frames are redirected to it (uncork-bpf, `Owned::enter` and
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
        // On a kernel that does not know the option, sending takes more calls.
        let _ = options::send_at_once(fd, area.transmit_entries());
        let zero_copy = options::is_zero_copy(fd)
            .map_err(OpenError::system("ask whether frames are copied"))?;
        let description = Description {
            device,
            area,
            zero_copy,
            // A zero-copy driver does not say here whether it fills in checksums.
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

/// Creates the memory of the frames and registers it with the kernel.
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
    // Mapped only so that the kernel finds its pages.
    let area = Area::map(frames.as_fd(), bytes).map_err(refused)?;
    let registered = register(fd, &area, &geometry);
    match registered {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // The kernel does not know metadata: it came with Linux 6.8, and in this form with 6.11.
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
        // Before binding: drivers take some chunks at once.
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
