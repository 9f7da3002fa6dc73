//! How descriptors appear, go, and are shared.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use uncork_cork::{Cork, Rhythm};

use crate::config::{Hold, Scope, Spin};
use crate::gather::Gathered;
use crate::kernel::{Errno, Kernel, state};
use crate::local::{current, local};
use crate::orphans::Then;
use crate::socket::{flag, held};
use crate::{Call, Posix, Socketed};

/// Where a TCP socket came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// socket(2).
    Made,
    /// accept(2) on this listener.
    Accepted(i32),
    /// It was there when the program began, or came over a Unix socket: other processes may have it too.
    Inherited,
}

/// Bytes that enter a socket by another way than a write ([`Posix::filling`]).
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    at: Socketed<'a>,
    /// The socket's count of writes at that time.
    writes: u64,
}

impl<K: Kernel> Posix<K> {
    /// Notes that a TCP socket has appeared at `fd`.
    pub fn opened(&self, fd: i32, origin: Origin) {
        if self.settings.get().is_none() || self.is_vfork_child() {
            return;
        }
        let (Some(byte), Some(socket)) = (self.kernel.state(fd), self.kernel.make_socket(fd))
        else {
            return;
        };
        let mut cork = Cork::default();
        let mut flags = match origin {
            Origin::Made => {
                cork = Cork::with_rhythm(Rhythm::from_bits(self.made_rhythm.load(Relaxed)));
                0
            }
            Origin::Accepted(listener) => {
                let parent = self.find(listener).map(|at| at.socket);
                cork = parent.map_or(cork, |parent| Cork::with_rhythm(parent.cork().rhythm()));
                // TCP_NODELAY is inherited from the listener (tcp(7) does not say so; accepted sockets are clones),
                // whoever has set it there.
                const NODELAY: u32 = flag::ASKED_NODELAY | flag::FORCED_NODELAY;
                let nodelay = parent.map_or_else(
                    || u32::from(self.kernel.nodelay(fd)) * flag::ASKED_NODELAY,
                    |parent| parent.flags() & NODELAY,
                );
                // The low-water mark, too (tcp_create_openreq_child, by sk_clone).
                let low = parent.map_or_else(
                    || self.begins_with_low_water(fd),
                    |parent| parent.is(flag::LOW_WATER),
                );
                nodelay | (u32::from(low) * flag::LOW_WATER)
            }
            Origin::Inherited => {
                flag::SHARED
                    | (u32::from(self.kernel.nodelay(fd)) * flag::ASKED_NODELAY)
                    | (u32::from(self.kernel.has_protocol(fd)) * flag::ULP)
                    | (u32::from(self.begins_with_low_water(fd)) * flag::LOW_WATER)
            }
        };
        let settings = self.settings();
        if settings.hold == Hold::User {
            local(|local| self.ask_for_number(local));
        }
        if settings.hold == Hold::Off {
            flags |= flag::HOLD_OFF;
        }
        if settings.scope == Scope::Nodelay && flags & flag::ASKED_NODELAY == 0 {
            flags |= flag::OUT_OF_SCOPE;
        }
        self.renew(Socketed { fd, socket }, flags);
        socket.set_cork(cork);
        if let Origin::Accepted(listener) = origin {
            socket.listener.store(listener + 1, Relaxed);
        }
        byte.store(state::TCP, SeqCst);
        self.kernel.highest().fetch_max(fd, Relaxed);
        self.ends_with_others(Socketed { fd, socket });
        if settings.debug >= 1 && !settings.autocork {
            self.say_opened(Socketed { fd, socket }, origin);
        }
    }

    /// Returns whether SO_RCVLOWAT was set before the library knew of the socket. Only a spin asks for it.
    fn begins_with_low_water(&self, fd: i32) -> bool {
        self.settings().spin != Spin::Off && self.kernel.low_water(fd) > 1
    }

    /// Resets a record to that of a new socket.
    fn renew(&self, at: Socketed<'_>, flags: u32) {
        let socket = at.socket;
        // Ends the hold of a socket that was closed without our knowing.
        self.end_hold(at);
        socket.reset(flags);
        if self.settings().hold == Hold::User {
            socket.reset_gathered(|| self.kernel.barrier());
        }
        if self.keeps_ledger()
            && let Ok(mut ledger) = socket.ledger.try_lock()
        {
            *ledger = None;
        }
    }

