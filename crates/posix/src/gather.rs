//! `--hold user`: bytes gathered in the process, one send a logical packet.
//!
//! A socket's bytes sit in [`Gathered`] under its lock. Whoever pushes sends them without
//! waiting; what the kernel does not take stays as a *backlog*, which the timer goes on
//! offering and which the next write of the program waits for (or answers EAGAIN).

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use std::io::IoSlice;
use std::sync::MutexGuard;

use uncork_cork::{Reason, Verdict};

use crate::call::Call;
use crate::kernel::{Errno, Kernel};
use crate::socket::{Socket, count, flag, held};
use crate::{Posix, Socketed};

/// Most bytes gathered for one socket.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// What was gathered and not sent yet. The buffer is there only while it holds something.
#[derive(Debug, Default)]
pub struct Gathered {
    buffer: Vec<u8>,
}

impl Gathered {
    /// Bytes gathered.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing is gathered.
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

    fn sent(&mut self, bytes: usize) {
        if bytes >= self.buffer.len() {
            self.buffer.clear();
            pool::give_back(core::mem::take(&mut self.buffer));
        } else {
            self.buffer.drain(..bytes);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.buffer)
    }
}

/// Buffers that nobody needs right now.
mod pool {
    use std::sync::Mutex;

    use super::BUFFER_BYTES;

    /// Kept at most.
    const SPARE: usize = 64;
    static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

    pub(super) fn take() -> Vec<u8> {
        let spare = POOL.try_lock().ok().and_then(|mut pool| pool.pop());
        spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    pub(super) fn give_back(buffer: Vec<u8>) {
        if let Ok(mut pool) = POOL.try_lock() {
            if pool.capacity() == 0 {
                pool.reserve_exact(SPARE);
            }
            if pool.len() < SPARE {
                pool.push(buffer);
            }
        }
    }
}

thread_local! {
    /// This thread is inside a lock of a socket: a signal handler that comes now must not wait.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Bytes that such a handler wrote, to be appended by whom it interrupted.
    static ASIDE: Aside = const { Aside::new() };
}

const ASIDE_BYTES: usize = 512;

struct Aside {
    fd: Cell<i32>,
    len: Cell<usize>,
    bytes: [Cell<u8>; ASIDE_BYTES],
}

impl Aside {
    const fn new() -> Self {
        Self { fd: Cell::new(-1), len: Cell::new(0), bytes: [const { Cell::new(0) }; ASIDE_BYTES] }
    }

