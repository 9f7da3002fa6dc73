//! What goes on while the program does something else: timers, acknowledgments, and what it has written
//! and not turned away from.
//!
//! A thread of its own looks once in a while whether anybody has made a turn since it looked last, and
//! makes one if not. While all of the program's threads sleep in calls of ours these make the turns, and
//! the keeper sleeps, too; the first that goes on wakes it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::Sockets;
use crate::outside::Outside;

/// How long what is due may wait for somebody's turn.
const PERIOD: Duration = Duration::from_millis(1);
/// Looks that find nobody awake, behind which it sleeps.
const LOOKS_BEFORE_REST: u32 = 20;

/// The keeper of a process.
#[derive(Debug)]
pub(crate) struct State {
    exists: AtomicBool,
    rests: AtomicBool,
    /// Looks in a row that found somebody asleep in a call of ours.
    asleep: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self {
            exists: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            asleep: AtomicU32::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// In the child of fork there is none.
    pub(crate) fn forget(&self) {
        self.exists.store(false, SeqCst);
        self.rests.store(false, SeqCst);
    }
}

impl<O: Outside> Sockets<O> {
    /// From now on there is something to be kept going.
    pub(crate) fn need_keeper(&self) {
        if !self.keeper.exists.swap(true, SeqCst) && !self.outside.start_keeper() {
            self.keeper.exists.store(false, SeqCst);
        }
    }

    /// A thread goes on: nobody may be left who makes turns.
    pub(crate) fn keeper_must_look(&self) {
        if self.keeper.rests.load(SeqCst) {
            let _lock = self.keeper.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.keeper.rests.store(false, SeqCst);
            self.keeper.wake.notify_one();
        }
    }

    /// The life of the keeper's thread.
    pub fn keep(&self) {
        let mut seen = 0;
        let process = self.process();
        while self.process() == process {
            std::thread::sleep(PERIOD);
            let idle = self.with(|world| {
                let asleep = world.is_anybody_asleep() || !world.has_connections();
                if world.turns == seen && !asleep {
                    world.turn();
                }
                seen = world.turns;
                asleep
            });
            if self.with(|world| world.has_requests()) == Some(true) {
                self.outside.answer_children();
            }
            match idle {
                None => return,
                Some(false) => self.keeper.asleep.store(0, Relaxed),
                Some(true) => {
                    if self.keeper.asleep.fetch_add(1, Relaxed) >= LOOKS_BEFORE_REST {
                        self.rest_keeper();
                    }
                }
            }
        }
    }

    fn rest_keeper(&self) {
        self.keeper.asleep.store(0, Relaxed);
        let mut lock = self.keeper.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.keeper.rests.store(true, SeqCst);
        // Somebody may have gone on before he could see that.
        let idle = self.with(|world| world.is_anybody_asleep() || !world.has_connections());
        while idle == Some(true) && self.keeper.rests.load(SeqCst) {
            lock = self.keeper.wake.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.keeper.rests.store(false, SeqCst);
    }
}
