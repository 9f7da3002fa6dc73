//! Wakes the other side, but only if it sleeps.
//!
//! A side that is going to sleep says so in the memory and looks once more into the ring that it reads; a side that has written
//! shows that and checks whether the other sleeps. Both write first and look then, so that one of them sees the other.
//!
//! The bell is rung after that word is cleared, and the ring may arrive when the word has been seen already. So a bell that has
//! woken a thread ([`Sleeper::was_woken`]) is silenced whatever the word says: a late or groundless ring wakes once, and keeps
//! nobody from sleeping. The thread that looks into the ring next silences it, as others may sleep on it, too.
//!
//! A program may clear `O_NONBLOCK` on what it shares with its instance, which must not block all the same. So the
//! instance rings by a message (`MSG_DONTWAIT`), and reads the eventfd that the program rings with `RWF_NOWAIT`. (A pipe would
//! not do: its reader holds its lock, and is held up by a page that does not come.)

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::memory::Memory;
use crate::ring::Way;

/// The offset for preadv2(2) on an eventfd, which has no offsets.
const HERE: u64 = u64::MAX;

/// Makes an eventfd for [`Sleeper`] and [`Waker`].
pub(crate) fn create() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// The side that sleeps: the reader of one ring.
#[derive(Debug)]
pub(crate) struct Sleeper {
    memory: Arc<Memory>,
    way: Way,
    bell: OwnedFd,
    /// The socket by which the other side rings, if not by the bell.
    messages: Option<Arc<OwnedFd>>,
    sleeps: bool,
    /// A thread has found the bell readable.
    woken: bool,
}

impl Sleeper {
    /// Makes a sleeper that the other side wakes by `bell`.
    pub(crate) fn by_eventfd(memory: Arc<Memory>, way: Way, bell: OwnedFd) -> Self {
        Self { memory, way, bell, messages: None, sleeps: false, woken: false }
    }

    /// Makes a sleeper that the other side wakes by messages, and its own threads by `bell`.
    pub(crate) fn by_messages(
        memory: Arc<Memory>,
        way: Way,
        bell: OwnedFd,
        socket: Arc<OwnedFd>,
    ) -> Self {
        Self { memory, way, bell, messages: Some(socket), sleeps: false, woken: false }
    }

    /// Announces a sleep; after this, look into the ring once more. Several threads may sleep on one bell.
    pub(crate) fn lie_down(&mut self) {
        self.note_ring();
        self.sleeps = true;
        self.memory.word(self.way.reader_sleeps()).store(1, SeqCst);
        fence(SeqCst);
    }

    /// Ends the sleep of all threads. `rung`: its bell was readable.
    pub(crate) fn get_up(&mut self, rung: bool) {
        let slept = std::mem::take(&mut self.sleeps);
        let was_told = slept && self.memory.word(self.way.reader_sleeps()).swap(0, SeqCst) == 0;
        if was_told || rung {
            self.silence();
        }
    }

    /// Notes that the bell was found readable; it stays so until the ring is noted.
    pub(crate) fn was_woken(&mut self) {
        self.woken = true;
    }

    /// Silences the bell if it was rung: it will not ring before another sleep is announced, so look into the ring. If it was not
    /// rung, it still rings for those that sleep.
    pub(crate) fn note_ring(&mut self) {
        let was_told = self.sleeps && self.memory.word(self.way.reader_sleeps()).load(SeqCst) == 0;
        self.sleeps &= !was_told;
        if std::mem::take(&mut self.woken) || was_told {
            self.silence();
        }
    }

    /// Wakes all threads that sleep on it.
    pub(crate) fn wake_all(&self) {
        if self.memory.word(self.way.reader_sleeps()).swap(0, SeqCst) != 0 {
            ring(&self.bell);
        }
    }

