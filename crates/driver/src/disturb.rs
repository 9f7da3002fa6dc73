//! Emulates a worse network: loss, delay, a limited rate, reordering, duplicates, flipped bits, the
//! same each time (`uncork-path`).
//!
//! It acts as a wire: frames must be complete, so a disturbed driver takes neither trains nor
//! unfinished checksums. Trains that are received are disturbed as trains; a device that is opened
//! without offloads delivers none. A frame has left when its last bit has passed the bottleneck; the
//! delay after that is not the device's.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use uncork_packet::{
    Capabilities, Checksum, Completion, Instant, Medium, Owner, Received, Transmit, Trust,
};
use uncork_path::{Arrived, Counts, Path, Queue};
use uncork_wire::link::LinkType;

use crate::clock::Clock;
use crate::{Driver, Offer, Redirected};

/// Number of frames that may wait for the rate before the device reports that it is full, as with a
/// device's ring.
const SLOTS: usize = 256;
/// Room for the header before IP.
const LINK_BYTES: usize = 14;
/// Octets that are kept before a received frame: its trust, and the length of segments.
const NOTE_BYTES: usize = 3;

/// A driver with a disturbed path in each direction.
pub struct Disturb<D> {
    inner: D,
    clock: Clock,
    capabilities: Capabilities,
    incoming: Queue,
    outgoing: Queue,
    /// A frame that has passed the path to the inner driver, which was full.
    held: Option<Vec<u8>>,
    /// Frames that were sent and whose completion was not reported, in that order.
    leaving: VecDeque<(Instant, Option<Owner>, u32)>,
    slot: Box<[u8]>,
    wakeup: Option<Wakeup>,
}

impl<D: fmt::Debug> fmt::Debug for Disturb<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disturb").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The inner driver's descriptor, and a timer for frames in flight.
#[derive(Debug)]
struct Wakeup {
    set: Epoll,
    timer: TimerFd,
    /// The time that the timer is set to.
    armed: Option<Instant>,
}

impl Wakeup {
    fn new(inner: BorrowedFd<'_>) -> io::Result<Self> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        set.add(inner, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        set.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        Ok(Self { set, timer, armed: None })
    }

    fn arm(&mut self, now: Instant, due: Option<Instant>) -> io::Result<()> {
        if self.armed == due {
            return Ok(());
        }
        self.armed = due;
        match due {
            None => self.timer.unset()?,
            Some(due) => {
                // Zero would disarm it.
                let time = due.since(now).max(Duration::from_nanos(1));
                let soon = Expiration::OneShot(TimeSpec::from(time));
                self.timer.set(soon, TimerSetTimeFlags::empty())?;
            }
        }
        Ok(())
    }
}

impl<D: Driver> Disturb<D> {
    /// Puts the paths `incoming` and `outgoing` between the stack and `inner`, in the time of `clock`.
    ///
    /// # Errors
    ///
    /// If no timer can be created.
    pub fn new(inner: D, incoming: Path, outgoing: Path, clock: Clock) -> io::Result<Self> {
        let below = inner.capabilities();
        let link = match below.medium {
            Medium::Ethernet => LinkType::Ethernet,
            Medium::Ip => LinkType::Raw,
        };
        let wakeup = inner.wakes().map(Wakeup::new).transpose()?;
        Ok(Self {
            inner,
            clock,
            capabilities: Capabilities {
                completes_checksums: false,
                max_train_bytes: u32::from(below.mtu),
                reports_completions: true,
                ..below
            },
            incoming: Queue::new(incoming, link),
            outgoing: Queue::new(outgoing, link),
            held: None,
            leaving: VecDeque::with_capacity(SLOTS),
            slot: vec![0; LINK_BYTES + usize::from(below.mtu)].into_boxed_slice(),
            wakeup,
        })
    }

    /// Returns the counters of received frames and of sent frames.
    #[must_use]
    pub fn counts(&self) -> [Counts; 2] {
        [self.incoming.counts(), self.outgoing.counts()]
    }

    /// Returns when the next frame arrives or has left: for callers that have no descriptor to sleep on.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let leaves = self.leaving.front().map(|(when, ..)| *when);
        let arrivals = [self.incoming.next_arrival(), self.outgoing.next_arrival(), leaves];
        arrivals.into_iter().flatten().min()
    }

    /// The driver below.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Passes frames that have arrived to the inner driver.
    fn hand_over(&mut self, now: Instant) -> io::Result<()> {
        let mut any = false;
        loop {
            let due = self.held.take();
            let Some(frame) = due.or_else(|| self.outgoing.pop(now).map(|arrived| arrived.frame))
            else {
                break;
            };
            let offered = self.inner.offer(&mut |slot| {
                slot.get_mut(..frame.len())?.copy_from_slice(&frame);
                Some(Transmit {
                    frame_bytes: u32::try_from(frame.len()).unwrap_or(u32::MAX),
                    checksum: Checksum::Complete,
                    segmentation: None,
                    owner: None,
                })
            })?;
            if offered == Offer::Full {
                self.held = Some(frame);
                break;
            }
            any = true;
        }
        // A frame that the inner driver had no slot for is offered again when its flush has made one.
        if any || self.held.is_some() { self.inner.flush() } else { Ok(()) }
    }

    fn arm(&mut self, now: Instant) -> io::Result<()> {
        let due = self.next_due();
        self.wakeup.as_mut().map_or(Ok(()), |wakeup| wakeup.arm(now, due))
    }
}