    /// Puts `data` aside for `fd`; false when there is no room.
    fn put(&self, fd: i32, data: &[IoSlice<'_>], total: usize) -> bool {
        let at = self.len.get();
        if (at != 0 && self.fd.get() != fd) || at + total > ASIDE_BYTES {
            return false;
        }
        let free = &self.bytes[at..];
        for (cell, byte) in free.iter().zip(data.iter().flat_map(|part| part.iter())) {
            cell.set(*byte);
        }
        self.fd.set(fd);
        self.len.set(at + total);
        true
    }

    fn take(&self) -> Option<(i32, Vec<u8>)> {
        let len = self.len.replace(0);
        let bytes = || self.bytes[..len].iter().map(Cell::get).collect();
        (len != 0).then(|| (self.fd.get(), bytes()))
    }
}

/// The lock of a socket's gathered bytes, which knows that a signal handler may interrupt it.
pub(crate) struct Inside<'a> {
    pub(crate) gathered: MutexGuard<'a, Gathered>,
}

impl<'a> Inside<'a> {
    /// `None` inside a signal handler that interrupted a holder on this very thread.
    #[inline]
    pub(crate) fn enter(socket: &'a Socket) -> Option<Self> {
        if INSIDE.replace(true) {
            return None;
        }
        match socket.gathered.lock() {
            Ok(gathered) => Some(Self { gathered }),
            Err(poisoned) => Some(Self { gathered: poisoned.into_inner() }),
        }
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// What became of bytes offered to [`Posix::gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// They are ours: the write has succeeded.
    Taken,
    /// They are for the kernel, by a send of the caller's own (with MSG_MORE if `more`).
    Send {
        /// Hold them there.
        more: bool,
    },
}

impl<K: Kernel> Posix<K> {
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
        if socket.late_error.load(Relaxed) != 0 {
            self.late_error(socket)?;
        }
        let verdict = self.decide(socket, total, socket.full_bytes.load(Relaxed));
        loop {
            if socket.is(flag::BACKLOG) {
                self.wait_for_backlog(at, nonblocking)?;
            }
            let Some(inside) = Inside::enter(socket) else {
                return if ASIDE.with(|aside| aside.put(at.fd, data, total)) {
                    Ok(Gather::Taken)
                } else {
                    Err(Errno::EINTR)
                };
            };
            let result = self.gather_inside(at, inside, data, total, verdict);
            if ASIDE.with(|aside| aside.len.get()) != 0 {
                self.append_aside();
            }
            match result {
                // The kernel's buffer is full: this write waits its turn like any other.
                Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    /// `None`: there is a backlog now, which goes first.
    #[inline]
    fn gather_inside(
        &self,
        at: Socketed<'_>,
        mut inside: Inside<'_>,
        data: &[IoSlice<'_>],
        total: usize,
        verdict: Verdict,
    ) -> Result<Option<Gather>, Errno> {
        let gathered = &mut *inside.gathered;
        let lone = gathered.is_empty() && verdict != Verdict::Hold;
        if lone || !gathered.has_room(total) {
            // What is in the buffer goes to the kernel, and the rest after it.
            self.flush_inside(at, gathered, true)?;
            if !gathered.is_empty() {
                return Ok(None);
            }
            let more = matches!(verdict, Verdict::Hold | Verdict::Send(Reason::Bytes));
            return Ok(Some(Gather::Send { more }));
        }
        gathered.append(data);
        match verdict {
            Verdict::Hold => self.note_held(at, held::USER),
            Verdict::Send(reason) => {
                // A full segment goes; the kernel keeps its tail for what follows.
                self.flush_inside(at, gathered, reason == Reason::Bytes)?;
            }
        }
        Ok(Some(Gather::Taken))
    }

    /// Appends what a signal handler wrote while we held the lock.
    #[cold]
    fn append_aside(&self) {
        while let Some((fd, bytes)) = ASIDE.with(Aside::take) {
            let Some(at) = self.find(fd) else { continue };
            let _ = self.gather(at, &[IoSlice::new(&bytes)], bytes.len(), true);
        }
    }

    /// Reports an error that came too late for the write it belongs to.
    #[cold]
    fn late_error(&self, socket: &Socket) -> Result<(), Errno> {
        match socket.late_error.swap(0, Relaxed) {
            0 => Ok(()),
            number => Err(Errno(number)),
        }
    }

    /// Before a write to a socket whose buffer did not fit into the kernel: as the kernel would,
    /// wait for room (SO_SNDTIMEO long), or answer EAGAIN.
    #[cold]
    fn wait_for_backlog(&self, at: Socketed<'_>, nonblocking: bool) -> Result<(), Errno> {
        let nonblocking = nonblocking || self.kernel.is_nonblocking(at.fd);
        let limit = self.kernel.send_timeout(at.fd);
        loop {
            self.flush(at, false);
            self.late_error(at.socket)?;
            if !at.socket.is(flag::BACKLOG) {
                return Ok(());
            }
            if nonblocking || !self.kernel.wait_writable(at.fd, limit)? {
                return Err(Errno::EAGAIN);
            }
        }
    }

    /// Sends what is gathered, keeping an error for the program's next call. Tells whether
    /// there was anything.
    pub(crate) fn flush(&self, at: Socketed<'_>, more: bool) -> bool {
        let Some(mut inside) = Inside::enter(at.socket) else {
            // A handler on top of its own thread's lock: leave it held, its owner goes on.
            self.note_held(at, held::USER);
            return true;
        };
        if inside.gathered.is_empty() {
            return false;
        }
        if let Err(error) = self.flush_inside(at, &mut inside.gathered, more) {
            at.socket.late_error.store(error.0, Relaxed);
        }
        true
    }

    /// Sends what is gathered. On an error it is lost, as it would be in the kernel's buffer.
    fn flush_inside(
        &self,
        at: Socketed<'_>,
        gathered: &mut Gathered,
        more: bool,
    ) -> Result<(), Errno> {
        if gathered.is_empty() {
            return Ok(());
        }
        if !more {
            self.ensure_nodelay(at);
        }
        let sent = loop {
            match self.kernel.send(at.fd, &gathered.buffer, more) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break 0,
                Err(error) => {
                    gathered.sent(usize::MAX);
                    at.socket.clear(flag::BACKLOG);
                    return Err(error);
                }
                Ok(sent) => break sent,
            }
        };
        gathered.sent(sent);
        if gathered.is_empty() {
            at.socket.clear(flag::BACKLOG);
            if more {
                self.note_held(at, held::KERNEL);
            }
        } else {
            at.socket.set(flag::BACKLOG);
            self.note_held(at, held::USER);
        }
        Ok(())
    }

    /// The socket is going away: the kernel must have every byte first. A program that would
    /// have blocked in its write blocks here instead; one that must not block leaves the rest
    /// to the timer, on a duplicate of the descriptor.
    pub(crate) fn flush_for_good(&self, at: Socketed<'_>) {
        self.flush(at, false);
        if !at.socket.is(flag::BACKLOG) {
            return;
        }
        if self.kernel.is_nonblocking(at.fd) {
            let Some(mut inside) = Inside::enter(at.socket) else { return };
            let rest = inside.gathered.take();
            drop(inside);
            at.socket.clear(flag::BACKLOG);
            self.adopt_orphan(at.fd, rest);
            return;
        }
        while at.socket.is(flag::BACKLOG) {
            match self.kernel.wait_writable(at.fd, None) {
                Ok(_) | Err(Errno::EINTR) => {
                    self.flush(at, false);
                }
                Err(_) => return,
            }
        }
    }

    /// Counts a write that was gathered.
    #[inline]
    pub fn count_write(&self, socket: &Socket, bytes: usize) {
        count(&socket.writes, 1);
        count(&socket.bytes, bytes as u64);
    }

    /// Notes what a verdict means for the report.
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
