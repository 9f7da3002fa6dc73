//! The timer: nothing stays held longer than the bound, whatever the program does.
//!
//! One thread a process, made when something is first held; it has no thread-local storage, so
//! nothing that it runs may use any, nor allocate (`preload`'s keeper.rs says why). While anything
//! is going on it wakes once a bound, or at the earliest deadline of what is held, and pushes what
//! is due; after a while without holds it sleeps until it is roused. Where it has an alarm it
//! sleeps until that rings, and the program moves it on (alarm.rs). The first held write of a burst
//! reads the clock, the others do nothing for the timer. docs/TIMER.md has what else was tried and
//! what each costs a write.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use core::time::Duration;

use uncork_cork::{Hold, Instant, next_look};

use crate::alarm::Alarm;
use crate::kernel::Kernel;
use crate::socket::flag;
use crate::{Call, Posix};

/// The thread does not exist (yet).
const NONE: u32 = 0;
/// It looks by itself, or when its alarm rings.
const TICKING: u32 = 1;
/// It sleeps until something is held.
const IDLE: u32 = 2;
/// It cannot be made, or must not be there for a moment: nothing is held.
const BARRED: u32 = 3;
/// It is asked to end.
const LEAVING: u32 = 4;
/// It is being made.
const STARTING: u32 = 5;

/// Ticks without a hold after which it sleeps.
const LINGER_TICKS: u32 = 20;
/// A look that takes longer belongs to a process that we were copied from without our knowing.
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// What the timer thread and the writers share.
#[derive(Debug)]
pub(crate) struct State {
    state: AtomicU32,
    bound: AtomicU64,
    /// Something was held since the latest tick.
    active: AtomicBool,
    quiet_ticks: AtomicU32,
    /// The thread is in the middle of a look, and may have locks.
    looking: AtomicBool,
    /// Forks that are about to happen: no look may begin.
    forking: AtomicU32,
    /// Somebody is making a call without the thread ([`Posix::without_keeper`]).
    without: AtomicBool,
    pub(crate) alarm: Alarm,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(NONE),
            bound: AtomicU64::new(0),
            active: AtomicBool::new(false),
            quiet_ticks: AtomicU32::new(0),
            looking: AtomicBool::new(false),
            forking: AtomicU32::new(0),
            without: AtomicBool::new(false),
            alarm: Alarm::new(),
        }
    }

    pub(crate) fn set_bound(&self, bound: Duration) {
        self.bound.store(bound.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn bound(&self) -> Duration {
        Duration::from_nanos(self.bound_ns())
    }

    pub(crate) fn bound_ns(&self) -> u64 {
        self.bound.load(Relaxed)
    }

    /// Whether the thread will look by itself. Called after something was marked as held
    /// (sequentially consistent), as the thread looks for marks after it has said it is idle.
    #[inline]
    pub(crate) fn is_ticking(&self) -> bool {
        self.active.store(true, Relaxed);
        self.state.load(SeqCst) == TICKING
    }

    /// As while another thread is making it.
    #[cfg(test)]
    pub(crate) fn pretend_to_start(&self) {
        self.state.store(STARTING, SeqCst);
    }

    /// Runs `write` as by somebody who has seen the thread just before it was asked to end.
    #[cfg(test)]
    pub(crate) fn as_before_leaving(&self, write: impl FnOnce()) {
        self.state.store(TICKING, SeqCst);
        write();
        self.state.store(LEAVING, SeqCst);
    }

    /// In a child of fork: the thread stayed with the parent.
    pub(crate) fn gone(&self) {
        self.forking.store(0, SeqCst);
        self.without.store(false, SeqCst);
        self.looking.store(false, SeqCst);
        self.alarm.disappears();
        self.state.store(NONE, SeqCst);
    }
}

/// What the timer thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// End: the process is to be without it for a moment.
    Leave,
    /// Look again after this long.
    Tick(Duration),
    /// Sleep until [`Kernel::wake_keeper`].
    Sleep,
    /// Sleep until the alarm rings or [`Kernel::wake_keeper`]; after a while without either, ask
    /// [`Posix::may_end`].
    Await,
}

