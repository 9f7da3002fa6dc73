//! The port itself: its slots are used in turn.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use uncork_high::high;
use uncork_packet::{Capabilities, Completion, Medium, Owner, Received, Transmit};

use super::handed::{Device, Handed};
use super::kick::{self, Kick, Kicker};
use super::long::Long;
use super::open::Settings;
use super::options;
use super::refused::{Refused, packet_bytes};
use super::slots::{self, ReceiveSlots, TransmitSlots};
use crate::mtu::Mtu;
use crate::wakeup::Wakeup;
use crate::{Driver, Offer, OpenError, ioctl, vnet};

/// Frames up to this length are copied by the kernel when they are sent. Of longer ones it references the
/// pages in place, which a virtual link pays for when the frame crosses it: over veth a frame of
/// 1514 octets took 2.1 µs that way, and 1.6 µs when copied (examples/ports.rs).
const COPIED_BYTES: u16 = 2048;
/// Number of slots still under way after which the search for completed ones stops. A queueing discipline
/// may release frames in another order, but a call must not scan a whole ring.
const LOOK_PAST: usize = 32;
/// Octets of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;

/// Counters of what was received, from the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that came for this socket.
    pub received: u64,
    /// Those of them that found no empty slot, or were longer than a slot and found no room beside the ring.
    pub lost: u64,
    /// Those that were ignored here: of another VLAN.
    pub left_aside: u64,
}

/// What a slot of the transmit ring holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    owner: Option<Owner>,
    bytes: u32,
    /// Length of the longest packet that it becomes on the link; 0 if it was taken back.
    pub(super) packet_bytes: u32,
}

/// A socket that is ready to receive and send, with its rings mapped.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) device: Device,
    /// The capabilities at the current MTU.
    pub(super) capabilities: Capabilities,
    receive: ReceiveSlots,
    pub(super) transmit: TransmitSlots,
}

/// A network device, by a packet socket.
#[derive(Debug)]
pub struct Port {
    pub(super) opened: Opened,
    pub(super) wakeup: Wakeup,
    /// The slot that the next frame comes into.
    next_in: usize,
    /// The slot that the next frame leaves from.
    next_out: usize,
    /// By slot: the frame that was sent from it, until its completion is reported.
    pub(super) sent: Vec<Option<Sent>>,
    /// The oldest slot in flight.
    pub(super) oldest: usize,
    /// Number of slots from `oldest` up to `next_out`.
    pub(super) in_flight: usize,
    /// The last slot that the kernel was asked to send and has not yet taken.
    asked: Option<usize>,
    pub(super) kicker: Arc<Kicker>,
    pub(super) refused: Refused,
    pub(super) mtu: Mtu,
    long: Long,
    /// Turns in a row in which nothing has happened.
    idle_turns: u64,
    /// Completions that were noticed when a slot was reused.
    completed: Vec<Completion>,
    statistics: Statistics,
    gone: bool,
    /// Whether the device was down at the last look, and no frame has come since.
    down: bool,
    /// Whether ENETDOWN was returned while frames were received, and the device has not been looked at since.
    was_down: bool,
}

impl Port {
    /// Opens the device, in the network namespace of this thread. `filter` is an eBPF program (a
    /// socket filter) that decides what is received.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing.
    pub fn open(settings: &Settings, filter: Option<BorrowedFd<'_>>) -> Result<Self, OpenError> {
        Self::adopt(Handed::open(settings, filter)?)
    }

    /// Uses a packet socket that this or another process has opened, which needs no privilege.
    ///
    /// # Errors
    ///
    /// [`OpenError::System`] if memory or descriptors run out, or if the rings are not as described.
    pub fn adopt(handed: Handed) -> Result<Self, OpenError> {
        let Handed { socket, description } = handed;
        let socket = Arc::new(high(socket));
        let rings = description.rings;
        let (receive, transmit) = rings
            .check()
            .and_then(|()| slots::map(socket.as_fd(), rings.receive, rings.transmit))
            .map_err(OpenError::system("map the rings of the packet socket"))?;
        let wakeup = Wakeup::new(socket.as_fd())
            .map_err(OpenError::system("make the set that wakes (epoll)"))?;
        let device = description.device;
        let capabilities = device.capabilities();
        let mtu = Mtu::new(device.index, rings.longest_packet(), device.mtu);
        let kicker = Arc::new(Kicker::new(Arc::clone(&socket), transmit.watched()));
        let opened = Opened { socket, device, capabilities, receive, transmit };
        let slots = opened.transmit.geometry().slots();
        Ok(Self {
            opened,
            wakeup,
            next_in: 0,
            next_out: 0,
            sent: vec![None; slots],
            oldest: 0,
            in_flight: 0,
            asked: None,
            kicker,
            refused: Refused::default(),
            mtu,
            long: Long::default(),
            idle_turns: 0,
            completed: Vec::with_capacity(16),
            statistics: Statistics::default(),
            gone: false,
            down: false,
            was_down: false,
        })
    }

