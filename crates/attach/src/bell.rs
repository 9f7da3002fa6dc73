//! Waking the other side, if it sleeps: an eventfd that is rung only then.
//!
//! Who sleeps says so in the memory and looks once more into the ring that he reads; who has written shows it and looks
//! whether the other sleeps. Both write first and look then, so that one of them sees the other.
//!
//! A ring comes behind the word that says so, and may come when that has been seen already. So a bell that has woken somebody
//! ([`Sleeper::was_woken`]) is silenced whatever the word says: one that was late, or that the other side had no reason for, wakes
//! once, and does not keep anybody from sleeping. It is by who looks into the ring behind that, as others may sleep on it, too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use rustix::event::{EventfdFlags, eventfd};

use crate::memory::Memory;
use crate::ring::Way;

/// An eventfd for [`Sleeper`] and [`Waker`].
pub(crate) fn create() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// The side that sleeps: whoever reads the ring of one way.
#[derive(Debug)]
pub(crate) struct Sleeper {
    memory: Arc<Memory>,
    way: Way,
    bell: OwnedFd,
    sleeps: bool,
    /// Somebody has found that the bell can be read.
    woken: bool,
}

impl Sleeper {
    pub(crate) fn new(memory: Arc<Memory>, way: Way, bell: OwnedFd) -> Self {
        Self { memory, way, bell, sleeps: false, woken: false }
    }

    /// It is about to sleep: look into the ring once more. Several threads may do so on one bell.
    pub(crate) fn lie_down(&mut self) {
        self.note_ring();
        self.sleeps = true;
        self.memory.word(self.way.reader_sleeps()).store(1, SeqCst);
        fence(SeqCst);
    }

    /// Nobody sleeps on it any more. `rung`: its bell could be read.
    pub(crate) fn get_up(&mut self, rung: bool) {
        let slept = std::mem::take(&mut self.sleeps);
        let was_told = slept && self.memory.word(self.way.reader_sleeps()).swap(0, SeqCst) == 0;
        if was_told || rung {
            self.silence();
        }
    }

    /// Its bell could be read, and can be until somebody notes it.
    pub(crate) fn was_woken(&mut self) {
        self.woken = true;
    }

    /// If it was rung, it is silent again, and will not ring before somebody lies down: look into the ring. If not, it is to
    /// ring for whoever sleeps still.
    pub(crate) fn note_ring(&mut self) {
        let was_told = self.sleeps && self.memory.word(self.way.reader_sleeps()).load(SeqCst) == 0;
        self.sleeps &= !was_told;
        if std::mem::take(&mut self.woken) || was_told {
            self.silence();
        }
    }

    /// Wakes all who sleep on it.
    pub(crate) fn wake_all(&self) {
        if self.memory.word(self.way.reader_sleeps()).swap(0, SeqCst) != 0 {
            ring(&self.bell);
        }
    }

    fn silence(&self) {
        // What cannot be read has been.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The side that wakes it.
#[derive(Debug)]
pub(crate) struct Waker {
    memory: Arc<Memory>,
    way: Way,
    bell: OwnedFd,
}

impl Waker {
    pub(crate) fn new(memory: Arc<Memory>, way: Way, bell: OwnedFd) -> Self {
        Self { memory, way, bell }
    }

    /// Something was shown in the ring: wakes the reader if he sleeps.
    pub(crate) fn wake(&self) {
        fence(SeqCst);
        let sleeps = self.memory.word(self.way.reader_sleeps());
        if sleeps.load(Relaxed) != 0 && sleeps.swap(0, SeqCst) != 0 {
            self.ring();
        }
    }

    /// Rings, whether he sleeps or not.
    pub(crate) fn ring(&self) {
        ring(&self.bell);
    }
}

fn ring(bell: &OwnedFd) {
    // It cannot be full: nobody rings twice for one sleep.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn pair() -> (Sleeper, Waker) {
        let file = Memory::create(64).unwrap();
        let memory = Arc::new(Memory::map(file.as_fd(), 64).unwrap());
        let bell = create().unwrap();
        let waker = Waker::new(Arc::clone(&memory), Way::News, bell.try_clone().unwrap());
        (Sleeper::new(memory, Way::News, bell), waker)
    }

    fn is_awake(sleeper: &Sleeper) -> bool {
        let mut fds = [PollFd::new(sleeper, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn who_sleeps_is_rung_once_and_who_does_not_is_not() {
        let (mut sleeper, waker) = pair();
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

    #[test]
    fn a_ring_that_comes_late_wakes_once() {
        let (mut sleeper, waker) = pair();
        sleeper.lie_down();
        // Who wakes says so, and is held up before he rings.
        waker.memory.word(Way::News.reader_sleeps()).store(0, SeqCst);
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
        // Whoever was woken by that one, though another has noted it.
        sleeper.note_ring();
        sleeper.was_woken();
        sleeper.lie_down();
        waker.wake();
        assert!(is_awake(&sleeper));
    }

    #[test]
    fn a_ring_for_nothing_wakes_once() {
        let (mut sleeper, waker) = pair();
        sleeper.lie_down();
        waker.ring();
        sleeper.get_up(is_awake(&sleeper));
        sleeper.lie_down();
        assert!(!is_awake(&sleeper));
    }
}