impl<K: Kernel> Posix<K> {
    /// Something is held and the timer is not ticking: makes or wakes it. False when it cannot.
    #[cold]
    pub(crate) fn rouse_keeper(&self) -> bool {
        let keeper = &self.keeper;
        loop {
            let state = keeper.state.load(SeqCst);
            match state {
                TICKING | STARTING => return true,
                BARRED | LEAVING => return false,
                NONE => {
                    if keeper.state.compare_exchange(NONE, STARTING, SeqCst, SeqCst).is_ok() {
                        return self.make_keeper();
                    }
                }
                _ => {
                    if keeper.state.compare_exchange(IDLE, TICKING, SeqCst, SeqCst).is_ok() {
                        self.kernel.wake_keeper();
                        return true;
                    }
                }
            }
        }
    }

    /// Whoever wants it to end meanwhile waits until it is there ([`Posix::ask_to_leave`]): it would
    /// not know otherwise, and live on beside one that is made later.
    fn make_keeper(&self) -> bool {
        self.keeper.alarm.disappears();
        let made = self.kernel.start_keeper();
        if !made {
            self.disabled.store(true, Relaxed);
        }
        self.keeper.state.store(if made { TICKING } else { BARRED }, SeqCst);
        made
    }

    /// Asks the thread to end; tells in which state it was. Not for ever, as whoever makes it may
    /// be the thread that this one, a signal handler, has interrupted.
    fn ask_to_leave(&self) -> u32 {
        let state = &self.keeper.state;
        let begin = self.kernel.now();
        loop {
            let before = state.load(SeqCst);
            let wait = before == STARTING && self.kernel.now().since(begin) < LONGEST_LOOK;
            if !wait && state.compare_exchange(before, LEAVING, SeqCst, SeqCst).is_ok() {
                return before;
            }
            self.kernel.give_way();
        }
    }

    /// The timer thread can be woken by [`Kernel::set_alarm`] from now on. Before its first look.
    pub fn keeper_has_alarm(&self) {
        self.keeper.alarm.appears();
    }

    /// One look of the timer thread.
    pub fn tick(&self) -> Next {
        let keeper = &self.keeper;
        keeper.looking.store(true, SeqCst);
        let next = if keeper.forking.load(SeqCst) != 0 {
            Next::Tick(keeper.bound() / 16)
        } else {
            self.look_around()
        };
        keeper.looking.store(false, SeqCst);
        next
    }

    /// Keeps the timer thread from taking locks that a child of fork would never see released.
    pub(crate) fn pause_keeper(&self) {
        self.keeper.forking.fetch_add(1, SeqCst);
        self.await_keeper();
    }

    /// Waits for the end of a look that the timer thread may be in: what it has taken to send is
    /// sent then.
    pub(crate) fn await_keeper(&self) {
        let begin = self.kernel.now();
        while self.keeper.looking.load(SeqCst) && self.kernel.now().since(begin) < LONGEST_LOOK {
            self.kernel.give_way();
        }
    }

    /// In the parent, after a fork.
    pub fn after_fork_in_parent(&self) {
        self.keeper.forking.fetch_sub(1, SeqCst);
    }

    fn look_around(&self) -> Next {
        let keeper = &self.keeper;
        let now = self.kernel.now();
        if keeper.state.load(SeqCst) == LEAVING {
            return Next::Leave;
        }
        keeper.alarm.begin_look();
        let mut earliest: Option<Instant> = None;
        self.kernel.held().sweep(|fd| {
            let deadline = self.look(fd, now);
            earliest = earliest.into_iter().chain(deadline).min();
            deadline.is_some()
        });
        self.feed_orphans();
        if keeper.alarm.is_there() {
            return self.await_alarm(now, earliest);
        }
        if keeper.active.swap(false, Relaxed) || self.anything_left() {
            keeper.quiet_ticks.store(0, Relaxed);
        } else if keeper.quiet_ticks.fetch_add(1, Relaxed) >= LINGER_TICKS {
            keeper.quiet_ticks.store(0, Relaxed);
            let idle = keeper.state.compare_exchange(TICKING, IDLE, SeqCst, SeqCst).is_ok();
            // Whoever held something before it could see that we are idle has not roused us.
            if idle && !self.anything_left() {
                return Next::Sleep;
            }
            let _ = keeper.state.compare_exchange(IDLE, TICKING, SeqCst, SeqCst);
        }
        Next::Tick(next_look(now, earliest, keeper.bound()))
    }

