//! Pushing what is held, and which threads may do it.
//!
//! Each thread writes to one socket at a time: `Local::current`. When it turns away, that socket's
//! burst is over. Other threads (the timer, a thread that waits for the answer, the one that ends
//! the process) may push too, as *visitors*; closing waits for visitors.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use uncork_cork::Instant;

use crate::keeper::LONGEST_LOOK;
use crate::kernel::{Held, Kernel};
use crate::socket::{count, flag, held};
use crate::{Call, Posix, Socketed};

impl<K: Kernel> Posix<K> {
    /// Notes that something of this socket is held from now on, in `place` ([`held`]). False: no
    /// timer bounds that. What the kernel holds has been pushed then; what is gathered must be sent
    /// by the caller, which is inside its lock.
    #[inline]
    pub(crate) fn note_held(&self, at: Socketed<'_>, place: u8) -> bool {
        self.note_held_by(at, place, || ())
    }

    /// As [`Posix::note_held`], for a caller that has something to do before a system call.
    #[inline]
    pub(crate) fn note_held_by(
        &self,
        at: Socketed<'_>,
        place: u8,
        before_call: impl FnMut(),
    ) -> bool {
        at.socket.held.load(Relaxed) & place != 0 || self.begin_hold(at, place, before_call)
    }

    fn begin_hold(&self, at: Socketed<'_>, place: u8, before_call: impl FnMut()) -> bool {
        let socket = at.socket;
        // Before the mark: a thread that sees that something is held must find since when. A hold
        // that goes on keeps its date.
        let since = if socket.held.load(Relaxed) == 0 {
            let now = self.kernel.now();
            socket.since.store(now.0, Relaxed);
            now
        } else {
            Instant(socket.since.load(Relaxed))
        };
        // Counted before it is held, not after: a writer that counts nothing else must be right.
        let held = self.kernel.held();
        let alone = held.count.fetch_add(1, SeqCst) == 0;
        if socket.held.fetch_or(place, SeqCst) != 0 {
            held.count.fetch_sub(1, SeqCst);
            return true;
        }
        held.mark(at.fd);
        if self.keeps_ledger() {
            self.ledger_hold(socket);
        }
        let bounded = self.bound_hold(since, alone, before_call);
        if !bounded && place == held::KERNEL {
            self.release(at, Call::Passed);
        }
        bounded
    }

    /// Returns whether the timer looks at what is held and marked before the bound is over.
    #[inline]
    fn bound_hold(&self, since: Instant, alone: bool, mut before_call: impl FnMut()) -> bool {
        if self.keeper.is_paused() {
            before_call();
            return false;
        }
        if !self.keeper.is_ticking() {
            before_call();
            if !self.rouse_keeper() {
                return false;
            }
        }
        self.set_alarm_for(since, alone, before_call)
    }

    /// Notes that nothing is held any more.
    #[inline]
    pub(crate) fn end_hold(&self, at: Socketed<'_>) {
        self.end_hold_in(at, held::KERNEL | held::USER);
    }

    /// Notes that nothing is held in `place` any more; returns whether anything was.
    ///
    /// What the kernel holds: before the send or the push that releases it. Bytes that another
    /// thread adds in between are then noted anew, and pushed once too often at worst; noted
    /// afterwards, they could be forgotten. What is gathered: under its lock, when the kernel has
    /// it. A thread that finds it noted before then waits for that lock, so nothing that is written
    /// by another way (a duplicate, another process) overtakes bytes that are being sent.
    pub(crate) fn end_hold_in(&self, at: Socketed<'_>, place: u8) -> bool {
        if at.socket.held.load(Relaxed) & place == 0 {
            return false;
        }
        let before = at.socket.held.fetch_and(!place, SeqCst);
        if before & place != 0 && before & !place == 0 {
            self.kernel.held().count.fetch_sub(1, SeqCst);
        }
        before & place != 0
    }

    /// Prepares for an unheld send, which will take along what the kernel holds.
    #[inline]
    pub(crate) fn before_unheld(&self, at: Socketed<'_>) {
        self.end_hold_in(at, held::KERNEL);
    }

