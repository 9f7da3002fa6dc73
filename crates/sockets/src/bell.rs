//! A thread's bell: an eventfd of its own, made when it first sleeps, that wakes it; and in which parts it is asleep.

use std::cell::RefCell;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nix::errno::Errno;
use uncork_high::Event;

use crate::errno;
use crate::eye::Eye;
use crate::fork;
use crate::parts::{AtomicParts, Part, Parts};

/// A thread's bell, shared with those who ring it.
pub(crate) type Bell = Arc<OneBell>;

#[derive(Debug)]
pub(crate) struct OneBell {
    event: Event,
    /// The parts in which its thread sleeps, and makes the turns when something comes.
    asleep: AtomicParts,
    /// Its thread's eye.
    pub(crate) eye: Eye,
}

/// Every bell of the process.
static ALL: Mutex<Vec<Weak<OneBell>>> = Mutex::new(Vec::new());

/// While it lives, no bell is made and none is listed.
pub(crate) type AllHeld = MutexGuard<'static, Vec<Weak<OneBell>>>;

/// Holds the list over fork(2): the child would find it locked for ever by a thread that it does not have.
pub(crate) fn hold_over_fork() -> Option<AllHeld> {
    fork::hold(&ALL)
}

fn hold_all() -> AllHeld {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static BELL: RefCell<Option<(u32, Bell)>> = const { RefCell::new(None) };
}

/// Returns the calling thread's bell, in the process of this number: a child of fork must not answer to its parent's. A
/// thread at its end, whose thread-locals are gone, gets one that is closed when it is dropped.
pub(crate) fn mine(process: u32) -> Result<Bell, Errno> {
    let kept = BELL.try_with(|bell| {
        let mut bell = bell.try_borrow_mut().ok()?;
        if let Some((_, bell)) = bell.as_ref().filter(|(of, _)| *of == process) {
            return Some(Ok(Arc::clone(bell)));
        }
        let made = make();
        if let Ok(made) = &made {
            *bell = Some((process, Arc::clone(made)));
        }
        Some(made)
    });
    kept.ok().flatten().unwrap_or_else(make)
}

pub(crate) fn make() -> Result<Bell, Errno> {
    let event = Event::new().map_err(errno::of)?;
    let bell = Arc::new(OneBell { event, asleep: AtomicParts::default(), eye: Eye::new() });
    let mut all = hold_all();
    all.retain(|bell| bell.strong_count() > 0);
    all.push(Arc::downgrade(&bell));
    Ok(bell)
}

/// Returns the descriptors of all bells, and of their threads' eyes.
pub(crate) fn descriptors() -> Vec<RawFd> {
    let all = hold_all();
    let of = |bell: Bell| [Some(bell.as_raw_fd()), bell.eye.as_raw_fd()];
    all.iter().filter_map(Weak::upgrade).flat_map(of).flatten().collect()
}

impl OneBell {
    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Notes that its thread is about to sleep there.
    pub(crate) fn falls_asleep(&self, part: Part) {
        self.asleep.add(part);
    }

    /// Notes that its thread sleeps there no more.
    pub(crate) fn wakes(&self, part: Part) {
        self.asleep.take(Parts::of(part));
    }

    /// Returns whether its thread sleeps there, with no signal handler running on top of that.
    pub(crate) fn is_asleep(&self, part: Part) -> bool {
        self.asleep.get().has(part)
    }
}

/// For a signal handler: the calling thread counts as asleep nowhere until it says so again. Returns where it slept.
pub(crate) fn sleep_nowhere() -> Parts {
    let bell = BELL.try_with(|bell| {
        let bell = bell.try_borrow().ok()?;
        bell.as_ref().map(|(_, bell)| bell.asleep.take(Parts::ALL))
    });
    bell.ok().flatten().unwrap_or(Parts::NONE)
}

/// Wakes the thread whose bell it is.
pub(crate) fn ring(bell: &Bell) {
    bell.event.ring();
}

/// Silences a bell that was heard.
pub(crate) fn silence(bell: &Bell) {
    bell.event.silence();
}
