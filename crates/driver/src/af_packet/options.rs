//! Options of packet sockets (packet(7), linux/if_packet.h).
//!
//! One of the files of this crate with `unsafe`: no library that is used here has these options,
//! nor a way to construct the address that such a socket is bound to.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::sys::socket::{setsockopt, sockopt};

const PACKET_ADD_MEMBERSHIP: c_int = 1;
const PACKET_RX_RING: c_int = 5;
const PACKET_STATISTICS: c_int = 6;
const PACKET_COPY_THRESH: c_int = 7;
const PACKET_VERSION: c_int = 10;
const PACKET_TX_RING: c_int = 13;
const PACKET_LOSS: c_int = 14;
const PACKET_VNET_HDR: c_int = 15;
const PACKET_FANOUT: c_int = 18;
const PACKET_QDISC_BYPASS: c_int = 20;
const PACKET_FANOUT_DATA: c_int = 22;
const PACKET_IGNORE_OUTGOING: c_int = 23;

const TPACKET_V2: c_int = 1;
const PACKET_MR_PROMISC: libc::c_ushort = 1;

/// A switch of the socket.
#[derive(Debug, Clone, Copy)]
pub(super) enum Switch {
    /// `struct virtio_net_hdr` before each frame, in both directions.
    VnetHeader,
    /// A frame that the kernel cannot parse is skipped instead of stopping the ring.
    Loss,
    /// Frames go to the driver without a queueing discipline.
    QdiscBypass,
    /// Frames that this host sends are not received.
    IgnoreOutgoing,
}

/// `struct tpacket_req`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RingRequest {
    pub(super) block_bytes: c_uint,
    pub(super) blocks: c_uint,
    pub(super) slot_bytes: c_uint,
    pub(super) slots: c_uint,
}

/// A type that is plain data for the kernel to read or fill in.
///
/// # Safety
///
/// It must have no padding, and any bits must be a value of it.
unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for c_int {}
// SAFETY: four numbers of the same size, in the order of C.
unsafe impl Plain for RingRequest {}
// SAFETY: numbers of the same size.
unsafe impl Plain for [u32; 2] {}
// SAFETY: 4 + 2 + 2 + 8 octets, aligned to 4: no padding.
unsafe impl Plain for libc::packet_mreq {}

fn set<T: Plain>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` octets of `value`, which is that long and initialised.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), bytes)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn use_version_2(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V2)
}

pub(super) fn switch_on(fd: BorrowedFd<'_>, switch: Switch) -> io::Result<()> {
    let option = match switch {
        Switch::VnetHeader => PACKET_VNET_HDR,
        Switch::Loss => PACKET_LOSS,
        Switch::QdiscBypass => PACKET_QDISC_BYPASS,
        Switch::IgnoreOutgoing => PACKET_IGNORE_OUTGOING,
    };
    set(fd, libc::SOL_PACKET, option, &1)
}

pub(super) fn make_receive_ring(fd: BorrowedFd<'_>, ring: &RingRequest) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, PACKET_RX_RING, ring)
}

pub(super) fn make_transmit_ring(fd: BorrowedFd<'_>, ring: &RingRequest) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, PACKET_TX_RING, ring)
}

/// Whether this much kernel memory may wait for recv(2): it takes CAP_NET_ADMIN, as hosts seldom allow everybody enough
/// (net.core.rmem_max).
pub(super) fn may_keep(fd: BorrowedFd<'_>, bytes: usize) -> bool {
    // The kernel doubles the value that it is given.
    setsockopt(&fd, sockopt::RcvBufForce, &(bytes / 2)).is_ok()
}

/// Has frames that are longer than a slot queued beside the ring, whole, for recv(2).
pub(super) fn keep_long(fd: BorrowedFd<'_>) -> io::Result<()> {
    // The kernel only tests whether it is zero.
    set(fd, libc::SOL_PACKET, PACKET_COPY_THRESH, &1)
}

/// Joins a fanout group, whose sockets share the received frames.
pub(super) fn join(fd: BorrowedFd<'_>, group: u16, how: u16) -> io::Result<()> {
    // The group is in the lower half on every machine: the order of the two members of struct fanout_args
    // follows the byte order.
    let value = c_int::from_ne_bytes((u32::from(how) << 16 | u32::from(group)).to_ne_bytes());
    set(fd, libc::SOL_PACKET, PACKET_FANOUT, &value)
}

/// Joins a group of at most `most` sockets (struct fanout_args), where 256 is the default. Since Linux 5.10.
pub(super) fn join_of(fd: BorrowedFd<'_>, group: u16, how: u16, most: u32) -> io::Result<()> {
    let value = [u32::from(how) << 16 | u32::from(group), most];
    set(fd, libc::SOL_PACKET, PACKET_FANOUT, &value)
}

/// Returns the number of the group that this socket is in.
pub(super) fn group(fd: BorrowedFd<'_>) -> io::Result<u16> {
    let mut value: c_int = 0;
    get(fd, PACKET_FANOUT, &mut value)?;
    // The upper half says how it shares.
    Ok((value & 0xffff) as u16)
}

/// Sets the eBPF program (a socket filter) that chooses which socket of the group gets a frame.
pub(super) fn choose_by(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, PACKET_FANOUT_DATA, &program.as_raw_fd())
}

/// Locks the filter of this socket, and the choosing program of its group, against changes through it.
pub(super) fn lock_filter(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1)
}

/// Puts the device into promiscuous mode for as long as the socket lives.
pub(super) fn be_promiscuous(fd: BorrowedFd<'_>, index: i32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: PACKET_MR_PROMISC,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)
}

/// Attaches an eBPF socket filter, which decides what is received.
pub(super) fn attach_filter(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_fd().as_raw_fd())
}

/// Binds the socket to every protocol of a device, which starts reception.
pub(super) fn bind(fd: BorrowedFd<'_>, index: i32) -> io::Result<()> {
    // SAFETY: plain data, for which all zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` octets of `address`, which is that long and initialised.
    let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the frames that came, and those of them for which no slot was free, since the last call.
pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<[u32; 2]> {
    let mut counts = [0_u32; 2];
    get(fd, PACKET_STATISTICS, &mut counts)?;
    Ok(counts)
}

fn get<T: Plain>(fd: BorrowedFd<'_>, option: c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` octets to `value`, which is that long, and of which any bits are a value.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw mut *value).cast(),
            &raw mut bytes,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
