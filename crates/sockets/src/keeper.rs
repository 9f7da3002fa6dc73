//! The keeper: a thread of the library that keeps the stack going while the program does something else: timers,
//! acknowledgements, and what the program has written without turning to a wait.
//!
//! It looks when no turn was made for a while ([`crate::tick`]), and makes one. From then on it sleeps on the devices as
//! the program would, until a frame comes, a timer is due or a thread gives the stack something to send: what has to wait
//! for ACKs leaves when they come. While threads of the program sleep in calls of ours, and so make the turns, it sleeps on
//! nothing at all, until the first of them goes on, or another thread gives the stack something. Each part (`parts`) has a
//! keeper of its own. It also does what children of fork and of vfork ask for ([`crate::Sockets::ask_keeper`]).

use std::fs;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bell::{self, Bell};
use crate::dying;
use crate::fork;
use crate::link::Link;
use crate::outside::Outside;
use crate::parts::Part;
use crate::tick::{MOVES, PERIOD, Tick};
use crate::waiting::readable;
use crate::world::{Rest, World};
use crate::{InUse, Sockets, has_given};

/// After so many looks in a row that find a thread asleep in a call of ours, it sleeps until it is told.
const LOOKS_BEFORE_REST: u32 = 3;

/// After so many looks in a row that find nothing to do, it waits a while before the next: a descriptor that is
/// always readable, or that the program has closed, is not to keep a processor busy.
const LOOKS_FOR_NOTHING: u32 = 16;

/// How often it looks at the privileged half, for a program that never sleeps in a call of ours.
const LOOKS_AT_HOST: Duration = Duration::from_millis(50);

/// How long it sleeps on the devices while a child of vfork may ask for something, and how often: as a rule that has
/// executed another program within a moment.
const SLEEP_BESIDE_CHILD: Duration = Duration::from_millis(5);
const LOOKS_FOR_CHILD: u32 = 200;

/// How many threads are looked at, to see whether one has work to do; of more than these one has.
const THREADS: usize = 64;

/// After so many tries a lock that is held briefly is free.
const TRIES: u32 = 1000;

/// The keeper of a process, or of a part of it.
#[derive(Debug)]
pub(crate) struct State {
    exists: AtomicBool,
    /// It sleeps on nothing, as the program's threads make the turns.
    rests: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    /// It sleeps on the devices, as nothing happens.
    watches: AtomicBool,
    /// The program has turned to something else, and has left something unsent.
    must_watch: AtomicBool,
    /// How often it is still to look for what a child of vfork asks, which has nothing to wake it with.
    expects: AtomicU32,
    bell: Mutex<Option<Bell>>,
}

/// The process's first thread has ended, and the others go on. The process ends with the last of these (pthread_exit(3)),
/// and libc counts keepers, too: they have to look whether no other threads are left.
static LEADER_LEFT: AtomicBool = AtomicBool::new(false);

/// A keeper's own locks, held over fork(2).
#[derive(Debug)]
pub(crate) struct Held<'a> {
    _rest: Option<MutexGuard<'a, ()>>,
    _bell: Option<MutexGuard<'a, Option<Bell>>>,
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Threads of the program's sleep in calls of ours, and make the turns.
    Asleep,
    /// No other thread makes turns, and there was something to do.
    Nobody,
    /// No other thread makes turns, and there was nothing to do.
    Quiet,
    /// Other threads make turns in between.
    Busy,
}