    /// Notes an accepted descriptor, whether the listener is tracked or not.
    pub fn accepted(&self, fd: i32, listener: i32) {
        match self.find(listener) {
            Some(at) => {
                at.socket.set(flag::LISTENER);
                self.opened(fd, Origin::Accepted(listener));
            }
            None if self.kernel.is_tcp(fd) => self.opened(fd, Origin::Accepted(listener)),
            None => self.forget(fd),
        }
    }

    /// Notes that listen(2) has succeeded.
    pub fn listens(&self, fd: i32) {
        if let Some(at) = self.find(fd).filter(|_| !self.is_vfork_child()) {
            at.socket.set(flag::LISTENER);
        }
    }

    /// Notes a descriptor that came from outside (at the start, or over a Unix socket).
    pub fn inherited(&self, fd: i32) {
        self.returned(fd);
        if let Some(at) = self.find(fd).filter(|_| !self.is_vfork_child()) {
            at.socket.set(flag::ELSEWHERE);
        }
    }

    /// Notes that a descriptor which was not ours for a while is the kernel's again. So may be duplicates of it.
    pub fn returned(&self, fd: i32) {
        if self.kernel.is_tcp(fd) {
            self.opened(fd, Origin::Inherited);
        } else {
            self.forget(fd);
        }
    }

    /// Notes that `fd` is about to be closed (or replaced). Forgets it first: once it is closed, another thread may get
    /// the number.
    pub fn closing(&self, fd: i32, call: Call) {
        let Some(byte) = self.kernel.state(fd) else { return };
        if matches!(byte.load(Relaxed), state::UNKNOWN | state::OURS) || self.is_vfork_child() {
            return;
        }
        if let Some(at) = self.find(fd) {
            self.end_burst(at, call);
            const OTHERS: u32 = flag::SHARED | flag::ELSEWHERE;
            let is_last = at.socket.flags() & OTHERS == 0;
            self.flush_for_good(at, if is_last { Then::CloseForGood } else { Then::Close });
            if at.socket.is(flag::ORPHANED) {
                // The duplicate must not go on reporting events under this number.
                self.kernel.unwatch(at.socket.epoll.load(Relaxed) - 1, fd);
            }
            byte.store(state::UNKNOWN, SeqCst);
            self.see_visitors_off(at);
            self.teach_siblings(at);
            self.report_closed(at);
            // A last look: a thread that wrote while we closed has lost its race, but the count of holds must stay right.
            self.end_hold(at);
        } else {
            byte.store(state::UNKNOWN, SeqCst);
        }
        if current::get() == fd {
            current::set(-1);
        }
    }

    /// Forgets what is known of `fd`, which has appeared, or has turned out, to be no TCP socket: the one that was there
    /// was closed without our knowing (by its system call, by io_uring). In a child of vfork only the child's was.
    pub fn forget(&self, fd: i32) {
        let Some(byte) = self.kernel.state(fd) else { return };
        let known = byte.load(Relaxed);
        if !matches!(known, state::READY | state::WAITS | state::TCP) || self.is_vfork_child() {
            return;
        }
        if let Some(at) = self.find(fd) {
            self.end_hold(at);
        }
        byte.store(state::UNKNOWN, SeqCst);
    }

    /// Passes on what this connection has learnt to the next one of its kind: the next that its listener accepts, or the
    /// next that this process makes.
    fn teach_siblings(&self, at: Socketed<'_>) {
        let learnt = at.socket.cork().rhythm();
        if at.socket.is(flag::LISTENER | flag::SHARED) {
            return;
        }
        match at.socket.listener.load(Relaxed) {
            0 => {
                let mut made = Rhythm::from_bits(self.made_rhythm.load(Relaxed));
                made.learn_from(learnt);
                self.made_rhythm.store(made.to_bits(), Relaxed);
            }
            listener => {
                let parent = self.find(listener - 1).filter(|at| at.socket.is(flag::LISTENER));
                if let Some(parent) = parent {
                    let mut rhythm = parent.socket.cork().rhythm();
                    rhythm.learn_from(learnt);
                    parent.socket.set_cork(Cork::with_rhythm(rhythm));
                }
            }
        }
    }