    fn await_alarm(&self, now: Instant, earliest: Option<Instant>) -> Next {
        let keeper = &self.keeper;
        keeper.active.store(false, Relaxed);
        let set = |deadline| keeper.alarm.set_after_look(deadline, |at| self.ring_at(at));
        if !earliest.is_none_or(set) || self.has_orphans() {
            return Next::Tick(next_look(now, earliest, keeper.bound()));
        }
        Next::Await
    }

    /// The alarm has not rung for a long while: whether the timer thread may end, to be made again.
    pub fn may_end(&self) -> bool {
        let state = &self.keeper.state;
        // It does not ring while the program keeps moving it on.
        if self.keeper.active.swap(false, Relaxed)
            || state.compare_exchange(TICKING, NONE, SeqCst, SeqCst).is_err()
        {
            return false;
        }
        // Whoever held something before it could see that we are gone counts on us.
        !self.anything_left() || state.compare_exchange(NONE, TICKING, SeqCst, SeqCst).is_err()
    }

    /// Whether the timer thread is asked to sleep still ([`Next::Sleep`]).
    pub fn keeper_sleeps(&self) -> bool {
        self.keeper.state.load(SeqCst) == IDLE
    }

    /// Nothing was held for a long while: whether the timer thread may end, to be made again.
    pub fn may_leave(&self) -> bool {
        self.keeper.state.compare_exchange(IDLE, NONE, SeqCst, SeqCst).is_ok()
    }

    /// Whether a timer thread that can do its work no longer may end, for another to take its
    /// place at the next hold.
    pub fn may_be_replaced(&self) -> bool {
        self.keeper.state.compare_exchange(TICKING, NONE, SeqCst, SeqCst).is_ok()
    }

    /// Runs `call` while there is no timer thread: it changes what threads of a process have in
    /// common (its user, its namespaces), and one that libc does not know would be left behind.
    /// `ended` waits for the thread's end.
    pub fn without_keeper<T>(&self, ended: impl FnOnce(), call: impl FnOnce() -> T) -> T {
        while self.keeper.without.swap(true, SeqCst) {
            self.kernel.give_way();
        }
        let before = self.ask_to_leave();
        if matches!(before, TICKING | IDLE) {
            self.kernel.wake_keeper();
        }
        // Also one that has just decided to end by itself.
        ended();
        // Also of those who still saw the thread there.
        self.release_all(Call::Passed);
        self.keeper.state.store(BARRED, SeqCst);
        let result = call();
        let after = if before == BARRED { BARRED } else { NONE };
        self.keeper.state.store(after, SeqCst);
        self.keeper.without.store(false, SeqCst);
        result
    }

    /// Ends the thread for good and holds nothing from now on: the program is about to forbid
    /// itself system calls that the thread needs (seccomp).
    pub fn stand_aside(&self, ended: impl FnOnce()) {
        self.stop_holding();
        self.without_keeper(ended, || ());
        self.keeper.state.store(BARRED, SeqCst);
        // To look whether anything is gathered takes system calls that may be forbidden as well.
        self.forget_gathering();
    }

    fn anything_left(&self) -> bool {
        self.kernel.held().count.load(SeqCst) != 0 || self.has_orphans()
    }

    /// Pushes `fd` if it is due; tells by when it must be looked at again if it still holds
    /// anything.
    fn look(&self, fd: i32, now: Instant) -> Option<Instant> {
        let at = self.find(fd)?;
        if at.socket.held.load(SeqCst) == 0 {
            return None;
        }
        let bound = self.keeper.bound();
        let hold = Hold { since: Instant(at.socket.since.load(Relaxed)) };
        if at.socket.is(flag::BACKLOG) || hold.is_due(now, bound) {
            at.socket.set(flag::TIMED_OUT);
            self.visit(fd, Call::Timer);
            // What is held still could not be sent: its turn comes at the next look.
            let later = Hold { since: now }.deadline(bound);
            return (at.socket.held.load(SeqCst) != 0).then_some(later);
        }
        Some(hold.deadline(bound))
    }
}
