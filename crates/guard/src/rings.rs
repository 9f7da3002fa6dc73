//! Packet sockets with their rings, made before somebody comes for them and unmade after he has gone.
//!
//! To make a socket's two rings, and to unmake them, the kernel waits for a grace period of RCU each time (packet_set_ring and
//! packet_release call synchronize_net): 5 to 30 ms in which a program would wait to connect, its parent for its
//! end, and everybody for the guardian. So threads do that, several at once, as they wait for the same grace periods. Sockets are made
//! ahead where a process with a stack has ended and another is likely to come in its place, more of them where one was not there in time;
//! and the last copy of a socket that is closed is the guardian's. Each takes as much of the kernel's memory as any
//! (25 MiB), and goes when nobody has come for it for a while.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use uncork_driver::OpenError;
use uncork_driver::af_packet::{Prepared, Settings};

use crate::work::{Bell, Work};
use uncork_closing::Closing;

/// How long the last one is kept for somebody, and how long others are.
const KEPT: Duration = Duration::from_secs(60);
const SURPLUS_KEPT: Duration = Duration::from_secs(5);
/// How many are ahead for one device, at the most.
const AHEAD: usize = 4;
/// How many threads unmake sockets, at the most, and how many for each processor make those of one device. Half of their time is the
/// clearing of memory, and whoever has what he waits for needs processors, too.
const UNMADE_AT_ONCE: usize = 16;
const MADE_AT_ONCE_EACH: usize = 2;

/// Those of all devices.
#[derive(Debug)]
pub(crate) struct Rings {
    bell: Bell,
    ahead: Vec<Ahead>,
    unmaking: Closing,
}

/// Those of one device.
#[derive(Debug)]
struct Ahead {
    settings: Settings,
    /// In the order in which they were begun.
    spares: VecDeque<Spare>,
    /// How many there are to be; none until somebody has ended.
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
    /// None yet. The bell is rung when one is made.
    pub(crate) fn new(bell: Bell) -> Self {
        Self { bell, ahead: Vec::new(), unmaking: Closing::by(UNMADE_AT_ONCE) }
    }

    /// Somebody is likely to come, once.
    pub(crate) fn expect(&mut self, settings: Settings) {
        let bell = self.bell.clone();
        let ahead = self.ahead_of(settings);
        ahead.fill(&bell, 1);
    }

    /// Somebody has ended, and others are likely to come and end, too.
    pub(crate) fn expect_more(&mut self, settings: Settings) {
        let bell = self.bell.clone();
        let ahead = self.ahead_of(settings);
        ahead.wanted = ahead.wanted.max(1);
        ahead.fill(&bell, 0);
    }

    /// So many wait for one.
    pub(crate) fn await_some(&mut self, settings: Settings, awaited: usize) {
        let bell = self.bell.clone();
        let ahead = self.ahead_of(settings);
        if awaited > ahead.awaited && ahead.wanted > 0 {
            // They have come faster than these were made.
            ahead.wanted = AHEAD.min(ahead.wanted + 1);
        }
        ahead.awaited = awaited;
        ahead.fill(&bell, 0);
    }

    /// Whether some were said to be.
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

    /// A socket for this device as it is now, or why there can be none, for who has asked then; None if none is made yet.
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
                // What was missing before anybody has asked may be there by now.
                Some(Err(_)) if since < asked => {}
                Some(made) => return Some(made),
                // Its thread has panicked.
                None => {}
            }
        }
        if ahead.spares.is_empty() {
            // Those that were made are others' by now.
            ahead.begin(&bell);
        }
        // Without a thread nothing is made but here.
        ahead.spares.is_empty().then(|| Prepared::new(settings))
    }

    /// This copy is the last one, or will soon be.
    pub(crate) fn unmake(&self, socket: OwnedFd) {
        self.unmaking.close(socket);
    }

    /// Those that nobody has come for go. After the last of them none is made until somebody ends again.
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

    /// Whether there are none that only time takes away.
    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }
}

impl Ahead {
    /// Begins as many as are wanted or waited for, and so many at the least.
    fn fill(&mut self, bell: &Bell, at_least: usize) {
        let at_once = MADE_AT_ONCE_EACH * thread::available_parallelism().map_or(1, usize::from);
        let all = (self.wanted + self.awaited).max(at_least);
        while self.spares.len() < all.min(at_once.max(AHEAD)) && self.begin(bell) {}
    }

    /// Begins another one; whether there is a thread for it.
    fn begin(&mut self, bell: &Bell) -> bool {
        let settings = self.settings.clone();
        let Ok(made) = Work::begin("rings", bell, move || Prepared::new(&settings)) else {
            return false;
        };
        self.spares.push_back(Spare { made, since: Instant::now() });
        true
    }
}
