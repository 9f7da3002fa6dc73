//! Calls of the shim over DPDK (`shim.h`). The unsafety stays in this file: frames are lent with a borrow of the
//! port that owns them.
//!
//! One of the files of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uncork_packet::{Received, Trust};

/// `struct uncork_dpdk_found`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct RawFound {
    mac: [u8; 6],
    mtu: u16,
    kernel_index: u32,
    completes_checksums: u8,
    cuts_trains: u8,
    verifies_checksums: u8,
    driver: [u8; 33],
}

/// `struct uncork_dpdk_wanted`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct RawWanted {
    mtu: u16,
    receive_bytes: u16,
    transmit_bytes: u16,
    receive_frames: u16,
    transmit_frames: u16,
    completes_checksums: u8,
    cuts_trains: u8,
    verifies_checksums: u8,
}

/// `struct uncork_dpdk_frame`.
#[repr(C)]
struct RawFrame {
    octets: *const u8,
    bytes: u32,
    segment_bytes: u16,
    good: u8,
}

/// `struct uncork_dpdk_leaving`.
#[repr(C)]
struct RawLeaving {
    bytes: u32,
    transport_at: u16,
    is_tcp: u8,
    is_ipv6: u8,
    segment_bytes: u16,
    tcp_bytes: u8,
}

/// `struct uncork_dpdk_counts`, which is also what is reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) missed: u64,
    pub(super) receive_errors: u64,
    pub(super) sent: u64,
    pub(super) send_errors: u64,
    pub(super) too_long: u64,
    pub(super) given_up: u64,
}

/// `struct uncork_dpdk_port`.
#[repr(C)]
struct RawPort {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn uncork_dpdk_start(count: c_int, arguments: *const *const c_char) -> c_int;
    fn uncork_dpdk_said(text: *mut c_char, room: usize);
    fn uncork_dpdk_attach(name: *const c_char, with_arguments: *const c_char) -> c_int;
    fn uncork_dpdk_detach(port: u16);
    fn uncork_dpdk_look(port: u16, found: *mut RawFound) -> c_int;
    fn uncork_dpdk_open(port: u16, wanted: *const RawWanted, error: *mut c_int) -> *mut RawPort;
    fn uncork_dpdk_close(port: *mut RawPort);
    fn uncork_dpdk_mtu(port: *const RawPort) -> u16;
    fn uncork_dpdk_receive(port: *mut RawPort) -> u16;
    fn uncork_dpdk_frame(port: *mut RawPort, number: u16, frame: *mut RawFrame);
    fn uncork_dpdk_room(port: *mut RawPort) -> *mut u8;
    fn uncork_dpdk_push(port: *mut RawPort, leaving: *const RawLeaving);
    fn uncork_dpdk_send(port: *mut RawPort, taken: *mut u16) -> u16;
    fn uncork_dpdk_give_up(port: *mut RawPort);
    fn uncork_dpdk_count(port: *mut RawPort, counts: *mut Counts);
}

/// Converts a result of the shim: a number, or a negative errno.
fn outcome(number: c_int) -> io::Result<c_int> {
    if number < 0 { Err(io::Error::from_raw_os_error(-number)) } else { Ok(number) }
}

/// Serialises calls: DPDK's lists of devices must not be changed by two threads at once.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts DPDK with these arguments, the name of the program first. Called once a process.
pub(super) fn start(arguments: Vec<CString>) -> io::Result<()> {
    // DPDK may keep pointers to them for as long as it runs: they are never freed.
    let pointers: Vec<_> = arguments.into_iter().map(|text| text.into_raw().cast_const()).collect();
    let count = c_int::try_from(pointers.len()).unwrap_or(0);
    // SAFETY: `count` pointers to strings that end with a NUL.
    let started = unsafe { uncork_dpdk_start(count, pointers.as_ptr()) };
    outcome(started).map(|_| ())
}

