//! A TAP or TUN device in a network namespace: the far end of a cable that this process holds.
//!
//! One of two files of this crate with `unsafe`: a TAP can only be created by ioctl(2).
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Octets of `struct virtio_net_hdr`, which comes before each frame (`IFF_VNET_HDR`).
pub(super) const VNET_HEADER_BYTES: usize = 10;

/// Offloads that the kernel may leave to us in the frames that it delivers (linux/if_tun.h).
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;

/// What the frames of a device are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet frames (a TAP).
    Ethernet,
    /// Raw IP packets (a TUN).
    Ip,
}

/// Creates a TAP or TUN device called `name` in the namespace of the calling thread.
///
/// With `segmentation_offload` the kernel delivers segment trains of up to 64 KiB, without it one
/// frame for each segment.
///
/// # Errors
/// The system's error, most often `EPERM`.
pub(super) fn open(name: &str, layer: Layer, segmentation_offload: bool) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: an ifreq is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    let kind = if layer == Layer::Ip { libc::IFF_TUN } else { libc::IFF_TAP };
    #[allow(clippy::cast_possible_truncation)] // they fit: the field is what they are made for
    {
        request.ifr_ifru.ifru_flags =
            (kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    }
    // SAFETY: TUNSETIFF reads and writes an ifreq, which `request` is, and which outlives the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let offload = if segmentation_offload { TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 } else { 0 };
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    if unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offload))
    } < 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
