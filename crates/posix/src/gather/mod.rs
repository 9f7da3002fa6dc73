//! `--hold user`: bytes gathered in the process, one send a logical packet.
//!
//! A socket's bytes sit in [`Gathered`] under its lock. A push sends them without blocking; what the
//! kernel does not take stays as a *backlog*, which the timer offers again and again, and which the
//! program's next write waits for (or answers EAGAIN).

mod inside;
mod pool;

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::io::IoSlice;

use uncork_cork::{Instant, Reason, Verdict};

use crate::call::Call;
use crate::kernel::{Errno, Kernel};
use crate::local::{ASIDE_BYTES, local};
use crate::orphans::{LAST_WAIT, Then};
use crate::socket::{Socket, count, flag, held};
use crate::{Posix, Socketed};
use inside::Inside;

/// Largest number of bytes gathered for one socket.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// Bytes that were gathered and not sent yet. The buffer exists only while it holds something.
#[derive(Debug, Default)]
pub struct Gathered {
    buffer: Vec<u8>,
}

impl Gathered {
    /// Returns the number of bytes gathered.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns whether nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.buffer = Vec::new();
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.buffer.len() + bytes <= BUFFER_BYTES
    }

    #[inline]
    fn append(&mut self, data: &[IoSlice<'_>]) {
        if self.buffer.capacity() == 0 {
            self.buffer = pool::take();
        }
        for part in data {
            self.buffer.extend_from_slice(part);
        }
    }

    #[inline]
    fn append_small(&mut self, data: &[u8]) -> bool {
        self.buffer.extend_from_slice(data);
        true
    }

    /// Removes the first `bytes`. Frees nothing: the timer calls this too.
    fn sent(&mut self, bytes: usize) {
        if bytes >= self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.drain(..bytes);
        }
    }

    /// Returns an empty buffer to the pool.
    #[inline]
    fn tidy(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() != 0 {
            pool::give_back(core::mem::take(&mut self.buffer));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.buffer)
    }
}

/// How long a call that does not send waits at most for peers that read nothing (dup(2), fork(2), the start of a program):
/// many of them must not stop an event loop.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to send what a connection does not take.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Returns how long not to try again what could not be sent for this long: many peers that read nothing must not cost a
/// system call each in every bound.
pub(crate) fn pause(stalled: Duration, bound: Duration) -> Duration {
    bound.max((stalled / 8).min(LONGEST_PAUSE))
}

/// Returns whether a socket is shut down for writing, and the kernel does not know of it yet.
pub(crate) fn is_shut(socket: &Socket) -> bool {
    const DEFERRED: u32 = flag::SHUT | flag::ORPHANED;
    socket.flags() & DEFERRED == DEFERRED
}

/// Puts bytes aside in a signal handler that came while its own thread was inside: the thread
/// appends them when it goes on. What does not fit was not written, as if the handler's call had
/// been interrupted while it waited.
#[cold]
fn put_aside(fd: i32, data: &[IoSlice<'_>], total: usize) -> Result<Gather, Errno> {
    let bytes = data.iter().flat_map(|part| part.iter());
    if local(|local| local.aside.put(fd, bytes, total)) {
        Ok(Gather::Taken)
    } else {
        Err(Errno::EINTR)
    }
}

/// What became of the bytes offered to [`Posix::gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// The bytes are in our buffer: the write has succeeded.
    Taken,
    /// The caller must send the bytes to the kernel itself (with MSG_MORE if `more`).
    Send {
        /// Whether the kernel is to hold them.
        more: bool,
    },
}

impl<K: Kernel> Posix<K> {
    /// Gathers another small write of this thread's burst: the common case of [`Posix::plan_write`]
    /// and [`Posix::gather`] in one. False: nothing was done, take the long way.
    #[inline]
    pub fn gather_another(&self, fd: i32, data: &[u8]) -> bool {
        const WANTED: u32 = flag::GATHERS | flag::CONNECTED;
        const UNWANTED: u32 = flag::PASSED | flag::SHARED | flag::BACKLOG | flag::LATE_ERROR;
        let Some(socket) = self.kernel.socket(fd) else { return false };
        local(|local| {
            if local.current.get() != fd || local.inside.replace(true) {
                return false;
            }
            let gathered = socket.gathered.if_owner(local.thread.get(), |gathered| {
                // Something is there already, so it is noted as held. The flags are read inside: a
                // thread that sets one and then gets in finds all that was gathered before.
                !gathered.is_empty()
                    && socket.flags() & (WANTED | UNWANTED) == WANTED
                    && gathered.has_room(data.len())
                    && socket.hold_another(data.len(), socket.full_bytes.load(Relaxed))
                    && gathered.append_small(data)
            });
            local.inside.set(false);
            if gathered != Some(true) {
                return false;
            }
            self.count_write(socket, data.len());
            if !local.aside.is_empty() {
                self.append_aside();
            }
            true
        })
    }

