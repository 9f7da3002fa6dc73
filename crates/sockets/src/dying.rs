//! The end by a signal for which the program has no handler.
//!
//! Whoever stands in for one has interrupted the program anywhere, in the middle of its allocator, too, so he asks a
//! keeper to end, and waits. Meanwhile the program's other threads, which the kernel would have ended with the
//! first, come in here no more: who tries sleeps for what is left of the process's life.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU8};

use crate::Sockets;
use crate::outside::Outside;
use crate::parts::Part;

/// What is known of the end.
#[derive(Debug)]
pub(crate) struct Dying {
    /// Whose keeper does it, counted from one; none so far.
    by: AtomicU8,
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
        Self { by: AtomicU8::new(0), done: AtomicBool::new(false) }
    }

    /// Whether the calling thread may not come in any more.
    #[inline]
    pub(crate) fn keeps_out(&self) -> bool {
        self.by.load(SeqCst) != 0 && !KEEPS.get()
    }

    fn is_by(&self, part: Part) -> bool {
        self.by.load(SeqCst) == part.number() + 1
    }

    /// The child of fork lives.
    pub(crate) fn forget(&self) {
        self.by.store(0, SeqCst);
    }
}

impl<O: Outside> Sockets<O> {
    /// For a signal handler: has a keeper do what [`Outside::end`] does. Whether there is one; without, nothing is on
    /// the stack.
    pub fn ask_for_end(&self) -> bool {
        let has_keeper = |part: &Part| self.share(*part).keeper.exists();
        let Some(part) = self.all().find(has_keeper) else { return false };
        // Somebody else may have asked before.
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
            self.sleep_for_ever();
        }
    }

    /// For the program's threads while another one ends the process.
    #[cold]
    pub(crate) fn sleep_for_ever(&self) {
        while self.dying.by.load(SeqCst) != 0 {
            let _ = self.outside.poll(&mut [], None, None);
        }
    }
}
