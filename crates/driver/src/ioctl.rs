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
/// linux/ethtool.h: the driver of a device, its number of queues, how long a set of names is, the names, its features.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GFEATURES: u32 = 0x3a;
/// The set of the features' names (ETH_SS_FEATURES).
const FEATURES: u32 = 4;
/// Octets of a name (ETH_GSTRING_LEN).
const NAME_BYTES: usize = 32;
/// Features that there is room for here: Linux 6.18 has 63.
const MOST_FEATURES: usize = 256;
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

/// `struct ethtool_sset_info`, about one set.
#[repr(C)]
struct SetInfo {
    command: u32,
    reserved: u32,
    sets: u64,
    length: u32,
}

/// `struct ethtool_gstrings`.
#[repr(C)]
struct Names {
    command: u32,
    set: u32,
    length: u32,
    names: [[u8; NAME_BYTES]; MOST_FEATURES],
}

/// `struct ethtool_gfeatures`.
#[repr(C)]
struct Features {
    command: u32,
    /// Number of words that there is room for.
    size: u32,
    words: [FeatureWord; MOST_FEATURES / 32],
}

/// `struct ethtool_get_features_block`: of 32 features.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FeatureWord {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
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
// SAFETY: 16 octets in the kernel and a word for each set that is asked for, which is one, for ETHTOOL_GSSET_INFO, the
// only command that is put into it.
unsafe impl Command for SetInfo {}
// SAFETY: three words in the kernel, and the names of the features, for ETHTOOL_GSTRINGS, the only command and set that
// are put into it. `offloads` makes sure first that the names have room; the kernel always has the same number.
unsafe impl Command for Names {}
// SAFETY: two words in the kernel, and no more blocks than the second says, for ETHTOOL_GFEATURES, the only command
// that is put into it. `offloads` says how many there are here.
unsafe impl Command for Features {}
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

/// What a holder asks for of a TUN or TAP device, and the features by which the device then has it (set_offload of
/// drivers/net/tun.c). The last two are since Linux 6.17 (linux/if_tun.h), and libc does not have them yet.
const BY_FEATURE: [(&str, libc::c_uint); 7] = [
    ("tx-checksum-ip-generic", libc::TUN_F_CSUM),
    ("tx-tcp-segmentation", libc::TUN_F_TSO4),
    ("tx-tcp6-segmentation", libc::TUN_F_TSO6),
    ("tx-tcp-ecn-segmentation", libc::TUN_F_TSO_ECN),
    ("tx-udp-segmentation", libc::TUN_F_USO4 | libc::TUN_F_USO6),
    ("tx-udp_tnl-segmentation", 0x80),
    ("tx-udp_tnl-csum-segmentation", 0x100),
];

/// Returns the offloads of a TUN or TAP device that [`set_offloads`] has set, by whichever holder. There is no request
/// for them, but the features of the device follow from them. Their numbers are the kernel's own affair, their names
/// are not.
pub(crate) fn offloads(fd: impl AsFd, device: &str) -> io::Result<libc::c_uint> {
    let mut info =
        SetInfo { command: ETHTOOL_GSSET_INFO, reserved: 0, sets: 1 << FEATURES, length: 0 };
    ethtool(&fd, device, &mut info)?;
    if info.sets != 1 << FEATURES || info.length as usize > MOST_FEATURES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut names = Box::new(Names {
        command: ETHTOOL_GSTRINGS,
        set: FEATURES,
        length: info.length,
        names: [[0; NAME_BYTES]; MOST_FEATURES],
    });
    ethtool(&fd, device, names.as_mut())?;
    let words = [FeatureWord::default(); MOST_FEATURES / 32];
    let mut features = Features { command: ETHTOOL_GFEATURES, size: words.len() as u32, words };
    ethtool(&fd, device, &mut features)?;
    let is_active = |at: usize| features.words[at / 32].active >> (at % 32) & 1 != 0;
    let active = (0..info.length as usize).filter(|at| is_active(*at)).map(|at| &names.names[at]);
    let offload = |name: &[u8; NAME_BYTES]| {
        let name = name.split(|octet| *octet == 0).next()?;
        BY_FEATURE.iter().find(|(feature, _)| feature.as_bytes() == name).map(|found| found.1)
    };
    Ok(active.filter_map(offload).fold(0, |all, offload| all | offload))
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

/// Returns the length of the header before each frame (IFF_VNET_HDR), in octets.
pub(crate) fn header_bytes(tun: impl AsFd) -> io::Result<libc::c_int> {
    let mut bytes: libc::c_int = 0;
    let (fd, to) = (tun.as_fd().as_raw_fd(), &raw mut bytes);
    // SAFETY: TUNGETVNETHDRSZ writes an int, which outlives the call.
    let done = unsafe { libc::ioctl(fd, libc::TUNGETVNETHDRSZ as _, to) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes) }
}

/// Sets the length of the header before each frame, in octets.
pub(crate) fn set_header_bytes(tun: impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    let (fd, from) = (tun.as_fd().as_raw_fd(), &raw const bytes);
    // SAFETY: TUNSETVNETHDRSZ reads an int, which outlives the call.
    let done = unsafe { libc::ioctl(fd, libc::TUNSETVNETHDRSZ as _, from) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
