//! The timer: nothing stays held longer than the bound, whatever the program does.
//!
//! There is one thread a process, made when something is first held; it has no thread-local storage,
//! so nothing that it runs may use any, nor allocate (`preload`'s keeper.rs says why). While
//! anything is held it wakes once a bound, or at the earliest deadline of what is held, and pushes
//! what is due; after a while without holds it sleeps until it is roused. Where it has an alarm it
//! sleeps until that rings, and the program moves the alarm on (alarm.rs). The first held write of a
//! burst reads the clock, the others do nothing for the timer. docs/TIMER.md lists what else was
//! tried and what each costs a write.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use core::time::Duration;

use uncork_cork::{Hold, Instant, next_look};

use crate::alarm::Alarm;
use crate::gather::pause;
use crate::kernel::Kernel;
use crate::socket::flag;
use crate::{Call, Posix};

/// The thread does not exist (yet).
const NONE: u32 = 0;
/// The thread looks by itself, or when its alarm rings.
const TICKING: u32 = 1;
/// The thread sleeps until something is held.
const IDLE: u32 = 2;
/// The thread cannot be made, or must not exist for a moment: nothing is held.
const BARRED: u32 = 3;
/// The thread is asked to end.
const LEAVING: u32 = 4;
/// The thread is being made.
const STARTING: u32 = 5;

/// Ticks without a hold after which the thread sleeps.
const LINGER_TICKS: u32 = 20;
/// A look that seems to take longer is that of a process from which we were copied unnoticed.
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// What the timer thread and the writers share.
#[derive(Debug)]
pub(crate) struct State {
    state: AtomicU32,
    bound: AtomicU64,
    /// Something was held since the latest tick.
    active: AtomicBool,
    quiet_ticks: AtomicU32,
    /// The thread is in the middle of a look, and may hold locks.
    looking: AtomicBool,
    /// Forks that are about to happen: no look may begin, nor a hold.
    forking: AtomicU32,
    /// Another thread is making a call without the timer thread ([`Posix::without_keeper`]).
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

    /// Returns whether the thread will look by itself. Called after something was marked as held
    /// (sequentially consistent), as the thread looks for marks after it has said it is idle.
    #[inline]
    pub(crate) fn is_ticking(&self) -> bool {
        self.active.store(true, Relaxed);
        self.state.load(SeqCst) == TICKING
    }

    /// Returns whether no look may begin, as a fork is about to happen. Called after something was
    /// marked as held (sequentially consistent), as who forks pushes what is marked after it has said
    /// so ([`Posix::pause_keeper`]).
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.forking.load(SeqCst) != 0
    }

    /// Acts as if another thread were making the timer thread.
    #[cfg(test)]
    pub(crate) fn pretend_to_start(&self) {
        self.state.store(STARTING, SeqCst);
    }

    /// Runs `write` as a thread that has seen the timer thread just before it was asked to end.
    #[cfg(test)]
    pub(crate) fn as_before_leaving(&self, write: impl FnOnce()) {
        self.state.store(TICKING, SeqCst);
        write();
        self.state.store(LEAVING, SeqCst);
    }

    /// Resets the state in a child of fork: the thread stayed with the parent.
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
    /// End: the process must be without this thread for a moment.
    Leave,
    /// Look again after this long.
    Tick(Duration),
    /// Sleep until [`Kernel::wake_keeper`].
    Sleep,
    /// Sleep until the alarm rings or [`Kernel::wake_keeper`]; after a while without either, call
    /// [`Posix::may_end`].
    Await,
}