/// What the keeper remembers from one look to the next.
#[derive(Debug)]
struct Looks {
    /// The number of turns that had been made.
    seen: u64,
    found: Found,
    /// How often in a row that was found.
    same: u32,
    tick: Option<Arc<Tick>>,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self {
            exists: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            watches: AtomicBool::new(false),
            must_watch: AtomicBool::new(false),
            expects: AtomicU32::new(0),
            bell: Mutex::new(None),
        }
    }

    /// Keeps it from falling asleep, and others from waking it, while the guard lives.
    pub(crate) fn hold_rest(&self) -> Option<MutexGuard<'_, ()>> {
        fork::hold(&self.lock)
    }

    /// Keeps others from ringing for it, too.
    pub(crate) fn hold_bell<'a>(&'a self, rest: Option<MutexGuard<'a, ()>>) -> Held<'a> {
        Held { _rest: rest, _bell: fork::hold(&self.bell) }
    }

    fn its_rest(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn its_bell(&self) -> MutexGuard<'_, Option<Bell>> {
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn ring(&self) {
        if self.watches.swap(false, SeqCst) {
            let bell = self.its_bell();
            if let Some(bell) = bell.as_ref() {
                bell::ring(bell);
            }
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.exists.load(SeqCst)
    }

    /// Wakes it, for a caller that may be a signal handler that has come while its thread slept, and so held no lock:
    /// others hold this one only briefly.
    fn wake_from_sleep(&self) {
        if !self.rests.swap(false, SeqCst) {
            return;
        }
        for _ in 0..TRIES {
            if let Ok(_lock) = self.lock.try_lock() {
                self.wake.notify_one();
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Wakes it, for a signal handler: the interrupted thread may hold the locks; then the next call does it.
    pub(crate) fn try_wake(&self) {
        if let Ok(_lock) = self.lock.try_lock() {
            self.rests.store(false, SeqCst);
            self.wake.notify_one();
        }
        // The interrupted thread may have been about to ring, and have taken the flag already.
        if let Ok(bell) = self.bell.try_lock()
            && let Some(bell) = bell.as_ref()
        {
            self.watches.store(false, SeqCst);
            bell::ring(bell);
        }
    }

    /// Makes it watch the devices from now on, as the program turns to something else.
    fn watch(&self) {
        self.must_watch.store(true, SeqCst);
        self.wake_from_sleep();
    }

    /// Forgets the keeper in a child of fork, which has none, and whose first thread is the one that has forked.
    pub(crate) fn forget(&self) {
        LEADER_LEFT.store(false, SeqCst);
        self.exists.store(false, SeqCst);
        self.rests.store(false, SeqCst);
        self.watches.store(false, SeqCst);
        self.must_watch.store(false, SeqCst);
        self.expects.store(0, SeqCst);
    }
}

impl<O: Outside> Sockets<O> {
    /// Starts the keeper: from now on there is something to be kept going.
    pub(crate) fn need_keeper(&self, part: Part) {
        let keeper = &self.share(part).keeper;
        if !keeper.exists.swap(true, SeqCst) && !self.outside.start_keeper(part) {
            keeper.exists.store(false, SeqCst);
        }
    }

    /// Wakes the keeper, as a thread goes on: possibly none is left that makes turns.
    pub(crate) fn keeper_must_look(&self, part: Part) {
        let keeper = &self.share(part).keeper;
        if keeper.rests.load(SeqCst) {
            let _lock = keeper.its_rest();
            keeper.rests.store(false, SeqCst);
            keeper.wake.notify_one();
        }
    }

    pub(crate) fn keeps(&self, part: Part) -> bool {
        self.share(part).keeper.exists()
    }

    /// Makes the keeper look for what a child of vfork asks, which is about to begin.
    pub(crate) fn keeper_must_expect(&self, part: Part) {
        let keeper = &self.share(part).keeper;
        keeper.expects.store(LOOKS_FOR_CHILD, SeqCst);
        keeper.ring();
    }

    /// Notes that a signal handler is about to run on top of what the calling thread does, and may jump out of it: until the
    /// thread says so again, a sleep of ours is nothing to count on.
    pub fn handler_runs(&self) {
        for part in bell::sleep_nowhere().iter() {
            self.share(part).keeper.wake_from_sleep();
        }
    }

    /// Notes that something was given to the stack to be sent, which leaves with the next turn.
    #[inline]
    pub(crate) fn keeper_must_send(&self, part: Part) {
        has_given(part);
        let share = self.share(part);
        // The thread that has given it may do something else now, or end, and those that sleep know nothing of it.
        share.unsent.store(true, SeqCst);
        if share.keeper.watches.load(Relaxed) {
            share.keeper.ring();
        }
        if share.keeper.rests.load(SeqCst) {
            share.keeper.wake_from_sleep();
        }
    }

    /// Makes the keeper watch: something is left that can leave only when ACKs come, and no other thread would see them.
    pub(crate) fn keeper_must_watch(&self, part: Part) {
        self.share(part).keeper.watch();
        let _ = self.try_with(part, World::look_now);
    }

    /// Wakes the keeper, as the devices are closed on which it possibly sleeps.
    pub(crate) fn keeper_sleeps_on_nothing(&self, part: Part) {
        self.share(part).keeper.ring();
    }

    /// Notes that the process's first thread ends, which ends no other one.
    pub fn leader_leaves(&self) {
        LEADER_LEFT.store(true, SeqCst);
        for part in self.all() {
            let keeper = &self.share(part).keeper;
            keeper.ring();
            keeper.wake_from_sleep();
        }
    }

    /// Runs the keeper, in its thread.
    pub fn keep(&self, part: Part) {
        dying::i_keep();
        let mut looks = Looks { seen: 0, found: Found::Busy, same: 0, tick: None };
        let mut host_looked = Instant::now();
        let process = self.process();
        while self.process() == process {
            self.end_if_asked(part);
            self.wait_as_keeper(part, &mut looks);
            let host_too = host_looked.elapsed() >= LOOKS_AT_HOST;
            if host_too {
                host_looked = Instant::now();
                if LEADER_LEFT.load(SeqCst) {
                    self.outside.end_if_alone();
                }
            }
            let looked = self.try_with(part, |world| {
                if host_too {
                    world.look_at_host(&self.outside);
                }
                let share = self.share(part);
                let alone = share.keeper.must_watch.swap(false, SeqCst);
                let found = world.look_after(&mut looks.seen, &share.unsent, alone);
                (found, world.has_requests(), world.has_neglected())
            });
            if host_too {
                self.answer_askers(part);
            }
            let found = match looked {
                Ok(Some((found, asked, neglected))) => {
                    if asked {
                        self.outside.answer_children();
                    }
                    if neglected && are_others_asleep() {
                        self.with(part, |world| {
                            world.leave_neglected();
                            world.take_passed();
                        });
                    }
                    found
                }
                Ok(None) => return,
                // Another thread holds the lock.
                Err(InUse) => Found::Busy,
            };
            looks.same = if found == looks.found { looks.same + 1 } else { 0 };
            looks.found = found;
        }
    }

    /// Waits for the next look, for as long as the last ones suggest.
    fn wait_as_keeper(&self, part: Part, looks: &mut Looks) {
        let is_quiet = looks.found == Found::Quiet && looks.same < LOOKS_FOR_NOTHING;
        if is_quiet || looks.found == Found::Nobody {
            set_going(looks.tick.as_deref(), false);
            let turns = self.watch_devices(part);
            looks.seen = looks.seen.wrapping_add(turns);
            return;
        }
        let rests = looks.found == Found::Asleep && looks.same >= LOOKS_BEFORE_REST;
        if rests || looks.found == Found::Quiet {
            looks.same = 0;
        }
        if rests {
            set_going(looks.tick.as_deref(), false);
            self.rest_keeper(part);
            let share = self.share(part);
            if share.keeper.must_watch.load(SeqCst) {
                // The look is due.
                return;
            }
            if share.unsent.load(SeqCst)
                && let Some(tick) = &looks.tick
            {
                tick.look_soon();
            }
        }
        set_going(looks.tick.as_deref(), true);
        looks.tick = self.ticking(part, looks.tick.take());
        let (mut fds, limit) = match &looks.tick {
            Some(tick) => (vec![readable(tick.fd())], LOOKS_AT_HOST),
            None => (Vec::new(), PERIOD),
        };
        let _ = self.outside.poll(&mut fds, Some(limit));
    }

    /// Returns the timer, moved on; another one, if there is none yet or the program has closed it; none, if there is no
    /// descriptor left for one.
    fn ticking(&self, part: Part, tick: Option<Arc<Tick>>) -> Option<Arc<Tick>> {
        if let Some(tick) = tick {
            if tick.begin() {
                return Some(tick);
            }
            // Its number may be another descriptor's by now, which is not to be closed.
            std::mem::forget(tick);
        }
        let tick = Tick::new().ok().map(Arc::new);
        self.with(part, |world| world.tick.clone_from(&tick));
        tick.filter(|tick| tick.begin())
    }

    /// Sleeps until a thread of the program goes on.
    fn rest_keeper(&self, part: Part) {
        let keeper = &self.share(part).keeper;
        let mut lock = keeper.its_rest();
        keeper.rests.store(true, SeqCst);
        // A thread may have gone on before it could see that.
        let idle = self.with(part, |world| world.is_anybody_asleep());
        let idle = idle == Some(true) && !self.share(part).unsent.load(SeqCst);
        while idle && keeper.rests.load(SeqCst) {
            if LEADER_LEFT.load(SeqCst) {
                let waited = keeper.wake.wait_timeout(lock, LOOKS_AT_HOST);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                break;
            }
            lock = keeper.wake.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        keeper.rests.store(false, SeqCst);
    }

    /// Sleeps until there is something to do. Returns how many turns it has made.
    fn watch_devices(&self, part: Part) -> u64 {
        let keeper = &self.share(part).keeper;
        let Ok(bell) = bell::mine(self.process()) else { return 0 };
        *keeper.its_bell() = Some(Arc::clone(&bell));
        keeper.watches.store(true, SeqCst);
        let mut fds: Vec<libc::pollfd> = Vec::new();
        // What was given before others could see the flag leaves now.
        let mut rest = Rest::default();
        let rests = self.with(part, |world| {
            let rests = !world.turn();
            world.keeper_watches = rests;
            if rests {
                rest.add(world.what_wakes());
                rest.asker = world.host.next_asker();
            }
            rests
        });
        if let Some(asker) = rest.asker.take() {
            self.outside.start_telling(asker);
        }
        if rests == Some(true) {
            let all = rest.all().map(|(fd, _)| fd).chain([bell.as_raw_fd()]);
            fds.extend(all.map(readable));
            let expects = |left: u32| left.checked_sub(1);
            let beside = keeper.expects.fetch_update(SeqCst, SeqCst, expects).is_ok();
            let beside = beside.then_some(SLEEP_BESIDE_CHILD);
            let alone = LEADER_LEFT.load(SeqCst).then_some(LOOKS_AT_HOST);
            let limit = [rest.limit, beside, alone].into_iter().flatten().min();
            let _ = self.outside.poll(&mut fds, limit);
        }
        keeper.watches.store(false, SeqCst);
        bell::silence(&bell);
        self.with(part, |world| {
            world.keeper_watches = false;
            fds.iter().filter(|one| one.revents != 0).for_each(|one| world.was_rung(one.fd));
            world.hear_ways();
            world.look_at_host(&self.outside);
        });
        self.answer_askers(part);
        u64::from(rests.is_some())
    }
}

/// Returns whether all other threads of this process sleep. One that has work to do comes to its listener by itself, sooner
/// or later; one that sleeps may do so for as long as others like. Where that cannot be seen, none sleeps.
fn are_others_asleep() -> bool {
    let own = nix::unistd::gettid().to_string();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let others = threads.flatten().filter(|thread| thread.file_name() != own.as_str());
    others.enumerate().all(|(at, thread)| {
        if at >= THREADS {
            return false;
        }
        // A thread that has just ended has none.
        let told = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // After the name, in which anything may stand: proc_pid_stat(5).
        told.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with(['R', 'D']))
    })
}

/// Sets whether the keeper waits for its timer.
fn set_going(tick: Option<&Tick>, goes: bool) {
    if let Some(tick) = tick {
        tick.set_going(goes);
    }
}

impl World {
    /// Looks who makes turns, and makes one if need be. `alone`: the program has said that it makes no turns for now.
    fn look_after(&mut self, seen: &mut u64, unsent: &AtomicBool, alone: bool) -> Found {
        // A thread that has watched the devices may run a signal handler for long.
        self.pass_watch();
        let asleep = self.is_anybody_asleep();
        // A thread that is awake may have been told of one in the middle of an answer.
        self.take_passed();
        // A thread that has made turns is busy, even if others sleep; and it may do something else by now.
        let is_busy =
            self.turns != *seen && (asleep || !alone && self.now().since(self.turned) < MOVES);
        let found = match asleep {
            true if is_busy => Found::Asleep,
            false if is_busy => Found::Busy,
            true if unsent.swap(false, SeqCst) => {
                self.note_what_was_left();
                self.turn();
                Found::Busy
            }
            // A signal handler keeps the thread that they have woken from them, and no other was woken.
            true if self.links().iter_mut().any(Link::has_come) => {
                self.turn();
                Found::Busy
            }
            true => Found::Asleep,
            false => {
                if unsent.swap(false, SeqCst) {
                    self.note_what_was_left();
                }
                if self.turn() { Found::Nobody } else { Found::Quiet }
            }
        };
        *seen = self.turns;
        found
    }

    /// Notes that the program has given something and turned to what cannot be seen: it is not waited for the next time.
    fn note_what_was_left(&mut self) {
        if self.has_to_send() {
            self.given.was_left();
        }
        self.complete_all();
    }
}
