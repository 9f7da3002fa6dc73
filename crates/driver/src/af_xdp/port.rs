//! The port itself: its chunks are used in turn.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socket as open_socket,
};
use uncork_high::high;
use uncork_packet::{Capabilities, Checksum, Completion, Received, Transmit, Trust};

use super::area::{Area, Piece};
use super::handed::{Description, Handed};
use super::open::Settings;
use super::options;
use super::rings::Rings;
use super::slots::Slots;
use crate::mtu::Mtu;
use crate::wakeup::Wakeup;
use crate::{Driver, Offer, OpenError};

/// Longest frame: the longest IP packet, and the link-layer header before it.
const LONGEST_FRAME: usize = 65_535 + 18;
/// Asks the kernel to fill in the checksum (XDP_TXMD_FLAGS_CHECKSUM).
const FILL_IN_CHECKSUM: u64 = libc::XDP_TXMD_FLAGS_CHECKSUM as u64;
/// The word before a frame whose checksum is known to be good, or was never filled in (`GOOD` of
/// uncork-bpf's `owned/redirect.h`).
const GOOD: u32 = 1;

/// Idle turns after which the kernel is asked for the state of the device, which raises no event.
const LOOK_AFTER_TURNS: u64 = 4;
/// Octets of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

/// Counters of what was received, from the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that came.
    pub received: u64,
    /// Frames for which there was no chunk or no ring entry, or that were too long.
    pub lost: u64,
}

/// A queue of a device, by an AF_XDP socket.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    description: Description,
    area: Area,
    rings: Rings,
    slots: Slots,
    wakeup: Wakeup,
    mtu: Mtu,
    /// The socket for questions about the device: an AF_XDP socket answers no ioctl (sock_no_ioctl).
    line: OwnedFd,
    /// The pieces of a frame so far, and the trust in its checksum from its first piece.
    long: Vec<u8>,
    gathering: Option<Trust>,
    /// Turns in a row in which nothing has happened.
    idle_turns: u64,
    /// Whether frames were put into the ring and the kernel has not been told.
    unsent: bool,
    /// Completions that were not reported yet.
    completed: Vec<Completion>,
    received: u64,
    gone: bool,
    /// Whether the device was down at the last look, and no frame has come since.
    down: bool,
}