    /// Takes one ring. If there was one of each kind, the other one wakes for nothing, once.
    fn silence(&self) {
        let flags = RecvFlags::DONTWAIT;
        if self.messages.as_ref().is_some_and(|line| recv(line, &mut [0_u8; 1], flags).is_ok()) {
            return;
        }
        // If there is nothing to read, it has been read already.
        let _ =
            preadv2(&self.bell, &mut [IoSliceMut::new(&mut [0; 8])], HERE, ReadWriteFlags::NOWAIT);
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The side that wakes the sleeper.
#[derive(Debug)]
pub(crate) struct Waker {
    memory: Arc<Memory>,
    way: Way,
    by: By,
}

/// What it rings by.
#[derive(Debug)]
enum By {
    Eventfd(OwnedFd),
    Messages(Arc<OwnedFd>),
}

impl Waker {
    /// Makes the waker of a [`Sleeper::by_eventfd`].
    pub(crate) fn by_eventfd(memory: Arc<Memory>, way: Way, bell: OwnedFd) -> Self {
        Self { memory, way, by: By::Eventfd(bell) }
    }

    /// Makes the waker of a [`Sleeper::by_messages`], at the other end of this socket.
    pub(crate) fn by_messages(memory: Arc<Memory>, way: Way, socket: Arc<OwnedFd>) -> Self {
        Self { memory, way, by: By::Messages(socket) }
    }

    /// Wakes the reader if it sleeps, after something was shown in the ring.
    pub(crate) fn wake(&self) {
        fence(SeqCst);
        let sleeps = self.memory.word(self.way.reader_sleeps());
        if sleeps.load(Relaxed) != 0 && sleeps.swap(0, SeqCst) != 0 {
            self.ring();
        }
    }

    /// Rings, whether the reader sleeps or not.
    pub(crate) fn ring(&self) {
        match &self.by {
            By::Eventfd(bell) => ring(bell),
            By::Messages(socket) => {
                // If it does not fit, many before it have not been taken. A peer that is gone needs none.
                let _ = send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
    }

    /// Returns the descriptor that it rings by.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.by {
            By::Eventfd(bell) => bell.as_fd(),
            By::Messages(socket) => socket.as_fd(),
        }
    }
}

fn ring(bell: &OwnedFd) {
    // It cannot be full: nobody rings twice for one sleep.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::ioctl_fionbio;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn memory() -> Arc<Memory> {
        let file = Memory::create(64).unwrap();
        Arc::new(Memory::map(file.as_fd(), 64).unwrap())
    }

    /// Makes a pair in which the program rings.
    fn by_eventfd() -> (Sleeper, Waker) {
        let (memory, bell) = (memory(), create().unwrap());
        let waker =
            Waker::by_eventfd(Arc::clone(&memory), Way::Commands, bell.try_clone().unwrap());
        (Sleeper::by_eventfd(memory, Way::Commands, bell), waker)
    }

    /// Makes a pair in which the instance rings.
    fn by_messages() -> (Sleeper, Waker) {
        let memory = memory();
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let waker = Waker::by_messages(Arc::clone(&memory), Way::News, Arc::new(ours));
        let bell = create().unwrap();
        (Sleeper::by_messages(memory, Way::News, bell, Arc::new(theirs)), waker)
    }

    fn each_way() -> [(Sleeper, Waker); 2] {
        [by_eventfd(), by_messages()]
    }

    fn is_awake(sleeper: &Sleeper) -> bool {
        let other = sleeper.messages.as_ref().map_or(sleeper.as_fd(), AsFd::as_fd);
        let mut fds =
            [sleeper.as_fd(), other].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn who_sleeps_is_rung_once_and_who_does_not_is_not() {
        for (mut sleeper, waker) in each_way() {
            waker.wake();
            assert!(!is_awake(&sleeper));
            for _ in 0..2 {
                sleeper.lie_down();
                waker.wake();
                waker.wake();
                assert!(is_awake(&sleeper));
                sleeper.note_ring();
                assert!(!is_awake(&sleeper));
            }
        }
    }

    #[test]
    fn a_ring_that_comes_late_wakes_once() {
        for (mut sleeper, waker) in each_way() {
            sleeper.lie_down();
            // The waker clears the word, and is held up before it rings.
            waker.memory.word(waker.way.reader_sleeps()).store(0, SeqCst);
            sleeper.note_ring();
            waker.ring();
            sleeper.lie_down();
            assert!(is_awake(&sleeper));
            sleeper.was_woken();
            assert!(is_awake(&sleeper), "as others may sleep on it");
            sleeper.lie_down();
            assert!(!is_awake(&sleeper), "it keeps from sleeping");
            waker.wake();
            assert!(is_awake(&sleeper), "and hides the next");
            // This thread was woken by that ring, though another has noted it.
            sleeper.note_ring();
            sleeper.was_woken();
            sleeper.lie_down();
            waker.wake();
            assert!(is_awake(&sleeper));
        }
    }

    #[test]
    fn a_ring_for_nothing_wakes_once() {
        for (mut sleeper, waker) in each_way() {
            sleeper.lie_down();
            waker.ring();
            sleeper.get_up(is_awake(&sleeper));
            sleeper.lie_down();
            assert!(!is_awake(&sleeper));
        }
    }

    #[test]
    fn threads_of_one_s_own_are_woken_as_well_as_by_the_other_side() {
        let (mut sleeper, waker) = by_messages();
        sleeper.lie_down();
        sleeper.wake_all();
        assert!(is_awake(&sleeper));
        // Another thread sleeps before the ring is noted, and is rung for.
        sleeper.memory.word(Way::News.reader_sleeps()).store(1, SeqCst);
        waker.wake();
        for _ in 0..2 {
            sleeper.was_woken();
            sleeper.lie_down();
        }
        assert!(!is_awake(&sleeper));
    }

    /// Tells whether this finishes, on a thread of its own, which does not come back if it blocks.
    fn is_done(what: impl FnOnce() + Send + 'static) -> bool {
        let (tell, hear) = mpsc::channel();
        thread::spawn(move || {
            what();
            let _ = tell.send(());
        });
        hear.recv_timeout(Duration::from_secs(10)).is_ok()
    }

    #[test]
    fn an_instance_does_not_wait_whatever_a_program_does_to_what_they_share() {
        let (mut sleeper, waker) = by_eventfd();
        ioctl_fionbio(waker.descriptor(), false).unwrap();
        assert!(is_done(move || {
            sleeper.lie_down();
            sleeper.was_woken();
            sleeper.note_ring();
            sleeper.get_up(true);
        }));
        let (sleeper, waker) = by_messages();
        ioctl_fionbio(sleeper.messages.as_ref().unwrap(), false).unwrap();
        assert!(is_done(move || (0..10_000).for_each(|_| waker.ring())));
        assert!(is_awake(&sleeper));
    }
}
