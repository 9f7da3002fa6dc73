//! The end by a signal for which the program has no handler.
//!
//! Whoever stands in for one has interrupted the program anywhere, in the middle of its allocator, too, so he asks a
//! keeper to end, and waits. The keeper may need what the interrupted thread has locked, the allocator's memory first of
//! all, so he does not wait for ever, but goes on in the program; it is the keeper who ends the process then. Threads
//! that would have been ended come in here no more: who tries sleeps for what is left of the process's life.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8};

use crate::outside::Outside;
use crate::parts::Part;
use crate::{Sockets, is_inside};

/// What is known of the end.
#[derive(Debug)]
pub(crate) struct Dying {
    /// Whose keeper does it, counted from one; none so far.
    by: AtomicU8,
    /// The signal.
    of: AtomicI32,
    done: AtomicBool,
}

thread_local! {
    /// This is a keeper.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is a keeper: one of them does it, and none is in the way.
pub(crate) fn i_keep() {
    KEEPS.set(true);
}

impl Dying {
    pub(crate) const fn new() -> Self {
        Self { by: AtomicU8::new(0), of: AtomicI32::new(0), done: AtomicBool::new(false) }
    }

    /// Whether the calling thread may not come in any more. Who is in here goes on.
    #[inline]
    pub(crate) fn keeps_out(&self) -> bool {
        self.by.load(SeqCst) != 0 && !KEEPS.get() && !is_inside()
    }

    fn is_by(&self, part: Part) -> bool {
        self.by.load(SeqCst) == part.number() + 1
    }

    /// The child of fork lives.
    pub(crate) fn forget(&self) {
        self.by.store(0, SeqCst);
        self.of.store(0, SeqCst);
        self.done.store(false, SeqCst);
    }
}

impl<O: Outside> Sockets<O> {
    /// For a signal handler: has a keeper do what [`Outside::end`] does, and then end the process by this signal. Whether
    /// there is one; without, nothing is on the stack.
    pub fn ask_for_end(&self, signal: i32) -> bool {
        let has_keeper = |part: &Part| self.share(*part).keeper.exists();
        let Some(part) = self.all().find(has_keeper) else { return false };
        // Somebody else may have asked before.
        let _ = self.dying.of.compare_exchange(0, signal, SeqCst, SeqCst);
        let _ = self.dying.by.compare_exchange(0, part.number() + 1, SeqCst, SeqCst);
        true
    }

    /// For who has asked, again and again: whether it is done.
    pub fn has_ended(&self) -> bool {
        let by = self.dying.by.load(SeqCst);
        if let Some(number) = by.checked_sub(1) {
            self.share(Part::numbered(number)).keeper.try_wake();
        }
        self.dying.done.load(SeqCst)
    }

    /// For a keeper, when it wakes: ends the process's connections, if it was asked to.
    pub(crate) fn end_if_asked(&self, part: Part) {
        if self.dying.is_by(part) {
            self.outside.end();
            self.dying.done.store(true, SeqCst);
            self.outside.end_process(self.dying.of.load(SeqCst));
            self.sleep_for_ever();
        }
    }

    /// For the program's threads while another one ends the process.
    #[cold]
    pub(crate) fn sleep_for_ever(&self) {
        while self.dying.by.load(SeqCst) != 0 {
            let _ = self.outside.poll(&mut [], None);
        }
    }
}