    /// Takes `data` (of `total` bytes) into the socket's buffer, or says that it must be sent.
    /// `nonblocking` is the call's own MSG_DONTWAIT.
    #[inline]
    pub fn gather(
        &self,
        at: Socketed<'_>,
        data: &[IoSlice<'_>],
        total: usize,
        nonblocking: bool,
    ) -> Result<Gather, Errno> {
        let socket = at.socket;
        if socket.is(flag::LATE_ERROR) {
            self.late_error(socket)?;
        }
        let mut full_bytes = socket.full_bytes.load(Relaxed);
        if !socket.is(flag::SEGMENT_KNOWN)
            && socket.cork().bytes() as usize + total >= full_bytes as usize
        {
            let segment = self.kernel.max_segment(at.fd).max(full_bytes);
            full_bytes = segment.min(BUFFER_BYTES as u32);
            socket.full_bytes.store(full_bytes, Relaxed);
            socket.set(flag::SEGMENT_KNOWN);
        }
        let verdict = self.decide(socket, total, full_bytes);
        loop {
            if socket.flags() & (flag::BACKLOG | flag::SHUT) != 0 {
                self.wait_for_backlog(at, nonblocking)?;
            }
            let sends = verdict != Verdict::Hold;
            let entered = local(|local| {
                let inside = if sends {
                    self.enter_undisturbed(socket)?
                } else {
                    self.enter(local, socket)?
                };
                let result = self.gather_inside(at, inside, data, total, verdict);
                Some((result, local.aside.is_empty()))
            });
            let Some((result, nothing_aside)) = entered else {
                return put_aside(at.fd, data, total);
            };
            if !nothing_aside {
                self.append_aside();
            }
            match result {
                // The kernel's buffer is full: this write waits like any other.
                Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    /// Gathers or flushes under the lock. `None`: there is a backlog now, which goes first.
    #[inline]
    fn gather_inside(
        &self,
        at: Socketed<'_>,
        mut inside: Inside<'_, K>,
        data: &[IoSlice<'_>],
        total: usize,
        verdict: Verdict,
    ) -> Result<Option<Gather>, Errno> {
        let gathered = &mut *inside.gathered;
        let lone = gathered.is_empty() && verdict != Verdict::Hold;
        // Since the write was planned another thread may have shared the socket, or shut it down.
        const UNWANTED: u32 = flag::SHARED | flag::PASSED;
        let moved_on = at.socket.flags() & (UNWANTED | flag::GATHERS) != flag::GATHERS;
        if lone || moved_on || !gathered.has_room(total) {
            // What is in the buffer goes to the kernel, and the rest after it.
            if !gathered.is_empty() {
                inside.handlers.keep_off();
            }
            self.flush_inside(at, gathered, true)?;
            gathered.tidy();
            if !gathered.is_empty() {
                return Ok(None);
            }
            let more = matches!(verdict, Verdict::Hold | Verdict::Send(Reason::Bytes));
            if !more {
                self.before_unheld(at);
            }
            return Ok(Some(Gather::Send { more }));
        }
        gathered.append(data);
        let held = verdict == Verdict::Hold
            && self.note_held_by(at, held::USER, || inside.handlers.keep_off());
        if !held {
            // A full segment is sent; the kernel holds its tail for what follows.
            let sent = self.flush_inside(at, gathered, verdict == Verdict::Send(Reason::Bytes));
            gathered.tidy();
            sent?;
        }
        Ok(Some(Gather::Taken))
    }

    /// Appends what a signal handler wrote while its thread held the lock. The handler was told that
    /// its bytes are written, so the policy is not asked, and the buffer's limit does not apply.
    #[cold]
    fn append_aside(&self) {
        let mut room = [0; ASIDE_BYTES];
        while let Some((fd, bytes)) = local(|local| local.aside.take(&mut room)) {
            let Some(at) = self.find(fd) else { continue };
            let Some(mut inside) = self.enter_undisturbed(at.socket) else { return };
            inside.gathered.append(&[IoSlice::new(bytes)]);
            if !self.note_held(at, held::USER) {
                self.flush_late(at, &mut inside.gathered, false);
            }
        }
    }

    fn drain_aside(&self) {
        if local(|local| !local.aside.is_empty()) {
            self.append_aside();
        }
    }

    /// Reports an error that came too late for the write that it belongs to.
    #[cold]
    fn late_error(&self, socket: &Socket) -> Result<(), Errno> {
        match socket.take_late_error() {
            0 => Ok(()),
            number => Err(Errno(number)),
        }
    }

    /// Sends what is gathered before bytes enter the kernel by another way than the buffer.
    #[cold]
    pub(crate) fn settle(&self, at: Socketed<'_>, nonblocking: bool) -> Result<(), Errno> {
        if local(|local| local.inside.get()) {
            // A handler on top of its own thread's lock. What is inside cannot be sent first now.
            return Err(Errno::EINTR);
        }
        self.flush(at, true);
        if at.socket.flags() & (flag::BACKLOG | flag::SHUT) != 0 {
            self.wait_for_backlog(at, nonblocking)?;
        }
        self.late_error(at.socket)
    }

    /// Waits before a write to a socket whose buffer did not fit into the kernel: as the kernel
    /// would, for room (for SO_SNDTIMEO), or answers EAGAIN. A socket that another thread shuts down meanwhile takes nothing
    /// more, although the kernel does not know of it before the timer has sent what is left ([`Posix::shutting`]).
    #[cold]
    fn wait_for_backlog(&self, at: Socketed<'_>, nonblocking: bool) -> Result<(), Errno> {
        let nonblocking = nonblocking || self.kernel.is_nonblocking(at.fd);
        let limit = self.kernel.send_timeout(at.fd);
        let begin = self.kernel.now();
        loop {
            self.flush(at, false);
            self.late_error(at.socket)?;
            if is_shut(at.socket) {
                return Err(Errno::EPIPE);
            }
            if !at.socket.is(flag::BACKLOG) {
                return Ok(());
            }
            if nonblocking || limit.is_some_and(|limit| self.kernel.now().since(begin) >= limit) {
                return Err(Errno::EAGAIN);
            }
            self.kernel.wait_as_writer(at.fd)?;
        }
    }

    /// Sends what is gathered, keeping an error for the program's next call. Returns whether there
    /// was anything.
    pub(crate) fn flush(&self, at: Socketed<'_>, more: bool) -> bool {
        let Some(mut inside) = self.enter_undisturbed(at.socket) else {
            // A handler on top of its own thread's lock: leave it held, that thread goes on.
            self.note_held(at, held::USER);
            return true;
        };
        let any = self.flush_late(at, &mut inside.gathered, more);
        inside.gathered.tidy();
        drop(inside);
        self.drain_aside();
        any
    }

    /// As [`Posix::flush`], from the timer's thread, which has no thread-local storage and must
    /// neither allocate nor free. If the lock is taken, the socket is being written to right now.
    pub(crate) fn flush_from_timer(&self, at: Socketed<'_>) -> bool {
        match at.socket.gathered.try_visit(|| self.kernel.barrier()) {
            Some(mut gathered) => self.flush_late(at, &mut gathered, false),
            None => {
                self.note_held(at, held::USER);
                true
            }
        }
    }

    /// Waits for a thread that still gathers by what was true before the caller set a flag, and
    /// sends its bytes: from here on every thread sees the flag.
    pub(crate) fn see_writers_off(&self, at: Socketed<'_>) {
        if at.socket.is(flag::GATHERED) {
            self.flush(at, false);
        }
    }

    /// Flushes when it is too late for an error to be the result of the write that it belongs to.
    fn flush_late(&self, at: Socketed<'_>, gathered: &mut Gathered, more: bool) -> bool {
        let any = !gathered.is_empty();
        if let Err(error) = self.flush_inside(at, gathered, more) {
            at.socket.set_late_error(error.0);
        }
        any
    }

    /// Sends what is gathered. On an error it is lost, as it would be in the kernel's buffer.
    fn flush_inside(
        &self,
        at: Socketed<'_>,
        gathered: &mut Gathered,
        more: bool,
    ) -> Result<(), Errno> {
        if gathered.is_empty() {
            self.end_hold_in(at, held::USER);
            return Ok(());
        }
        if !more {
            self.before_unheld(at);
        }
        let sent = loop {
            match self.kernel.send(at.fd, &gathered.buffer, more) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break 0,
                Err(error) => {
                    gathered.sent(usize::MAX);
                    self.end_hold_in(at, held::USER);
                    at.socket.clear(flag::BACKLOG);
                    return Err(error);
                }
                Ok(sent) => break sent,
            }
        };
        gathered.sent(sent);
        if sent != 0 {
            at.socket.stalled.store(0, Relaxed);
        }
        if !more {
            self.ensure_nodelay(at);
        }
        if gathered.is_empty() {
            self.end_hold_in(at, held::USER);
            at.socket.clear(flag::BACKLOG);
            if more {
                self.note_held(at, held::KERNEL);
            }
        } else {
            if !more {
                self.note_held(at, held::KERNEL);
            }
            at.socket.set(flag::BACKLOG);
            self.note_held(at, held::USER);
        }
        Ok(())
    }

    /// Gives the kernel every byte before the socket is closed, or shut down for writing (`then`).
    /// What a full connection does not take, even with a larger send buffer, is left to the timer,
    /// with a duplicate of the descriptor; closing must not wait for the peer. Returns whether
    /// `then` was left to the timer as well.
    pub(crate) fn flush_for_good(&self, at: Socketed<'_>, then: Then) -> bool {
        if !at.socket.is(flag::GATHERED) {
            // It never gathered: no handler need be blocked for it, which is two system calls.
            return false;
        }
        self.flush(at, false);
        if !at.socket.is(flag::BACKLOG) {
            return false;
        }
        if then == Then::CloseForGood && self.kernel.discards(at.fd) {
            if let Some(mut inside) = self.enter_undisturbed(at.socket) {
                inside.gathered.clear();
                at.socket.clear(flag::BACKLOG);
            }
            return false;
        }
        if at.socket.is(flag::MANY_SETS) {
            // A duplicate would go on reporting events to the sets, of which only one is known.
            self.wait_for_room(at, self.kernel.now().after(LAST_WAIT));
        }
        self.kernel.widen_send_buffer(at.fd, BUFFER_BYTES);
        self.flush(at, false);
        if !at.socket.is(flag::BACKLOG) {
            return false;
        }
        // This may take milliseconds, while the kernel makes room for its number.
        let Some(copy) = self.kernel.duplicate(at.fd) else {
            self.wait_for_room(at, self.kernel.now().after(LAST_WAIT));
            return false;
        };
        let Some(mut inside) = self.enter_undisturbed(at.socket) else {
            self.kernel.close(copy);
            return false;
        };
        let rest = inside.gathered.take();
        if rest.is_empty() {
            // The connection has taken it meanwhile.
            drop(inside);
            self.kernel.close(copy);
            return false;
        }
        // Before the backlog is gone, or a thread that waits for that would write on.
        at.socket.set(flag::ORPHANED);
        at.socket.clear(flag::BACKLOG);
        drop(inside);
        self.adopt_orphan(copy, rest, then);
        true
    }

    /// Empties the backlog before bytes may enter the connection without our knowing: by a
    /// duplicate, by stdio, under another protocol, from a child. What the connection has not taken yet must go
    /// before them, even if that means waiting where the program did not expect to; but not after
    /// `until` ([`Posix::drained_by`]), which all sockets that one call concerns have in common.
    pub(crate) fn drain(&self, at: Socketed<'_>, until: Instant) {
        if !at.socket.is(flag::BACKLOG) {
            return;
        }
        self.kernel.widen_send_buffer(at.fd, BUFFER_BYTES);
        self.flush(at, false);
        self.wait_for_room(at, until);
    }

    /// Returns the time up to which a call that begins now waits for connections to take what is gathered.
    pub(crate) fn drained_by(&self) -> Instant {
        self.kernel.now().after(DRAIN_WAIT)
    }

    /// Waits for the connection to take what is gathered.
    fn wait_for_room(&self, at: Socketed<'_>, until: Instant) {
        while at.socket.is(flag::BACKLOG) {
            let left = until.since(self.kernel.now());
            if left.is_zero() {
                break;
            }
            let _ = self.kernel.wait_writable(at.fd, Some(left));
            self.flush(at, false);
        }
    }

    /// Counts a write that was gathered.
    #[inline]
    pub fn count_write(&self, socket: &Socket, bytes: usize) {
        count(&socket.writes, 1);
        count(&socket.bytes, bytes as u64);
    }

    /// Records what a verdict means for the report.
    pub(crate) fn note_verdict(&self, socket: &Socket, verdict: Verdict) {
        let why = match verdict {
            Verdict::Hold => return,
            Verdict::Send(Reason::Predicted) => {
                count(&socket.predicted, 1);
                Call::Predicted
            }
            Verdict::Send(Reason::Writes) => Call::CheckQlen,
            Verdict::Send(Reason::Bytes) => Call::Full,
        };
        socket.why.store(why as u8, Relaxed);
        if self.keeps_ledger() {
            self.ledger_push(socket, why);
        }
    }
}
