//! A kernel that records what it was asked.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use uncork_bias::Thread;
use uncork_cork::Instant;

use crate::kernel::{Held, Kernel, Kind};
use crate::socket::held;
use crate::{Errno, Socket};

/// A regular file.
pub(super) const FILE: i32 = 20;
/// A socket with FD_CLOEXEC.
pub(super) const CLOEXEC: i32 = 11;
/// A pipe.
pub(super) const PIPE: i32 = 21;
/// The first number of duplicates.
const DUPLICATES: i32 = 60;
const DESCRIPTORS: usize = 64;

/// What left a socket in one piece.
pub(super) type Packet = Vec<u8>;

/// One connection, seen from the wire.
#[derive(Clone, Debug)]
struct Wire {
    /// Held under MSG_MORE.
    held: Vec<u8>,
    packets: Vec<Packet>,
    /// Number of bytes that the send buffer still takes.
    room: usize,
    nodelay: bool,
    nonblocking: bool,
    protocol: bool,
    low_water: u32,
    error: Option<Errno>,
    closed: bool,
    shut: bool,
    /// SO_LINGER with a time of 0.
    discards: bool,
    was_reset: bool,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            packets: Vec::new(),
            room: usize::MAX,
            nodelay: false,
            nonblocking: false,
            protocol: false,
            low_water: 1,
            error: None,
            closed: false,
            shut: false,
            discards: false,
            was_reset: false,
        }
    }
}

impl Wire {
    fn push(&mut self) {
        if !self.held.is_empty() {
            self.packets.push(core::mem::take(&mut self.held));
        }
    }
}

pub(super) struct Fake {
    states: Vec<AtomicU8>,
    sockets: Vec<Socket>,
    highest: AtomicI32,
    held: Held,
    wires: RefCell<BTreeMap<i32, Wire>>,
    now: Cell<u64>,
    calls: Cell<usize>,
    said: RefCell<String>,
    pid: Cell<u32>,
    keeper_allowed: Cell<bool>,
    keeper_started: Cell<bool>,
    duplicates: Cell<i32>,
    twins: Cell<(i32, i32)>,
    growth: Cell<bool>,
    unwatched: RefCell<Vec<(i32, i32)>>,
    held_while_sent: Cell<bool>,
    handlers_off: Cell<bool>,
    times_kept_off: Cell<u32>,
    gathered_sends: Cell<usize>,
    interruptible: Cell<usize>,
    keeper_woken: Cell<bool>,
    alarm: Cell<Option<u64>>,
    alarm_works: Cell<bool>,
    alarm_sets: Cell<usize>,
    handlers_off_at_alarm: Cell<bool>,
}

impl Fake {
    pub(super) fn new() -> Self {
        let words = || Box::leak(Box::new([AtomicU64::new(0)]));
        Self {
            states: (0..DESCRIPTORS).map(|_| AtomicU8::new(0)).collect(),
            sockets: (0..DESCRIPTORS).map(|_| Socket::default()).collect(),
            highest: AtomicI32::new(-1),
            held: Held {
                count: Box::leak(Box::new(AtomicU32::new(0))),
                bits: words(),
                summary: words(),
            },
            wires: RefCell::default(),
            now: Cell::new(1_000_000_000),
            calls: Cell::new(0),
            said: RefCell::default(),
            pid: Cell::new(1),
            keeper_allowed: Cell::new(true),
            keeper_started: Cell::new(false),
            duplicates: Cell::new(DUPLICATES),
            twins: Cell::new((-1, -1)),
            growth: Cell::new(false),
            unwatched: RefCell::default(),
            held_while_sent: Cell::new(false),
            handlers_off: Cell::new(false),
            times_kept_off: Cell::new(0),
            gathered_sends: Cell::new(0),
            interruptible: Cell::new(0),
            keeper_woken: Cell::new(false),
            alarm: Cell::new(None),
            alarm_works: Cell::new(true),
            alarm_sets: Cell::new(0),
            handlers_off_at_alarm: Cell::new(false),
        }
    }

    fn wire<T>(&self, fd: i32, run: impl FnOnce(&mut Wire) -> T) -> T {
        run(self.wires.borrow_mut().entry(fd).or_default())
    }

    /// Makes the program's own send, as the shims do.
    pub(super) fn program_send(&self, fd: i32, data: &[u8], more: bool) -> Result<usize, Errno> {
        self.send(fd, data, more)
    }

    /// Applies the kernel's own limit of 200 ms to what a program holds by itself.
    pub(super) fn let_go(&self, fd: i32) {
        self.wire(fd, Wire::push);
    }

    pub(super) fn packets(&self, fd: i32) -> Vec<Packet> {
        self.wire(fd, |wire| wire.packets.clone())
    }

    /// Returns all bytes that the peer has seen.
    pub(super) fn delivered(&self, fd: i32) -> Vec<u8> {
        self.packets(fd).concat()
    }

    /// Returns the number of system calls that were made on sockets.
    pub(super) fn calls(&self) -> usize {
        self.calls.get()
    }

