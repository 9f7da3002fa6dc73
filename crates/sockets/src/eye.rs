//! A thread's eye: one descriptor for all that wakes a thread that sleeps in the same way again and again.
//!
//! A server with an event loop sleeps on its set, on its bell, and on the devices and what else is the stack's own: half a
//! dozen descriptors. ppoll(2) goes to each of them three times, to enter itself, to look and to leave, which takes as
//! long as all that the stack does for a request. So if a thread has wanted the same ones often, they are entered into an
//! epoll set of the thread's own, where they stay.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicUsize};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use uncork_high::high;

use crate::table::Slot;
use crate::world::Wakes;

/// How often in a row the same descriptors must have been wanted.
const OFTEN: u32 = 16;
/// For fewer descriptors ppoll(2) is as quick.
const FEWEST: usize = 3;
/// More descriptors do not get an eye.
pub(crate) const MOST: usize = 12;
/// How many threads have one at most. The kernel bounds the ways in which what wakes one set wakes others (500 from a set to
/// others, 50 from one that is two sets deep, 10 from there: path_limits of fs/eventpoll.c), and it is the program that would
/// get the error when it enters something into a set of its own.
const EYES: usize = 10;

/// How many eyes there are.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// A descriptor that wakes a thread, and what it is: its number may come again and mean something else.
pub(crate) type Wanted = (RawFd, What);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// An epoll set of the program, by its serial, which it has for as long as it is open.
    Set(u64),
    /// A listener of the program, whose descriptor is the kernel's listener.
    Listener(Slot),
    /// The thread's own bell, which exists for as long as this.
    Bell,
    /// One of the stack's own.
    Own(Wakes),
}

/// The eye of a thread.
#[derive(Debug)]
pub(crate) struct Eye {
    /// Not to be used by a signal handler that runs on top of its thread's look, nor by a child of fork.
    state: Mutex<State>,
    /// The set's descriptor, for a thread that must not wait for that lock; -1: none.
    fd: AtomicI32,
}

#[derive(Debug, Default)]
struct State {
    /// The epoll set, once it is worth having.
    set: Option<OwnedFd>,
    /// The descriptors in it, each under its index here.
    sees: Vec<Wanted>,
    /// The descriptors that were wanted last, and how often in a row.
    wanted: Vec<Wanted>,
    times: u32,
    /// Whether it does not work here.
    is_blind: bool,
}

impl Drop for Eye {
    fn drop(&mut self) {
        if self.state.get_mut().is_ok_and(|state| state.set.is_some()) {
            one_less();
        }
    }
}

/// Forgets all in the child of fork, whose threads have none.
pub(crate) fn forget_all() {
    ALL.store(0, Relaxed);
}

fn one_less() {
    let _ = ALL.fetch_update(Relaxed, Relaxed, |all| all.checked_sub(1));
}

