//! A TAP or TUN device: frames that the kernel sends are received here, and the other way round.
//!
//! Frames carry `struct virtio_net_hdr`, so neither side fills in checksums that never are on a wire,
//! and trains cross whole. Each frame takes a system call: the device offers no other way. A
//! frame has left when write(2) has returned, as the kernel has processed it by then.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use uncork_packet::{Capabilities, Completion, Medium, Received, Transmit};

use crate::{Driver, Offer, OpenError, ioctl, vnet};

/// Longest IP packet, in octets.
const LONGEST_PACKET: u32 = 65_535;
/// The length of the header before each frame, as ioctl(2) takes it.
const HEADER_BYTES: libc::c_int = vnet::BYTES as libc::c_int;
/// Room for the header before IP.
const LINK_BYTES: usize = 14;

/// The device, and its configuration. A device that existed before gets back at the end what it had (not if this
/// process is killed, after which nobody can).
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the device; created if there is none, and then removed when the port is dropped. A `%d` in it
    /// becomes a number.
    pub device: String,
    /// Ethernet for a TAP, IP for a TUN.
    pub medium: Medium,
    /// The MTU to set. Without, it stays as it is; a device that is created has 1500.
    pub mtu: Option<u16>,
    /// Whether checksums are left to the other side and trains cross whole, both ways. Without, each
    /// segment is a frame of its own, as on a wire.
    pub offload: bool,
}

/// The program's end of the device.
#[derive(Debug)]
pub struct Port {
    end: End,
    capabilities: Capabilities,
    incoming: Box<[u8]>,
    outgoing: Box<[u8]>,
    /// A frame that the kernel has not taken yet.
    waiting: Option<Transmit>,
    completed: Vec<Completion>,
}

/// The file that is the program's end, and what a device that existed before gets back on drop, while it is still
/// ours.
#[derive(Debug)]
struct End {
    file: File,
    /// The socket for requests about the device by its name.
    line: OwnedFd,
    device: String,
    before: Before,
}

/// What was changed of a device that existed before. All of it is the device's and survives the file.
#[derive(Debug, Default)]
struct Before {
    /// The length of the header before frames, in octets. Monitors of virtual machines and vhost set 12, and one that
    /// finds another than it has set misreads all frames.
    header_bytes: Option<libc::c_int>,
    /// The offloads that the holder before had asked for. The next one may ask for none, as they are of use only with
    /// IFF_VNET_HDR, and would read frames whose checksums nobody has filled in.
    offloads: Option<libc::c_uint>,
    /// The MTU, and the one that was set instead.
    mtu: Option<(u32, u32)>,
}

impl Drop for End {
    fn drop(&mut self) {
        // Errors cannot be reported here, and the device may be gone.
        if let Some((before, now)) = self.before.mtu
            // Unless somebody else has changed it meanwhile.
            && ioctl::mtu(&self.line, &self.device).is_ok_and(|mtu| mtu == now)
        {
            let _ = ioctl::set_mtu(&self.line, &self.device, before);
        }
        if let Some(before) = self.before.offloads {
            // What ethtool(8) has left of them may be no set that the kernel takes from a holder (of tunnels, without
            // segmentation). None is what a new device has.
            let _ = ioctl::set_offloads(&self.file, before)
                .or_else(|_| ioctl::set_offloads(&self.file, 0));
        }
        if let Some(before) = self.before.header_bytes {
            let _ = ioctl::set_header_bytes(&self.file, before);
        }
    }
}

impl End {
    /// Creates the device, or takes an existing one.
    fn open(settings: &Settings) -> Result<(Self, bool), OpenError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => OpenError::Feature {
                    feature: "/dev/net/tun",
                    since: "2.4",
                    option: "CONFIG_TUN",
                },
                _ if error.raw_os_error() == Some(libc::EACCES) => OpenError::Privilege {
                    doing: "opening /dev/net/tun, which is not for this user,",
                    capability: "CAP_DAC_OVERRIDE",
                },
                _ => OpenError::System { doing: "open /dev/net/tun", error },
            })?;
        let line = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|error| OpenError::system("open a socket")(error.into()))?;
        let was_there = ioctl::index(&line, &settings.device).is_ok();
        let device = attach(&file, settings, was_there)?;
        Ok((Self { file, line, device, before: Before::default() }, was_there))
    }

    /// Sets the length of the header before frames. A new device has ours; in one that was there it is whatever some
    /// holder has set.
    fn set_header(&mut self) -> Result<(), OpenError> {
        let before = ioctl::header_bytes(&self.file).map_err(OpenError::system(
            "ask for the length of the header before frames (TUNGETVNETHDRSZ)",
        ))?;
        if before != HEADER_BYTES {
            self.before.header_bytes = Some(before);
            ioctl::set_header_bytes(&self.file, HEADER_BYTES).map_err(OpenError::system(
                "set the length of the header before frames (TUNSETVNETHDRSZ)",
            ))?;
        }
        Ok(())
    }

    /// Sets the offloads ([`ioctl::OFFLOADS`], or none).
    fn set_offloads(&mut self, offloads: libc::c_uint, was_there: bool) -> Result<(), OpenError> {
        if was_there {
            let before = ioctl::offloads(&self.line, &self.device)
                .map_err(OpenError::system("ask for the offloads of the device"))?;
            self.before.offloads = (before != offloads).then_some(before);
        }
        ioctl::set_offloads(&self.file, offloads)
            .map_err(OpenError::system("set the offloads of the device (TUNSETOFFLOAD)"))
    }

    /// Sets the MTU, if one is wanted. Returns what it is then.
    fn set_mtu(&mut self, wanted: Option<u16>, was_there: bool) -> Result<u32, OpenError> {
        let before = ioctl::mtu(&self.line, &self.device)
            .map_err(OpenError::system("ask for the MTU of the device"))?;
        let mtu = wanted.map_or(before, u32::from);
        if mtu != before {
            ioctl::set_mtu(&self.line, &self.device, mtu)
                .map_err(OpenError::system("set the MTU of the device"))?;
            self.before.mtu = was_there.then_some((before, mtu));
        }
        Ok(mtu)
    }
}