impl Port {
    /// Opens a queue of a device, in the network namespace of this thread. Nothing is received before frames are
    /// redirected to it ([`Handed::open`]).
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        Self::adopt(Handed::open(settings)?)
    }

    /// Uses a socket that this or another process has opened, which needs no privilege.
    ///
    /// # Errors
    ///
    /// [`OpenError::System`] if memory or descriptors run out, or if its frames are not as described.
    pub fn adopt(handed: Handed) -> Result<Self, OpenError> {
        let Handed { socket, frames, description } = handed;
        let socket = high(socket);
        let geometry = description.area;
        let mapped = || {
            description.check()?;
            let area = Area::map(frames.as_fd(), geometry.bytes())?;
            Ok((area, Rings::map(socket.as_fd(), &geometry)?))
        };
        let (area, rings) =
            mapped().map_err(OpenError::system("map the frames and rings of the socket"))?;
        let wakeup = Wakeup::new(socket.as_fd())
            .map_err(OpenError::system("make the set that wakes (epoll)"))?;
        let line =
            open_socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
                .map_err(|error| {
                    OpenError::system("open a socket to ask about devices")(error.into())
                })?;
        // The memory was laid out for frames of this length.
        let mtu = description.device.mtu;
        let mtu = Mtu::new(description.device.index, mtu, mtu);
        Ok(Self {
            socket,
            mtu,
            line: high(line),
            description,
            area,
            rings,
            slots: Slots::new(geometry),
            wakeup,
            long: Vec::new(),
            gathering: None,
            idle_turns: 0,
            unsent: false,
            completed: Vec::with_capacity(16),
            received: 0,
            gone: false,
            down: false,
        })
    }

    /// The Ethernet address of the device.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.description.device.mac
    }

    /// Index of the device.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.description.device.index
    }

    /// Number of the queue.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.description.device.queue
    }

    /// Returns the socket, for the map that redirects frames to it.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the device itself writes frames into the area.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.description.zero_copy
    }

    /// Number of frames whose completion has not been reported.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Returns the counters since the port was opened.
    ///
    /// # Errors
    ///
    /// If the kernel does not return its counters.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let counts = options::counts(self.socket.as_fd())?;
        // Frames for which memory was missing are counted in `dropped`.
        let lost = counts.dropped + counts.ring_full + counts.invalid_to_receive;
        Ok(Statistics { received: self.received, lost })
    }

    /// Returns what is known of the checksum of a frame that begins with this piece.
    fn trust(&self, piece: &Piece) -> Trust {
        let mark = if self.description.marks { self.area.mark(piece) } else { None };
        match mark.map(u32::from_ne_bytes) {
            Some(GOOD) => Trust::Good,
            _ => Trust::Unknown,
        }
    }

    /// Adds a piece to a frame, and passes the frame on after its last piece; returns whether it did.
    fn gather(&mut self, piece: &Piece, each: &mut dyn FnMut(Received<'_>)) -> bool {
        let trust = self.gathering.unwrap_or_else(|| self.trust(piece));
        // A frame that is too long is truncated here and refused by the stack: its headers show it.
        let room = LONGEST_FRAME - self.long.len();
        let bytes = self.area.piece(piece).unwrap_or_default();
        self.long.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.gathering = piece.continues.then_some(trust);
        if piece.continues {
            return false;
        }
        each(Received { bytes: &self.long, trust, segment_bytes: None });
        self.long.clear();
        true
    }

    /// Passes on the frames in the receive ring.
    fn take(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> usize {
        let (mut received, mut any) = (0, false);
        while received < budget {
            let Some(piece) = self.rings.receive.take() else { break };
            any = true;
            if piece.continues || self.gathering.is_some() {
                received += usize::from(self.gather(&piece, each));
            } else if let Some(bytes) = self.area.piece(&piece) {
                each(Received { bytes, trust: self.trust(&piece), segment_bytes: None });
                received += 1;
            }
            self.rings.fill.give_back(piece);
        }
        if any {
            self.rings.receive.release();
            self.rings.fill.submit();
        }
        received
    }

    /// Whether the device waits for memory that it has been given (need_wakeup in the kernel's
    /// Documentation/networking/af_xdp.rst). Only a zero-copy driver ever does: the kernel's copying looks at the ring
    /// for each frame.
    fn waits_for_memory(&self) -> bool {
        self.description.zero_copy && self.rings.fill.needs_call()
    }

    /// Has the device's receive processing run where that is up to us: it waits for memory, or polls busily.
    fn call_for_frames(&mut self) -> io::Result<()> {
        // A call for which it does not wait yet is lost on it (xsk_recvmsg).
        let waits = self.waits_for_memory();
        match recv(self.socket.as_raw_fd(), &mut [], MsgFlags::MSG_DONTWAIT) {
            Ok(_) => {
                self.down = false;
                if waits {
                    self.rings.fill.told();
                }
                Ok(())
            }
            // EINVAL: the queue is without XDP, or is being set up (ice_xsk_wakeup, mlx5e_xsk_wakeup).
            Err(
                nix::Error::EAGAIN | nix::Error::EINTR | nix::Error::ENOBUFS | nix::Error::EINVAL,
            ) => {
                self.down = false;
                Ok(())
            }
            Err(error) => self.look_at_device(error),
        }
    }

    /// Collects completions; returns whether there were any.
    fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some(at) = self.rings.completion.take() {
            any = true;
            self.slots.finish(at, &mut self.completed);
        }
        if any {
            self.rings.completion.release();
        }
        any
    }

    /// Interprets an error of a call about the device. Down is like a pulled cable: it may come back.
    fn look_at_device(&mut self, error: nix::Error) -> io::Result<()> {
        match error {
            nix::Error::ENETDOWN => {
                self.down = true;
                self.wakeup.look_later()
            }
            nix::Error::ENXIO => {
                self.gone = true;
                self.check()
            }
            error => Err(error.into()),
        }
    }

    /// Makes it one whose device writes frames itself, or not, and asks to be called, or not: no device in a test does.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, zero_copy: bool, asks: bool) {
        self.description.zero_copy = zero_copy;
        if asks {
            self.rings.fill.ask_for_call();
        }
    }

    /// Whether work is pending for which no frame wakes.
    pub(crate) fn needs_looking_after(&self) -> bool {
        self.unsent || self.down
    }

    fn check(&self) -> io::Result<()> {
        if self.gone {
            let text = format!("the network device {} is gone", self.description.device.name);
            return Err(io::Error::new(ErrorKind::NotConnected, text));
        }
        Ok(())
    }
}

/// Returns the checksum request for the kernel: `struct xsk_tx_metadata`, to be written before the frame.
fn metadata(checksum: Checksum) -> Option<[u8; 16]> {
    let Checksum::Partial { start, offset } = checksum else { return None };
    let mut metadata = [0; 16];
    metadata[..8].copy_from_slice(&FILL_IN_CHECKSUM.to_ne_bytes());
    metadata[8..10].copy_from_slice(&start.to_ne_bytes());
    metadata[10..12].copy_from_slice(&offset.to_ne_bytes());
    Some(metadata)
}

impl Driver for Port {
    fn capabilities(&self) -> Capabilities {
        self.description.capabilities_at(self.mtu.value())
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let mut received = self.take(budget, each);
        // Where its own ring is empty, a device that waits for memory has no frame that would remind us of it.
        if received == 0 && (self.description.polls_busily || self.waits_for_memory()) {
            self.call_for_frames()?;
            received = self.take(budget, each);
        }
        if received == 0 {
            return self.check().map(|()| 0);
        }
        self.down = false;
        self.idle_turns = 0;
        self.received += received as u64;
        if self.waits_for_memory() {
            self.call_for_frames()?;
        }
        Ok(received)
    }

