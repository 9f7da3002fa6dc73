//! Packet sockets with their rings, made before a program comes for them and unmade after it has gone.
//!
//! Making a socket's two rings, and unmaking them, takes the kernel an RCU grace period each time (packet_set_ring and
//! packet_release call synchronize_net): 5 to 30 ms in which a program would wait to connect, its parent for its end, and
//! everybody for the guardian. So threads do it, several at once, as they wait for the same grace periods. Sockets are made
//! ahead where a process with a stack has ended and another is likely to take its place, and more of them where one was not ready
//! in time; and the guardian holds the last copy of each socket that is closed. Each takes as much kernel memory as any
//! (25 MiB), and is closed when no program has come for it for a while.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use uncork_driver::OpenError;
use uncork_driver::af_packet::{Prepared, Settings};

use crate::work::{Bell, Work};
use uncork_closing::Closing;

/// How long a device's last spare socket is kept, and how long others are.
const KEPT: Duration = Duration::from_secs(60);
const SURPLUS_KEPT: Duration = Duration::from_secs(5);
/// How many are made ahead for one device, at most.
const AHEAD: usize = 4;
/// How many threads at most unmake sockets, and how many per processor make those of one device. Half of their time goes into
/// clearing memory, and programs that have their sockets need processors, too.
const UNMADE_AT_ONCE: usize = 16;
const MADE_AT_ONCE_EACH: usize = 2;

/// Spare sockets of all devices.
#[derive(Debug)]
pub(crate) struct Rings {
    bell: Bell,
    ahead: Vec<Ahead>,
    unmaking: Closing,
}

/// Spare sockets of one device.
#[derive(Debug)]
struct Ahead {
    settings: Settings,
    /// In the order in which they were begun.
    spares: VecDeque<Spare>,
    /// How many there are to be; zero until a process has ended.
    wanted: usize,
    /// How many are waited for.
    awaited: usize,
}

#[derive(Debug)]
struct Spare {
    made: Work<Result<Prepared, OpenError>>,
    since: Instant,
}

impl Rings {
    /// Begins with no spares. The bell is rung when one is made.
    pub(crate) fn new(bell: Bell) -> Self {
        Self { bell, ahead: Vec::new(), unmaking: Closing::by(UNMADE_AT_ONCE) }
    }

    /// Has one made, as a program is likely to come once.
    pub(crate) fn expect(&mut self, settings: Settings) {
        let bell = self.bell.clone();
        let ahead = self.ahead_of(settings);
        ahead.fill(&bell, 1);
    }

    /// Keeps a spare from now on, as a process has ended, and others are likely to come and go.
    pub(crate) fn expect_more(&mut self, settings: Settings) {
        let bell = self.bell.clone();
        let ahead = self.ahead_of(settings);
        ahead.wanted = ahead.wanted.max(1);
        ahead.fill(&bell, 0);
    }

    /// Sets how many programs wait for a socket.
    pub(crate) fn await_some(&mut self, settings: Settings, awaited: usize) {
        let bell = self.bell.clone();
        let ahead = self.ahead_of(settings);
        if awaited > ahead.awaited && ahead.wanted > 0 {
            // They came faster than sockets were made.
            ahead.wanted = AHEAD.min(ahead.wanted + 1);
        }
        ahead.awaited = awaited;
        ahead.fill(&bell, 0);
    }

    /// Tells whether programs wait for a socket of this device.
    pub(crate) fn are_awaited(&self, device: &str) -> bool {
        self.ahead.iter().any(|one| one.settings.device == device && one.awaited > 0)
    }

    fn ahead_of(&mut self, settings: Settings) -> &mut Ahead {
        let known = self.ahead.iter().position(|one| one.settings.device == settings.device);
        let at = known.unwrap_or_else(|| {
            self.ahead.push(Ahead { settings, spares: VecDeque::new(), wanted: 0, awaited: 0 });
            self.ahead.len() - 1
        });
        &mut self.ahead[at]
    }

    /// Takes a socket for this device as it is now, or the reason why there is none (found since `asked`); `None` if not ready.
    pub(crate) fn take(
        &mut self,
        settings: &Settings,
        asked: Instant,
    ) -> Option<Result<Prepared, OpenError>> {
        let (bell, unmaking) = (self.bell.clone(), self.unmaking.clone());
        let ahead = self.ahead_of(settings.clone());
        while let Some(at) = ahead.spares.iter().position(|spare| spare.made.is_over()) {
            let Spare { made, since } = ahead.spares.remove(at)?;
            match made.done() {
                Some(Ok(made)) if !made.is_of(settings) => unmaking.close(made.into()),
                // What was missing before the program asked may be there by now.
                Some(Err(_)) if since < asked => {}
                Some(made) => return Some(made),
                // Its thread has panicked.
                None => {}
            }
        }
        if ahead.spares.is_empty() {
            // Those that were made have gone to others.
            ahead.begin(&bell);
        }
        // Without a thread it is made right here.
        ahead.spares.is_empty().then(|| Prepared::new(settings))
    }

    /// Closes a copy of a socket that is the last one, or will soon be.
    pub(crate) fn unmake(&self, socket: OwnedFd) {
        self.unmaking.close(socket);
    }

    /// Closes spares that no program has come for. After the last of them, none is made until a process ends again.
    pub(crate) fn tidy(&mut self) {
        for ahead in &mut self.ahead {
            let kept = if ahead.spares.len() > 1 { SURPLUS_KEPT } else { KEPT };
            let is_old = |spare: &Spare| spare.since.elapsed() >= kept && spare.made.is_over();
            if ahead.awaited == 0 && ahead.spares.front().is_some_and(is_old) {
                let left = ahead.spares.pop_front().and_then(|spare| spare.made.done()?.ok());
                left.into_iter().for_each(|made| self.unmaking.close(made.into()));
                ahead.wanted = ahead.spares.len();
            }
        }
        self.ahead.retain(|ahead| !ahead.spares.is_empty() || ahead.awaited > 0);
    }

    /// Tells whether there are no spares, which would have to be closed after a while.
    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }
}

impl Ahead {
    /// Starts as many as are wanted or waited for, but at least this many.
    fn fill(&mut self, bell: &Bell, at_least: usize) {
        let at_once = MADE_AT_ONCE_EACH * thread::available_parallelism().map_or(1, usize::from);
        let all = (self.wanted + self.awaited).max(at_least);
        while self.spares.len() < all.min(at_once.max(AHEAD)) && self.begin(bell) {}
    }

    /// Starts another one; tells whether a thread could be had.
    fn begin(&mut self, bell: &Bell) -> bool {
        let settings = self.settings.clone();
        let Ok(made) = Work::begin("rings", bell, move || Prepared::new(&settings)) else {
            return false;
        };
        self.spares.push_back(Spare { made, since: Instant::now() });
        true
    }
}
