//! Slow system calls that are left to a thread; a bell tells the guardian's loop when they are done.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, thread};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd that is rung whenever some work is done.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    fn ring(&self) {
        // It never overflows: nobody rings that often.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Clears the bell, as it was heard.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Work that a thread does, and its result.
#[derive(Debug)]
pub(crate) struct Work<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
enum State<T> {
    UnderWay,
    /// None if the thread has panicked.
    Over(Option<T>),
}

impl<T: Send + 'static> Work<T> {
    /// Begins the work on a thread of its own.
    pub(crate) fn begin(
        name: &str,
        bell: &Bell,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State::UnderWay));
        let ends = Ends { state: Arc::clone(&state), bell: bell.clone() };
        let work = move || {
            let done = work();
            *lock(&ends.state) = State::Over(Some(done));
        };
        thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self(state))
    }

    /// Tells whether the work is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*lock(&self.0), State::Over(_))
    }

    /// Returns the result of the work, if it is over.
    pub(crate) fn done(self) -> Option<T> {
        match mem::replace(&mut *lock(&self.0), State::UnderWay) {
            State::Over(done) => done,
            State::UnderWay => None,
        }
    }
}

/// Rings when the thread ends, even by a panic.
struct Ends<T> {
    state: Arc<Mutex<State<T>>>,
    bell: Bell,
}

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if matches!(*state, State::UnderWay) {
            *state = State::Over(None);
        }
        drop(state);
        self.bell.ring();
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