    /// Notes that all descriptors from `first` to `last` are about to be closed.
    pub fn closing_range(&self, first: u32, last: u32, call: Call) {
        // Untracked ones may have a state byte too, at most up to the highest ever classified.
        let highest = self.kernel.highest().load(Relaxed).max(0) as u32;
        for fd in first..=last.min(highest) {
            self.closing(fd as i32, call);
        }
    }

    /// Empties the process's buffer for `old`, which is about to be duplicated, or passed on.
    pub fn sharing(&self, old: i32, call: Call) {
        if self.is_vfork_child() {
            self.kept_by_child(old);
        } else if let Some(at) = self.find(old) {
            let elsewhere = if call == Call::PassFd { flag::ELSEWHERE } else { 0 };
            at.socket.set(flag::SHARED | elsewhere);
            self.end_burst(at, call);
            self.see_writers_off(at);
            self.drain(at, self.drained_by());
            // Both descriptors answer getsockopt(TCP_NODELAY) from the same knowledge. What is not connected yet may be
            // about to listen, and would leave the option to all that it accepts.
            if !at.socket.is(flag::PASSED) && at.socket.is(flag::CONNECTED) {
                at.socket.set(flag::SENT);
                self.ensure_nodelay(at);
            }
        }
    }

    /// Notes that another writer will use `fd`, and could overtake what is gathered in this process: a thread of libc's
    /// (aio_write), a program that is started.
    pub fn given(&self, fd: i32, call: Call) {
        if self.settings().hold == Hold::User {
            self.sharing(fd, call);
        }
    }

    /// Notes that a child of vfork has duplicated `fd`, or has said that the program which it becomes has it, too. What
    /// its parent has written is sent already ([`Posix::before_vfork`]), and what it will write is not gathered.
    pub fn kept_by_child(&self, fd: i32) {
        if self.settings().hold == Hold::User
            && let Some(at) = self.find(fd).filter(|_| self.is_vfork_child())
        {
            at.socket.set(flag::SHARED);
        }
    }

    /// Prepares for a program's start: it has every descriptor that is not closed for it, and may write at any time.
    fn given_to_program(&self, call: Call) {
        if self.settings().hold != Hold::User || self.is_vfork_child() {
            return;
        }
        let until = self.drained_by();
        self.each_tracked(|at| {
            if !at.socket.is(flag::SHARED) && !self.kernel.closes_on_exec(at.fd) {
                at.socket.set(flag::SHARED | flag::ELSEWHERE);
                self.visit(at.fd, call);
                self.see_writers_off(at);
                self.drain(at, until);
            }
        });
    }

    /// Notes that `new` is a duplicate of `old`.
    pub fn duplicated(&self, old: i32, new: i32) {
        let Some(at) = self.find(old) else { return self.forget(new) };
        if self.is_vfork_child() {
            return;
        }
        self.opened(new, Origin::Inherited);
        if let Some(twin) = self.find(new) {
            // It has a buffer of its own, which always stays empty.
            let flags = at.socket.flags() & !(flag::GATHERS | flag::GATHERED | flag::BACKLOG);
            self.renew(twin, flags | flag::SHARED);
            twin.socket.cookie.store(at.socket.cookie.load(Relaxed), Relaxed);
            self.ends_with_others(twin);
        }
    }

    /// Prepares for fork(2): the child must not inherit what this process will send.
    pub fn before_fork(&self) {
        self.before_wait(Call::Fork);
        if !self.is_vfork_child() {
            let until = self.drained_by();
            self.each_tracked(|at| {
                at.socket.set(flag::SHARED | flag::ELSEWHERE);
                // What another thread gathers is sent now: the child only forgets it, and what it writes must not overtake it.
                self.visit(at.fd, Call::Fork);
                self.see_writers_off(at);
                self.drain(at, until);
            });
        }
        self.pause_keeper();
    }

