//! Ports: where frames are received from and sent to.
//!
//! A [`Driver`] owns the memory of its frames and lends it, one call at a time (see
//! [`uncork_packet`]). Only [`Trace`] and DPDK's offloads look into a frame.
//!
//! Real devices need `unsafe` for what no library offers: rings of memory shared with
//! the kernel, socket options, requests about devices, the shim over DPDK; each in a file of its own.
#![deny(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use uncork_packet::{Capabilities, Completion, Owner, Received, Transmit};

pub mod af_packet;
pub mod af_xdp;
mod beside;
pub mod clock;
mod decorator;
mod disturb;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod error;
mod ioctl;
pub mod memory;
mod mtu;
pub mod record;
pub mod tap;
mod trace;
mod vnet;
mod wakeup;

pub use af_packet::Kick;
pub use beside::{Beside, Door};
pub use disturb::Disturb;
pub use error::OpenError;
pub use record::Record;
pub use trace::Trace;

/// Outcome of an offer to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The slot was filled and will be sent.
    Taken,
    /// There was a slot, and nothing to send.
    Declined,
    /// The device holds every slot: offer again after completions.
    Full,
}

/// Reception by queues that are a program's own, where others share the device ([`Beside`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirected {
    /// Numbers of the queues.
    pub queues: Vec<u32>,
    /// Number of frames received by them so far.
    pub frames: u64,
}

/// A device, or something that acts as one.
///
/// One turn of an engine is `receive`, `complete`, `offer` until it is no longer taken, `flush`,
/// and then, if there was nothing to do, sleeping until [`Driver::wakes`] is readable, a timer is
/// due, or [`Driver::rest_at_most`] is over.
pub trait Driver {
    /// Returns what the device can do. Its MTU, and with it its longest train, may change while it is in use, which is
    /// noticed in [`Driver::flush`]; nothing else does.
    fn capabilities(&self) -> Capabilities;

    /// Passes at most `budget` received frames to `each`, oldest first, and returns their
    /// number.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize>;

    /// Whether [`Driver::receive`] may find frames, as far as that can be told without a system call: for threads that
    /// poll.
    fn has_frames(&mut self) -> bool {
        true
    }

    /// Whether the receive buffers are filling up, so that frames would be lost unless some are received
    /// soon. It takes no system call, and hardly any time: for threads that have much else to do.
    fn is_filling(&mut self) -> bool {
        false
    }

    /// Reports to `each` the frames that have left the device since the last call.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()>;

    /// Lends the next empty slot to `fill`, which writes a frame into it or returns `None` if it has none.
    /// The slot holds the frame alone: a header that a device wants before it
    /// (struct virtio_net_hdr) is written by the driver, from what the [`Transmit`] says.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer>;

    /// Makes the device send the filled slots: one system call for many frames, where it takes
    /// one at all.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn flush(&mut self) -> io::Result<()>;

    /// Does the same as [`Driver::flush`], but may leave the system call to the caller, to be made once the driver's
    /// lock is released: the frames leave then, or in a [`Driver::flush`] before that.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn flush_later(&mut self) -> io::Result<Option<Kick>> {
        self.flush().map(|()| None)
    }

    /// Waits, for a moment at most, until no call that was put off is about to be made: the thread that makes one uses
    /// the driver's descriptor. No call may be put off meanwhile.
    fn settle(&self) {}

    /// Returns the descriptor that becomes readable when frames or completions can be fetched; `None` for a
    /// driver that has to be polled.
    fn wakes(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor for a thread that waits for frames only. Completions do not wake it, where they can be
    /// told apart; it finds them when it looks.
    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        self.wakes()
    }

    /// Returns how long a sleeper may leave the driver unpolled; `None` for a driver that wakes it, or needs no polling.
    fn rest_at_most(&self) -> Option<Duration> {
        None
    }

    /// Returns all descriptors of the driver, which the program that it runs in does not know and must not close.
    fn descriptors(&self) -> Vec<RawFd> {
        self.wakes().iter().map(BorrowedFd::as_raw_fd).collect()
    }

    /// Returns the number of received frames that found no room so far; `None` for a driver that does not know.
    fn lost(&mut self) -> Option<u64> {
        None
    }

    /// Returns what AF_XDP queues have received; `None` for a driver that has none beside another way in.
    fn redirected(&self) -> Option<Redirected> {
        None
    }
}

impl<D: Driver + ?Sized> Driver for Box<D> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        (**self).receive(budget, each)
    }

    fn has_frames(&mut self) -> bool {
        (**self).has_frames()
    }

    fn is_filling(&mut self) -> bool {
        (**self).is_filling()
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        (**self).complete(each)
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        (**self).offer(fill)
    }

    fn flush(&mut self) -> io::Result<()> {
        (**self).flush()
    }

    fn flush_later(&mut self) -> io::Result<Option<Kick>> {
        (**self).flush_later()
    }

    fn settle(&self) {
        (**self).settle();
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        (**self).wakes()
    }

    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        (**self).wakes_for_frames()
    }

    fn rest_at_most(&self) -> Option<Duration> {
        (**self).rest_at_most()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        (**self).descriptors()
    }

    fn lost(&mut self) -> Option<u64> {
        (**self).lost()
    }

    fn redirected(&self) -> Option<Redirected> {
        (**self).redirected()
    }
}

/// Returns the MTU of a device of this thread's network namespace, in octets.
///
/// # Errors
///
/// The kernel's error: there may be no such device.
pub fn mtu_of(device: &str) -> io::Result<u32> {
    // Any socket will do.
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    ioctl::mtu(socket, device)
}

/// Returns the current name of the device with this index, in the network namespace of this thread.
///
/// # Errors
///
/// The kernel's error, if there is no such device, say.
pub fn name_of(device: i32) -> io::Result<String> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    ioctl::name(socket, device)
}

/// Notes that octets of an owner have left. Consecutive completions of one owner are merged.
fn completed(list: &mut Vec<Completion>, owner: Owner, bytes: u32) {
    match list.last_mut() {
        Some(last) if last.owner == owner => last.bytes = last.bytes.saturating_add(bytes),
        _ => list.push(Completion { owner, bytes }),
    }
}
