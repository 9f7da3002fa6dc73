//! A lock that costs its usual owner no locked instruction.
//!
//! The bytes that a program's thread gathers must be within the timer's reach at any moment, yet
//! all but never does the timer come. A plain mutex would charge every write for it: two locked
//! instructions, more than half of what gathering a small write costs. [`Biased`] charges the
//! visitor instead. Its owner says "inside" with a plain store; who else wants in takes the
//! ownership away, makes every core pass a barrier (membarrier(2), which the caller provides),
//! and then sees whether the owner is inside.
//!
//! ```text
//!  owner                                 visitor (holds the mutex)
//!  flag = this lock   (plain store)      owner = nobody
//!  owner still me?    (plain load)       barrier on all cores
//!   yes: inside                          flag = this lock?  yes: wait; no: inside
//!  flag = none                           owner = as before, or nobody for good
//! ```
//!
//! Either the owner's load sees that the ownership is gone, or the visitor's load sees the flag:
//! the barrier falls before the former or after the latter.
//!
//! Flags belong to threads, not to locks, so that no thread ever stores to another one's.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, compiler_fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Threads that can own locks at the same time. Those beyond use the mutex.
const THREADS: usize = 1024;
/// [`Biased::owner`]: nobody yet.
const NOBODY: u32 = 0;
/// [`Biased::owner`]: several threads want in, all use the mutex.
const SHARED: u32 = u32::MAX;

/// What a thread is inside of: the address of a lock, or 0. One cache line each.
#[repr(align(64))]
struct Flag {
    inside: AtomicUsize,
    taken: AtomicBool,
}

static FLAGS: [Flag; THREADS] =
    [const { Flag { inside: AtomicUsize::new(0), taken: AtomicBool::new(false) } }; THREADS];

/// Highest number that a thread ever had.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// A thread's number, by which it owns locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(u32);

impl Thread {
    /// A thread that owns nothing and uses the mutex.
    pub const NONE: Self = Self(SHARED);

    fn flag(self) -> Option<&'static Flag> {
        FLAGS.get((self.0 as usize).wrapping_sub(1))
    }
}

/// Gives the number back at the thread's end. Locks that it owned then have the next thread of
/// that number as their owner, which is as good.
struct Claim {
    number: Cell<u32>,
    forget: Cell<fn()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(flag) = Thread(self.number.get()).flag() {
            // The thread may lock again, in a destructor that runs after this one.
            self.forget.get()();
            flag.taken.store(false, Release);
        }
    }
}

thread_local! {
    static CLAIM: Claim = const { Claim { number: Cell::new(0), forget: Cell::new(|| ()) } };
}

/// The calling thread's number. Call it only where the barrier is known to work. `forget` runs at
/// the thread's end, when the number is about to become another thread's: whatever has kept it
/// must say [`Thread::NONE`] from then on.
pub fn this_thread(forget: fn()) -> Thread {
    let number = CLAIM.try_with(|claim| {
        if claim.number.get() == 0 {
            let free = FLAGS.iter().position(|flag| !flag.taken.swap(true, AcqRel));
            let number = free.map_or(SHARED, |at| at as u32 + 1);
            if number != SHARED {
                HIGHEST.fetch_max(number, AcqRel);
            }
            claim.number.set(number);
            claim.forget.set(forget);
        }
        claim.number.get()
    });
    // A thread at its end has given its number back.
    number.map_or(Thread::NONE, Thread)
}

/// The flags of all threads but the calling one.
fn others() -> impl Iterator<Item = &'static Flag> {
    let own = CLAIM.try_with(|claim| claim.number.get()).unwrap_or(0);
    let highest = HIGHEST.load(Acquire) as usize;
    let numbered = (1u32..).zip(&FLAGS).take(highest);
    numbered.filter(move |(number, _)| *number != own).map(|(_, flag)| flag)
}

/// In a child of fork: no thread but the calling one is inside of anything. Locks that others
/// were inside of are renewed before ([`Biased::renew_after_fork`]).
pub fn after_fork() {
    for flag in others() {
        if flag.taken.load(Relaxed) {
            flag.inside.store(0, Relaxed);
            flag.taken.store(false, Relaxed);
        }
    }
}

/// A value behind a biased lock.
pub struct Biased<T> {
    owner: AtomicU32,
    mutex: UnsafeCell<Mutex<()>>,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through a `Guard`, and at any time one thread at most has one:
// the holder of the mutex after it has seen the owner off, or the owner.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T: Default> Default for Biased<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl<T> Biased<T> {
    /// A lock that the first thread to use it will own.
    pub const fn new(value: T) -> Self {
        Self {
            owner: AtomicU32::new(NOBODY),
            mutex: UnsafeCell::new(Mutex::new(())),
            value: UnsafeCell::new(value),
        }
    }