    fn has_frames(&mut self) -> bool {
        // A busy-polling port has to ask the kernel.
        self.description.polls_busily || self.rings.receive.has_any()
    }

    fn lost(&mut self) -> Option<u64> {
        Some(self.statistics().ok()?.lost)
    }

    fn is_filling(&mut self) -> bool {
        self.rings.receive.is_filling()
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.collect();
        if !self.completed.is_empty() {
            self.idle_turns = 0;
            self.completed.drain(..).for_each(each);
            return Ok(());
        }
        // As with a packet socket: events are drained before a thread sleeps, but not at every look, and seldom
        // where no thread sleeps on them. The state of the device is learned only by a call.
        self.idle_turns += 1;
        let is_early = self.idle_turns == LOOK_AFTER_TURNS;
        if is_early || self.wakeup.is_worth_asking(self.idle_turns) || self.down {
            let drained = self.wakeup.drain()?;
            let asks = if self.down { drained.retry } else { self.idle_turns >= LOOK_AFTER_TURNS };
            if asks {
                self.call_for_frames()?;
            }
            self.collect();
            self.completed.drain(..).for_each(each);
        }
        Ok(())
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        let area = self.description.area;
        if self.slots.is_all_lent() {
            self.collect();
        }
        if !self.rings.transmit.has_room(area.slot_chunks) {
            return Ok(Offer::Full);
        }
        let Some(mut slot) = self.slots.take() else { return Ok(Offer::Full) };
        let octets = self.area.slot(&mut slot).ok_or(ErrorKind::InvalidData)?;
        let (before, room) = octets.split_at_mut(area.metadata_bytes as usize);
        let longest = ETHERNET_BYTES + usize::from(self.description.device.mtu);
        let longest = longest.min(room.len());
        let room = &mut room[..longest];
        let Some(transmit) = fill(room) else {
            self.slots.give_back(slot);
            return Ok(Offer::Declined);
        };
        let bytes = transmit.frame_bytes;
        if bytes == 0 || usize::try_from(bytes).is_ok_and(|bytes| bytes > room.len()) {
            self.slots.give_back(slot);
            return Err(io::Error::new(ErrorKind::InvalidInput, "a frame longer than its slot"));
        }
        let asked = metadata(transmit.checksum);
        if let (Some(asked), Some(place)) = (asked, before.first_chunk_mut()) {
            *place = asked;
        }
        let chunks = (area.metadata_bytes + bytes).div_ceil(area.chunk_bytes);
        self.slots.send(&slot, transmit.owner, bytes, chunks);
        self.rings.transmit.send(slot, area.metadata_bytes, bytes, asked.is_some());
        self.unsent = true;
        Ok(Offer::Taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.unsent {
            return Ok(());
        }
        self.rings.transmit.submit();
        self.idle_turns = 0;
        // The kernel drops what the device refuses, and reports it as sent: there is nothing to take back.
        self.mtu.look_if_due(&self.line);
        let mut waiting = self.rings.transmit.waiting();
        while self.rings.transmit.needs_call() {
            let sent = send(self.socket.as_raw_fd(), &[], MsgFlags::MSG_DONTWAIT);
            let left = self.rings.transmit.waiting();
            match sent {
                Ok(_) => {
                    self.down = false;
                    break;
                }
                // The kernel sends a limited number at once; or a device has dropped one.
                Err(nix::Error::EAGAIN | nix::Error::EBUSY) if left < waiting => waiting = left,
                // No memory, or the device takes no more for now.
                Err(
                    nix::Error::EAGAIN
                    | nix::Error::EBUSY
                    | nix::Error::ENOBUFS
                    | nix::Error::ENOMEM
                    | nix::Error::EINTR,
                ) => return self.wakeup.retry_soon(),
                Err(error) => return self.look_at_device(error),
            }
        }
        // A zero-copy driver knows of the frames that it has not taken yet.
        self.unsent = !self.description.zero_copy && self.rings.transmit.waiting() > 0;
        if self.unsent { self.wakeup.retry_soon() } else { Ok(()) }
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        if self.description.zero_copy && self.slots.in_flight() > 0 {
            // Without the timer only frames would wake, which may be late but do come.
            let _ = self.wakeup.look_soon();
        }
        Some(self.wakeup.fd())
    }

    /// Returns the socket itself, as with a packet socket: the kernel does not wake a poller for frames on completions.
    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        if self.needs_looking_after() {
            self.wakes()
        } else {
            self.wakeup.spare();
            Some(self.socket.as_fd())
        }
    }
    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.wakeup.descriptors().to_vec();
        all.extend([&self.socket, &self.line].map(AsRawFd::as_raw_fd));
        all
    }
}
