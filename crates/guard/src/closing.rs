//! Descriptors that threads close.
//!
//! Whose copy is the last waits in close(2) for as long as whoever has made the file wants: a socket of TCP for its peer
//! (SO_LINGER), a file of FUSE for the process behind it, a packet socket for grace periods of RCU. The guardian has
//! others to serve meanwhile.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::RecvFlags;
use uncork_guardian::channel;

/// How long a thread stays that has nothing to close.
const IDLE: Duration = Duration::from_secs(1);

/// Threads that close, as many as there are closes that take long, up to a limit.
#[derive(Debug, Clone)]
pub(crate) struct Closing(Arc<Threads>);

#[derive(Debug)]
struct Threads {
    most: usize,
    state: Mutex<State>,
    comes: Condvar,
}

#[derive(Debug, Default)]
struct State {
    left: VecDeque<Left>,
    threads: usize,
    idle: usize,
}

#[derive(Debug)]
struct Left {
    descriptor: Arc<OwnedFd>,
    /// Messages that have come are taken first: the other end would hear of an error instead of what it was told last
    /// (`unix_release_sock`).
    is_emptied: bool,
}

impl Closing {
    /// None yet, and so many at the most.
    pub(crate) fn by(most: usize) -> Self {
        Self(Arc::new(Threads { most, state: Mutex::default(), comes: Condvar::new() }))
    }

    /// This copy may be the last one.
    pub(crate) fn close(&self, descriptor: OwnedFd) {
        self.take(Left { descriptor: Arc::new(descriptor), is_emptied: false });
    }

    fn take(&self, left: Left) {
        let mut state = self.0.lock();
        state.left.push_back(left);
        if state.idle >= state.left.len() {
            self.0.comes.notify_one();
            return;
        }
        if state.threads >= self.0.most {
            return;
        }
        state.threads += 1;
        drop(state);
        let threads = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("closing".to_owned());
        if thread
            .spawn(move || {
                while let Some(one) = threads.next() {
                    one.close();
                }
            })
            .is_err()
        {
            self.0.do_without();
        }
    }
}

impl Threads {
    /// The next that is to be closed, if there is one in time. If not, this thread is none of these any more.
    fn next(&self) -> Option<Left> {
        let mut state = self.lock();
        if state.left.is_empty() {
            state.idle += 1;
            let nothing = |state: &mut State| state.left.is_empty();
            let waited = self.comes.wait_timeout_while(state, IDLE, nothing);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        let next = state.left.pop_front();
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }

    /// There is no other thread: all are closed here, unless one is there that will do it.
    fn do_without(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads > 0 {
            return;
        }
        let left = std::mem::take(&mut state.left);
        drop(state);
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Left {
    /// Closes what its owner is letting go of.
    fn close(self) {
        let Self { mut descriptor, is_emptied } = self;
        let takes = || channel::receive_all(descriptor.as_fd(), RecvFlags::DONTWAIT);
        while is_emptied && takes().is_ok_and(|came| !came.bytes.is_empty()) {}
        while let Err(theirs) = Arc::try_unwrap(descriptor) {
            descriptor = theirs;
            thread::yield_now();
        }
    }
}

/// A descriptor that such threads close.
#[derive(Debug)]
pub(crate) struct ClosedApart {
    descriptor: Arc<OwnedFd>,
    is_emptied: bool,
    closing: Closing,
}

impl ClosedApart {
    pub(crate) fn new(descriptor: OwnedFd, closing: &Closing) -> Self {
        Self { descriptor: Arc::new(descriptor), is_emptied: false, closing: closing.clone() }
    }

    /// A socket of messages, whose queue they empty first.
    pub(crate) fn emptied(socket: OwnedFd, closing: &Closing) -> Self {
        let mut apart = Self::new(socket, closing);
        apart.is_emptied = true;
        apart
    }
}

impl Drop for ClosedApart {
    fn drop(&mut self) {
        // This copy goes behind this, and is not the last one: the thread waits until its own is.
        let Self { descriptor, is_emptied, closing } = self;
        closing.take(Left { descriptor: Arc::clone(descriptor), is_emptied: *is_emptied });
    }
}

impl AsFd for ClosedApart {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A connection whose close waits, until what it has sent is read at its other end.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        while one.write(&[0; 65536]).is_ok() {}
        one.set_nonblocking(false).unwrap();
        set_socket_linger(&one, Some(LONG)).unwrap();
        (one.into(), other)
    }

    #[test]
    fn a_close_that_waits_holds_up_neither_who_closes_nor_what_is_closed_behind_it() {
        let closing = Closing::by(3);
        let begun = Instant::now();
        let mut peers = Vec::new();
        for _ in 0..2 {
            let (one, other) = lingering();
            drop(ClosedApart::new(one, &closing));
            peers.push(other);
        }
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(ClosedApart::new(theirs.into(), &closing));
        ours.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        assert!(begun.elapsed() < LONG / 2);
        drop(peers);
    }
}
