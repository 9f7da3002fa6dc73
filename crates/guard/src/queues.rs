//! Queues of the devices, by sockets of AF_XDP: who has which.
//!
//! A packet socket brings each engine all that is its. A queue that is an engine's brings it what comes by that queue a
//! shorter way (uncork-bpf, `RedirectByQueue`). So queues are a matter of speed alone: who has none misses nothing,
//! and one that is free again is given to the next.

use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use uncork_bpf::owned::{self, Engine, RedirectByQueue};
use uncork_driver::OpenError;
use uncork_driver::af_xdp::{Handed, Nature, Settings};
use uncork_guardian::Device;

use crate::Error;
use crate::session::{Role, Session};
use crate::steering::Steering;

/// Room for what comes: some milliseconds of full frames at ten gigabits. What finds none is lost.
const RECEIVE_FRAMES: usize = 2048;
/// All leaves by the packet socket; the kernel wants a ring all the same.
const TRANSMIT_FRAMES: usize = 64;
/// When it is tried again to open a queue: the kernel lets go of one a little after its socket is closed.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_millis(500);

/// A device with the program that hands over.
struct Shared {
    index: i32,
    name: String,
    redirect: RedirectByQueue,
    /// Whose each queue is.
    of: Vec<Option<Engine>>,
    /// The first queue, until somebody gets it.
    first: Option<Handed>,
}

/// All queues of all devices.
pub(crate) struct Queues {
    devices: Vec<Shared>,
    /// How many of a device a program gets that has a stack of its own.
    each: NonZeroU32,
    retry: Option<Instant>,
    rests: Duration,
}

/// A queue, by the device's place and its own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue {
    device: usize,
    number: u32,
}

impl Queues {
    /// Attaches the programs to the devices, and looks whether the first queue of each can be opened. What comes goes
    /// where it would go without, until queues are given to somebody.
    pub(crate) fn attach(
        steering: &Steering,
        devices: &[Device],
        each: NonZeroU32,
    ) -> Result<Self, Error> {
        let open = |device: &Device| {
            let Nature { index, queues: count, marks } = Nature::of(&device.name)?;
            let mut redirect = steering.by_queue(owned::Queues { count, marks })?;
            let first = Some(open(&device.name, 0)?);
            redirect.attach(index)?;
            let of = vec![None; count as usize];
            Ok(Shared { index, name: device.name.clone(), redirect, of, first })
        };
        let devices = devices.iter().map(open).collect::<Result<_, Error>>()?;
        Ok(Self { devices, each, retry: None, rests: FIRST_RETRY })
    }

    /// A queue that is free, and who is to have it: the engine with the fewest. An instance has those of its number
    /// and every so many behind, so that they stay the same when it is started again.
    pub(crate) fn next(
        &mut self,
        sessions: &[&Session],
        instances: u32,
    ) -> Option<(Queue, Engine)> {
        self.retry = None;
        let free = self.devices.iter().enumerate().flat_map(|(device, shared)| {
            let numbers = (0..).zip(&shared.of).filter(|(_, of)| of.is_none());
            numbers.map(move |(number, _)| Queue { device, number })
        });
        free.filter_map(|queue| {
            let wants = sessions.iter().filter(|session| self.wants(session, queue, instances));
            let fewest = wants.min_by_key(|session| self.count(queue.device, session.engine))?;
            Some((queue, fewest.engine))
        })
        .next()
    }

    fn count(&self, device: usize, engine: Engine) -> usize {
        self.devices[device].of.iter().filter(|of| **of == Some(engine)).count()
    }

    fn wants(&self, session: &Session, queue: Queue, instances: u32) -> bool {
        let has_opened = session.opens(self.devices[queue.device].index) > 0;
        has_opened
            && match session.role {
                Role::Program => {
                    self.count(queue.device, session.engine) < self.each.get() as usize
                }
                Role::Instance(number) => queue.number % instances.max(1) == number,
                Role::Guest(_) => false,
            }
    }

    /// This queue is this engine's from now on. Gives the number of the device and what the engine gets.
    pub(crate) fn give(&mut self, queue: Queue, engine: Engine) -> Result<(i32, Handed), Error> {
        let Queue { device, number } = queue;
        let shared = &mut self.devices[device];
        let handed = match shared.first.take().filter(|_| number == 0) {
            Some(handed) => handed,
            None => open(&shared.name, number)?,
        };
        shared.redirect.enter(number, engine, handed.socket.as_fd())?;
        shared.of[number as usize] = Some(engine);
        self.rests = FIRST_RETRY;
        Ok((shared.index, handed))
    }

    /// One could not be given: it is tried again later.
    pub(crate) fn put_off(&mut self) {
        self.retry = Some(Instant::now() + self.rests);
        self.rests = LAST_RETRY.min(self.rests * 2);
    }

    /// An engine is gone, and its sockets with it.
    pub(crate) fn free(&mut self, engine: Engine) {
        for shared in &mut self.devices {
            for (number, of) in (0..).zip(&mut shared.of) {
                if *of == Some(engine) {
                    *of = None;
                    // What stays entered hands over to nobody: the socket is closed.
                    let _ = shared.redirect.leave(number);
                }
            }
        }
    }

    /// How long it is until it is to be tried again, if it is.
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
