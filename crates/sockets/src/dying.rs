//! The end of the process by a signal for which the program has no handler.
//!
//! Our handler in its place has interrupted the program anywhere, in its allocator, too, so it asks a keeper to end the
//! connections, and waits. The keeper may need what the interrupted thread has locked, first of all the allocator's memory, so
//! the handler does not wait for ever, but lets the program go on; then the keeper ends the process. Threads that the signal
//! would have ended no longer enter the stack: one that tries sleeps for the rest of the process's life.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8};

use crate::outside::Outside;
use crate::parts::Part;
use crate::{Sockets, is_inside};

/// The state of the process's end.
#[derive(Debug)]
pub(crate) struct Dying {
    /// The number of the part whose keeper does it, counted from one; zero for none so far.
    by: AtomicU8,
    /// The signal.
    of: AtomicI32,
    done: AtomicBool,
}

thread_local! {
    /// Whether this thread is a keeper.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the calling thread is a keeper: one of them does it, and none is kept out.
pub(crate) fn i_keep() {
    KEEPS.set(true);
}

impl Dying {
    pub(crate) const fn new() -> Self {
        Self { by: AtomicU8::new(0), of: AtomicI32::new(0), done: AtomicBool::new(false) }
    }

    /// Returns whether the calling thread may not enter any more. One that is inside goes on.
    #[inline]
    pub(crate) fn keeps_out(&self) -> bool {
        self.by.load(SeqCst) != 0 && !KEEPS.get() && !is_inside()
    }

    fn is_by(&self, part: Part) -> bool {
        self.by.load(SeqCst) == part.number() + 1
    }

    /// Forgets it in the child of fork, which lives.
    pub(crate) fn forget(&self) {
        self.by.store(0, SeqCst);
        self.of.store(0, SeqCst);
        self.done.store(false, SeqCst);
    }
}

impl<O: Outside> Sockets<O> {
    /// For a signal handler: has a keeper do what [`Outside::end`] does, and then end the process by this signal. Returns
    /// whether there is a keeper; without one, nothing is on the stack.
    pub fn ask_for_end(&self, signal: i32) -> bool {
        let has_keeper = |part: &Part| self.share(*part).keeper.exists();
        let Some(part) = self.all().find(has_keeper) else { return false };
        // Another thread may have asked before.
        let _ = self.dying.of.compare_exchange(0, signal, SeqCst, SeqCst);
        let _ = self.dying.by.compare_exchange(0, part.number() + 1, SeqCst, SeqCst);
        true
    }

    /// For a handler that has asked, again and again: returns whether it is done.
    pub fn has_ended(&self) -> bool {
        let by = self.dying.by.load(SeqCst);
        if let Some(number) = by.checked_sub(1) {
            self.share(Part::numbered(number)).keeper.try_wake();
        }
        self.dying.done.load(SeqCst)
    }

    /// For a keeper, when it wakes: ends the process's connections and then the process, if it was asked to.
    pub(crate) fn end_if_asked(&self, part: Part) {
        if self.dying.is_by(part) {
            self.outside.end();
            self.dying.done.store(true, SeqCst);
            self.outside.end_process(self.dying.of.load(SeqCst));
            self.sleep_for_ever();
        }
    }

    /// Sleeps for ever, for a thread of the program while another one ends the process.
    #[cold]
    pub(crate) fn sleep_for_ever(&self) {
        while self.dying.by.load(SeqCst) != 0 {
            let _ = self.outside.poll(&mut [], None);
        }
    }
}