impl Eye {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), fd: AtomicI32::new(-1) }
    }

    /// Returns the set that has all these, if they were wanted often. `enter` is told of the set, and of each descriptor that is
    /// to be in it with the number that tells of it.
    pub(crate) fn look(
        &self,
        wanted: impl Iterator<Item = Wanted> + Clone,
        enter: impl FnMut(RawFd, Wanted, u64) -> Result<(), Errno>,
    ) -> Option<RawFd> {
        let mut guard = self.state.try_lock().ok()?;
        let state = &mut *guard;
        if state.is_blind {
            return None;
        }
        if let Some(set) = &state.set
            && state.sees.iter().copied().eq(wanted.clone())
        {
            state.times = 0;
            return Some(set.as_raw_fd());
        }
        if !state.wanted.iter().copied().eq(wanted.clone()) {
            state.wanted.clear();
            state.wanted.extend(wanted);
            state.times = 0;
        }
        state.times += 1;
        let is_worth_it = state.times >= OFTEN && (FEWEST..=MOST).contains(&state.wanted.len());
        if is_worth_it { self.open(state, enter) } else { None }
    }

    /// Gives the eye up here. Unless the kernel has no such call, its descriptor may not be its own any more: the program has
    /// closed it, and its number may be another descriptor's by now.
    pub(crate) fn be_blind(&self, why: Errno) {
        let Ok(mut state) = self.state.try_lock() else { return };
        state.is_blind = true;
        self.fd.store(-1, SeqCst);
        if let Some(set) = state.set.take() {
            one_less();
            if why != Errno::ENOSYS {
                let _ = set.into_raw_fd();
            }
        }
    }

    pub(crate) fn as_raw_fd(&self) -> Option<RawFd> {
        Some(self.fd.load(SeqCst)).filter(|fd| *fd >= 0)
    }

    fn open(
        &self,
        state: &mut State,
        mut enter: impl FnMut(RawFd, Wanted, u64) -> Result<(), Errno>,
    ) -> Option<RawFd> {
        self.fd.store(-1, SeqCst);
        if state.set.take().is_some() {
            one_less();
        }
        if ALL.fetch_add(1, Relaxed) >= EYES {
            one_less();
            state.is_blind = true;
            return None;
        }
        let made = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).and_then(|set| {
            let set = high(set.0);
            self.fd.store(set.as_raw_fd(), SeqCst);
            for (number, wanted) in (0..).zip(&state.wanted) {
                enter(set.as_raw_fd(), *wanted, number)?;
            }
            Ok(set)
        });
        let Ok(set) = made else {
            self.fd.store(-1, SeqCst);
            one_less();
            state.is_blind = true;
            return None;
        };
        state.sees.clone_from(&state.wanted);
        state.times = 0;
        Some(state.set.insert(set).as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: [Wanted; 3] =
        [(5, What::Set(1)), (300, What::Bell), (301, What::Own(Wakes::Device(0)))];

    /// Looks with these, and records what is entered in the kernel's place.
    fn look(eye: &Eye, wanted: &[Wanted], entered: &mut Vec<(RawFd, u64)>) -> bool {
        let enter = |_, (fd, _), number| {
            entered.push((fd, number));
            Ok(())
        };
        eye.look(wanted.iter().copied(), enter).is_some()
    }

    #[test]
    fn what_is_wanted_often_is_seen_and_each_is_told_by_its_place() {
        let (eye, mut entered) = (Eye::new(), Vec::new());
        for _ in 1..OFTEN {
            assert!(!look(&eye, &THREE, &mut entered));
        }
        assert!(look(&eye, &THREE, &mut entered));
        assert_eq!(entered, [(5, 0), (300, 1), (301, 2)]);
        for _ in 0..100 {
            assert!(look(&eye, &THREE, &mut entered));
        }
        assert_eq!(entered.len(), 3, "they stay there");
    }

    #[test]
    fn another_one_of_the_same_number_is_another() {
        let (eye, mut entered) = (Eye::new(), Vec::new());
        while !look(&eye, &THREE, &mut entered) {}
        let mut others = [THREE; 3];
        others[0][0].1 = What::Set(2);
        others[1][2].1 = What::Own(Wakes::Device(1));
        others[2][2].1 = What::Own(Wakes::Host(0));
        for other in others {
            assert!(!look(&eye, &other, &mut entered), "{other:?}");
            assert!(look(&eye, &THREE, &mut entered), "what is still wanted now and then");
        }
        assert_eq!(entered.len(), 3);
        while !look(&eye, &others[0], &mut entered) {}
        assert_eq!(entered.len(), 6, "all anew");
        assert!(!look(&eye, &THREE, &mut entered), "these are in there no more");
    }

    #[test]
    fn few_are_not_worth_it_and_what_the_kernel_refuses_is_not_tried_again() {
        let (eye, mut entered) = (Eye::new(), Vec::new());
        assert!((0..100).all(|_| !look(&eye, &THREE[..2], &mut entered)));
        let mut tried = 0;
        for _ in 0..100 {
            let refuse = |_, _, _| {
                tried += 1;
                Err(Errno::ELOOP)
            };
            assert_eq!(eye.look(THREE.iter().copied(), refuse), None);
        }
        assert_eq!(tried, 1);
    }
}
