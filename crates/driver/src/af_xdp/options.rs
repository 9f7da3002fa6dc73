//! Options of AF_XDP sockets (linux/if_xdp.h, Documentation/networking/af_xdp.rst).
//!
//! One of the files of this crate with `unsafe`: no library that is used here has these options, nor a way
//! to construct the address that such a socket is bound to.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most frames that one call sends; settable since Linux 6.18, 32 before.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
// asm-generic/socket.h.
const SO_BUSY_POLL: c_int = 46;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;

/// One of the four rings of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    /// Received frames.
    Receive,
    /// Frames to be sent.
    Transmit,
    /// Chunks for frames to be received.
    Fill,
    /// Chunks of frames that have left.
    Completion,
}

impl Ring {
    fn option(self) -> c_int {
        match self {
            Self::Receive => libc::XDP_RX_RING,
            Self::Transmit => libc::XDP_TX_RING,
            Self::Fill => libc::XDP_UMEM_FILL_RING,
            Self::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }
}

/// `struct xdp_umem_reg`: the memory of all frames.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Area {
    /// Its address in this process.
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) chunk_bytes: u32,
    pub(super) headroom_bytes: u32,
    pub(super) flags: u32,
    /// Length of the metadata before a frame that is sent.
    pub(super) metadata_bytes: u32,
}

/// `struct xdp_ring_offset`: offsets of a ring's parts from its beginning, in octets.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Places {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) entries: u64,
    pub(super) flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct AllPlaces {
    pub(super) receive: Places,
    pub(super) transmit: Places,
    pub(super) fill: Places,
    pub(super) completion: Places,
}

/// `struct xdp_statistics`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Counts {
    pub(super) dropped: u64,
    pub(super) invalid_to_receive: u64,
    pub(super) invalid_to_transmit: u64,
    pub(super) ring_full: u64,
    pub(super) fill_empty: u64,
    pub(super) transmit_empty: u64,
}

/// A type that is plain data for the kernel to read or fill in.
///
/// # Safety
///
/// It must have no padding, and any bits must be a value of it.
unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for c_int {}
// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: two numbers of 8 octets and four of 4, in the order of C.
unsafe impl Plain for Area {}
// SAFETY: numbers of the same size.
unsafe impl Plain for AllPlaces {}
// SAFETY: numbers of the same size.
unsafe impl Plain for Counts {}

fn set<T: Plain>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` octets of `value`, which is that long and initialised.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), bytes)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option. Fields that the kernel does not fill in keep their values from `value`.
fn get<T: Plain>(fd: BorrowedFd<'_>, option: c_int, mut value: T) -> io::Result<T> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` octets to `value`, which is that long.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw mut value).cast(),
            &raw mut bytes,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // An older kernel returns a shorter structure of another form.
    if usize::try_from(bytes).is_ok_and(|bytes| bytes < size_of::<T>()) {
        return Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT));
    }
    Ok(value)
}

pub(super) fn register(fd: BorrowedFd<'_>, area: &Area) -> io::Result<()> {
    set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, area)
}

/// Makes a ring of this many entries, which must be a power of two.
pub(super) fn make_ring(fd: BorrowedFd<'_>, ring: Ring, entries: u32) -> io::Result<()> {
    set(fd, libc::SOL_XDP, ring.option(), &entries)
}

pub(super) fn places(fd: BorrowedFd<'_>) -> io::Result<AllPlaces> {
    get(fd, libc::XDP_MMAP_OFFSETS, AllPlaces::default())
}

pub(super) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(get(fd, libc::XDP_OPTIONS, 0_u32)? & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

pub(super) fn counts(fd: BorrowedFd<'_>) -> io::Result<Counts> {
    get(fd, libc::XDP_STATISTICS, Counts::default())
}

/// Raises the number of frames that one call sends where the kernel copies them.
pub(super) fn send_at_once(fd: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
    set(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &frames)
}

/// Has calls for frames run the device's receive processing, instead of its interrupts: for at most
/// this many microseconds and this many frames.
pub(super) fn poll_busily(fd: BorrowedFd<'_>, micros: u32, frames: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1)?;
    set(fd, libc::SOL_SOCKET, SO_BUSY_POLL, &micros)?;
    set(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &frames)
}

/// Binds the socket to a queue of a device, after which it receives what is redirected to it.
pub(super) fn bind(fd: BorrowedFd<'_>, index: i32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index.unsigned_abs(),
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` octets of `address`, which is that long and initialised.
    let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens an AF_XDP socket, for which nix has no name.
pub(super) fn socket() -> io::Result<std::os::fd::OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: three numbers.
    let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created for us, and nobody else knows it.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}