    /// Pushes what is held, if anything. In a child of vfork that is what other threads of its parent
    /// write, to a socket that the child may have closed, or have another descriptor in place of: it
    /// is theirs to push. (The timer's thread, which has no thread-local storage, is no such child.)
    pub(crate) fn release(&self, at: Socketed<'_>, call: Call) {
        if call != Call::Timer && self.is_vfork_child() {
            return;
        }
        let socket = at.socket;
        let gathered = socket.held.load(SeqCst) & held::USER != 0;
        let mut any = gathered
            && if call == Call::Timer { self.flush_from_timer(at) } else { self.flush(at, false) };
        if !any && self.end_hold_in(at, held::KERNEL) {
            socket.set(flag::FORCED_NODELAY);
            self.kernel.push(at.fd);
            any = true;
        }
        if any {
            socket.why.store(call as u8, Relaxed);
            self.pushed(at, call);
        }
    }

    fn pushed(&self, at: Socketed<'_>, call: Call) {
        if self.keeps_ledger() {
            self.ledger_push(at.socket, call);
        }
        if self.settings().debug >= 2 {
            self.say_pushed(at, call);
        }
    }

    /// Ends the burst of this socket: the program has turned away from it.
    #[inline]
    pub(crate) fn end_burst(&self, at: Socketed<'_>, call: Call) {
        let socket = at.socket;
        let mut cork = socket.cork();
        if socket.end_only() {
            count(&socket.bursts, 1);
        } else if cork.is_open() {
            cork.handle_end(socket.clear(flag::TIMED_OUT));
            count(&socket.bursts, 1);
            socket.set_cork(cork);
        }
        if socket.held.load(Relaxed) != 0 {
            self.release(at, call);
        }
    }

    /// As [`Posix::end_burst`], for a descriptor that may no longer be tracked.
    pub(crate) fn end_other(&self, fd: i32, call: Call) {
        if let Some(at) = self.find(fd) {
            self.end_burst(at, call);
        }
    }

    /// Pushes another thread's socket, unless it is being closed.
    pub(crate) fn visit(&self, fd: i32, call: Call) {
        let Some(at) = self.find(fd) else { return };
        at.socket.visitors.fetch_add(1, SeqCst);
        self.release(at, call);
        at.socket.visitors.fetch_sub(1, SeqCst);
    }

    /// Waits until no other thread works on this socket's descriptor. Not for ever: in a signal
    /// handler that closes it, the visitor may be the interrupted thread itself.
    pub(crate) fn see_visitors_off(&self, at: Socketed<'_>) {
        if at.socket.visitors.load(SeqCst) == 0 {
            return;
        }
        let begin = self.kernel.now();
        while at.socket.visitors.load(SeqCst) != 0 && self.kernel.now().since(begin) < LONGEST_LOOK
        {
            self.kernel.give_way();
        }
    }

    /// Pushes all that is held in the process.
    pub fn release_all(&self, call: Call) {
        let held = self.kernel.held();
        if held.count.load(SeqCst) != 0 {
            held.each(|fd| self.visit(fd, call));
        }
    }
}

impl Held {
    /// Marks a descriptor for the timer to look at.
    #[inline]
    pub(crate) fn mark(&self, fd: i32) {
        let word = fd as usize / 64;
        let bit = 1 << (fd as usize % 64);
        if let Some(bits) = self.bits.get(word)
            && bits.load(SeqCst) & bit == 0
        {
            bits.fetch_or(bit, SeqCst);
            self.summary[word / 64].fetch_or(1 << (word % 64), SeqCst);
        }
    }

    /// Calls `look` for each marked descriptor.
    pub(crate) fn each(&self, mut look: impl FnMut(i32)) {
        for (at, summary) in self.summary.iter().enumerate() {
            for word in ones(summary.load(SeqCst)).map(|bit| at * 64 + bit) {
                for bit in ones(self.bits[word].load(SeqCst)) {
                    look((word * 64 + bit) as i32);
                }
            }
        }
    }

    /// As [`Held::each`], clearing the marks of those that `keep` does not keep. It is asked again
    /// after the mark is gone, as a thread that held something in between saw it still set.
    pub(crate) fn sweep(&self, mut keep: impl FnMut(i32) -> bool) {
        self.each(|fd| {
            if !keep(fd) {
                self.bits[fd as usize / 64].fetch_and(!(1 << (fd as usize % 64)), SeqCst);
                if keep(fd) {
                    self.mark(fd);
                }
            }
        });
    }
}

fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}
