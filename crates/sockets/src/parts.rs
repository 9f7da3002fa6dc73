//! Parts: which thread has what, where each thread has a stack of its own (`uncork run --stack --thread-sockets`).
//!
//! What a thread makes is in its own part: a [`crate::world::World`] with devices, a connection to the privileged half
//! and a lock of its own. Any thread may use a descriptor, in the part that has its socket; a thread that uses only what
//! it has made contends with no other. A wait may concern several parts: an epoll set with members of several, or poll(2).
//!
//! A thread that ends leaves its part, with all that is in it, to the next thread that needs one. Without that mode
//! there is one part, which all threads have.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::Sockets;
use crate::outside::Outside;

/// How many parts there may be: as many as may have a port together. More threads share them.
pub(crate) const MOST: usize = 64;
/// How many descriptors the library knows: fs.nr_open by default.
const DESCRIPTORS: usize = 1 << 20;

/// A part, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Part(u8);

/// A set of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Parts(u64);

/// A set of parts that several threads may change.
#[derive(Debug, Default)]
pub(crate) struct AtomicParts(AtomicU64);

/// For each descriptor: one more than the number of the part that has its socket, zero for none. It stays when the kernel
/// gets the socket: a call that still comes for it is told so there.
static SOCKETS: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
/// For each descriptor of an epoll set: the parts that have members in it, or whose threads wait there.
static SETS: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
/// For each descriptor of an epoll set: twice the number of sets that were closed under it while threads knew it, and one more if
/// a thread has waited for the present one. Members on the stack are no condition: the kernel's are looked at by the number, too.
static WAITED: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
/// For each part: how many threads have it.
static USERS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

thread_local! {
    static MINE: Cell<Option<Part>> = const { Cell::new(None) };
    /// Touched only by a thread that has a part: its destructor gives that up at the end of the thread.
    static HOLD: Hold = const { Hold };
}

/// Frees a thread's part at its end.
struct Hold;

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(part) = MINE.take() {
            USERS[part.at()].fetch_sub(1, SeqCst);
        }
    }
}

impl Part {
    /// The first thread's part; all threads', where there is only one.
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn at(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn numbered(number: u8) -> Self {
        Self(number)
    }

    /// Returns this part and all before it.
    pub(crate) fn up_to(self) -> impl Iterator<Item = Self> {
        (0..=self.0).map(Self)
    }
}

impl AtomicParts {
    pub(crate) fn get(&self) -> Parts {
        Parts(self.0.load(SeqCst))
    }

    pub(crate) fn add(&self, part: Part) {
        self.0.fetch_or(1 << part.0, SeqCst);
    }

    /// Removes these parts; returns those of them that were there.
    pub(crate) fn take(&self, parts: Parts) -> Parts {
        Parts(self.0.fetch_and(!parts.0, SeqCst)).and(parts)
    }
}

impl Parts {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn of(part: Part) -> Self {
        Self(1 << part.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn is_one(self) -> bool {
        self.0.is_power_of_two()
    }

    pub(crate) fn has(self, part: Part) -> bool {
        !self.and(Self::of(part)).is_empty()
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Part> {
        self.round(0).map(|(part, _)| part)
    }

    /// Returns each of them, beginning with another one in each turn, with whether it is the last.
    pub(crate) fn round(self, turn: u8) -> impl Iterator<Item = (Part, bool)> {
        let turn = turn % 64;
        let mut left = self.0.rotate_right(turn.into());
        std::iter::from_fn(move || {
            let next = u8::try_from(left.trailing_zeros()).ok().filter(|next| *next < 64)?;
            left &= left - 1;
            Some((Part((next + turn) % 64), left == 0))
        })
    }
}

/// Returns the part that has a descriptor's socket, if one has.
pub(crate) fn of_socket(fd: RawFd) -> Option<Part> {
    socket_at(fd)?.load(SeqCst).checked_sub(1).map(Part)
}

/// Records that a descriptor stands for a socket of this part, or for none.
pub(crate) fn has_socket(fd: RawFd, part: Option<Part>) {
    let number = part.map_or(0, |part| part.0 + 1);
    if let Some(at) = socket_at(fd)
        && at.load(Relaxed) != number
    {
        at.store(number, SeqCst);
    }
}

fn socket_at(fd: RawFd) -> Option<&'static AtomicU8> {
    SOCKETS.get(usize::try_from(fd).ok()?)
}

/// Returns the parts that a set concerns.
pub(crate) fn of_set(set: RawFd) -> Parts {
    set_at(set).map_or(Parts::NONE, |at| Parts(at.load(SeqCst)))
}

/// Adds to the parts that a set concerns. Returns those that it concerned before.
pub(crate) fn join_set(set: RawFd, parts: Parts) -> Parts {
    let before = of_set(set);
    if parts.without(before).is_empty() {
        return before;
    }
    set_at(set).map_or(Parts::NONE, |at| Parts(at.fetch_or(parts.0, SeqCst)))
}

/// Tells a set from those that have its number after it: [`is_still`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waited(u32);

/// Notes that a thread waits for a set.
pub(crate) fn waits_for(set: RawFd) -> Waited {
    let Some(at) = waited_at(set) else { return Waited(0) };
    let known = at.load(SeqCst);
    Waited(if known & 1 == 1 { known } else { at.fetch_or(1, SeqCst) | 1 })
}

/// Returns whether that set is still open, by this number.
pub(crate) fn is_still(set: RawFd, waited: Waited) -> bool {
    waited_at(set).is_none_or(|at| at.load(SeqCst) == waited.0)
}

/// Notes that a set is about to be closed; returns whether a thread has ever waited for it.
pub(crate) fn ends_set(set: RawFd) -> bool {
    let Some(at) = waited_at(set) else { return false };
    let is_waited_for = |waited: u32| (waited & 1 == 1).then(|| waited.wrapping_add(1));
    at.fetch_update(SeqCst, SeqCst, is_waited_for).is_ok()
}

fn waited_at(set: RawFd) -> Option<&'static AtomicU32> {
    WAITED.get(usize::try_from(set).ok()?)
}

/// Forgets a set that is closed.
pub(crate) fn forget_set(set: RawFd) {
    if let Some(at) = set_at(set) {
        at.store(0, SeqCst);
    }
}

fn set_at(set: RawFd) -> Option<&'static AtomicU64> {
    SETS.get(usize::try_from(set).ok()?)
}

impl<O: Outside> Sockets<O> {
    /// Returns the parts that a set concerns.
    #[inline]
    pub(crate) fn parts_of(&self, set: RawFd) -> Parts {
        if self.is_apart() { of_set(set) } else { Parts::of(Part::FIRST) }
    }

