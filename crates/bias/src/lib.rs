//! A lock that costs its usual owner no locked instruction.
//!
//! The timer must be able to reach the bytes that a program's thread gathers at any moment, yet it
//! hardly ever does. A plain mutex would charge every write for that: two locked instructions, more
//! than half of what gathering a small write costs. [`Biased`] charges the visitor instead. Its
//! owner says "inside" with a plain store; another thread that wants the lock takes the ownership
//! away, makes every core pass a barrier (membarrier(2), which the caller provides), and then sees
//! whether the owner is inside.
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
//! Flags belong to threads, not to locks, so that no thread ever stores to another thread's flag.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, compiler_fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Number of threads that can own locks at the same time. Further threads use the mutex.
const THREADS: usize = 1024;
/// [`Biased::owner`]: no thread owns the lock yet.
const NOBODY: u32 = 0;
/// [`Biased::owner`]: several threads want the lock, and all use the mutex.
const SHARED: u32 = u32::MAX;

/// The lock that a thread is inside of, by its address; 0 if none. One cache line each.
#[repr(align(64))]
struct Flag {
    inside: AtomicUsize,
    taken: AtomicBool,
}

static FLAGS: [Flag; THREADS] =
    [const { Flag { inside: AtomicUsize::new(0), taken: AtomicBool::new(false) } }; THREADS];

/// Highest number that any thread has had.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// A thread's number, by which it owns locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(u32);

impl Thread {
    /// A thread that owns no lock and uses the mutex.
    pub const NONE: Self = Self(SHARED);

    fn flag(self) -> Option<&'static Flag> {
        FLAGS.get((self.0 as usize).wrapping_sub(1))
    }
}

/// Gives the thread's number back when the thread ends. The locks that it owned then belong to the
/// next thread with that number, which works just as well.
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

/// Returns the calling thread's number. Call it only where the barrier is known to work. `forget`
/// runs at the thread's end, before the number can become another thread's: every copy of it must
/// be replaced by [`Thread::NONE`] from then on.
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
    // A thread that is ending has given its number back.
    number.map_or(Thread::NONE, Thread)
}

/// Iterates over the flags of all threads but the calling one.
fn others() -> impl Iterator<Item = &'static Flag> {
    let own = CLAIM.try_with(|claim| claim.number.get()).unwrap_or(0);
    let highest = HIGHEST.load(Acquire) as usize;
    let numbered = (1u32..).zip(&FLAGS).take(highest);
    numbered.filter(move |(number, _)| *number != own).map(|(_, flag)| flag)
}

/// Clears the flags of all other threads in a child of fork, which has only the calling thread.
/// Locks that those threads were inside of must be renewed first ([`Biased::renew_after_fork`]).
pub fn after_fork() {
    for flag in others() {
        if flag.taken.load(Relaxed) {
            flag.inside.store(0, Relaxed);
            flag.taken.store(false, Relaxed);
        }
    }
}

/// A value protected by a biased lock.
pub struct Biased<T> {
    owner: AtomicU32,
    mutex: UnsafeCell<Mutex<()>>,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through a `Guard`, and at most one thread has one at any time:
// the holder of the mutex once the owner is known to be outside, or the owner.
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
        // SAFETY: the mutex is replaced only in a child of fork that has one thread, which does not
        // use it meanwhile (`renew_after_fork`).
        unsafe { &*self.mutex.get() }
    }

    /// Resets the lock to `fresh`, in a child of fork, if another thread was inside when the
    /// process was copied; otherwise no thread could ever lock it again. The child must have no
    /// thread but the calling one, and that must be outside of this lock. The old value is not
    /// dropped, as it may have been copied half written.
    pub fn renew_after_fork(&self, fresh: T) {
        let taken = matches!(self.mutex().try_lock(), Err(TryLockError::WouldBlock));
        if !taken && others().all(|flag| flag.inside.load(Relaxed) != self.address()) {
            return;
        }
        // SAFETY: as said above, there is no other thread, and this one has no guard.
        unsafe {
            self.mutex.get().write(Mutex::new(()));
            self.value.get().write(fresh);
        }
        self.owner.store(NOBODY, Relaxed);
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Locks. `barrier` is called if another thread owns the lock, which takes the ownership from
    /// it. A thread that is inside already must not call this again.
    #[inline]
    pub fn lock(&self, thread: Thread, barrier: impl FnOnce()) -> Guard<'_, T> {
        if self.owner.load(Relaxed) == thread.0
            && let Some(flag) = thread.flag()
        {
            flag.inside.store(self.address(), Relaxed);
            // The owner's side of the barrier: the compiler must not reorder the two, and the
            // visitor's barrier makes up for any reordering by the processor.
            compiler_fence(SeqCst);
            if self.owner.load(Acquire) == thread.0 {
                return Guard { lock: self, held: Held::Flag(flag) };
            }
            flag.inside.store(0, Release);
        }
        self.lock_slowly(thread, barrier)
    }

    /// Runs `run` on the value if `thread` owns the lock and no visitor holds it: the fast path of
    /// [`Biased::lock`] alone. `run` must not panic, nor lock anything.
    #[inline]
    pub fn if_owner<R>(&self, thread: Thread, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.owner.load(Relaxed) != thread.0 {
            return None;
        }
        let flag = thread.flag()?;
        flag.inside.store(self.address(), Relaxed);
        compiler_fence(SeqCst);
        let done = (self.owner.load(Acquire) == thread.0).then(|| {
            // SAFETY: the owner's flag is set, and no visitor came before that.
            run(unsafe { &mut *self.value.get() })
        });
        flag.inside.store(0, Release);
        done
    }

    #[cold]
    fn lock_slowly(&self, thread: Thread, barrier: impl FnOnce()) -> Guard<'_, T> {
        let mutex = self.mutex().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match self.owner.load(Relaxed) {
            // Ours from the next time on; until then the mutex keeps visitors out.
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

    /// Locks as a visitor that does not wait: `None` if another thread is inside. The owner stays
    /// the owner. Uses neither thread-local storage nor the allocator.
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

    /// Returns whether the thread of this number is outside of this lock.
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
    /// By the mutex, with the owner's ownership suspended until the guard is dropped.
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
