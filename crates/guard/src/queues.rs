//! AF_XDP queues of the devices: which engine has which.
//!
//! A packet socket brings each engine everything that is its own. A queue brings its engine what arrives on it by a shorter path
//! (uncork-bpf, `RedirectByQueue`). So queues only matter for speed: an engine without one misses nothing, and a queue that is
//! free again goes to the next engine.

use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use uncork_bpf::owned::{self, Engine, RedirectByQueue};
use uncork_driver::OpenError;
use uncork_driver::af_xdp::{Handed, Nature, Settings};
use uncork_guardian::Device;

use crate::Error;
use crate::error::counted;
use crate::session::{Role, Session};
use crate::steering::Steering;

/// Room for received frames: some milliseconds of full frames at ten gigabits. What finds none is lost.
const RECEIVE_FRAMES: usize = 2048;
/// Everything leaves by the packet socket; the kernel wants a ring all the same.
const TRANSMIT_FRAMES: usize = 64;
/// How soon opening a queue is retried: the kernel releases a queue a little after its socket is closed.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_millis(500);

/// How long a device is waited for at the start: its previous user may just be ending.
const OTHERS_END: Duration = Duration::from_secs(2);

/// Which stacks get queues of each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Programs with stacks of their own get this many each.
    Each(NonZeroU32),
    /// Instances get all, which they divide among themselves.
    Instances,
}

/// A device with its XDP program, which is attached while some engine may get a queue.
struct Shared {
    index: i32,
    name: String,
    redirect: RedirectByQueue,
    /// The engine that has each queue.
    of: Vec<Option<Engine>>,
    /// Why each queue could not be given out, as of the last attempt.
    refused: Vec<Option<String>>,
    /// The first queue, until an engine gets it.
    first: Option<Handed>,
}

impl Shared {
    fn new(steering: &Steering, device: &Device, share: Share) -> Result<Self, Error> {
        let name = device.name.clone();
        let Nature { index, queues: count, marks } = Nature::of(&name)?;
        if let Share::Each(each) = share
            && each.get() > count
        {
            return Err(Error::Queues { device: name, queues: count, wanted: each.get() });
        }
        let redirect = steering.by_queue(owned::Queues { count, marks });
        let redirect = redirect.map_err(|error| match error {
            owned::Error::Privilege if marks => Error::Perfmon(name.clone()),
            error => error.into(),
        })?;
        let (of, refused) = (vec![None; count as usize], vec![None; count as usize]);
        let mut shared = Self { index, redirect, of, refused, first: None, name };
        shared.take(Instant::now() + OTHERS_END)?;
        Ok(shared)
    }

    /// Attaches the program and opens the first queue; if another process has them, once it has ended, until the deadline.
    fn take(&mut self, until: Instant) -> Result<(), Error> {
        loop {
            let taken = self.try_to_take();
            let may_end = match &taken {
                Err(Error::Occupied { .. } | Error::Port(OpenError::Busy(_))) => true,
                // The user may have locked the rest for something that is about to end.
                Err(Error::Locked(locked)) => locked.bytes <= locked.limit_bytes,
                _ => false,
            };
            if !may_end || Instant::now() >= until {
                return taken;
            }
            thread::sleep(FIRST_RETRY);
        }
    }

    fn try_to_take(&mut self) -> Result<(), Error> {
        if self.first.is_none() {
            self.first = Some(open(&self.name, 0)?);
        }
        self.attach()
    }

    fn attach(&mut self) -> Result<(), Error> {
        if self.redirect.is_attached() {
            return Ok(());
        }
        self.redirect.attach(self.index).map_err(|error| match error {
            owned::Error::Occupied { program, .. } => {
                Error::Occupied { device: self.name.clone(), program }
            }
            owned::Error::NoXdp(_) => Error::NoXdp(self.name.clone()),
            error => error.into(),
        })
    }

    fn give(&mut self, number: u32, engine: Engine) -> Result<Handed, Error> {
        let handed = match self.first.take_if(|_| number == 0) {
            Some(handed) => handed,
            None => open(&self.name, number)?,
        };
        self.redirect.enter(number, engine, handed.socket.as_fd())?;
        self.attach()?;
        self.of[number as usize] = Some(engine);
        self.refused[number as usize] = None;
        Ok(handed)
    }

    fn free(&mut self, engine: Engine) {
        for (number, of) in (0..).zip(&mut self.of) {
            if *of == Some(engine) {
                *of = None;
                // An entry that stays redirects to nobody: the socket is closed.
                let _ = self.redirect.leave(number);
            }
        }
    }

    /// Releases the device for others, as no engine is left here. Not earlier: some drivers lose frames when a program
    /// comes or goes.
    fn let_go(&mut self) {
        self.redirect.detach();
        self.first = None;
    }
}

/// All queues of all devices.
pub(crate) struct Queues {
    devices: Vec<Shared>,
    share: Share,
    /// Queues that could not be given out, and when they are retried.
    waits: Vec<Queue>,
    retry: Option<Instant>,
    rests: Duration,
}

/// A queue, by the device's index and its own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue {
    device: usize,
    number: u32,
}

impl Queues {
    /// Attaches the programs to the devices and checks that the first queue of each can be opened, waiting as long as
    /// a previous user may take to end. Until queues are given out, frames go where they would go without.
    pub(crate) fn attach(
        steering: &Steering,
        devices: &[Device],
        share: Share,
    ) -> Result<Self, Error> {
        let shared = |device| Shared::new(steering, device, share);
        let devices = devices.iter().map(shared).collect::<Result<_, Error>>()?;
        Ok(Self { devices, share, waits: Vec::new(), retry: None, rests: FIRST_RETRY })
    }

