//! The kernel's device below a DPDK device, or at its other end: some have one.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use uncork_packet::Instant;

use crate::mtu::Mtu;
use crate::{OpenError, ioctl};

/// How often the device is looked at, at most.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Drivers of devices whose frames come from programs and guests of this host, with checksums that were left to a device
/// and in trains.
const CONCEAL: [&str; 4] = ["veth", "tun", "vif", "virtio_net"];

/// A device of the kernel's, in the network namespace in which it was first looked at.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) index: i32,
    pub(super) name: String,
    /// A socket for ioctl(2); any will do.
    line: OwnedFd,
    mtu: Mtu,
    looked: Instant,
}

fn line() -> Result<OwnedFd, OpenError> {
    socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|error| OpenError::system("open a socket")(error.into()))
}

/// Returns the MTU of a device that a packet socket is about to be opened on, if there is one.
pub(super) fn mtu_of(device: &str) -> Option<u16> {
    if_nametoindex(device).ok()?;
    let mtu = ioctl::mtu(line().ok()?, device).ok()?;
    Some(u16::try_from(mtu).unwrap_or(u16::MAX))
}

impl Kernel {
    /// Looks up the device. Packets are at most `most` octets long, whatever its MTU is.
    pub(super) fn new(index: i32, most: u16) -> Result<Self, OpenError> {
        let line = line()?;
        let asking = "look at the kernel's device";
        let name = ioctl::name(&line, index).map_err(OpenError::system(asking))?;
        let mtu = ioctl::mtu(&line, &name).map_err(OpenError::system(asking))?;
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).min(most);
        Ok(Self { index, name, line, mtu: Mtu::new(index, most, mtu), looked: Instant::ZERO })
    }

    /// Returns the MTU as of the last look.
    pub(super) fn mtu(&self) -> u16 {
        self.mtu.value()
    }

    /// Checks that the device is up, as frames only pass then.
    pub(super) fn check_up(&self) -> Result<(), OpenError> {
        let flags = ioctl::flags(&self.line, &self.name);
        if flags.map_err(OpenError::system("look at the kernel's device"))? & libc::IFF_UP != 0 {
            return Ok(());
        }
        Err(OpenError::Down(self.name.clone()))
    }

    /// Returns what should be set on a device whose frames are read as the kernel has them, if anything.
    pub(super) fn advice(&self) -> Option<String> {
        let device = &self.name;
        let driver = ioctl::driver(&self.line, device).unwrap_or_default();
        if CONCEAL.contains(&driver.as_str()) {
            return Some(format!(
                "DPDK does not tell frames without a checksum, nor trains, from others, and {device} ({driver}) may \
                 bring both: at its other end, ethtool -K DEVICE tx off"
            ));
        }
        ioctl::joins_frames(&self.line, device).unwrap_or(false).then(|| {
            format!("frames that {device} has joined are cut by DPDK: ethtool -K {device} gro off lro off")
        })
    }

    /// Looks at the device now and then; returns its MTU if that has changed.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub(super) fn look_if_due(&mut self, now: Instant) -> io::Result<Option<u16>> {
        if now.since(self.looked) < LOOK_AFTER {
            return Ok(None);
        }
        self.looked = now;
        if ioctl::name(&self.line, self.index).is_err() {
            let text = format!("the network device {} is gone", self.name);
            return Err(io::Error::new(ErrorKind::NotConnected, text));
        }
        Ok(self.mtu.look(&self.line))
    }
}