/// Returns DPDK's first complaint since the last call.
pub(super) fn said() -> Option<String> {
    let mut text = [0_u8; 256];
    // SAFETY: it writes at most as many octets as it is given, and ends them with a NUL.
    unsafe { uncork_dpdk_said(text.as_mut_ptr().cast(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) mac: [u8; 6],
    pub(super) mtu: u16,
    /// Index of the kernel's device below it, or at its other end.
    pub(super) kernel_index: Option<i32>,
    pub(super) driver: String,
    pub(super) abilities: Abilities,
}

/// Offloads that a device has, or is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Abilities {
    pub(super) completes_checksums: bool,
    pub(super) cuts_trains: bool,
    pub(super) verifies_checksums: bool,
}

/// The configuration of a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Longest packet; `None` leaves the device's own.
    pub(super) mtu: Option<u16>,
    /// Room for a received frame, and for one to be sent, in octets.
    pub(super) receive_bytes: u16,
    pub(super) transmit_bytes: u16,
    pub(super) receive_frames: u16,
    pub(super) transmit_frames: u16,
    pub(super) abilities: Abilities,
}

/// What the device has to do to a frame that is sent. All offsets are within the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Leaving {
    pub(super) frame_bytes: u32,
    /// Offset of the transport header, if the checksum is to be completed.
    pub(super) transport_at: u16,
    pub(super) is_tcp: bool,
    pub(super) is_ipv6: bool,
    /// For a train: data in each segment, and the length of the TCP header.
    pub(super) segment_bytes: u16,
    pub(super) tcp_bytes: u8,
}

/// A device that is attached to DPDK and not started.
#[derive(Debug)]
pub(super) struct Attached {
    number: u16,
    /// Whether it was never opened, so that dropping this detaches it.
    unopened: bool,
}

impl Attached {
    /// Attaches a device: `name` is its name, `with_arguments` the same with its arguments.
    pub(super) fn new(name: &CStr, with_arguments: &CStr) -> io::Result<Self> {
        let _alone = alone();
        // SAFETY: two strings that end with a NUL and outlive the call.
        let number = unsafe { uncork_dpdk_attach(name.as_ptr(), with_arguments.as_ptr()) };
        let number = outcome(number)?;
        let number = u16::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self { number, unopened: true })
    }

    /// Returns the properties of the device.
    pub(super) fn look(&self) -> io::Result<Found> {
        let mut found = RawFound {
            mac: [0; 6],
            mtu: 0,
            kernel_index: 0,
            completes_checksums: 0,
            cuts_trains: 0,
            verifies_checksums: 0,
            driver: [0; 33],
        };
        // SAFETY: it fills in `found`, whose layout is the shim's.
        outcome(unsafe { uncork_dpdk_look(self.number, &raw mut found) })?;
        let driver = CStr::from_bytes_until_nul(&found.driver).unwrap_or_default();
        Ok(Found {
            mac: found.mac,
            mtu: found.mtu,
            kernel_index: i32::try_from(found.kernel_index).ok().filter(|&index| index > 0),
            driver: driver.to_string_lossy().into_owned(),
            abilities: Abilities {
                completes_checksums: found.completes_checksums != 0,
                cuts_trains: found.cuts_trains != 0,
                verifies_checksums: found.verifies_checksums != 0,
            },
        })
    }

    /// Starts the device.
    pub(super) fn open(mut self, wanted: &Wanted) -> io::Result<Port> {
        let raw = RawWanted {
            mtu: wanted.mtu.unwrap_or(0),
            receive_bytes: wanted.receive_bytes,
            transmit_bytes: wanted.transmit_bytes,
            receive_frames: wanted.receive_frames,
            transmit_frames: wanted.transmit_frames,
            completes_checksums: wanted.abilities.completes_checksums.into(),
            cuts_trains: wanted.abilities.cuts_trains.into(),
            verifies_checksums: wanted.abilities.verifies_checksums.into(),
        };
        let mut error = 0;
        // Whether this succeeds or fails, the shim detaches the device.
        self.unopened = false;
        let _alone = alone();
        // SAFETY: both structures have the shim's layout, and outlive the call.
        let port = unsafe { uncork_dpdk_open(self.number, &raw const raw, &raw mut error) };
        let Some(raw) = NonNull::new(port) else {
            return Err(io::Error::from_raw_os_error(-error));
        };
        Ok(Port { raw, transmit_bytes: wanted.transmit_bytes.into(), arrived: 0, has_room: false })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.unopened {
            let _alone = alone();
            // SAFETY: the device is attached, and nobody uses it.
            unsafe { uncork_dpdk_detach(self.number) };
        }
    }
}

/// A started port.
#[derive(Debug)]
pub(super) struct Port {
    raw: NonNull<RawPort>,
    transmit_bytes: usize,
    /// Number of frames in the current burst.
    arrived: u16,
    /// Whether there is a buffer that can be pushed.
    has_room: bool,
}

