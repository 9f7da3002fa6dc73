//! The alarm: what the timer's thread sleeps by while the program keeps turning.
//!
//! Where it has one ([`Kernel::set_alarm`]) the thread does not look once a bound, but when the
//! alarm rings. Who begins a hold finds it set already, to a time within the bound; but if nothing
//! else is held, and it would ring before there is another chance to, moves it on to its own
//! deadline. So a program that keeps turning never hears it, and pays one system call a bound.
//!
//! [`Alarm::expiry`] says what the alarm is set to. There is no lock: the thread that sets it may
//! be a signal handler's, on top of any other step of this. Whoever is about to set it says what
//! to, as [`SETTING`]; sets it; and says that it is set, unless the word has changed meanwhile. Who
//! finds [`SETTING`] does the same in the other's place, who may not run for long. A look begins
//! with [`NOT_SET`], and ends by setting the alarm to the earliest deadline that it has found.
//!
//! **It is never too late.** What it is set to is a deadline that was read off the clock before
//! a moment at which nothing due earlier was held: that of a hold which was the only one when it
//! was counted, or the earliest that a look has found. (Or it is past: then it rings at once.)
//! Whatever is held at any later moment was due no earlier, or has been counted since, and its
//! clock was read later. So it does no harm to set the alarm to such a value, in whatever order, by
//! whomever and however late. The exception is a thread that is kept from running between its
//! reading of the clock and its counting, by as much.
//!
//! **It is not lost.** Each setting rings, or is replaced by another that does: nobody ever takes
//! the alarm back. So whoever has marked what it holds, and then sets the alarm, is looked at.
//! Whoever finds it set need not: [`SETTING`] was there before the alarm was set, and the word has
//! not been [`NOT_SET`] since. So whatever look the setting led to has not begun when the word is
//! read, and finds what was marked before that.
//!
//! tests/interleavings.rs plays this code in every order of its steps. All of them are sequentially
//! consistent: marks before the word is read, the word before marks.

use core::ops::RangeInclusive;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64};

use uncork_cork::Instant;

use crate::Posix;
use crate::kernel::Kernel;

/// The thread has begun to look since the alarm was set, if it was.
const NOT_SET: u64 = 0;
/// Somebody is setting it to what the other bits say. As nanoseconds, 292 years.
const SETTING: u64 = 1 << 63;
/// Any time at all, but [`NOT_SET`].
const EVER: Instant = Instant(1);

/// Where [`Alarm::expiry`] is; the tests look at every step.
pub(crate) trait Word {
    fn load(&self) -> u64;
    fn store(&self, value: u64);
    /// Stores `new` if `old` is there.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(SeqCst)
    }

    fn store(&self, value: u64) {
        self.store(value, SeqCst);
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }
}

/// What is known of the alarm.
#[derive(Debug)]
pub(crate) struct Alarm<W = AtomicU64> {
    /// Nanoseconds of the monotonic clock, [`NOT_SET`], or with [`SETTING`].
    expiry: W,
    /// The thread has one. Otherwise it ticks.
    is_there: AtomicBool,
    /// When the latest hold began, in nanoseconds.
    latest_ns: AtomicU64,
}

impl Alarm {
    pub(crate) const fn new() -> Self {
        Self::over(AtomicU64::new(NOT_SET))
    }
}

impl<W> Alarm<W> {
    pub(crate) const fn over(expiry: W) -> Self {
        Self { expiry, is_there: AtomicBool::new(false), latest_ns: AtomicU64::new(0) }
    }
}

impl<W: Word> Alarm<W> {
    /// Whether the thread sleeps by the alarm. Asked after something was marked as held; said
    /// before the thread's first look.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(SeqCst)
    }

    pub(crate) fn appears(&self) {
        self.is_there.store(true, SeqCst);
    }

    /// Its thread is gone.
    pub(crate) fn disappears(&self) {
        self.is_there.store(false, SeqCst);
        self.expiry.store(NOT_SET);
    }

    /// Before the thread looks for marks.
    pub(crate) fn begin_look(&self) {
        self.expiry.store(NOT_SET);
    }

    /// For a hold that began at `since_ns` and was marked: sets the alarm by `ring`, if need be.
    /// `alone`: nothing else was held when it was counted. False: it cannot be set.
    #[inline]
    pub(crate) fn set_for_hold(
        &self,
        since_ns: u64,
        alone: bool,
        bound_ns: u64,
        ring: impl FnMut(Instant) -> bool,
    ) -> bool {
        let since_ns = since_ns.max(EVER.0);
        let deadline = Instant(since_ns + bound_ns);
        let pause_ns = since_ns.saturating_sub(self.latest_ns.load(Relaxed));
        self.latest_ns.store(since_ns, Relaxed);
        let (earliest, to) = if alone {
            // As the last pause was, the next chance but one. Each setting may cost a virtual
            // machine more than 10 µs, when it makes the kernel program the clock.
            let soon_ns = pause_ns.saturating_mul(2).clamp(bound_ns / 16, bound_ns / 2);
            (Instant(since_ns + soon_ns), deadline)
        } else {
            // It is the thread that knows the earliest deadline: let it look.
            (EVER, Instant(since_ns))
        };
        let wanted = earliest..=deadline;
        wanted.contains(&Instant(self.expiry.load())) || self.set(&wanted, to, ring)
    }

    /// After a look that has found something, due by `deadline` at the earliest.
    pub(crate) fn set_after_look(
        &self,
        deadline: Instant,
        ring: impl FnMut(Instant) -> bool,
    ) -> bool {
        self.set(&(EVER..=deadline), deadline, ring)
    }

    /// Sets it to `to` unless it is set to what is `wanted`.
    #[cold]
    fn set(
        &self,
        wanted: &RangeInclusive<Instant>,
        to: Instant,
        mut ring: impl FnMut(Instant) -> bool,
    ) -> bool {
        loop {
            let seen = self.expiry.load();
            if seen & SETTING != 0 {
                let theirs = seen & !SETTING;
                if !ring(Instant(theirs)) {
                    return false;
                }
                self.expiry.replace(seen, theirs);
            } else if wanted.contains(&Instant(seen)) {
                return true;
            } else if self.expiry.replace(seen, to.0 | SETTING) {
                let set = ring(to);
                self.expiry.replace(to.0 | SETTING, if set { to.0 } else { NOT_SET });
                return set;
            }
        }
    }
}

impl<K: Kernel> Posix<K> {
    /// Sees to it that the thread looks at what is held and marked in time, if it sleeps by its
    /// alarm. `before_call` comes before any system call. False: it will not look.
    #[inline]
    pub(crate) fn set_alarm_for(
        &self,
        since: Instant,
        alone: bool,
        mut before_call: impl FnMut(),
    ) -> bool {
        let keeper = &self.keeper;
        !keeper.alarm.is_there()
            || keeper.alarm.set_for_hold(since.0, alone, keeper.bound_ns(), |at| {
                before_call();
                self.ring_at(at)
            })
    }

    /// A child of vfork has our memory, but none of our timers; one of its own may have the same
    /// number.
    pub(crate) fn ring_at(&self, at: Instant) -> bool {
        !self.is_other_process() && self.kernel.set_alarm(at)
    }
}