    /// Resets the state in the child of a fork: only this thread exists, and nothing is held.
    pub fn after_fork_in_child(&self) {
        self.pid.store(self.kernel.pid(), Relaxed);
        self.keeper.gone();
        current::set(-1);
        self.kernel.held().count.store(0, SeqCst);
        // Where a handler has forked on top of its own thread's lock, the lock is not another thread's.
        if !local(|local| local.inside.get()) {
            let user = self.settings().hold == Hold::User;
            for fd in (0..=self.kernel.highest().load(Relaxed)).filter(|_| user) {
                if let Some(socket) = self.kernel.socket(fd) {
                    socket.gathered.renew_after_fork(Gathered::default());
                }
            }
        }
        uncork_bias::after_fork();
        self.disown_orphans();
        self.each_tracked(|at| {
            at.socket.held.store(0, Relaxed);
            at.socket.visitors.store(0, Relaxed);
            at.socket.clear(flag::BACKLOG | flag::TIMED_OUT);
            at.socket.set(flag::SHARED);
            let mut cork = at.socket.cork();
            cork.handle_end(true);
            at.socket.set_cork(cork);
            if let Some(mut gathered) = at.socket.gathered.try_visit(|| ()) {
                gathered.clear();
            }
        });
        self.report_restart();
    }

    /// Prepares for a new process: what was written before comes before what it writes.
    pub fn before_spawn(&self, call: Call) {
        self.before_wait(call);
        self.given_to_program(call);
        self.release_all(call);
        self.await_keeper();
    }

    /// Prepares for vfork, or a clone that may be one.
    pub fn before_vfork(&self) {
        self.before_spawn(Call::Vfork);
        local(|local| local.vforked.set(true));
    }

    /// Returns whether this is a vfork child, which runs in our memory: what it closes is its own, not ours.
    pub fn is_vfork_child(&self) -> bool {
        local(|local| {
            let child = local.vforked.get() && self.is_other_process();
            // The parent goes on only when the child is gone.
            local.vforked.set(child);
            child
        })
    }

    /// Returns the process that this state belongs to.
    pub fn process(&self) -> u32 {
        self.pid.load(Relaxed)
    }

    /// Returns whether this is another process than the one that this state belongs to.
    pub fn is_other_process(&self) -> bool {
        self.kernel.pid() != self.pid.load(Relaxed)
    }

    /// Returns whether nothing is held any more: the program's calls go through as they are.
    #[inline]
    pub fn is_disabled(&self) -> bool {
        self.disabled.load(Relaxed)
    }

    /// Prepares for the end of the process, or for an exec.
    pub fn ending(&self, call: Call) {
        if self.is_vfork_child() {
            return;
        }
        self.before_wait(call);
        self.release_all(call);
        self.await_keeper();
        self.each_tracked(|at| {
            if at.socket.is(flag::BACKLOG) {
                self.flush_for_good(at, Then::Close);
            }
        });
        self.wait_for_orphans();
    }

    /// Prepares for the end of the process, after which nothing of it runs but its last exit handlers: as
    /// [`Posix::ending`], and what other threads still write is sent as they write it.
    pub fn ending_for_good(&self, call: Call) {
        if self.is_vfork_child() {
            return;
        }
        self.stop_holding();
        self.ending_of_all(call);
    }

    /// Prepares for an exec, which may fail.
    pub fn ending_by_exec(&self) {
        if self.is_vfork_child() {
            return;
        }
        if !self.disabled.load(SeqCst) {
            self.stop_holding();
            self.may_go_on.store(true, SeqCst);
            local(|local| local.executes.set(true));
        }
        self.ending_of_all(Call::Exec);
    }

    /// Pushes all that is held. Afterwards no thread is in the middle of gathering.
    fn ending_of_all(&self, call: Call) {
        self.each_tracked(|at| self.see_writers_off(at));
        self.ending(call);
    }

    /// Begins to hold again if this thread, which writes, is the one that asked for an exec: that has failed. Until then
    /// the other threads' writes go through as they are.
    #[cold]
    pub(crate) fn goes_on_after_exec(&self) {
        if !local(|local| local.executes.replace(false)) || !self.may_go_on.swap(false, SeqCst) {
            return;
        }
        self.disabled.store(false, SeqCst);
        self.each_tracked(|at| _ = at.socket.clear(flag::OVER));
    }

    /// Stops holding: there may be no other chance to push.
    pub fn stop_holding(&self) {
        self.may_go_on.store(false, SeqCst);
        self.disabled.store(true, SeqCst);
        self.each_tracked(|at| _ = at.socket.set(flag::OVER));
    }