impl Port {
    /// Creates the device, or takes an existing one, in the network namespace of this thread. The
    /// caller has to give it addresses and set it up.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        if !is_name(&settings.device) {
            return Err(OpenError::Name(settings.device.clone()));
        }
        let (mut end, was_there) = End::open(settings)?;
        end.set_header()?;
        end.set_offloads(if settings.offload { ioctl::OFFLOADS } else { 0 }, was_there)?;
        let mtu = end.set_mtu(settings.mtu, was_there)?;
        Ok(Self::new(end, u16::try_from(mtu).unwrap_or(u16::MAX), settings))
    }

    fn new(end: End, mtu: u16, settings: &Settings) -> Self {
        let mut capabilities = Capabilities::plain(settings.medium, mtu);
        if settings.offload {
            capabilities.max_train_bytes = LONGEST_PACKET;
            capabilities.completes_checksums = true;
        }
        let room = vnet::BYTES + LINK_BYTES + 65_536;
        Self {
            end,
            capabilities,
            incoming: vec![0; room].into_boxed_slice(),
            outgoing: vec![0; room].into_boxed_slice(),
            waiting: None,
            completed: Vec::with_capacity(64),
        }
    }

    /// Name of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.end.device
    }

    /// Writes the frame in `outgoing`, or keeps it for later.
    fn send(&mut self, transmit: Transmit) -> io::Result<()> {
        let bytes = vnet::BYTES + usize::try_from(transmit.frame_bytes).unwrap_or(usize::MAX);
        let frame = self.outgoing.get(..bytes).ok_or(ErrorKind::InvalidInput)?;
        match self.end.file.write(frame) {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {
                    self.waiting = Some(transmit);
                    return Ok(());
                }
                // The device is down, or refuses this frame: a wire would lose it, too.
                Some(libc::EIO | libc::EINVAL) => {}
                _ => return Err(error),
            },
        }
        self.waiting = None;
        if let Some(owner) = transmit.owner {
            crate::completed(&mut self.completed, owner, transmit.frame_bytes);
        }
        Ok(())
    }
}

/// Makes the file the program's end of the device. Returns the device's name.
fn attach(file: &File, settings: &Settings, was_there: bool) -> Result<String, OpenError> {
    let (kind, wanted) = match settings.medium {
        Medium::Ethernet => (libc::IFF_TAP, "TAP"),
        Medium::Ip => (libc::IFF_TUN, "TUN"),
    };
    let flags = libc::c_short::try_from(kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR)
        .map_err(|_| OpenError::Settings("the flags of a TUN device do not fit its request"))?;
    let name = || settings.device.clone();
    ioctl::attach(file, &settings.device, flags).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::Privilege {
            doing: "making a TAP or TUN device",
            capability: "CAP_NET_ADMIN",
        },
        Some(libc::EBUSY) => OpenError::Busy(name()),
        // The kernel returns only this for a device of another kind.
        Some(libc::EINVAL) if was_there => OpenError::Other { device: name(), wanted },
        _ => OpenError::System { doing: "make the TAP or TUN device", error },
    })
}

/// Whether the kernel accepts a name (`dev_valid_name`); for others it would say that there is no such device.
fn is_name(name: &str) -> bool {
    let is_plain =
        |octet: u8| !octet.is_ascii_whitespace() && octet != 0x0b && !b":/".contains(&octet);
    (1..libc::IFNAMSIZ).contains(&name.len())
        && ![".", ".."].contains(&name)
        && name.bytes().all(is_plain)
}

impl Driver for Port {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        for received in 0..budget {
            let bytes = match self.end.file.read(&mut self.incoming) {
                Ok(bytes) => bytes,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR | libc::EIO) => return Ok(received),
                    _ => return Err(error),
                },
            };
            let Some((header, frame)) =
                self.incoming.get(..bytes).and_then(<[u8]>::split_first_chunk)
            else {
                continue;
            };
            let vnet::Arrival { trust, segment_bytes } = vnet::read(header);
            each(Received { bytes: frame, trust, segment_bytes });
        }
        Ok(budget)
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.completed.drain(..).for_each(each);
        Ok(())
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        if let Some(transmit) = self.waiting {
            self.send(transmit)?;
            if self.waiting.is_some() {
                return Ok(Offer::Full);
            }
        }
        let (header, slot) = self.outgoing.split_at_mut(vnet::BYTES);
        let Some(transmit) = fill(slot) else { return Ok(Offer::Declined) };
        header.copy_from_slice(&vnet::write(&transmit, vnet::linear_bytes(&transmit, 0)));
        self.send(transmit)?;
        Ok(Offer::Taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.waiting {
            Some(transmit) => self.send(transmit),
            None => Ok(()),
        }
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.end.file.as_fd())
    }
}
