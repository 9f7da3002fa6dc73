//! The alarm: what wakes the timer's thread while the program goes from one burst to the next.
//!
//! Where it has one ([`Kernel::set_alarm`]) the thread does not look once a bound, but when the
//! alarm rings. A writer that begins a hold finds it set, to a time within the bound; but if
//! nothing else is held, and it would ring before it can be moved again, the writer moves it to its
//! own deadline. So a program that keeps turning never hears it, and pays a system call a bound.
//!
//! [`Alarm::expiry`] says what the alarm is set to. There is no lock: a signal handler that sets it
//! may have interrupted any step of this. A thread announces the time with [`SETTING`], sets the
//! alarm, and then stores the time alone, unless the word has changed meanwhile. One that finds
//! [`SETTING`] does this in place of the other thread, which may not run for long. A look begins
//! with [`NOT_SET`] and ends by setting the alarm to the earliest deadline that it has found.
//!
//! **It is never too late.** It is set to a deadline that was computed from the clock before a
//! moment at which nothing due earlier was held: that of a hold which was the only one when it was
//! counted, or the earliest that a look has found. (Or the time is past: then it rings at once.)
//! Whatever is held at any later moment was due no earlier, or has been counted since, from a later
//! reading of the clock. So setting the alarm to such a value is harmless, in whatever order, by
//! any thread and however late. The exception is a thread that is not running between its reading
//! of the clock and its counting: its alarm may be late by that time.
//!
//! **It is not lost.** Each setting rings, or is replaced by another that does: no thread ever
//! disarms it. So what a thread has marked before it sets the alarm is looked at. A thread that
//! finds it set need not set it: [`SETTING`] was there before the alarm was set, and the word has
//! not been [`NOT_SET`] since. So the look that this setting leads to has not begun when the word
//! is read, and finds what was marked before that.
//!
//! tests/interleavings.rs plays this code in every order of its steps. All are sequentially
//! consistent: holds are marked before the word is read; a look writes it before it reads marks.

use core::ops::RangeInclusive;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64};

use uncork_cork::Instant;

use crate::Posix;
use crate::kernel::Kernel;

/// The thread has begun a look since the alarm was last set, or it was never set.
const NOT_SET: u64 = 0;
/// A thread is setting the alarm to the other bits: nanoseconds, enough for 292 years.
const SETTING: u64 = 1 << 63;
/// The earliest time that is not [`NOT_SET`].
const EVER: Instant = Instant(1);

/// The word of [`Alarm::expiry`]; the tests' implementation observes every step.
pub(crate) trait Word {
    fn load(&self) -> u64;
    fn store(&self, value: u64);
    /// Stores `new` if the value is `old`; returns whether it was.
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

/// State of the alarm.
#[derive(Debug)]
pub(crate) struct Alarm<W = AtomicU64> {
    /// Nanoseconds of the monotonic clock, possibly with [`SETTING`]; or [`NOT_SET`].
    expiry: W,
    /// The thread has an alarm. Otherwise it ticks.
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
    /// Returns whether the thread sleeps by the alarm. Read after something was marked as held; set
    /// before the thread's first look.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(SeqCst)
    }

    pub(crate) fn appears(&self) {
        self.is_there.store(true, SeqCst);
    }

    /// Notes that the alarm's thread is gone.
    pub(crate) fn disappears(&self) {
        self.is_there.store(false, SeqCst);
        self.expiry.store(NOT_SET);
    }

    /// Begins a look, before the thread reads marks.
    pub(crate) fn begin_look(&self) {
        self.expiry.store(NOT_SET);
    }

    /// Sets the alarm by `ring`, if need be, for a hold that began at `since_ns` and was marked.
    /// `alone`: nothing else was held when it was counted. False: the alarm cannot be set.
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
            // If this pause is like the last one, the next chance but one. Each setting may cost a
            // virtual machine more than 10 µs, when it makes the kernel program the clock.
            let soon_ns = pause_ns.saturating_mul(2).clamp(bound_ns / 16, bound_ns / 2);
            (Instant(since_ns + soon_ns), deadline)
        } else {
            // Only the thread can find the earliest deadline: let it look.
            (EVER, Instant(since_ns))
        };
        let wanted = earliest..=deadline;
        wanted.contains(&Instant(self.expiry.load())) || self.set(&wanted, to, ring)
    }

    /// Sets the alarm after a look that has found holds, the earliest due by `deadline`.
    pub(crate) fn set_after_look(
        &self,
        deadline: Instant,
        ring: impl FnMut(Instant) -> bool,
    ) -> bool {
        self.set(&(EVER..=deadline), deadline, ring)
    }

    /// Sets the alarm to `to` unless it is set to a time that is `wanted`.
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
    /// Makes sure that a thread which sleeps by its alarm looks in time at what is held and marked.
    /// `before_call` runs before any system call. Returns false if the thread will not look.
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

    /// Sets the alarm, unless this is a child of vfork: it has our memory, but none of our timers,
    /// and one of its own may have the same number.
    pub(crate) fn ring_at(&self, at: Instant) -> bool {
        !self.is_other_process() && self.kernel.set_alarm(at)
    }
}