    /// Returns the parts that the calling thread has to look at as it waits for a set: its own is among them, so that threads
    /// that enter something of theirs find it there.
    #[inline]
    pub(crate) fn wait_there(&self, set: RawFd) -> Parts {
        if !self.is_apart() {
            return Parts::of(Part::FIRST);
        }
        let mine = Parts::of(self.mine());
        join_set(set, mine).or(mine)
    }

    /// Notes that something of a part was entered into a set: a thread that waits there looks at that part, too, from now on.
    pub(crate) fn entered(&self, set: RawFd, part: Part) {
        if !self.is_apart() {
            return;
        }
        let before = join_set(set, Parts::of(part));
        if before.has(part) {
            return;
        }
        let mut is_shown = false;
        for other in before.iter() {
            self.with(other, |world| {
                world.wake_set(set);
                is_shown |= world.sets.is_shown(set);
            });
        }
        if is_shown {
            // Where there is no descriptor left for that, the kernel's members are still seen.
            let _ = self.show_in(part, set);
        }
    }
}

/// Returns the calling thread's part, if it has one.
pub(crate) fn mine() -> Option<Part> {
    MINE.get()
}

/// Takes a part for the calling thread, until that ends: a free one, or if there is none the one that the fewest have.
/// None: the thread is at its end.
pub(crate) fn take() -> Option<Part> {
    HOLD.try_with(|_| ()).ok()?;
    let numbers = (0..).zip(&USERS);
    let is_free = |users: &AtomicU32| users.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
    let part = numbers.clone().find(|(_, users)| is_free(users)).or_else(|| {
        let fewest = numbers.min_by_key(|(_, users)| users.load(Relaxed))?;
        fewest.1.fetch_add(1, SeqCst);
        Some(fewest)
    });
    let part = part.map(|(number, _)| Part(number));
    MINE.set(part);
    part
}

/// Forgets all other threads, in the child of fork.
pub(crate) fn forget_others() {
    for users in &USERS {
        users.store(0, SeqCst);
    }
    if let Some(part) = mine() {
        USERS[part.at()].store(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_several_begins_with_another_each_time() {
        let three = [0, 5, 63].map(|number| Parts::of(Part(number)));
        let three = three.into_iter().fold(Parts::NONE, Parts::or);
        let order = |turn| three.round(turn).map(|(part, last)| (part.0, last)).collect::<Vec<_>>();
        assert_eq!(order(0), [(0, false), (5, false), (63, true)]);
        assert_eq!(order(1), [(5, false), (63, false), (0, true)]);
        assert_eq!(order(6), [(63, false), (0, false), (5, true)]);
        assert_eq!(order(64), order(0));
        assert_eq!(Parts::NONE.iter().count(), 0);
    }

    #[test]
    fn a_part_is_the_next_thread_s_when_its_thread_has_ended() {
        let take = || std::thread::spawn(take).join().unwrap().unwrap();
        let first = take();
        assert_eq!(take(), first);
        let barrier = std::sync::Barrier::new(2);
        let both = std::thread::scope(|scope| {
            let one = || {
                let part = super::take();
                barrier.wait();
                part
            };
            [scope.spawn(one), scope.spawn(one)].map(|thread| thread.join().unwrap())
        });
        assert_ne!(both[0], both[1]);
    }

    /// A thread took the events of the set that got the number of the one for which it waited.
    #[test]
    fn a_set_that_is_closed_is_none_of_those_that_have_its_number_after_it() {
        let set = 1001;
        assert!(!ends_set(set), "nobody is to be told");
        let first = waits_for(set);
        assert_eq!(waits_for(set), first);
        assert!(is_still(set, first));
        assert!(ends_set(set));
        assert!(!is_still(set, first));
        let second = waits_for(set);
        assert!(is_still(set, second) && !is_still(set, first));
    }

    #[test]
    fn a_set_concerns_who_has_joined_it_until_it_is_closed() {
        let set = 1000;
        let (one, other) = (Parts::of(Part(1)), Parts::of(Part(2)));
        assert_eq!(join_set(set, one), Parts::NONE);
        assert_eq!(join_set(set, other), one);
        assert_eq!(join_set(set, other), one.or(other));
        assert_eq!(of_set(set), one.or(other));
        forget_set(set);
        assert_eq!(of_set(set), Parts::NONE);
    }
}
