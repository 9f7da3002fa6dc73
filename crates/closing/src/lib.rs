//! Threads that close descriptors.
//!
//! Closing the last copy of a descriptor blocks for as long as the file's creator wants: a TCP socket for its peer
//! (SO_LINGER), a FUSE file for the process that serves it, a packet socket for RCU grace periods. So does closing a Unix
//! socket, or receiving a message from it, with such a descriptor in its queue, passed by the peer. A guardian and an
//! instance have others to serve meanwhile.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::RecvFlags;
use uncork_guardian::channel;

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(1);
/// The limit of threads, as a multiple of the threads for one user's descriptors.
const USERS: usize = 8;

/// Threads that close descriptors, as many as there are slow closes, up to a limit for each user and one for all: no user waits
/// for descriptors of another.
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
    /// By user id; descriptors without a user are under `None`.
    owners: BTreeMap<Option<u32>, Owner>,
    threads: usize,
    idle: usize,
}

/// The descriptors of one user that are to be closed.
#[derive(Debug, Default)]
struct Owner {
    left: VecDeque<Left>,
    /// Number of them that threads are closing.
    taken: usize,
}

#[derive(Debug)]
struct Left {
    descriptor: Arc<OwnedFd>,
    /// Whether queued messages are received first: otherwise the peer would get an error instead of what it was last told
    /// (`unix_release_sock`).
    is_emptied: bool,
    /// Dropped once the descriptor is closed.
    told: Option<Sender<()>>,
}

impl Closing {
    /// Makes a pool without threads yet, with at most `most_of_one` for one user's descriptors.
    #[must_use]
    pub fn by(most_of_one: usize) -> Self {
        let threads = Threads { most_of_one, state: Mutex::default(), comes: Condvar::new() };
        Self { threads: Arc::new(threads), uid: None }
    }

    /// Returns the same threads, for descriptors that this user has passed, or whose close it can delay.
    #[must_use]
    pub fn of(&self, uid: Option<u32>) -> Self {
        Self { threads: Arc::clone(&self.threads), uid }
    }

    /// Closes a descriptor, which may be the last copy.
    pub fn close(&self, descriptor: OwnedFd) {
        self.take(Left { descriptor: Arc::new(descriptor), is_emptied: false, told: None });
    }

    fn take(&self, left: Left) {
        let threads = &self.threads;
        let mut state = threads.lock();
        let owner = state.owners.entry(self.uid).or_default();
        owner.left.push_back(left);
        if owner.taken >= threads.most_of_one {
            // One of those threads will take it.
            return;
        }
        if state.idle >= state.open(threads.most_of_one) {
            threads.comes.notify_one();
            return;
        }
        if state.threads >= threads.most_of_one * USERS {
            // An idle thread may not have noticed that there is work by now.
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
    /// Number of descriptors that could be closed if there were threads for them.
    fn open(&self, most_of_one: usize) -> usize {
        let of = |owner: &Owner| owner.left.len().min(most_of_one - owner.taken);
        self.owners.values().map(of).sum()
    }

    /// Takes one of the user with the fewest busy threads.
    fn take(&mut self, most_of_one: usize) -> Option<(Option<u32>, Left)> {
        let waits = |owner: &Owner| !owner.left.is_empty() && owner.taken < most_of_one;
        let waiting = self.owners.iter_mut().filter(|(_, owner)| waits(owner));
        let (uid, owner) = waiting.min_by_key(|(_, owner)| owner.taken)?;
        let left = owner.left.pop_front()?;
        owner.taken += 1;
        Some((*uid, left))
    }

    /// Notes that one of this user's descriptors is closed.
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

    /// Returns the next descriptor to close, if one comes in time. Otherwise this thread is no longer counted.
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

    /// A thread cannot be started: if there is no other one, everything is closed here.
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
    /// Closes the descriptor, once its owner has dropped its copy.
    fn close(self) {
        // The last one is dropped when this returns.
        let Self { mut descriptor, is_emptied, told: _told } = self;
        let takes = || channel::receive_all(descriptor.as_fd(), RecvFlags::DONTWAIT);
        while is_emptied && takes().is_ok_and(|came| !came.bytes.is_empty()) {}
        while let Err(theirs) = Arc::try_unwrap(descriptor) {
            descriptor = theirs;
            thread::yield_now();
        }
    }
}

/// A descriptor that such a thread closes when this is dropped.
#[derive(Debug)]
pub struct ClosedApart {
    descriptor: Arc<OwnedFd>,
    is_emptied: bool,
    told: Option<Sender<()>>,
    closing: Closing,
}

impl ClosedApart {
    /// Has these threads close it when it is dropped.
    #[must_use]
    pub fn new(descriptor: OwnedFd, closing: &Closing) -> Self {
        Self::with(Arc::new(descriptor), closing)
    }

    /// Does the same for a descriptor that others share, and let go of before this is dropped, or soon after.
    #[must_use]
    pub fn with(descriptor: Arc<OwnedFd>, closing: &Closing) -> Self {
        Self { descriptor, is_emptied: false, told: None, closing: closing.clone() }
    }

    /// Does the same for a message socket, whose queue is emptied first.
    #[must_use]
    pub fn emptied(socket: OwnedFd, closing: &Closing) -> Self {
        let mut apart = Self::new(socket, closing);
        apart.is_emptied = true;
        apart
    }

    /// Has it closed now, and waits for that, but no longer than this.
    pub fn close_within(mut self, patience: Duration) {
        let (tell, told) = mpsc::channel();
        self.told = Some(tell);
        drop(self);
        // The sender is dropped, and nothing is ever sent.
        let _ = told.recv_timeout(patience);
    }
}

impl Drop for ClosedApart {
    fn drop(&mut self) {
        // This copy is dropped after this call, and is not the last one: the thread waits until its own is.
        let Self { descriptor, is_emptied, told, closing } = self;
        let (descriptor, told) = (Arc::clone(descriptor), told.take());
        closing.take(Left { descriptor, is_emptied: *is_emptied, told });
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

    /// A connection whose close blocks until the data that it has sent are read at the other end.
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
    fn what_is_closed_within_a_time_is_closed_then_and_one_that_waits_holds_up_no_longer() {
        let closing = Closing::by(2);
        for _ in 0..100 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let name = listener.local_addr().unwrap();
            ClosedApart::new(listener.into(), &closing).close_within(LONG);
            assert!(TcpStream::connect(name).is_err());
        }
        let (one, peer) = lingering();
        let begun = Instant::now();
        ClosedApart::new(one, &closing).close_within(Duration::from_millis(10));
        assert!(begun.elapsed() < LONG / 2);
        drop(peer);
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
