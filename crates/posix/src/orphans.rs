//! Orphans: bytes of a socket that the program has closed, and that a full connection has not
//! taken. The timer's thread keeps offering them.

use core::time::Duration;

use uncork_cork::Instant;

use crate::Posix;
use crate::gather::pause;
use crate::kernel::Kernel;

/// How long the end of a process waits for bytes that a full connection did not take.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(10);
/// Number of attempts to get a lock that others hold only briefly, yielding in between.
const MOST_TRIES: u32 = 10_000;

/// How long a connection that is closed and takes nothing is waited for; about as long as the kernel waits for its own
/// (net.ipv4.tcp_orphan_retries, with the longest timeouts).
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that a connection has not taken yet although the program has closed it or shut it down,
/// and the descriptor kept for them.
#[derive(Debug)]
pub(crate) struct Orphan {
    fd: i32,
    rest: Vec<u8>,
    then: Then,
    /// When its connection took something last.
    since: Instant,
    /// When it is offered the next time.
    again: Instant,
}

/// What comes after an orphan's last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The close of the descriptor, which was the last one.
    CloseForGood,
    /// The close of the descriptor; others, or the program that this process becomes, may have the socket, too.
    Close,
    /// The end of the stream, which the program has asked for.
    Shutdown,
}

impl Orphan {
    fn is_waiting(&self) -> bool {
        !self.rest.is_empty()
    }
}

impl<K: Kernel> Posix<K> {
    pub(crate) fn has_orphans(&self) -> bool {
        self.orphans.try_lock().is_ok_and(|orphans| orphans.iter().any(Orphan::is_waiting))
    }

    /// Keeps `fd`, a duplicate of the socket's, until its connection has taken `rest`.
    pub(crate) fn adopt_orphan(&self, fd: i32, rest: Vec<u8>, then: Then) {
        let now = self.kernel.now();
        let orphan = Orphan { fd, rest, then, since: now, again: now };
        let free = (0..MOST_TRIES).find_map(|_| {
            self.orphans.try_lock().ok().or_else(|| {
                self.kernel.give_way();
                None
            })
        });
        let Some(mut orphans) = free else {
            // In a child of fork, the lock is held by a thread that stayed with the parent.
            self.deliver(orphan);
            return;
        };
        orphans.retain(Orphan::is_waiting);
        orphans.push(orphan);
        drop(orphans);
        if !self.keeper.is_ticking() {
            self.rouse_keeper();
        }
        if self.keeper.alarm.is_there() {
            // The thread looks once a bound while there are any: it must learn of this one first.
            self.kernel.wake_keeper();
        }
    }

    /// Delivers an orphan here and now, waiting for at most the time that a process's end would.
    fn deliver(&self, mut orphan: Orphan) {
        let begin = self.kernel.now();
        while orphan.is_waiting() && self.kernel.now().since(begin) < LAST_WAIT {
            let _ = self.kernel.wait_writable(orphan.fd, Some(LAST_WAIT));
            self.feed(&mut orphan, self.kernel.now());
        }
    }

    /// Drops the orphans in a child of fork: the parent delivers them.
    pub(crate) fn disown_orphans(&self) {
        if let Ok(mut orphans) = self.orphans.try_lock() {
            for orphan in orphans.drain(..).filter(Orphan::is_waiting) {
                self.kernel.close(orphan.fd);
            }
        }
    }

    /// Offers the bytes of those orphans whose time has come, and gives up those whose connections take nothing for long;
    /// returns when the next one is to be looked at.
    pub(crate) fn feed_orphans(&self, now: Instant) -> Option<Instant> {
        let Ok(mut orphans) = self.orphans.try_lock() else {
            // Somebody adds to them.
            return Some(now.after(self.keeper.bound()));
        };
        for orphan in orphans.iter_mut().filter(|orphan| orphan.is_waiting() && orphan.again <= now)
        {
            self.feed(orphan, now);
            self.give_up_in_the_end(orphan, now);
        }
        orphans.iter().filter(|orphan| orphan.is_waiting()).map(|orphan| orphan.again).min()
    }

    /// Offers an orphan's bytes to its connection.
    fn feed(&self, orphan: &mut Orphan, now: Instant) {
        match self.kernel.send(orphan.fd, &orphan.rest, false) {
            Ok(sent) => {
                drop(orphan.rest.drain(..sent));
                orphan.since = now;
            }
            Err(crate::Errno::EAGAIN | crate::Errno::EINTR) => {}
            Err(_) => orphan.rest.clear(),
        }
        orphan.again = now.after(pause(now.since(orphan.since), self.keeper.bound()));
        if !orphan.is_waiting() {
            if orphan.then == Then::Shutdown {
                self.kernel.shut_writing(orphan.fd);
            }
            self.kernel.close(orphan.fd);
        }
    }

    /// Resets a connection that is closed and takes nothing for long: an end would let the peer take what it has for the whole.
    /// What is only shut down, or what others have, too, is theirs to give up.
    fn give_up_in_the_end(&self, orphan: &mut Orphan, now: Instant) {
        let is_closed = orphan.then == Then::CloseForGood;
        if orphan.is_waiting() && is_closed && now.since(orphan.since) >= PATIENCE {
            orphan.rest.clear();
            self.kernel.discard(orphan.fd);
        }
    }

    /// Gives orphans, at the end of the process, the time that a closing socket would have had.
    pub(crate) fn wait_for_orphans(&self) {
        let begin = self.kernel.now();
        while self.has_orphans() && self.kernel.now().since(begin) < LAST_WAIT {
            let now = self.kernel.now();
            let first = self.orphans.try_lock().ok().and_then(|mut orphans| {
                // Each at once, and none is given up.
                let waiting = orphans.iter_mut().filter(|orphan| orphan.is_waiting());
                waiting.for_each(|orphan| self.feed(orphan, now));
                orphans.iter().find(|orphan| orphan.is_waiting()).map(|orphan| orphan.fd)
            });
            if let Some(fd) = first {
                let _ = self.kernel.wait_writable(fd, Some(Duration::from_millis(10)));
            }
        }
    }
}
