//! Socket options of repair mode (linux/tcp.h) and of buffers, which no library has.
//!
//! The one file of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use libc::{c_int, c_void, socklen_t};

// linux/tcp.h, asm-generic/socket.h
const TCP_MAXSEG: c_int = 2;
const TCP_REPAIR: c_int = 19;
const TCP_REPAIR_QUEUE: c_int = 20;
const TCP_QUEUE_SEQ: c_int = 21;
const TCP_REPAIR_OPTIONS: c_int = 22;
const TCP_TIMESTAMP: c_int = 24;
const TCP_REPAIR_WINDOW: c_int = 29;
const SO_BUF_LOCK: c_int = 72;

/// The queue that subsequent options apply to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Queue {
    None = 0,
    Receive = 1,
    Send = 2,
}

/// What the two SYNs have agreed on, by the numbers of TCP's options (RFC 9293 §3.2).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Agreed {
    Segment(u16),
    /// Window scales of the peer, and of ours.
    Shifts(u8, u8),
    Sack,
    Timestamps,
}

impl Agreed {
    /// `struct tcp_repair_opt`: code, value.
    fn numbers(self) -> [u32; 2] {
        match self {
            Self::Segment(bytes) => [2, bytes.into()],
            Self::Shifts(send, receive) => [3, u32::from(send) | u32::from(receive) << 16],
            Self::Sack => [4, 0],
            Self::Timestamps => [8, 0],
        }
    }
}

/// `struct tcp_repair_window`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) snd_wl1: u32,
    pub(crate) snd_wnd: u32,
    pub(crate) max_window: u32,
    pub(crate) rcv_wnd: u32,
    pub(crate) rcv_wup: u32,
}

/// Begins or ends repair mode; at its end a probe asks the peer for its window.
pub(crate) fn set_repair(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, TCP_REPAIR, &[u32::from(on)])
}

/// Sets SO_REUSEADDR, which the end of repair mode clears (do_tcp_setsockopt), and which an accepted socket inherits from its
/// listener: without it, a TIME-WAIT would keep a restarted server from the port.
pub(crate) fn allow_reuse(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &[1])
}

pub(crate) fn set_queue(socket: BorrowedFd<'_>, queue: Queue) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, TCP_REPAIR_QUEUE, &[queue as u32])
}

/// Sets the sequence number that the chosen queue begins with.
pub(crate) fn set_sequence(socket: BorrowedFd<'_>, first: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, TCP_QUEUE_SEQ, &[first])
}

pub(crate) fn set_agreed(socket: BorrowedFd<'_>, agreed: &[Agreed]) -> io::Result<()> {
    let numbers: Vec<u32> = agreed.iter().flat_map(|one| one.numbers()).collect();
    set(socket, libc::IPPROTO_TCP, TCP_REPAIR_OPTIONS, &numbers)
}

/// Sets the largest segment that is sent, in octets; with `None`, no limit is set.
pub(crate) fn set_segment(socket: BorrowedFd<'_>, bytes: Option<u16>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, TCP_MAXSEG, &[bytes.unwrap_or(0).into()])
}

/// Sets the clock of the timestamps.
pub(crate) fn set_timestamp(socket: BorrowedFd<'_>, stamp: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, TCP_TIMESTAMP, &[stamp])
}

pub(crate) fn set_window(socket: BorrowedFd<'_>, window: Window) -> io::Result<()> {
    let Window { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = window;
    let numbers = [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup];
    set(socket, libc::IPPROTO_TCP, TCP_REPAIR_WINDOW, &numbers)
}

/// Lets the kernel choose the sizes of the buffers again (Linux 5.14).
pub(crate) fn unlock_buffers(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &[0])
}

/// Returns the kernel's state of the connection (`tcpi_state`, net/tcp_states.h).
pub(crate) fn state(socket: BorrowedFd<'_>) -> io::Result<u8> {
    let mut state = 0_u8;
    let mut bytes: socklen_t = 1;
    let start: *mut c_void = (&raw mut state).cast();
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the kernel writes at most `bytes` octets, which is one, to `start`, the address of `state`, and their
    // number to `bytes`; the descriptor is open while it is borrowed.
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, start, &raw mut bytes) };
    if failed == 0 { Ok(state) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option whose value is an array of numbers, as all of these are.
fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, numbers: &[u32]) -> io::Result<()> {
    let bytes = socklen_t::try_from(size_of_val(numbers)).map_err(io::Error::other)?;
    let start: *const c_void = numbers.as_ptr().cast();
    // SAFETY: the kernel reads `bytes` octets from `start`, which are those of `numbers`, a borrow that outlives
    // the call; the descriptor is open while it is borrowed.
    let failed = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, start, bytes) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
