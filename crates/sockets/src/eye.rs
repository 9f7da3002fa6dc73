//! One descriptor for all that wakes a thread that sleeps in the same way again and again.
//!
//! A server with an event loop sleeps on its set, on its bell, and on the devices and what else is the stack's own: half a
//! dozen descriptors. ppoll(2) goes to each of them three times, to enter itself, to look and to leave, which takes as
//! long as all that the stack does for a request. So those of a thread that has wanted the same ones often are put into a
//! set of the kernel's, where they stay.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use uncork_high::high;

use crate::world::Wakes;

/// How often the same must have been wanted in a row.
const OFTEN: u32 = 16;
/// Fewer are asked for as quickly without.
const FEWEST: usize = 3;
/// More are not seen.
pub(crate) const MOST: usize = 12;
/// Threads that have one at the most. The kernel bounds the ways in which what wakes one set wakes others (500 from one set to
/// others: path_limits of fs/eventpoll.c), and the program would be told when it enters something in its own.
const EYES: usize = 64;

/// How many there are.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// A descriptor that wakes somebody, and what it is: its number may come again and mean something else.
pub(crate) type Wanted = (RawFd, What);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A set of the program's, by the number that it has for as long as it is open.
    Set(u64),
    /// The thread's own, which is there for as long as this.
    Bell,
    /// The stack's own.
    Own(Wakes),
}

/// A thread's.
#[derive(Debug, Default)]
pub(crate) struct Eye {
    /// Once it is worth it.
    set: Option<OwnedFd>,
    /// What is in it, each under its place here.
    sees: Vec<Wanted>,
    /// What was wanted last, and how often in a row.
    wanted: Vec<Wanted>,
    times: u32,
    /// It cannot be done here.
    is_blind: bool,
}

impl Drop for Eye {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Eye {
    /// What sees all these, if they were wanted often. `enter` is told of the set, and of each that it is to see with the
    /// number that tells of it.
    pub(crate) fn look(
        &mut self,
        wanted: impl Iterator<Item = Wanted> + Clone,
        enter: impl FnMut(RawFd, RawFd, u64) -> Result<(), Errno>,
    ) -> Option<RawFd> {
        if self.is_blind {
            return None;
        }
        if let Some(set) = &self.set
            && self.sees.iter().copied().eq(wanted.clone())
        {
            self.times = 0;
            return Some(set.as_raw_fd());
        }
        if !self.wanted.iter().copied().eq(wanted.clone()) {
            self.wanted.clear();
            self.wanted.extend(wanted);
            self.times = 0;
        }
        self.times += 1;
        let is_worth_it = self.times >= OFTEN && (FEWEST..=MOST).contains(&self.wanted.len());
        if is_worth_it { self.open(enter) } else { None }
    }

    /// It does not see here. If its descriptor is none any more, somebody has closed it, and its number may be his by now.
    pub(crate) fn be_blind(&mut self, why: Errno) {
        if why == Errno::EBADF
            && let Some(set) = self.set.take()
        {
            let _ = set.into_raw_fd();
            ALL.fetch_sub(1, Relaxed);
        }
        self.shut();
        self.is_blind = true;
    }

    pub(crate) fn as_raw_fd(&self) -> Option<RawFd> {
        self.set.as_ref().map(|set| set.as_raw_fd())
    }

    fn open(
        &mut self,
        mut enter: impl FnMut(RawFd, RawFd, u64) -> Result<(), Errno>,
    ) -> Option<RawFd> {
        self.shut();
        if ALL.fetch_add(1, Relaxed) >= EYES {
            ALL.fetch_sub(1, Relaxed);
            self.is_blind = true;
            return None;
        }
        let made = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).and_then(|set| {
            let set = high(set.0);
            for (number, (fd, _)) in (0..).zip(&self.wanted) {
                enter(set.as_raw_fd(), *fd, number)?;
            }
            Ok(set)
        });
        let Ok(set) = made else {
            ALL.fetch_sub(1, Relaxed);
            self.is_blind = true;
            return None;
        };
        self.sees.clone_from(&self.wanted);
        self.times = 0;
        Some(self.set.insert(set).as_raw_fd())
    }

    fn shut(&mut self) {
        if self.set.take().is_some() {
            ALL.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: [Wanted; 3] =
        [(5, What::Set(1)), (300, What::Bell), (301, What::Own(Wakes::Device(0)))];

    /// What is entered in the kernel's place.
    fn look(eye: &mut Eye, wanted: &[Wanted], entered: &mut Vec<(RawFd, u64)>) -> bool {
        let enter = |_, fd, number| {
            entered.push((fd, number));
            Ok(())
        };
        eye.look(wanted.iter().copied(), enter).is_some()
    }

    #[test]
    fn what_is_wanted_often_is_seen_and_each_is_told_by_its_place() {
        let (mut eye, mut entered) = (Eye::default(), Vec::new());
        for _ in 1..OFTEN {
            assert!(!look(&mut eye, &THREE, &mut entered));
        }
        assert!(look(&mut eye, &THREE, &mut entered));
        assert_eq!(entered, [(5, 0), (300, 1), (301, 2)]);
        for _ in 0..100 {
            assert!(look(&mut eye, &THREE, &mut entered));
        }
        assert_eq!(entered.len(), 3, "they stay there");
    }

    #[test]
    fn another_one_of_the_same_number_is_another() {
        let (mut eye, mut entered) = (Eye::default(), Vec::new());
        while !look(&mut eye, &THREE, &mut entered) {}
        let mut others = [THREE; 3];
        others[0][0].1 = What::Set(2);
        others[1][2].1 = What::Own(Wakes::Device(1));
        others[2][2].1 = What::Own(Wakes::Host(0));
        for other in others {
            assert!(!look(&mut eye, &other, &mut entered), "{other:?}");
            assert!(look(&mut eye, &THREE, &mut entered), "what is still wanted now and then");
        }
        assert_eq!(entered.len(), 3);
        while !look(&mut eye, &others[0], &mut entered) {}
        assert_eq!(entered.len(), 6, "all anew");
        assert!(!look(&mut eye, &THREE, &mut entered), "these are in there no more");
    }

    #[test]
    fn few_are_not_worth_it_and_what_the_kernel_refuses_is_not_tried_again() {
        let (mut eye, mut entered) = (Eye::default(), Vec::new());
        assert!((0..100).all(|_| !look(&mut eye, &THREE[..2], &mut entered)));
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
