//! Descriptors that threads close.
//!
//! Whose copy is the last waits in close(2) for as long as whoever has made the file wants: a socket of TCP for its peer
//! (SO_LINGER), a file of FUSE for the process behind it, a packet socket for grace periods of RCU. So does who closes a Unix
//! socket, or takes a message from it, with such a descriptor in its queue, that its other end has passed. A guardian and an
//! instance have others to serve meanwhile.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::RecvFlags;
use uncork_guardian::channel;

/// How long a thread stays that has nothing to close.
const IDLE: Duration = Duration::from_secs(1);
/// There are so many times as many threads as one user's descriptors may have.
const USERS: usize = 8;

/// Threads that close, as many as there are closes that take long, up to a limit for each user and one for all: nobody waits for
/// what another one has passed.
#[derive(Debug, Clone)]
pub struct Closing {
    threads: Arc<Threads>,
    uid: Option<u32>,
}

#[derive(Debug)]
struct Threads {
    most_of_one: usize,
    state: Mutex<State>,
    comes: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By the number of the user; of who has none, they are nobody's.
    owners: BTreeMap<Option<u32>, Owner>,
    threads: usize,
    idle: usize,
}

/// A user with something to be closed.
#[derive(Debug, Default)]
struct Owner {
    left: VecDeque<Left>,
    /// Of how many of his a thread has one.
    taken: usize,
}

#[derive(Debug)]
struct Left {
    descriptor: Arc<OwnedFd>,
    /// Messages that have come are taken first: the other end would hear of an error instead of what it was told last
    /// (`unix_release_sock`).
    is_emptied: bool,
}

impl Closing {
    /// None yet, and so many at the most for one user's descriptors.
    #[must_use]
    pub fn by(most_of_one: usize) -> Self {
        let threads = Threads { most_of_one, state: Mutex::default(), comes: Condvar::new() };
        Self { threads: Arc::new(threads), uid: None }
    }

    /// The same threads, for what this user has passed, or can make last.
    #[must_use]
    pub fn of(&self, uid: Option<u32>) -> Self {
        Self { threads: Arc::clone(&self.threads), uid }
    }

    /// This copy may be the last one.
    pub fn close(&self, descriptor: OwnedFd) {
        self.take(Left { descriptor: Arc::new(descriptor), is_emptied: false });
    }

    fn take(&self, left: Left) {
        let threads = &self.threads;
        let mut state = threads.lock();
        let owner = state.owners.entry(self.uid).or_default();
        owner.left.push_back(left);
        if owner.taken >= threads.most_of_one {
            // One of those comes for it.
            return;
        }
        if state.idle >= state.open(threads.most_of_one) {
            threads.comes.notify_one();
            return;
        }
        if state.threads >= threads.most_of_one * USERS {
            // One that has nothing to do may not have seen that something can be done by now.
            threads.comes.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let theirs = Arc::clone(threads);
        let thread = thread::Builder::new().name("closing".to_owned());
        if thread.spawn(move || theirs.work()).is_err() {
            threads.do_without();
        }
    }
}

impl State {
    /// How many could be closed if there were threads for them.
    fn open(&self, most_of_one: usize) -> usize {
        let of = |owner: &Owner| owner.left.len().min(most_of_one - owner.taken);
        self.owners.values().map(of).sum()
    }

    /// One of the user who has the fewest threads.
    fn take(&mut self, most_of_one: usize) -> Option<(Option<u32>, Left)> {
        let waits = |owner: &Owner| !owner.left.is_empty() && owner.taken < most_of_one;
        let waiting = self.owners.iter_mut().filter(|(_, owner)| waits(owner));
        let (uid, owner) = waiting.min_by_key(|(_, owner)| owner.taken)?;
        let left = owner.left.pop_front()?;
        owner.taken += 1;
        Some((*uid, left))
    }

    /// One of his is closed.
    fn give_back(&mut self, uid: Option<u32>) {
        let Some(owner) = self.owners.get_mut(&uid) else { return };
        owner.taken -= 1;
        if owner.taken == 0 && owner.left.is_empty() {
            self.owners.remove(&uid);
        }
    }
}

impl Threads {
    fn work(&self) {
        while let Some((uid, left)) = self.next() {
            left.close();
            self.lock().give_back(uid);
        }
    }

    /// The next that is to be closed, if there is one in time. If not, this thread is none of these any more.
    fn next(&self) -> Option<(Option<u32>, Left)> {
        let mut state = self.lock();
        if state.open(self.most_of_one) == 0 {
            state.idle += 1;
            let nothing = |state: &mut State| state.open(self.most_of_one) == 0;
            let waited = self.comes.wait_timeout_while(state, IDLE, nothing);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        let next = state.take(self.most_of_one);
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
            self.comes.notify_one();
            return;
        }
        let left = std::mem::take(&mut state.owners);
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
pub struct ClosedApart {
    descriptor: Arc<OwnedFd>,
    is_emptied: bool,
    closing: Closing,
}

impl ClosedApart {
    /// By these, when it is dropped.
    #[must_use]
    pub fn new(descriptor: OwnedFd, closing: &Closing) -> Self {
        Self::with(Arc::new(descriptor), closing)
    }

    /// One that others have as well, who let go of it before this is dropped, or soon.
    #[must_use]
    pub fn with(descriptor: Arc<OwnedFd>, closing: &Closing) -> Self {
        Self { descriptor, is_emptied: false, closing: closing.clone() }
    }

    /// A socket of messages, whose queue they empty first.
    #[must_use]
    pub fn emptied(socket: OwnedFd, closing: &Closing) -> Self {
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

    #[test]
    fn what_one_user_has_passed_holds_up_nothing_of_another_s() {
        let closing = Closing::by(2);
        let begun = Instant::now();
        let mut peers = Vec::new();
        for _ in 0..2 * USERS {
            let (one, other) = lingering();
            drop(ClosedApart::new(one, &closing.of(Some(1))));
            peers.push(other);
        }
        for uid in [Some(2), None] {
            let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            drop(ClosedApart::new(theirs.into(), &closing.of(uid)));
            ours.set_read_timeout(Some(LONG)).unwrap();
            assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        }
        assert!(begun.elapsed() < LONG / 2);
        drop(peers);
    }

    #[test]
    fn all_is_closed_and_who_closes_ends_when_there_is_nothing_left() {
        let closing = Closing::by(2);
        let mut ends = Vec::new();
        for at in 0..100 {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            closing.of(Some(at % 3)).close(theirs.into());
            ends.push(ours);
        }
        for mut ours in ends {
            ours.set_read_timeout(Some(LONG)).unwrap();
            assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        }
        let until = Instant::now() + LONG;
        while closing.threads.lock().threads > 0 {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(10));
        }
        assert!(closing.threads.lock().owners.is_empty());
    }
}
