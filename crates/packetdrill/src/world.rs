//! The clock, the stack, the packets that it has sent, and the waiting threads.
//!
//! packetdrill has two threads: one plays the script, the other makes the calls that block. A thread
//! that reads the time or sleeps advances it. Whenever something has happened, threads that wait in a
//! call are woken and try again, and the other thread continues when each has finished or gone back
//! to sleep. A thread that has finished gets, when it next reads the time, the time at which it did,
//! not the time to which the other has advanced meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{Pid, gettid};
use uncork_packet::{Completion, Instant, Received};
use uncork_stack::{Cidr, Event, FastOpen, Mac, Stack};

pub use crate::link::Link;
use crate::link::Queue;
pub use crate::settings::Settings;
use crate::table::Table;
use crate::{segment, settings};

/// The time of day at which every script begins; packetdrill only uses differences.
const BEGINNING: Duration = Duration::from_secs(1_000_000_000);
/// How far a reading advances the clock: packetdrill spins until an event is due.
const GLANCE: Duration = Duration::from_micros(1);
/// How long, in real time, to wait for the other thread to process its call's result.
const PATIENCE: Duration = Duration::from_secs(5);

/// A packet that the stack has sent.
#[derive(Debug)]
pub struct Sent {
    /// Time of sending.
    pub at: Instant,
    /// The packet from its IP header on.
    pub bytes: Vec<u8>,
}

/// The whole state, under one lock.
#[derive(Debug)]
pub struct World {
    pub(crate) stack: Option<Stack>,
    pub(crate) table: Table,
    pub(crate) now: Instant,
    settings: Option<Settings>,
    /// Whether the settings follow those of the namespace.
    follows: bool,
    /// How often it was told to forget the Fast Open cookies of peers.
    flushed: u64,
    addresses: Vec<Cidr>,
    sent: VecDeque<Sent>,
    /// A link with a limited rate, if there is one.
    link: Option<Queue>,
    /// Whether trains are cut into segments before the script sees them.
    segments: bool,
    slot: Vec<u8>,
    /// Counts changes that waiting threads have to look at; `looked` is how many of them have.
    changes: u64,
    waiting: usize,
    looked: usize,
    /// Deadlines of the waiting threads that have one.
    deadlines: Vec<Instant>,
    /// Threads whose call is over, and when it ended.
    returned: HashMap<ThreadId, Instant>,
    /// Kernel ids of such threads, until they sleep again.
    leaving: Vec<Pid>,
}

impl World {
    /// Returns the stack, created with the settings at the time of the first socket.
    pub(crate) fn stack(&mut self) -> &mut Stack {
        let Self { stack, settings, addresses, segments, link, .. } = self;
        stack.get_or_insert_with(|| {
            let settings = settings.take().unwrap_or_else(settings::read);
            *segments = settings.segments;
            *link = settings.link.map(Queue::new);
            // Scripts compare sequence numbers only with each other.
            let mut stack = Stack::new(settings.config, settings.device, Mac([0; 6]), [1; 32]);
            if let Some(keys) = settings.keys {
                stack.set_fast_open_keys(None, keys);
            }
            for &address in addresses.iter() {
                stack.add_address(address);
            }
            // All other hosts are behind the device.
            for everywhere in ["0.0.0.0/0", "::/0"].iter().flat_map(|text| text.parse()) {
                stack.add_route(uncork_stack::Route { destination: everywhere, gateway: None });
            }
            stack
        })
    }

    /// Applies settings that a script has changed in the middle, if they are the namespace's.
    pub(crate) fn follow(&mut self) {
        if !self.follows {
            return;
        }
        self.stack().follow(&settings::sysctl);
        let flushed = settings::times_flushed();
        if std::mem::replace(&mut self.flushed, flushed) != flushed {
            self.stack().forget_fast_open_cookies();
        }
    }

    /// Applies the switches of Fast Open, if the settings are the namespace's; returns those in force.
    pub(crate) fn follow_fast_open(&mut self) -> FastOpen {
        let follows = self.follows;
        let stack = self.stack();
        if let Some(switches) = settings::fast_open().filter(|_| follows) {
            stack.set_fast_open(switches);
        }
        stack.fast_open()
    }

