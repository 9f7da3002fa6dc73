//! Waking the other side, if it sleeps: an eventfd that is rung only then.
//!
//! Who sleeps says so in the memory and looks once more into the ring that he reads; who has written shows it and looks
//! whether the other sleeps. Both write first and look then, so that one of them sees the other.

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
}

impl Sleeper {
    pub(crate) fn new(memory: Arc<Memory>, way: Way, bell: OwnedFd) -> Self {
        Self { memory, way, bell, sleeps: false }
    }

    /// It is about to sleep: look into the ring once more. Several threads may do so on one bell.
    pub(crate) fn lie_down(&mut self) {
        self.note_ring();
        self.sleeps = true;
        self.memory.word(self.way.reader_sleeps()).store(1, SeqCst);
        fence(SeqCst);
    }

    /// Nobody sleeps on it any more.
    pub(crate) fn get_up(&mut self) {
        let slept = std::mem::take(&mut self.sleeps);
        if slept && self.memory.word(self.way.reader_sleeps()).swap(0, SeqCst) == 0 {
            self.silence();
        }
    }

    /// If it was rung, it is silent again, and will not ring before somebody lies down. If not, it is to ring for whoever
    /// sleeps still.
    pub(crate) fn note_ring(&mut self) {
        if self.sleeps && self.memory.word(self.way.reader_sleeps()).load(SeqCst) == 0 {
            self.sleeps = false;
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
            ring(&self.bell);
        }
    }
}

fn ring(bell: &OwnedFd) {
    // It cannot be full: nobody rings twice for one sleep.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}
