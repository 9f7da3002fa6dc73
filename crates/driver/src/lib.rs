//! Where frames go to and come from.
//!
//! A [`Driver`] owns the memory of its frames and lends it, one call at a time (see
//! [`uncork_packet`]). Nothing in here knows what is in a frame.
//!
//! What drives a real device needs `unsafe` for what no library offers: rings of memory shared with
//! the kernel, options of the sockets, requests about devices. A file each, and no others.
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

/// What became of an offer to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The slot was filled and will be sent.
    Taken,
    /// There was a slot, and nothing to send.
    Declined,
    /// Every slot is in the device's hands: offer again when completions have come.
    Full,
}

/// What came by queues that are a program's own, where others share the device ([`Beside`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirected {
    /// Numbers of the queues.
    pub queues: Vec<u32>,
    /// Frames that came by them so far.
    pub frames: u64,
}

/// A device, or something that acts as one.
///
/// One turn of an engine is `receive`, `complete`, `offer` until it is no longer taken, `flush`,
/// and then, if there was nothing to do, sleeping until [`Driver::wakes`] is readable, a timer is
/// due, or [`Driver::rest_at_most`] is over.
pub trait Driver {
    /// What the device can do. Its MTU, and with it its longest train, may change while it is in use, which is
    /// noticed in [`Driver::flush`]; nothing else does.
    fn capabilities(&self) -> Capabilities;

    /// Hands at most `budget` frames that have come to `each`, oldest first, and gives how many they
    /// were.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize>;

    /// Whether [`Driver::receive`] may find any, as far as that can be said without a system call: for who looks
    /// again and again.
    fn has_frames(&mut self) -> bool {
        true
    }

    /// Whether its room for frames that come fills up, so that what finds none would be lost unless some are received
    /// soon. It takes no system call, and hardly any time: for who has much else to do.
    fn is_filling(&mut self) -> bool {
        false
    }

    /// Tells `each` what has left the device since it was asked last.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()>;

    /// Lends the next empty slot to `fill`, which writes a frame into it or says that there is none.
    /// The slot is the octets of the frame alone: headers that a device wants in front of it
    /// (struct virtio_net_hdr) are the driver's to write, from what the [`Transmit`] says.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer>;

    /// Makes the device look at what was filled: one system call for many frames, where it takes
    /// one at all.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn flush(&mut self) -> io::Result<()>;

    /// The same, but the system call may be left to the caller, who makes it when others may have the driver: what was
    /// filled leaves then, or in a [`Driver::flush`] that comes before.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn flush_later(&mut self) -> io::Result<Option<Kick>> {
        self.flush().map(|()| None)
    }

    /// Waits until no call that was put off is about to be made, for a moment at the most: whoever makes one has the
    /// driver's descriptor. Nobody may put one off meanwhile.
    fn settle(&self) {}

    /// What becomes readable when frames or completions are there to be fetched; nothing for a
    /// driver that has to be asked.
    fn wakes(&self) -> Option<BorrowedFd<'_>>;

    /// The same for who waits for frames only. Completions do not wake him, where that can be told
    /// apart; they are there when he looks.
    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        self.wakes()
    }

    /// How long whoever sleeps may leave it alone; nothing for a driver that wakes him, or need not be asked.
    fn rest_at_most(&self) -> Option<Duration> {
        None
    }

    /// Every descriptor that it has, which a program that it lives in knows nothing of and shall not close.
    fn descriptors(&self) -> Vec<RawFd> {
        self.wakes().iter().map(BorrowedFd::as_raw_fd).collect()
    }

    /// Frames that came so far and found no room; nothing for a driver that does not know.
    fn lost(&mut self) -> Option<u64> {
        None
    }

    /// What came by queues of AF_XDP; nothing for a driver that has none beside another way in.
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

/// Largest packet of a device of this thread's network namespace, in octets.
///
/// # Errors
///
/// What the kernel says: there may be no such device.
pub fn mtu_of(device: &str) -> io::Result<u32> {
    // Any socket can be asked.
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    ioctl::mtu(socket, device)
}

/// What the device of this number is called by now, in the network namespace of this thread.
///
/// # Errors
///
/// What the kernel says, if there is none, say.
pub fn name_of(device: i32) -> io::Result<String> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    ioctl::name(socket, device)
}

/// Notes that so many octets of an owner have left. Those of one owner in a row are told as one.
fn completed(list: &mut Vec<Completion>, owner: Owner, bytes: u32) {
    match list.last_mut() {
        Some(last) if last.owner == owner => last.bytes = last.bytes.saturating_add(bytes),
        _ => list.push(Completion { owner, bytes }),
    }
}