    /// Marks a socket that has appeared while [`Posix::stop_holding`] went through those that there were.
    fn ends_with_others(&self, at: Socketed<'_>) {
        if self.disabled.load(SeqCst) {
            at.socket.set(flag::OVER);
        }
    }

    /// Notes that nothing is gathered any more, so that no write needs to check for it.
    pub(crate) fn forget_gathering(&self) {
        self.each_tracked(|at| {
            self.see_writers_off(at);
            if !at.socket.is(flag::BACKLOG) {
                at.socket.clear(flag::GATHERS | flag::GATHERED);
            }
        });
    }

    /// Notes that the program sets up an io_uring, which sends without our knowing: nothing is kept from it.
    pub fn uses_io_uring(&self) {
        if self.is_vfork_child() {
            return;
        }
        self.kernel_only.store(true, SeqCst);
        self.each_tracked(|at| {
            at.socket.clear(flag::GATHERS);
        });
        self.before_wait(Call::IoUring);
        self.release_all(Call::IoUring);
        let until = self.drained_by();
        self.each_tracked(|at| {
            self.see_writers_off(at);
            self.drain(at, until);
        });
    }

    /// Notes that a stdio stream is opened on `fd`, which writes and reads without our knowing.
    pub fn uses_stdio(&self, fd: i32) {
        if let Some(at) = self.find(fd).filter(|_| !self.is_vfork_child()) {
            at.socket.set(flag::STDIO);
            self.end_burst(at, Call::Fdopen);
            self.see_writers_off(at);
            self.drain(at, self.drained_by());
            self.say_passed(at);
        }
    }

    /// Prepares for shutdown(2). Returns whether shutting down for writing must wait for bytes that the connection has
    /// not taken, and is then done by the timer.
    pub fn shutting(&self, fd: i32, writing: bool) -> bool {
        let Some(at) = self.find(fd).filter(|_| !self.is_vfork_child()) else { return false };
        self.end_burst(at, Call::Shutdown);
        if !writing {
            return false;
        }
        at.socket.set(flag::SHUT);
        self.flush_for_good(at, Then::Shutdown)
    }

    /// Prepares for bytes that are about to enter `fd` by another way (sendfile, splice): what the kernel holds goes
    /// along with them, what is held in the process goes first. They come out of `from`, which may be empty still
    /// (`is_empty`): then the program waits for another, as if it read from there.
    pub fn filling(
        &self,
        fd: i32,
        from: i32,
        bytes: usize,
        call: Call,
        is_empty: impl FnOnce() -> bool,
    ) -> Result<Option<Filling<'_>>, Errno> {
        let Some(at) = self.find(fd).filter(|_| !self.is_vfork_child()) else { return Ok(None) };
        let previous = current::replace(fd);
        if previous != fd && previous >= 0 {
            self.end_other(previous, Call::Turn);
        }
        if at.socket.is(flag::GATHERED) {
            self.settle(at, false)?;
        }
        if at.socket.is(flag::PASSED) {
            return Ok(None);
        }
        if at.socket.held.load(Relaxed) != 0 && self.may_wait(from) && is_empty() {
            self.end_burst(at, call);
        }
        // This is a write of the burst like any other, but nothing can hold its end back.
        self.count_write(at.socket, bytes);
        self.decide(at.socket, bytes, u32::MAX);
        at.socket.why.store(call as u8, Relaxed);
        Ok(Some(Filling { at, writes: at.socket.writes.load(Relaxed) }))
    }

    /// Notes that this call has returned, and whether it has `sent` anything; with `more` the program itself holds the
    /// end back. Until here what was held still counts as held: a file may be on a slow disk, or may have no bytes to
    /// take it along.
    pub fn filled(&self, filling: &Filling<'_>, sent: bool, more: bool) {
        let at = filling.at;
        if !sent {
            return;
        }
        self.before_unheld(at);
        if at.socket.writes.load(Relaxed) != filling.writes {
            // Another thread has written after these bytes.
            self.note_held(at, held::KERNEL);
        }
        if !more {
            self.after_send(at, false, true);
        }
    }

    pub(crate) fn each_tracked(&self, mut look: impl FnMut(Socketed<'_>)) {
        for fd in 0..=self.kernel.highest().load(Relaxed) {
            if let Some(at) = self.find(fd) {
                look(at);
            }
        }
    }
}