    fn mutex(&self) -> &Mutex<()> {
        // SAFETY: it is replaced only in a child of fork that has one thread, which does not use
        // it meanwhile (`renew_after_fork`).
        unsafe { &*self.mutex.get() }
    }

    /// In a child of fork, which has but the calling thread, and that outside of this lock: if
    /// another thread was inside when the process was copied, the lock is made anew with `fresh`.
    /// Otherwise nobody would ever get in again. The old value is not dropped, as it may have been
    /// copied half written.
    pub fn renew_after_fork(&self, fresh: T) {
        let taken = matches!(self.mutex().try_lock(), Err(TryLockError::WouldBlock));
        if !taken && others().all(|flag| flag.inside.load(Relaxed) != self.address()) {
            return;
        }
        // SAFETY: as said above there is no other thread, and no guard of this one.
        unsafe {
            self.mutex.get().write(Mutex::new(()));
            self.value.get().write(fresh);
        }
        self.owner.store(NOBODY, Relaxed);
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Locks. `barrier` is called if another thread owns the lock, which it then does no more.
    /// A thread that is inside already must not call this again.
    #[inline]
    pub fn lock(&self, thread: Thread, barrier: impl FnOnce()) -> Guard<'_, T> {
        if self.owner.load(Relaxed) == thread.0
            && let Some(flag) = thread.flag()
        {
            flag.inside.store(self.address(), Relaxed);
            // The barrier on this side: the compiler must not swap the two, and the visitor's
            // makes up for what the processor does.
            compiler_fence(SeqCst);
            if self.owner.load(Acquire) == thread.0 {
                return Guard { lock: self, held: Held::Flag(flag) };
            }
            flag.inside.store(0, Release);
        }
        self.lock_slowly(thread, barrier)
    }

    /// Runs `run` on the value if `thread` owns the lock and nobody visits: [`Biased::lock`]
    /// without its other cases. `run` must not panic, nor lock anything.
    #[inline]
    pub fn if_owner<R>(&self, thread: Thread, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.owner.load(Relaxed) != thread.0 {
            return None;
        }
        let flag = thread.flag()?;
        flag.inside.store(self.address(), Relaxed);
        compiler_fence(SeqCst);
        let done = (self.owner.load(Acquire) == thread.0).then(|| {
            // SAFETY: the owner's flag is up, and no visitor has come before that.
            run(unsafe { &mut *self.value.get() })
        });
        flag.inside.store(0, Release);
        done
    }

    #[cold]
    fn lock_slowly(&self, thread: Thread, barrier: impl FnOnce()) -> Guard<'_, T> {
        let mutex = self.mutex().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match self.owner.load(Relaxed) {
            // Ours from the next time on; meanwhile the mutex keeps visitors out.
            NOBODY => self.owner.store(thread.0, Release),
            SHARED => {}
            owner if owner == thread.0 => {}
            owner => {
                self.owner.store(SHARED, SeqCst);
                barrier();
                while !self.is_outside(owner) {
                    std::thread::yield_now();
                }
            }
        }
        Guard { lock: self, held: Held::Mutex(mutex) }
    }

    /// Locks as a visitor who does not wait: `None` if somebody is inside. The owner stays.
    /// Uses neither thread-local storage nor the allocator.
    pub fn try_visit(&self, barrier: impl FnOnce()) -> Option<Guard<'_, T>> {
        let mutex = match self.mutex().try_lock() {
            Ok(mutex) => mutex,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let owner = self.owner.load(Relaxed);
        if owner == NOBODY || owner == SHARED {
            return Some(Guard { lock: self, held: Held::Mutex(mutex) });
        }
        self.owner.store(NOBODY, SeqCst);
        barrier();
        if !self.is_outside(owner) {
            self.owner.store(owner, Release);
            return None;
        }
        Some(Guard { lock: self, held: Held::Visit { _mutex: mutex, owner } })
    }

    /// Whether the thread of this number is not inside of this lock.
    fn is_outside(&self, owner: u32) -> bool {
        Thread(owner).flag().is_none_or(|flag| flag.inside.load(Acquire) != self.address())
    }
}

enum Held<'a> {
    /// By the owner's flag.
    Flag(&'static Flag),
    /// By the mutex.
    #[allow(dead_code)]
    Mutex(MutexGuard<'a, ()>),
    /// By the mutex, with the ownership taken away for the time being.
    Visit { _mutex: MutexGuard<'a, ()>, owner: u32 },
}

/// Access to the value, until dropped.
pub struct Guard<'a, T> {
    lock: &'a Biased<T>,
    held: Held<'a>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its thread alone is inside (see `Biased`).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match &self.held {
            Held::Flag(flag) => flag.inside.store(0, Release),
            // The mutex is released after this, by its own guard.
            Held::Visit { owner, .. } => self.lock.owner.store(*owner, Release),
            Held::Mutex(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