    /// Returns the Ethernet address of the device; `None` if it carries raw IP.
    #[must_use]
    pub fn mac(&self) -> Option<[u8; 6]> {
        let ethernet = self.opened.capabilities.medium == Medium::Ethernet;
        ethernet.then_some(self.opened.device.mac)
    }

    /// Index of the device.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.opened.device.index
    }

    /// Returns the packet socket.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.opened.socket.as_fd()
    }

    /// Number of frames whose completion has not been reported.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.sent.iter().flatten().count()
    }

    /// Returns the counters since the port was opened.
    ///
    /// # Errors
    ///
    /// If the kernel does not return its counters.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        let [received, lost] = options::statistics(self.opened.socket.as_fd())?;
        self.statistics.received += u64::from(received);
        self.statistics.lost += u64::from(lost);
        Ok(self.statistics)
    }

    /// Takes one frame that is queued beside the ring, and passes it on if it is ours; returns whether it was.
    fn receive_long(
        &mut self,
        is_ours: bool,
        each: &mut dyn FnMut(Received<'_>),
    ) -> io::Result<bool> {
        let socket = self.opened.socket.as_fd();
        loop {
            match self.long.receive(socket) {
                Ok((vnet::Arrival { trust, segment_bytes }, bytes)) if is_ours => {
                    each(Received { bytes, trust, segment_bytes });
                    return Ok(true);
                }
                // The error is reported once, ahead of the frames; left pending it would wake sleepers.
                Err(Errno::NETDOWN) => {
                    self.was_down = true;
                    self.wakeup.look_later()?;
                }
                Ok(_) | Err(Errno::AGAIN | Errno::MSGSIZE | Errno::BADMSG) => return Ok(false),
                // The frame is still there, and so is its slot.
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reports completions; returns whether there were any.
    fn look_for_completions(&mut self, each: &mut dyn FnMut(Completion)) -> bool {
        let geometry = self.opened.transmit.geometry();
        let (mut slot, mut under_way) = (self.oldest, 0);
        for _ in 0..self.in_flight {
            if self.sent[slot].is_some() {
                if self.opened.transmit.is_empty(slot) {
                    self.finish(slot);
                } else {
                    under_way += 1;
                    if under_way > LOOK_PAST {
                        break;
                    }
                }
            }
            slot = geometry.next(slot);
        }
        while self.in_flight > 0 && self.sent[self.oldest].is_none() {
            self.oldest = geometry.next(self.oldest);
            self.in_flight -= 1;
        }
        let any = !self.completed.is_empty();
        if any {
            self.refused.forget();
        }
        self.completed.drain(..).for_each(each);
        any
    }

    fn finish(&mut self, slot: usize) {
        if let Some(Sent { owner: Some(owner), bytes, .. }) = self.sent[slot].take() {
            crate::completed(&mut self.completed, owner, bytes);
        }
    }

    /// Notes the outcome of asking the kernel to send all slots up to this one.
    fn note_asked(&mut self, last: usize, outcome: Result<usize, Errno>) -> io::Result<()> {
        match outcome {
            Ok(_) if !self.opened.transmit.is_asked_for(last) => {
                self.asked = None;
                self.refused.forget();
                Ok(())
            }
            // The kernel has taken some, or none: no memory, or a queue below is full. A frame that was
            // dropped there stays in its slot, and is sent again. The kernel passes on any error of a queue or a device below
            // (ENOMEM from cutting a train, say): that ends sooner or later.
            Err(Errno::NXIO) => {
                self.gone = true;
                self.check()
            }
            // The descriptor was closed by somebody, and its number may already be reused.
            Err(error @ (Errno::BADF | Errno::NOTSOCK)) => Err(error.into()),
            // The device may be up again, and this a stale error.
            Err(Errno::NETDOWN) => {
                self.down = true;
                self.wakeup.look_later()
            }
            Ok(_) | Err(_) => self.put_off(),
        }
    }

    /// Reads the socket's pending error, which also clears it.
    fn look_at_device(&mut self) -> io::Result<()> {
        let _ = getsockopt(&self.opened.socket, sockopt::SocketError)?;
        self.look_whether_gone()
    }

    /// Looks whether the device is gone. Down is like a pulled cable: it may come back. But a device that is being deleted goes
    /// down first, and that is all the kernel reports: the deletion itself is only found by looking again.
    fn look_whether_gone(&mut self) -> io::Result<()> {
        self.was_down = false;
        self.gone = ioctl::name(&self.opened.socket, self.opened.device.index).is_err();
        self.down = !self.gone;
        if self.down {
            self.wakeup.look_later()?;
        }
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        if self.gone {
            let text = format!("the network device {} is gone", self.opened.device.name);
            return Err(io::Error::new(ErrorKind::NotConnected, text));
        }
        Ok(())
    }
}

/// Whether the error is about a frame, and not about the device or the call.
fn is_refusal(error: Errno) -> bool {
    use Errno as E;
    !matches!(error, E::NXIO | E::NETDOWN | E::BADF | E::NOTSOCK | E::AGAIN | E::INTR)
}

impl Driver for Port {
    fn capabilities(&self) -> Capabilities {
        self.opened.capabilities
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let mut received = 0;
        while received < budget {
            let Some(filled) = self.opened.receive.filled(self.next_in) else { break };
            let (is_ours, is_beside) = (!filled.of_vlan, filled.beside);
            if !is_beside && filled.whole && is_ours {
                let vnet::Arrival { trust, segment_bytes } = vnet::read(filled.vnet);
                each(Received { bytes: filled.bytes, trust, segment_bytes });
            } else if is_ours && !is_beside {
                self.statistics.lost += 1;
            } else if !is_beside || !self.receive_long(is_ours, each)? {
                self.statistics.left_aside += 1;
            }
            let slots = &mut self.opened.receive;
            slots.give_back(self.next_in);
            self.next_in = slots.geometry().next(self.next_in);
            received += 1;
        }
        if received > 0 {
            // Frames from before it went down do not show that it is up again.
            self.down = self.was_down;
            self.idle_turns = 0;
            return Ok(received);
        }
        self.check().map(|()| 0)
    }

    fn has_frames(&mut self) -> bool {
        self.opened.receive.filled(self.next_in).is_some()
    }

    fn is_filling(&mut self) -> bool {
        let slots = &mut self.opened.receive;
        let (far, near) = slots.geometry().ahead(self.next_in);
        // Far fewer frames find room beside the ring.
        slots.filled(far).is_some() || slots.filled(near).is_some_and(|filled| filled.beside)
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        if self.look_for_completions(each) {
            self.idle_turns = 0;
            return Ok(());
        }
        // Before a thread sleeps, events must be drained, or they wake it for nothing; but a thread that
        // polls without sleeping shall not pay a system call each time. An event may arrive a little
        // after what it is about was seen, so once is not enough. Where nobody sleeps on events there
        // are none to drain, and the question is whether the device has gone.
        self.idle_turns += 1;
        if self.wakeup.is_worth_asking(self.idle_turns) || self.down {
            let drained = self.wakeup.drain()?;
            if drained.error {
                self.look_at_device()?;
            } else if self.down && drained.retry {
                self.look_whether_gone()?;
            }
            self.look_for_completions(each);
        }
        Ok(())
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        let slot = self.next_out;
        let Capabilities { medium, max_train_bytes: train_bytes, .. } = self.opened.capabilities;
        // A stack that has not yet heard that trains have become shorter still fills the former length.
        let train_bytes = train_bytes.max(self.opened.device.max_train_bytes);
        let longest = ETHERNET_BYTES + usize::try_from(train_bytes).unwrap_or(usize::MAX);
        let Some((header, room)) = self.opened.transmit.room(slot) else { return Ok(Offer::Full) };
        let longest = longest.min(room.len());
        let room = &mut room[..longest];
        let Some(transmit) = fill(room) else { return Ok(Offer::Declined) };
        if usize::try_from(transmit.frame_bytes).is_ok_and(|bytes| bytes > room.len()) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a frame longer than its slot"));
        }
        let linear = vnet::linear_bytes(&transmit, COPIED_BYTES);
        header.copy_from_slice(&vnet::write(&transmit, linear));
        self.opened.transmit.send(slot, transmit.frame_bytes);
        // The slot is empty, so what was in it has left, whether that was reported or not.
        self.finish(slot);
        self.sent[slot] = Some(Sent {
            owner: transmit.owner,
            bytes: transmit.frame_bytes,
            packet_bytes: packet_bytes(&transmit, medium),
        });
        let geometry = self.opened.transmit.geometry();
        self.next_out = geometry.next(slot);
        if self.in_flight < geometry.slots() {
            self.in_flight += 1;
        } else {
            self.oldest = self.next_out;
        }
        self.asked = Some(slot);
        Ok(Offer::Taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A call that was put off may not have been made yet, or the kernel has not taken all.
        self.asked = self.asked.or_else(|| self.kicker.left());
        let Some(last) = self.asked.filter(|_| !self.refused.waits()) else { return Ok(()) };
        self.idle_turns = 0;
        self.look_at_mtu();
        loop {
            match self.kicker.call() {
                Err(error) if is_refusal(error) && self.is_worth_asking_again() => {}
                outcome => return self.note_asked(last, outcome),
            }
        }
    }

    fn flush_later(&mut self) -> io::Result<Option<Kick>> {
        if self.refused.is_any() {
            return self.flush().map(|()| None);
        }
        let Some(last) = self.asked.take() else { return Ok(None) };
        self.idle_turns = 0;
        self.look_at_mtu();
        Ok(Some(self.kicker.put_off(last)))
    }

    fn settle(&self) {
        kick::settle(&self.kicker);
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakeup.fd())
    }

    /// Returns the socket itself: the kernel does not wake a poller for frames on completions. Frames that it did
    /// not take have to be offered again, for which the epoll set has a timer.
    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        if self.asked.is_some() || self.down {
            self.wakes()
        } else {
            self.wakeup.spare();
            Some(self.opened.socket.as_fd())
        }
    }

    fn lost(&mut self) -> Option<u64> {
        Some(self.statistics().ok()?.lost)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.wakeup.descriptors().to_vec();
        all.push(self.opened.socket.as_raw_fd());
        all
    }
}