    /// Lets the stack do everything that it can do now.
    pub(crate) fn drive(&mut self) {
        let now = self.now;
        let Some(stack) = &mut self.stack else { return };
        loop {
            let mut moved = false;
            if stack.poll_timeout().is_some_and(|due| due <= now) {
                stack.handle_timeout(now);
                moved = true;
            }
            while let Some(transmit) = stack.poll_transmit(now, &mut self.slot) {
                let frame = &self.slot[..transmit.frame_bytes as usize];
                let packets = match &transmit.segmentation {
                    Some(segmentation) if self.segments => segment::cut(frame, segmentation),
                    _ => vec![frame.to_vec()],
                };
                let owner = transmit.owner;
                let completion =
                    owner.map(|owner| Completion { owner, bytes: transmit.frame_bytes });
                match &mut self.link {
                    Some(link) => link.push(now, packets, completion),
                    None => {
                        self.sent.extend(packets.into_iter().map(|bytes| Sent { at: now, bytes }));
                        if let Some(completion) = completion {
                            stack.handle_completion(now, completion);
                        }
                    }
                }
                moved = true;
            }
            while let Some(gone) = self.link.as_mut().and_then(|link| link.pop(now)) {
                self.sent.push_back(Sent { at: gone.at, bytes: gone.bytes });
                if let Some(completion) = gone.completion {
                    stack.handle_completion(now, completion);
                }
                moved = true;
            }
            while let Some(event) = stack.poll_event() {
                let descriptor = match event {
                    Event::Socket(socket, _) => self.table.find(socket),
                    Event::Incoming(listener) => self.table.find_listener(listener),
                    // There are no UDP sockets here, and packets have no neighbours.
                    Event::Udp(..) | Event::Neighbour(_) => None,
                };
                if let Some(fd) = descriptor {
                    self.table.note_edge(fd);
                }
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let timer = self.stack.as_ref().and_then(Stack::poll_timeout);
        let link = self.link.as_ref().and_then(Queue::next);
        self.deadlines.iter().copied().chain(timer).chain(link).min()
    }
}

/// The world, shared by threads.
#[derive(Debug)]
pub struct Shared {
    world: Mutex<World>,
    moved: Condvar,
    /// The thread that plays the script.
    player: ThreadId,
}

impl Shared {
    /// Makes a world whose stack has these addresses. Without settings it takes those of the namespace.
    #[must_use]
    pub fn new(addresses: Vec<Cidr>, settings: Option<Settings>) -> Self {
        let world = World {
            stack: None,
            table: Table::default(),
            now: Instant::from_millis(1000),
            follows: settings.is_none(),
            flushed: 0,
            settings,
            addresses,
            sent: VecDeque::new(),
            link: None,
            segments: false,
            slot: vec![0; 1 << 16],
            changes: 0,
            waiting: 0,
            looked: 0,
            deadlines: Vec::new(),
            returned: HashMap::new(),
            leaving: Vec::new(),
        };
        Self {
            world: Mutex::new(world),
            moved: Condvar::new(),
            player: std::thread::current().id(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that does not block.
    ///
    /// # Errors
    ///
    /// The error of `act`.
    pub fn call<T>(&self, act: impl FnOnce(&mut World) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut world = self.lock();
        let result = act(&mut world);
        world.drive();
        drop(self.settle(world));
        result
    }

    /// Makes a call; retries it while it returns EAGAIN, if it may block, until `until`.
    pub(crate) fn wait<T>(
        &self,
        waits: bool,
        until: Option<Instant>,
        mut attempt: impl FnMut(&mut World) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut world = self.lock();
        let mut result = attempt(&mut world);
        world.drive();
        world = self.settle(world);
        let player = std::thread::current().id() == self.player;
        if !waits || !matches!(result, Err(Errno::EAGAIN)) {
            return result;
        }
        let over = |world: &World| until.is_some_and(|until| until <= world.now);
        if player {
            // No other thread can make time pass.
            while matches!(result, Err(Errno::EAGAIN)) && !over(&world) {
                let Some(next) = world.next().into_iter().chain(until).min() else { break };
                world = self.pass(world, next);
                result = attempt(&mut world);
                world.drive();
            }
            return result;
        }
        world.waiting += 1;
        world.deadlines.extend(until);
        while matches!(result, Err(Errno::EAGAIN)) && !over(&world) {
            let seen = world.changes;
            world = self
                .moved
                .wait_while(world, |world| world.changes == seen)
                .unwrap_or_else(PoisonError::into_inner);
            result = attempt(&mut world);
            world.drive();
            world.looked += 1;
            self.moved.notify_all();
        }
        world.waiting -= 1;
        // It has left: it must neither be waited for, nor counted among those that have looked.
        world.looked = world.looked.saturating_sub(1);
        world.deadlines.retain(|&one| Some(one) != until);
        let now = world.now;
        world.returned.insert(std::thread::current().id(), now);
        world.leaving.push(gettid());
        self.moved.notify_all();
        result
    }

    /// Lets waiting threads look at what has changed.
    fn settle<'a>(&'a self, mut world: MutexGuard<'a, World>) -> MutexGuard<'a, World> {
        if world.waiting == 0 {
            return world;
        }
        world.changes += 1;
        world.looked = 0;
        self.moved.notify_all();
        self.moved
            .wait_while(world, |world| world.looked < world.waiting)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances time to `to`, with everything that is due before.
    fn pass<'a>(&'a self, mut world: MutexGuard<'a, World>, to: Instant) -> MutexGuard<'a, World> {
        while let Some(next) = world.next().filter(|&next| next <= to) {
            world.now = world.now.max(next);
            world.drive();
            world = self.settle(world);
            // A timer that stays due would stop time.
            if world.next().is_some_and(|again| again <= world.now) {
                world.now += Duration::from_nanos(1);
            }
        }
        world.now = world.now.max(to);
        world
    }

    /// Returns the time of day, which each reading advances.
    pub fn time_of_day(&self) -> Duration {
        let mut world = self.lock();
        let thread = std::thread::current().id();
        if let Some(at) = world.returned.remove(&thread) {
            return since_beginning(at);
        }
        let to = world.now + GLANCE;
        world = self.pass(world, to);
        since_beginning(world.now)
    }

    /// Puts the player to sleep. Nobody holds packetdrill's lock meanwhile, so a thread that has
    /// returned from a call gets the time to report that.
    pub fn sleep(&self, duration: Duration) {
        let mut world = self.lock();
        let to = world.now + duration;
        world = self.pass(world, to);
        let leaving = std::mem::take(&mut world.leaving);
        drop(world);
        for thread in leaving {
            wait_until_it_sleeps(thread);
        }
    }

    /// Passes a packet from the network to the stack, from its IP header on.
    pub fn arrive(&self, packet: &[u8]) {
        let mut world = self.lock();
        let now = world.now;
        world.stack().handle_frame(now, &Received::plain(packet));
        world.drive();
        drop(self.settle(world));
    }

    /// Returns the virtual time, in nanoseconds, without advancing it.
    pub fn now(&self) -> Instant {
        self.lock().now
    }

    /// Returns the next packet that is sent by `until`, which is the time afterwards if there is none.
    pub fn sent_until(&self, until: Instant) -> Option<Sent> {
        let mut world = self.lock();
        loop {
            if let Some(sent) = world.sent.pop_front() {
                return Some(sent);
            }
            if world.now >= until {
                return None;
            }
            let next = world.next().map_or(until, |next| next.min(until));
            world = self.pass(world, next);
        }
    }

    /// Returns the next packet that is sent, however late; `None` if none will be.
    pub fn next_sent(&self) -> Option<Sent> {
        let mut world = self.lock();
        loop {
            if let Some(sent) = world.sent.pop_front() {
                return Some(sent);
            }
            let next = world.next()?;
            world = self.pass(world, next);
        }
    }
}

/// Converts to packetdrill's times.
pub(crate) fn since_beginning(at: Instant) -> Duration {
    BEGINNING + at.since(Instant::ZERO)
}

/// Waits, in real time, until a thread of this process sleeps: packetdrill's second one does once it
/// has checked the result of its call.
fn wait_until_it_sleeps(thread: Pid) {
    let path = format!("/proc/self/task/{thread}/stat");
    let until = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_micros(200));
        let Ok(text) = std::fs::read_to_string(&path) else { return };
        // The state follows the name, which may contain anything.
        let state = text.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        if state == Some("S") {
            return;
        }
    }
}