impl<K: Kernel> Posix<K> {
    /// Makes or wakes the timer thread, which is not ticking. Returns false if it cannot.
    #[cold]
    pub(crate) fn rouse_keeper(&self) -> bool {
        let keeper = &self.keeper;
        loop {
            let state = keeper.state.load(SeqCst);
            match state {
                TICKING | STARTING => return true,
                BARRED | LEAVING => return false,
                NONE => {
                    // A thread that a child of vfork makes is the child's, and ends with it, while the
                    // state is the parent's. This may run without thread-local storage.
                    if self.is_other_process() {
                        return false;
                    }
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

    /// Makes the thread. A thread that wants it to end meanwhile waits until it exists
    /// ([`Posix::ask_to_leave`]): unasked, it would live on beside one that is made later.
    fn make_keeper(&self) -> bool {
        self.keeper.alarm.disappears();
        let made = self.kernel.start_keeper();
        if !made {
            self.disabled.store(true, Relaxed);
        }
        self.keeper.state.store(if made { TICKING } else { BARRED }, SeqCst);
        made
    }

    /// Asks the thread to end; returns the state that it was in. Does not wait for ever, as this may
    /// run in a signal handler that interrupted the very thread which is making the timer thread.
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

    /// Notes, before the timer thread's first look, that [`Kernel::set_alarm`] can wake it.
    pub fn keeper_has_alarm(&self) {
        self.keeper.alarm.appears();
    }

    /// Makes one look of the timer thread.
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

    /// Keeps the timer thread from taking locks that a child of fork would never see released. As a
    /// large process takes many times the bound to fork, nothing is held from here on, and what other
    /// threads have begun to hold is sent.
    pub(crate) fn pause_keeper(&self) {
        self.keeper.forking.fetch_add(1, SeqCst);
        self.await_keeper();
        self.release_all(Call::Fork);
    }

    /// Waits for the end of a look that the timer thread may be in: what it has begun to send has
    /// been sent by then.
    pub(crate) fn await_keeper(&self) {
        let begin = self.kernel.now();
        while self.keeper.looking.load(SeqCst) && self.kernel.now().since(begin) < LONGEST_LOOK {
            self.kernel.give_way();
        }
    }

    /// Lets the timer thread look again, in the parent, after a fork.
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
        earliest = earliest.into_iter().chain(self.feed_orphans(now)).min();
        if keeper.alarm.is_there() {
            return self.await_alarm(now, earliest);
        }
        if keeper.active.swap(false, Relaxed) || self.anything_left() {
            keeper.quiet_ticks.store(0, Relaxed);
        } else if keeper.quiet_ticks.fetch_add(1, Relaxed) >= LINGER_TICKS {
            keeper.quiet_ticks.store(0, Relaxed);
            let idle = keeper.state.compare_exchange(TICKING, IDLE, SeqCst, SeqCst).is_ok();
            // A thread that held something before it could see that we are idle has not roused us.
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
        // No alarm rings for orphans.
        if !earliest.is_none_or(set) || self.has_orphans() {
            return Next::Tick(next_look(now, earliest, keeper.bound()));
        }
        Next::Await
    }

    /// Returns whether the timer thread may end: the alarm has not rung for a long while.
    pub fn may_end(&self) -> bool {
        let state = &self.keeper.state;
        // The alarm does not ring while the program keeps moving it on.
        if self.keeper.active.swap(false, Relaxed)
            || state.compare_exchange(TICKING, NONE, SeqCst, SeqCst).is_err()
        {
            return false;
        }
        // A thread that held something before it could see that we are gone counts on us.
        !self.anything_left() || state.compare_exchange(NONE, TICKING, SeqCst, SeqCst).is_err()
    }

    /// Returns whether the timer thread is still meant to sleep ([`Next::Sleep`]).
    pub fn keeper_sleeps(&self) -> bool {
        self.keeper.state.load(SeqCst) == IDLE
    }

    /// Returns whether the timer thread may end: nothing was held for a long while.
    pub fn may_leave(&self) -> bool {
        self.keeper.state.compare_exchange(IDLE, NONE, SeqCst, SeqCst).is_ok()
    }

    /// Returns whether a timer thread that can no longer do its work may end. Another one takes its
    /// place at the next hold.
    pub fn may_be_replaced(&self) -> bool {
        self.keeper.state.compare_exchange(TICKING, NONE, SeqCst, SeqCst).is_ok()
    }

    /// Runs `call` while there is no timer thread: it changes what the threads of a process share
    /// (its user, its namespaces), and a thread that libc does not know would keep the old ones.
    /// `ended` waits for the thread's end. In a child of vfork the call changes the child alone, and
    /// the thread is its parent's.
    pub fn without_keeper<T>(&self, ended: impl FnOnce(), call: impl FnOnce() -> T) -> T {
        if self.is_vfork_child() {
            return call();
        }
        while self.keeper.without.swap(true, SeqCst) {
            self.kernel.give_way();
        }
        let before = self.ask_to_leave();
        if matches!(before, TICKING | IDLE) {
            self.kernel.wake_keeper();
        }
        // Wait even if the thread has just decided to end by itself.
        ended();
        // This includes holds of threads that still saw the timer thread there.
        self.release_all(Call::Passed);
        self.keeper.state.store(BARRED, SeqCst);
        let result = call();
        let after = if before == BARRED { BARRED } else { NONE };
        self.keeper.state.store(after, SeqCst);
        self.keeper.without.store(false, SeqCst);
        result
    }

    /// Ends the thread for good, and nothing is held from now on: the program is about to forbid
    /// itself system calls that the thread needs (seccomp).
    pub fn stand_aside(&self, ended: impl FnOnce()) {
        self.stop_holding();
        self.without_keeper(ended, || ());
        self.keeper.state.store(BARRED, SeqCst);
        // Checking whether anything is gathered takes system calls that may be forbidden as well.
        self.forget_gathering();
    }

    fn anything_left(&self) -> bool {
        self.kernel.held().count.load(SeqCst) != 0 || self.has_orphans()
    }

    /// Pushes `fd` if it is due; returns when it must be looked at again, if it still holds
    /// anything.
    fn look(&self, fd: i32, now: Instant) -> Option<Instant> {
        let at = self.find(fd)?;
        if at.socket.held.load(SeqCst) == 0 {
            return None;
        }
        let bound = self.keeper.bound();
        let hold = Hold { since: Instant(at.socket.since.load(Relaxed)) };
        let again = Instant(at.socket.again.load(Relaxed));
        let is_stalled = at.socket.stalled.load(Relaxed) != 0;
        if at.socket.is(flag::BACKLOG) && is_stalled && now < again {
            return Some(again);
        }
        if at.socket.is(flag::BACKLOG) || hold.is_due(now, bound) {
            at.socket.set(flag::TIMED_OUT);
            self.visit(fd, Call::Timer);
            // What is still held could not be sent: it is tried again, less and less often.
            let fresh = at.socket.stalled.compare_exchange(0, now.0, Relaxed, Relaxed);
            let since = fresh.map_or_else(Instant, |_| now);
            let later = now.after(pause(now.since(since), bound));
            at.socket.again.store(later.0, Relaxed);
            return (at.socket.held.load(SeqCst) != 0).then_some(later);
        }
        Some(hold.deadline(bound))
    }
}
