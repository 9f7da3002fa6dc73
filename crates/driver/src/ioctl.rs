//! ioctl(2) requests about a network device by name (netdevice(7), linux/if_tun.h,
//! linux/ethtool.h).
//!
//! One of the files of this crate with `unsafe`: no library that is used here has these calls of
//! ioctl(2).
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Octets of an Ethernet address.
pub(crate) const MAC_BYTES: usize = 6;

/// Offloads that the kernel's side of a TUN or TAP device may leave to the program that holds the other end.
pub(crate) const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// A request about one device.
#[derive(Clone, Copy)]
struct Request(libc::ifreq);

impl Request {
    fn about(device: &str) -> io::Result<Self> {
        // SAFETY: an ifreq is plain data, for which all zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if device.is_empty() || device.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
            *to = from as c_char;
        }
        Ok(Self(request))
    }

    /// Returns the device's name as the kernel has filled it in.
    fn device(&self) -> String {
        let name = self.0.ifr_name.iter().take_while(|octet| **octet != 0);
        name.map(|octet| char::from(*octet as u8)).collect()
    }

    /// Makes the request `number`, which must be one that takes an ifreq.
    fn make(&mut self, fd: impl AsFd, number: u64) -> io::Result<()> {
        // SAFETY: all request numbers in this file read and write an ifreq, which outlives the call, and
        // nothing else except what `ethtool` makes it point to.
        let done = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number as _, &raw mut self.0) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Returns the index of the device.
pub(crate) fn index(fd: impl AsFd, device: &str) -> io::Result<i32> {
    let mut request = Request::about(device)?;
    request.make(fd, libc::SIOCGIFINDEX)?;
    // SAFETY: the kernel has filled in this member of the union; any bits are a number.
    Ok(unsafe { request.0.ifr_ifru.ifru_ifindex })
}

/// Returns the name of the device with this index.
pub(crate) fn name(fd: impl AsFd, index: i32) -> io::Result<String> {
    let mut request = Request::about("?")?;
    request.0.ifr_ifru.ifru_ifindex = index;
    request.make(fd, libc::SIOCGIFNAME)?;
    Ok(request.device())
}

/// Returns the MTU of the device, in octets.
pub(crate) fn mtu(fd: impl AsFd, device: &str) -> io::Result<u32> {
    let mut request = Request::about(device)?;
    request.make(fd, libc::SIOCGIFMTU)?;
    // SAFETY: as in `index`.
    Ok(u32::try_from(unsafe { request.0.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Returns the MTU of the device with this index, whatever its current name, in octets.
pub(crate) fn mtu_by_index(fd: impl AsFd, index: i32) -> io::Result<u32> {
    let device = name(fd.as_fd(), index)?;
    mtu(fd, &device)
}

/// Sets the MTU of the device, in octets.
pub(crate) fn set_mtu(fd: impl AsFd, device: &str, mtu: u32) -> io::Result<()> {
    let mut request = Request::about(device)?;
    request.0.ifr_ifru.ifru_mtu = mtu.cast_signed();
    request.make(fd, libc::SIOCSIFMTU)
}

/// Returns the link type of the device (ARPHRD_*, linux/if_arp.h) and its address.
pub(crate) fn address(fd: impl AsFd, device: &str) -> io::Result<(u16, [u8; MAC_BYTES])> {
    let mut request = Request::about(device)?;
    request.make(fd, libc::SIOCGIFHWADDR)?;
    // SAFETY: as in `index`; a sockaddr is plain data.
    let address = unsafe { request.0.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; MAC_BYTES];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    Ok((address.sa_family, mac))
}

/// Returns the flags of the device (IFF_*).
pub(crate) fn flags(fd: impl AsFd, device: &str) -> io::Result<i32> {
    let mut request = Request::about(device)?;
    request.make(fd, libc::SIOCGIFFLAGS)?;
    // SAFETY: as in `index`.
    Ok(unsafe { request.0.ifr_ifru.ifru_flags }.into())
}

/// linux/sockios.h.
const SIOCETHTOOL: u64 = 0x8946;
/// linux/ethtool.h: the driver of a device, and its number of queues.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
#[cfg(feature = "dpdk")]
const ETHTOOL_GGRO: u32 = 0x2b;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    /// Versions, bus addresses, numbers of statistics.
    rest: [u32; 40],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[cfg(feature = "dpdk")]
#[repr(C)]
struct Value {
    command: u32,
    value: u32,
}

/// A structure that a command of ethtool takes.
///
/// # Safety
///
/// It must be at least as long as what the kernel reads and writes for the command in its first word, and
/// any bits must be a value of it.
unsafe trait Command {}
// SAFETY: 196 octets in the kernel, for ETHTOOL_GDRVINFO, the only command that is put into it.
unsafe impl Command for DriverInfo {}
// SAFETY: nine words, as in the kernel, for ETHTOOL_GCHANNELS, the only command that is put into it.
unsafe impl Command for Channels {}
// SAFETY: two words, as in the kernel, for ETHTOOL_GGRO, the only command that is put into it.
#[cfg(feature = "dpdk")]
unsafe impl Command for Value {}

/// Makes an ethtool request (SIOCETHTOOL), which fills in `command`.
fn ethtool<T: Command>(fd: impl AsFd, device: &str, command: &mut T) -> io::Result<()> {
    let mut request = Request::about(device)?;
    request.0.ifr_ifru.ifru_data = (&raw mut *command).cast();
    request.make(fd, SIOCETHTOOL)
}

/// Returns the name of the device's driver ("veth", "virtio_net").
pub(crate) fn driver(fd: impl AsFd, device: &str) -> io::Result<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 40] };
    ethtool(fd, device, &mut info)?;
    let name = info.driver.iter().take_while(|octet| **octet != 0);
    Ok(name.map(|octet| char::from(*octet)).collect())
}

/// Returns the number of receive queues, to each of which a socket may be bound.
pub(crate) fn queues(fd: impl AsFd, device: &str) -> io::Result<u32> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    ethtool(fd, device, &mut channels)?;
    Ok(channels.receive + channels.combined)
}

/// Whether the device joins received frames to longer ones (GRO).
#[cfg(feature = "dpdk")]
pub(crate) fn joins_frames(fd: impl AsFd, device: &str) -> io::Result<bool> {
    let mut asked = Value { command: ETHTOOL_GGRO, value: 0 };
    ethtool(fd, device, &mut asked)?;
    Ok(asked.value != 0)
}

/// Makes `tun`, an open `/dev/net/tun`, the program's end of a device, which is created if there is none
/// of this name. Returns its name, in which the kernel has replaced a `%d`.
pub(crate) fn attach(tun: impl AsFd, device: &str, flags: libc::c_short) -> io::Result<String> {
    let mut request = Request::about(device)?;
    request.0.ifr_ifru.ifru_flags = flags;
    request.make(tun, libc::TUNSETIFF as _)?;
    Ok(request.device())
}

/// Sets the offloads that the device may leave to the holder of `tun` ([`OFFLOADS`], or none).
pub(crate) fn set_offloads(tun: impl AsFd, offloads: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let done = unsafe {
        libc::ioctl(
            tun.as_fd().as_raw_fd(),
            libc::TUNSETOFFLOAD as _,
            libc::c_ulong::from(offloads),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