    pub(super) fn said(&self) -> String {
        self.said.borrow().clone()
    }

    pub(super) fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time.as_nanos() as u64);
    }

    pub(super) fn set_room(&self, fd: i32, room: usize) {
        self.wire(fd, |wire| wire.room = room);
    }

    pub(super) fn set_nonblocking(&self, fd: i32) {
        self.wire(fd, |wire| wire.nonblocking = true);
    }

    pub(super) fn set_discards(&self, fd: i32) {
        self.wire(fd, |wire| wire.discards = true);
    }

    pub(super) fn was_reset(&self, fd: i32) -> bool {
        self.wire(fd, |wire| wire.was_reset)
    }

    pub(super) fn has_duplicated(&self) -> bool {
        self.duplicates.get() != DUPLICATES
    }

    /// Lets kTLS run on a socket.
    pub(super) fn encrypt(&self, fd: i32) {
        self.wire(fd, |wire| wire.protocol = true);
    }

    pub(super) fn set_low_water(&self, fd: i32, bytes: u32) {
        self.wire(fd, |wire| wire.low_water = bytes);
    }

    /// Makes two descriptors those of one socket, as far as one can tell by asking for it.
    pub(super) fn make_twins(&self, one: i32, other: i32) {
        self.twins.set((one, other));
    }

    pub(super) fn fail(&self, fd: i32, error: Errno) {
        self.wire(fd, |wire| wire.error = Some(error));
    }

    pub(super) fn nodelay_in_force(&self, fd: i32) -> bool {
        self.wire(fd, |wire| wire.nodelay)
    }

    pub(super) fn is_closed(&self, fd: i32) -> bool {
        self.wire(fd, |wire| wire.closed)
    }

    pub(super) fn is_shut(&self, fd: i32) -> bool {
        self.wire(fd, |wire| wire.shut)
    }

    /// Lets send buffers become larger from now on.
    pub(super) fn allow_growth(&self) {
        self.growth.set(true);
    }

    /// Returns what was taken out of epoll sets, as (set, descriptor).
    pub(super) fn unwatched(&self) -> Vec<(i32, i32)> {
        self.unwatched.borrow().clone()
    }

    /// Returns whether the latest send was on a socket that was known to hold bytes in the process.
    pub(super) fn was_held_while_sent(&self) -> bool {
        self.held_while_sent.get()
    }

    /// Returns the number of sends of gathered bytes.
    pub(super) fn gathered_sends(&self) -> usize {
        self.gathered_sends.get()
    }

    /// Returns how many of them a signal handler could have interrupted.
    pub(super) fn sends_that_could_be_interrupted(&self) -> usize {
        self.interruptible.get()
    }

    /// Returns how often handlers were kept off.
    pub(super) fn kept_off(&self) -> u32 {
        self.times_kept_off.get()
    }

    pub(super) fn handlers_are_off(&self) -> bool {
        self.handlers_off.get()
    }

    pub(super) fn latest_duplicate(&self) -> i32 {
        self.duplicates.get() - 1
    }

    pub(super) fn become_another_process(&self) {
        self.pid.set(self.pid.get() + 1);
    }

    pub(super) fn come_back(&self) {
        self.pid.set(self.pid.get() - 1);
    }

    /// Returns how long it is until the alarm rings, if it is set.
    pub(super) fn until_alarm(&self) -> Option<Duration> {
        let at = self.alarm.get()?;
        Some(Duration::from_nanos(at.saturating_sub(self.now.get())))
    }

    /// Returns whether the alarm has rung; it rings once.
    pub(super) fn rings(&self) -> bool {
        let rings = self.alarm.get().is_some_and(|at| at <= self.now.get());
        if rings {
            self.alarm.set(None);
        }
        rings
    }

    /// Returns whether the timer thread was woken since this was last asked.
    pub(super) fn keeper_was_woken(&self) -> bool {
        self.keeper_woken.take()
    }

    pub(super) fn break_alarm(&self) {
        self.alarm_works.set(false);
    }

    /// Returns the number of system calls for the alarm.
    pub(super) fn alarm_sets(&self) -> usize {
        self.alarm_sets.get()
    }

    /// Returns whether handlers were kept off when the alarm was last set.
    pub(super) fn handlers_were_off_at_alarm(&self) -> bool {
        self.handlers_off_at_alarm.get()
    }

    pub(super) fn refuse_keeper(&self) {
        self.keeper_allowed.set(false);
    }

    pub(super) fn keeper_started(&self) -> bool {
        self.keeper_started.get()
    }
}

impl Kernel for Fake {
    fn state(&self, fd: i32) -> Option<&AtomicU8> {
        self.states.get(usize::try_from(fd).ok()?)
    }

    fn socket(&self, fd: i32) -> Option<&Socket> {
        self.sockets.get(usize::try_from(fd).ok()?)
    }

    fn make_socket(&self, fd: i32) -> Option<&Socket> {
        self.socket(fd)
    }