fn note(frame: &Received<'_>) -> Vec<u8> {
    let mut kept = Vec::with_capacity(NOTE_BYTES + frame.bytes.len());
    kept.push(u8::from(frame.trust == Trust::Good));
    kept.extend(frame.segment_bytes.unwrap_or(0).to_ne_bytes());
    kept.extend_from_slice(frame.bytes);
    kept
}

/// Restores a received frame from its kept form.
fn noted(arrived: &Arrived) -> Option<Received<'_>> {
    let ([good, low, high], bytes) = arrived.frame.split_first_chunk::<NOTE_BYTES>()?;
    let segment_bytes = u16::from_ne_bytes([*low, *high]);
    Some(Received {
        bytes,
        // It was found good before a bit was flipped.
        trust: if *good == 1 && !arrived.corrupted { Trust::Good } else { Trust::Unknown },
        segment_bytes: (segment_bytes > 0).then_some(segment_bytes),
    })
}

impl<D: Driver> Driver for Disturb<D> {
    fn capabilities(&self) -> Capabilities {
        let room = self.slot.len() - LINK_BYTES;
        let mtu = self.inner.capabilities().mtu.min(u16::try_from(room).unwrap_or(u16::MAX));
        Capabilities { mtu, max_train_bytes: mtu.into(), ..self.capabilities }
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let (incoming, clock) = (&mut self.incoming, &self.clock);
        self.inner.receive(budget, &mut |frame| {
            incoming.push(clock(), note(&frame), NOTE_BYTES);
        })?;
        let now = (self.clock)();
        let mut received = 0;
        while received < budget
            && let Some(arrived) = self.incoming.pop(now)
        {
            if let Some(frame) = noted(&arrived) {
                each(frame);
            }
            received += 1;
        }
        self.hand_over(now)?;
        self.arm(now)?;
        Ok(received)
    }

    fn has_frames(&mut self) -> bool {
        // Frames in flight are passed on by any call that looks, in either direction.
        let due = self.next_due();
        self.held.is_some()
            || due.is_some_and(|due| due <= (self.clock)())
            || self.inner.has_frames()
    }

    fn is_filling(&mut self) -> bool {
        self.inner.is_filling()
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        // The inner driver's completions are for frames that have left here long ago.
        self.inner.complete(&mut |_| ())?;
        let now = (self.clock)();
        self.hand_over(now)?;
        while let Some((when, owner, bytes)) = self.leaving.front().copied()
            && when <= now
        {
            self.leaving.pop_front();
            if let Some(owner) = owner {
                each(Completion { owner, bytes });
            }
        }
        self.arm(now)
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        if self.leaving.len() >= SLOTS {
            return Ok(Offer::Full);
        }
        let Some(transmit) = fill(&mut self.slot) else { return Ok(Offer::Declined) };
        let bytes = usize::try_from(transmit.frame_bytes).unwrap_or(usize::MAX);
        let frame = self.slot.get(..bytes).ok_or(io::ErrorKind::InvalidInput)?.to_vec();
        let now = (self.clock)();
        let leaves = self.outgoing.push(now, frame, 0);
        // A lost frame waits for those before it, too: completions are reported in order.
        let leaves = self.leaving.back().map_or(leaves, |(before, ..)| leaves.max(*before));
        self.leaving.push_back((leaves, transmit.owner, transmit.frame_bytes));
        Ok(Offer::Taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let now = (self.clock)();
        self.hand_over(now)?;
        self.arm(now)
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        self.wakeup.as_ref().map(|wakeup| wakeup.set.0.as_fd())
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn rest_at_most(&self) -> Option<Duration> {
        self.inner.rest_at_most()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let ours = self.wakeup.iter();
        let ours = ours.flat_map(|ours| [ours.set.0.as_raw_fd(), ours.timer.as_fd().as_raw_fd()]);
        self.inner.descriptors().into_iter().chain(ours).collect()
    }

    fn lost(&mut self) -> Option<u64> {
        self.inner.lost()
    }

    fn redirected(&self) -> Option<Redirected> {
        self.inner.redirected()
    }
}