// SAFETY: DPDK lets any thread use a port, one at a time; what it keeps for each thread it finds by the calling thread.
unsafe impl Send for Port {}

impl Port {
    /// Receives a burst of frames, which replaces the one before; returns their number.
    pub(super) fn receive(&mut self) -> u16 {
        // SAFETY: the port is open until it is dropped. Borrows of the frames before had borrowed the port.
        self.arrived = unsafe { uncork_dpdk_receive(self.raw.as_ptr()) };
        self.arrived
    }

    /// Returns a frame of the burst; `None` if there is none of this number or it is too long.
    pub(super) fn frame(&mut self, number: u16) -> Option<Received<'_>> {
        if number >= self.arrived {
            return None;
        }
        let mut frame = RawFrame { octets: std::ptr::null(), bytes: 0, segment_bytes: 0, good: 0 };
        // SAFETY: there is a frame of this number; `frame` has the shim's layout.
        unsafe { uncork_dpdk_frame(self.raw.as_ptr(), number, &raw mut frame) };
        if frame.octets.is_null() || frame.bytes == 0 {
            return None;
        }
        // SAFETY: that many initialised octets, in a buffer that is the port's until the next call of
        // `receive`, or in its own memory until the next call of this; both need the port, which is borrowed.
        let octets = unsafe { std::slice::from_raw_parts(frame.octets, frame.bytes as usize) };
        Some(Received {
            bytes: octets,
            trust: if frame.good != 0 { Trust::Good } else { Trust::Unknown },
            segment_bytes: (frame.segment_bytes > 0).then_some(frame.segment_bytes),
        })
    }

    /// Returns the buffer for the next frame to be sent; `None` if the device holds all of them.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        // SAFETY: the port is open.
        let room = NonNull::new(unsafe { uncork_dpdk_room(self.raw.as_ptr()) })?;
        self.has_room = true;
        // SAFETY: a buffer of at least that many octets (`Wanted::transmit_bytes`) in memory that was zeroed at first,
        // and that nobody else accesses until it is pushed; the port is borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(room.as_ptr(), self.transmit_bytes) })
    }

    /// Queues the frame in that buffer for the next [`Port::send`]. Returns false, and discards it, if it is invalid.
    pub(super) fn push(&mut self, leaving: &Leaving) -> bool {
        let fits = leaving.frame_bytes as usize <= self.transmit_bytes;
        // The headers that the shim changes are within the buffer.
        let headers = usize::from(leaving.transport_at) + 60;
        if !self.has_room || !fits || headers > self.transmit_bytes || leaving.frame_bytes == 0 {
            return false;
        }
        self.has_room = false;
        let raw = RawLeaving {
            bytes: leaving.frame_bytes,
            transport_at: leaving.transport_at,
            is_tcp: leaving.is_tcp.into(),
            is_ipv6: leaving.is_ipv6.into(),
            segment_bytes: leaving.segment_bytes,
            tcp_bytes: leaving.tcp_bytes,
        };
        // SAFETY: there is a buffer, and both the frame and its headers fit into it.
        unsafe { uncork_dpdk_push(self.raw.as_ptr(), &raw const raw) };
        true
    }

    /// Hands pushed frames to the device; returns how many it has taken, and how many are left.
    pub(super) fn send(&mut self) -> (u16, u16) {
        let mut taken = 0;
        // SAFETY: the port is open; `taken` outlives the call.
        let left = unsafe { uncork_dpdk_send(self.raw.as_ptr(), &raw mut taken) };
        (taken, left)
    }

    /// Drops the oldest of the frames that are left.
    pub(super) fn give_up(&mut self) {
        // SAFETY: the port is open.
        unsafe { uncork_dpdk_give_up(self.raw.as_ptr()) };
    }

    /// Returns the MTU that the device is set to.
    pub(super) fn mtu(&self) -> u16 {
        // SAFETY: the port is open.
        unsafe { uncork_dpdk_mtu(self.raw.as_ptr()) }
    }

    /// Returns the counters so far.
    pub(super) fn counts(&mut self) -> Counts {
        let mut counts = Counts::default();
        // SAFETY: it fills in `counts`, whose layout is the shim's.
        unsafe { uncork_dpdk_count(self.raw.as_ptr(), &raw mut counts) };
        counts
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _alone = alone();
        // SAFETY: it was opened, is closed once, and nothing of it is borrowed any more.
        unsafe { uncork_dpdk_close(self.raw.as_ptr()) };
    }
}
