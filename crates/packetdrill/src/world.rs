//! The clock, the stack, what it has sent, and who waits.
//!
//! packetdrill has two threads: one plays the script, the other makes the calls that block. Time
//! goes on in the hands of whoever asks for it or sleeps. Whenever something has happened, those
//! who wait in a call are woken, try again, and the other goes on when each has finished or gone back
//! to sleep. Whoever has finished is told, when it next asks, the time at which it did, not that to
//! which the other has gone on meanwhile.

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

/// The time of day at which every script begins; packetdrill looks only at differences.
const BEGINNING: Duration = Duration::from_secs(1_000_000_000);
/// How far the clock goes on when it is looked at: packetdrill spins until an event is due.
const GLANCE: Duration = Duration::from_micros(1);
/// How long, in real time, to wait for the other thread to take note of what its call returned.
const PATIENCE: Duration = Duration::from_secs(5);

/// A packet that the stack has sent.
#[derive(Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// From its IP header on.
    pub bytes: Vec<u8>,
}

/// Everything, under one lock.
#[derive(Debug)]
pub struct World {
    pub(crate) stack: Option<Stack>,
    pub(crate) table: Table,
    pub(crate) now: Instant,
    settings: Option<Settings>,
    /// The settings are those of the namespace.
    follows: bool,
    /// How often it was told to forget what peers have given.
    flushed: u64,
    addresses: Vec<Cidr>,
    sent: VecDeque<Sent>,
    /// What takes its time to send, if there is such a link.
    link: Option<Queue>,
    /// Trains are cut into segments before they are seen.
    segments: bool,
    slot: Vec<u8>,
    /// Counts what those who wait have to look at, and how many of them have.
    changes: u64,
    waiting: usize,
    looked: usize,
    /// Until when those wait who do not wait for ever.
    deadlines: Vec<Instant>,
    /// Threads whose call is over, and when that was.
    returned: HashMap<ThreadId, Instant>,
    /// The same by the kernel's number, until they sleep again.
    leaving: Vec<Pid>,
}

impl World {
    /// The stack, which begins with the settings that hold when the first socket is made.
    pub(crate) fn stack(&mut self) -> &mut Stack {
        let Self { stack, settings, addresses, segments, link, .. } = self;
        stack.get_or_insert_with(|| {
            let settings = settings.take().unwrap_or_else(settings::read);
            *segments = settings.segments;
            *link = settings.link.map(Queue::new);
            // Scripts compare numbers only with each other.
            let mut stack = Stack::new(settings.config, settings.device, Mac([0; 6]), [1; 32]);
            if let Some(keys) = settings.keys {
                stack.set_fast_open_keys(None, keys);
            }
            for &address in addresses.iter() {
                stack.add_address(address);
            }
            // Everybody else is behind the device.
            for everywhere in ["0.0.0.0/0", "::/0"].iter().flat_map(|text| text.parse()) {
                stack.add_route(uncork_stack::Route { destination: everywhere, gateway: None });
            }
            stack
        })
    }

    /// Follows what a script has set in the middle, if the settings are the namespace's.
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

    /// Follows the switches of Fast Open, if the settings are the namespace's; gives those in force.
    pub(crate) fn follow_fast_open(&mut self) -> FastOpen {
        let follows = self.follows;
        let stack = self.stack();
        if let Some(switches) = settings::fast_open().filter(|_| follows) {
            stack.set_fast_open(switches);
        }
        stack.fast_open()
    }

    /// Lets the stack do all that it can do now.
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
                    // There are no sockets of UDP here, and packets have no neighbours.
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

/// The world, for several threads.
#[derive(Debug)]
pub struct Shared {
    world: Mutex<World>,
    moved: Condvar,
    /// Who plays the script.
    player: ThreadId,
}

impl Shared {
    /// A world whose stack has these addresses. Without settings it takes those of the namespace.
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

    /// A call that does not wait.
    ///
    /// # Errors
    ///
    /// What `act` says.
    pub fn call<T>(&self, act: impl FnOnce(&mut World) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut world = self.lock();
        let result = act(&mut world);
        world.drive();
        drop(self.settle(world));
        result
    }

    /// A call that is tried until it no longer says EAGAIN, if it may wait, and `until` is not past.
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
            // Nobody else can make time pass.
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
        // It has left: nobody is to wait for it, nor to count it among those who stayed.
        world.looked = world.looked.saturating_sub(1);
        world.deadlines.retain(|&one| Some(one) != until);
        let now = world.now;
        world.returned.insert(std::thread::current().id(), now);
        world.leaving.push(gettid());
        self.moved.notify_all();
        result
    }

    /// Lets those who wait look at what has changed.
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

    /// Time goes on to `to`, and everything happens that is due before.
    fn pass<'a>(&'a self, mut world: MutexGuard<'a, World>, to: Instant) -> MutexGuard<'a, World> {
        while let Some(next) = world.next().filter(|&next| next <= to) {
            world.now = world.now.max(next);
            world.drive();
            world = self.settle(world);
            // A timer that is due and stays so would stop time.
            if world.next().is_some_and(|again| again <= world.now) {
                world.now += Duration::from_nanos(1);
            }
        }
        world.now = world.now.max(to);
        world
    }

    /// The time of day, which goes on when somebody looks at it.
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

    /// The player sleeps. Nobody holds packetdrill's lock meanwhile, so whoever has returned from a
    /// call is given the time to say so.
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

    /// A packet from the network, from its IP header on.
    pub fn arrive(&self, packet: &[u8]) {
        let mut world = self.lock();
        let now = world.now;
        world.stack().handle_frame(now, &Received::plain(packet));
        world.drive();
        drop(self.settle(world));
    }

    /// The time, in virtual nanoseconds, without its going on.
    pub fn now(&self) -> Instant {
        self.lock().now
    }

    /// The next packet that is sent until then, which is the time afterwards if there is none.
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

    /// The next packet that is sent, as late as that may be; none if none will be.
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

/// As packetdrill writes times.
pub(crate) fn since_beginning(at: Instant) -> Duration {
    BEGINNING + at.since(Instant::ZERO)
}

/// Waits, in real time, until a thread of this process sleeps: packetdrill's second one does when it
/// has checked what its call returned.
fn wait_until_it_sleeps(thread: Pid) {
    let path = format!("/proc/self/task/{thread}/stat");
    let until = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_micros(200));
        let Ok(text) = std::fs::read_to_string(&path) else { return };
        // The state stands behind the name, which may have anything in it.
        let state = text.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        if state == Some("S") {
            return;
        }
    }
}