    /// Returns a free queue and the engine that is to have it: the one with the fewest. An instance has the queue of its own
    /// number and every so many after it, so that they stay the same when it is restarted.
    pub(crate) fn next(&self, sessions: &[&Session], instances: u32) -> Option<(Queue, Engine)> {
        let free = self.devices.iter().enumerate().flat_map(|(device, shared)| {
            let numbers = (0..).zip(&shared.of).filter(|(_, of)| of.is_none());
            numbers.map(move |(number, _)| Queue { device, number })
        });
        free.filter(|queue| !self.waits.contains(queue)).find_map(|queue| {
            let wants = sessions.iter().filter(|session| self.wants(session, queue, instances));
            let fewest = wants.min_by_key(|session| self.count(queue.device, session.engine))?;
            Some((queue, fewest.engine))
        })
    }

    fn count(&self, device: usize, engine: Engine) -> usize {
        self.devices[device].of.iter().filter(|of| **of == Some(engine)).count()
    }

    fn wants(&self, session: &Session, queue: Queue, instances: u32) -> bool {
        let has_opened = session.opens(self.devices[queue.device].index) > 0;
        has_opened
            && self.is_for(session, queue.number, instances)
            && match self.share {
                Share::Each(each) => self.count(queue.device, session.engine) < each.get() as usize,
                Share::Instances => true,
            }
    }

    /// Tells whether a queue of this number may go to this session.
    fn is_for(&self, session: &Session, number: u32, instances: u32) -> bool {
        match (self.share, session.role) {
            (Share::Each(_), Role::Program) => true,
            (Share::Instances, Role::Instance(own)) => number % instances.max(1) == own,
            _ => false,
        }
    }

    /// Returns why a session has fewer queues than it should: a sentence for each such device.
    pub(crate) fn missing(&self, session: &Session, instances: u32) -> Vec<String> {
        let opened = self.devices.iter().filter(|shared| session.opens(shared.index) > 0);
        opened.filter_map(|shared| self.missing_of(shared, session, instances)).collect()
    }

    fn missing_of(&self, shared: &Shared, session: &Session, instances: u32) -> Option<String> {
        let is_own = |number: &u32| shared.of[*number as usize] == Some(session.engine);
        let all = 0_u32..u32::try_from(shared.of.len()).unwrap_or(u32::MAX);
        let (own, others): (Vec<_>, Vec<_>) =
            all.filter(|number| self.is_for(session, *number, instances)).partition(is_own);
        let is_served = match self.share {
            Share::Each(each) => own.len() >= each.get() as usize,
            Share::Instances => others.is_empty() && !own.is_empty(),
        };
        if is_served {
            return None;
        }
        let name = &shared.name;
        let refused = others.iter().find_map(|number| {
            let (at, why) = (*number as usize, shared.refused[*number as usize].as_ref()?);
            shared.of[at].is_none().then(|| format!("{name}:{number} cannot be had: {why}"))
        });
        let are_taken = others.iter().all(|number| shared.of[*number as usize].is_some());
        refused.or_else(|| {
            are_taken.then(|| {
                format!(
                    "{name} has {}, and others have what this process lacks (ethtool -L {name} combined N gives the \
                     device more)",
                    counted(u32::try_from(shared.of.len()).unwrap_or(u32::MAX))
                )
            })
        })
    }

    /// Gives a queue to an engine. Returns the number of the device and what the engine gets.
    pub(crate) fn give(&mut self, queue: Queue, engine: Engine) -> Result<(i32, Handed), Error> {
        let Queue { device, number } = queue;
        let shared = &mut self.devices[device];
        let handed = shared.give(number, engine)?;
        self.rests = FIRST_RETRY;
        Ok((shared.index, handed))
    }

    /// Puts off a queue that could not be given out, for this reason: it is retried later, and delays no other.
    pub(crate) fn put_off(&mut self, queue: Queue, why: &Error) {
        self.devices[queue.device].refused[queue.number as usize] = Some(why.to_string());
        self.waits.push(queue);
        if self.retry.is_none() {
            self.retry = Some(Instant::now() + self.rests);
            self.rests = LAST_RETRY.min(self.rests * 2);
        }
    }

    /// Makes the queues that were put off available again.
    pub(crate) fn try_again(&mut self) {
        self.waits.clear();
        self.retry = None;
    }

    /// Frees the queues of an engine that is gone, sockets and all.
    pub(crate) fn free(&mut self, engine: Engine) {
        self.devices.iter_mut().for_each(|shared| shared.free(engine));
    }

    /// Notes the new name of a device.
    pub(crate) fn rename(&mut self, device: i32, name: &str) {
        let shared = self.devices.iter_mut().find(|shared| shared.index == device);
        shared.into_iter().for_each(|shared| name.clone_into(&mut shared.name));
    }

    /// Takes back all queues of a device that is in another network namespace.
    pub(crate) fn lose(&mut self, device: i32) {
        for shared in self.devices.iter_mut().filter(|shared| shared.index == device) {
            shared.let_go();
            shared.of.fill(None);
        }
    }

    /// Releases all devices, as no program is left.
    pub(crate) fn let_go(&mut self) {
        self.devices.iter_mut().for_each(Shared::let_go);
    }

    /// Returns how long until the next retry, if there is to be one.
    pub(crate) fn retry(&self) -> Option<Duration> {
        Some(self.retry?.saturating_duration_since(Instant::now()))
    }
}

fn open(device: &str, queue: u32) -> Result<Handed, OpenError> {
    Handed::open(&Settings {
        queue,
        receive_frames: RECEIVE_FRAMES,
        transmit_frames: TRANSMIT_FRAMES,
        ..Settings::new(device)
    })
}
