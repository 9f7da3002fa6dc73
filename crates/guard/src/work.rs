//! What takes the kernel long, so that a thread asks for it; a bell tells the guardian's loop when it is done.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, thread};

use rustix::event::{EventfdFlags, eventfd};

/// Rung whenever something is done.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    fn ring(&self) {
        // It is never full: nobody rings so often.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// It has been heard.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Something that a thread does.
#[derive(Debug)]
pub(crate) struct Work<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
enum State<T> {
    UnderWay,
    /// Nothing if the thread has panicked.
    Over(Option<T>),
}

impl<T: Send + 'static> Work<T> {
    /// Begins it.
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

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*lock(&self.0), State::Over(_))
    }

    /// What has come of it, if it is over.
    pub(crate) fn done(self) -> Option<T> {
        match mem::replace(&mut *lock(&self.0), State::UnderWay) {
            State::Over(done) => done,
            State::UnderWay => None,
        }
    }
}

/// Rings at the end of the thread, be it by a panic.
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