    fn highest(&self) -> &AtomicI32 {
        &self.highest
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn thread(&self, _: fn()) -> Thread {
        Thread::NONE
    }

    fn barrier(&self) {}

    fn keep_handlers_off(&self) -> Option<u64> {
        self.handlers_off.set(true);
        self.times_kept_off.set(self.times_kept_off.get() + 1);
        Some(0)
    }

    fn let_handlers(&self, _: u64) {
        self.handlers_off.set(false);
    }

    fn push(&self, fd: i32) {
        self.calls.set(self.calls.get() + 1);
        self.wire(fd, |wire| {
            wire.nodelay = true;
            wire.push();
        });
    }

    fn send(&self, fd: i32, bytes: &[u8], more: bool) -> Result<usize, Errno> {
        self.calls.set(self.calls.get() + 1);
        let socket = self.socket(fd);
        let place = socket.map_or(0, |socket| socket.held.load(Relaxed));
        self.held_while_sent.set(place & held::USER != 0);
        if place & held::USER != 0 {
            self.gathered_sends.set(self.gathered_sends.get() + 1);
            self.interruptible
                .set(self.interruptible.get() + usize::from(!self.handlers_off.get()));
        }
        self.wire(fd, |wire| {
            if let Some(error) = wire.error.take() {
                return Err(error);
            }
            let taken = bytes.len().min(wire.room);
            if taken == 0 && !bytes.is_empty() {
                return Err(Errno::EAGAIN);
            }
            wire.room = wire.room.saturating_sub(taken);
            wire.held.extend_from_slice(&bytes[..taken]);
            if !more || wire.room == 0 {
                wire.push();
            }
            Ok(taken)
        })
    }

    fn wait_writable(&self, fd: i32, _: Option<Duration>) -> Result<bool, Errno> {
        self.wire(fd, |wire| wire.room = wire.room.max(4));
        Ok(true)
    }

    fn wait_as_writer(&self, fd: i32) -> Result<(), Errno> {
        self.wait_writable(fd, None).map(drop)
    }

    fn widen_send_buffer(&self, fd: i32, bytes: usize) {
        if self.growth.get() {
            self.wire(fd, |wire| wire.room += bytes);
        }
    }

    fn unwatch(&self, epfd: i32, fd: i32) {
        self.unwatched.borrow_mut().push((epfd, fd));
    }

    fn discards(&self, fd: i32) -> bool {
        self.wire(fd, |wire| wire.discards)
    }

    fn discard(&self, fd: i32) {
        self.wire(fd, |wire| wire.was_reset = true);
    }

    fn shut_writing(&self, fd: i32) {
        self.wire(fd, |wire| wire.shut = true);
    }

    fn send_timeout(&self, _: i32) -> Option<Duration> {
        None
    }

    fn is_nonblocking(&self, fd: i32) -> bool {
        self.wire(fd, |wire| wire.nonblocking)
    }

    fn closes_on_exec(&self, fd: i32) -> bool {
        fd == CLOEXEC
    }

    fn kind(&self, fd: i32) -> Kind {
        if fd == FILE { Kind::Ready } else { Kind::Waits }
    }

    fn is_tcp(&self, fd: i32) -> bool {
        fd != FILE && fd != PIPE
    }

    fn nodelay(&self, fd: i32) -> bool {
        self.nodelay_in_force(fd)
    }

    fn has_protocol(&self, fd: i32) -> bool {
        self.wire(fd, |wire| wire.protocol)
    }

    fn low_water(&self, fd: i32) -> u32 {
        self.wire(fd, |wire| wire.low_water)
    }

    fn max_segment(&self, _: i32) -> u32 {
        1448
    }

    fn peer(&self, _: i32) -> Option<SocketAddr> {
        None
    }

    fn identity(&self, fd: i32) -> u64 {
        let (one, other) = self.twins.get();
        if fd == other { one as u64 } else { fd as u64 }
    }

    fn duplicate(&self, fd: i32) -> Option<i32> {
        let copy = self.duplicates.replace(self.duplicates.get() + 1);
        let mut wire = self.wire(fd, |wire| wire.clone());
        wire.packets.clear();
        self.wires.borrow_mut().insert(copy, wire);
        Some(copy)
    }

    fn close(&self, fd: i32) {
        self.wire(fd, |wire| wire.closed = true);
    }

    fn now(&self) -> Instant {
        Instant(self.now.get())
    }

    fn give_way(&self) {
        self.pass(Duration::from_millis(1));
    }

    fn start_keeper(&self) -> bool {
        self.keeper_started.set(self.keeper_allowed.get());
        self.keeper_allowed.get()
    }

    fn wake_keeper(&self) {
        self.keeper_woken.set(true);
    }

    fn set_alarm(&self, at: Instant) -> bool {
        self.alarm_sets.set(self.alarm_sets.get() + 1);
        self.handlers_off_at_alarm.set(self.handlers_off.get());
        if self.alarm_works.get() {
            self.alarm.set(Some(at.0));
        }
        self.alarm_works.get()
    }

    fn say(&self, line: &str) {
        self.said.borrow_mut().push_str(line);
    }

    fn consider_dump(&self) {}

    fn pid(&self) -> u32 {
        self.pid.get()
    }
}
