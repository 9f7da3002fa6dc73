//! Threads that sleep, and which of them watch the devices for the others.
//!
//! If all watched, a frame for one would wake all of them, to look one after the other under one lock. So at most two
//! do: the last that fell asleep, as it is often the first to be needed, and one that has watched before. For what they
//! take in for other threads they ring those; and a watcher that goes on leaves the watch to another thread.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use uncork_engine::Instant;

use crate::bell::Bell;
use crate::parts::Part;
use crate::table::Slot;

/// How many may watch at once: the last thread that fell asleep, and one more.
const WATCHERS: usize = 2;
/// A deadline that is earlier by so much than a watcher wakes is as good as met.
const SLACK: Duration = Duration::from_micros(50);

/// What a sleeper is to be woken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum For {
    /// An event of a member of this epoll set.
    Set(RawFd),
    /// This socket.
    Socket(Slot),
    /// Any of these sockets.
    Sockets(Vec<Slot>),
}

/// A thread that waits for more sockets than these runs an event loop.
const FEW: usize = 4;

impl For {
    /// Returns whether it is for this socket by itself.
    pub(crate) fn is_of(&self, slot: Slot) -> bool {
        self.sockets().contains(&slot)
    }

    /// Returns whether it is for one socket, or for a few, by themselves.
    pub(crate) fn are_few(&self) -> bool {
        (1..=FEW).contains(&self.sockets().len())
    }

    /// Returns the sockets that are waited for by themselves.
    pub(crate) fn sockets(&self) -> &[Slot] {
        match self {
            Self::Set(_) => &[],
            Self::Socket(one) => std::slice::from_ref(one),
            Self::Sockets(all) => all,
        }
    }
}

#[derive(Debug)]
struct Sleeper {
    bell: Bell,
    waits_for: For,
    watches: Option<Watch>,
    /// It was woken by its bell, and looks soon.
    is_rung: bool,
}

/// What wakes a watcher beside its bell.
#[derive(Debug)]
struct Watch {
    fds: Vec<RawFd>,
    until: Option<Instant>,
}

/// All sleeping threads.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    all: Vec<Sleeper>,
    /// Bells to be rung when the world's lock is released, or a thread that wakes would only wait for that.
    to_ring: Vec<Bell>,
}

impl Sleepers {
    /// Enters this thread, which will sleep in this part, woken by its bell alone.
    pub(crate) fn add(&mut self, bell: &Bell, waits_for: For, part: Part) {
        bell.falls_asleep(part);
        let bell = Arc::clone(bell);
        self.all.push(Sleeper { bell, waits_for, watches: None, is_rung: false });
    }

    /// Removes this thread, which sleeps no more.
    pub(crate) fn remove(&mut self, bell: &Bell, part: Part) {
        bell.wakes(part);
        self.all.retain(|sleeper| !Arc::ptr_eq(&sleeper.bell, bell));
    }

    /// Returns whether others watch, so that the last thread need not: one that was woken for nothing leaves it to any other.
    pub(crate) fn are_enough(&self, part: Part, once_more: bool) -> bool {
        let watching =
            self.all.iter().filter(|one| one.watches.is_some() && one.bell.is_asleep(part));
        watching.count() >= if once_more { 1 } else { WATCHERS }
    }

    /// Makes the last thread a watcher of these.
    pub(crate) fn watch(&mut self, fds: Vec<RawFd>, until: Option<Instant>) {
        if let Some(last) = self.all.last_mut() {
            last.watches = Some(Watch { fds, until });
        }
    }

    /// Rings a watcher to look anew, unless one watches these and wakes by then: a turn was made, after which that is wanted.
    pub(crate) fn watch_on(&mut self, part: Part, fds: &[RawFd], due: Option<Instant>) {
        let is_in_time = |until: Option<Instant>| match (until, due) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(until), Some(due)) => until <= due + SLACK,
        };
        let mut first = None;
        for sleeper in &mut self.all {
            let Some(watch) = &sleeper.watches else { continue };
            if !sleeper.bell.is_asleep(part) {
                continue;
            }
            if sleeper.is_rung || (watch.fds == fds && is_in_time(watch.until)) {
                return;
            }
            first.get_or_insert(sleeper);
        }
        if let Some(first) = first {
            ring(first, &mut self.to_ring);
        }
    }

    /// Rings a sleeper to become a watcher, unless one watches or looks soon.
    pub(crate) fn pass_watch(&mut self, part: Part) {
        // A thread's bell is memory that other threads write to: it is looked at last.
        let sees_to_it = |one: &Sleeper| one.watches.is_some() || one.is_rung;
        if self.all.iter().any(|one| sees_to_it(one) && one.bell.is_asleep(part)) {
            return;
        }
        if let Some(first) = self.all.iter_mut().find(|one| one.bell.is_asleep(part)) {
            ring(first, &mut self.to_ring);
        }
    }

    /// Rings one of the watchers, to look.
    pub(crate) fn wake_watcher(&mut self, part: Part) {
        let Self { all, to_ring } = self;
        let mut watching =
            all.iter_mut().filter(|one| one.watches.is_some() && one.bell.is_asleep(part));
        if let Some(one) = watching.next() {
            ring(one, to_ring);
        }
    }

    /// Returns whether a thread sleeps, with no signal handler running on top of that.
    pub(crate) fn is_anybody_asleep(&self, part: Part) -> bool {
        self.all.iter().any(|one| one.bell.is_asleep(part))
    }

    /// Returns whether a thread sleeps for something of which `is_so` holds.
    pub(crate) fn is_any(&self, part: Part, mut is_so: impl FnMut(&For) -> bool) -> bool {
        self.all.iter().any(|one| one.bell.is_asleep(part) && is_so(&one.waits_for))
    }

    /// Wakes the threads that sleep on this set, to look at it again.
    pub(crate) fn wake_set(&mut self, set: RawFd, part: Part) {
        self.wake_those(part, |waits_for| *waits_for == For::Set(set));
    }

    /// Wakes the threads that sleep on this socket. Returns whether one was woken that waits for it alone, or for a few.
    pub(crate) fn wake(&mut self, slot: Slot, part: Part) -> bool {
        self.wake_those(part, |waits_for| waits_for.is_of(slot))
    }

    /// Rings the sleepers that are meant; a thread that is awake looks in any case.
    fn wake_those(&mut self, part: Part, are_meant: impl Fn(&For) -> bool) -> bool {
        let Self { all, to_ring } = self;
        let meant = all.iter_mut().filter(|one| are_meant(&one.waits_for));
        let mut for_few = false;
        for one in meant.filter(|one| one.bell.is_asleep(part)) {
            for_few |= ring(one, to_ring) && one.waits_for.are_few();
        }
        for_few
    }

    /// Takes the bells that are to be rung.
    pub(crate) fn take_rung(&mut self) -> Vec<Bell> {
        std::mem::take(&mut self.to_ring)
    }
}

/// Marks a sleeper's bell to be rung; returns whether it was not marked before.
fn ring(sleeper: &mut Sleeper, to_ring: &mut Vec<Bell>) -> bool {
    let is_first = !std::mem::replace(&mut sleeper.is_rung, true);
    if is_first {
        to_ring.push(Arc::clone(&sleeper.bell));
    }
    is_first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell;
    use crate::table::{Kind, Listener, Socket, Table};

    const HERE: Part = Part::FIRST;
    const DEVICE: [RawFd; 1] = [7];
    const SET: RawFd = 9;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Falls asleep, and watches until then if the others are not enough.
    fn sleeps(
        sleepers: &mut Sleepers,
        bell: &Bell,
        once_more: bool,
        until: Option<Instant>,
    ) -> bool {
        sleepers.remove(bell, HERE);
        sleepers.add(bell, For::Set(SET), HERE);
        let watches = !sleepers.are_enough(HERE, once_more);
        if watches {
            sleepers.watch(DEVICE.to_vec(), until);
        }
        watches
    }

    fn goes_on(sleepers: &mut Sleepers, bell: &Bell) -> Vec<Bell> {
        sleepers.remove(bell, HERE);
        sleepers.pass_watch(HERE);
        sleepers.take_rung()
    }

    fn is(rung: &[Bell], bell: &Bell) -> bool {
        rung.len() == 1 && Arc::ptr_eq(&rung[0], bell)
    }

    #[test]
    fn two_watch_and_who_was_woken_for_nothing_leaves_it_to_another() {
        let (mut sleepers, bells) = (Sleepers::default(), [(); 3].map(|()| bell::make().unwrap()));
        let [first, second, third] = &bells;
        assert!(sleeps(&mut sleepers, first, false, None));
        assert!(sleeps(&mut sleepers, second, false, None));
        assert!(!sleeps(&mut sleepers, third, false, None));
        assert!(!sleeps(&mut sleepers, first, true, None), "the second watches");
        assert!(sleeps(&mut sleepers, second, true, None), "nobody else does");
        assert!(sleeps(&mut sleepers, third, false, None), "as the last to fall asleep");
    }

    #[test]
    fn who_goes_on_leaves_the_watch_to_one_who_sleeps() {
        let (mut sleepers, bells) = (Sleepers::default(), [(); 4].map(|()| bell::make().unwrap()));
        let [first, second, third, fourth] = &bells;
        for bell in &bells {
            sleeps(&mut sleepers, bell, false, None);
        }
        assert!(goes_on(&mut sleepers, first).is_empty(), "the second watches");
        assert!(is(&goes_on(&mut sleepers, second), third));
        assert!(goes_on(&mut sleepers, fourth).is_empty(), "the third looks soon");
        assert!(sleeps(&mut sleepers, third, true, None));
        // A signal handler runs on top of the third's sleep.
        sleeps(&mut sleepers, fourth, true, None);
        third.wakes(HERE);
        sleepers.pass_watch(HERE);
        assert!(is(&sleepers.take_rung(), fourth));
        assert!(goes_on(&mut sleepers, fourth).is_empty(), "nobody sleeps");
    }

    #[test]
    fn what_is_due_before_a_watcher_wakes_wakes_him() {
        let (mut sleepers, bells) = (Sleepers::default(), [(); 2].map(|()| bell::make().unwrap()));
        let [first, second] = &bells;
        sleeps(&mut sleepers, first, false, Some(at(40)));
        sleeps(&mut sleepers, second, false, None);
        sleepers.watch_on(HERE, &DEVICE, Some(at(200)));
        sleepers.watch_on(HERE, &DEVICE, None);
        assert!(sleepers.take_rung().is_empty(), "the first is in time");
        sleepers.watch_on(HERE, &DEVICE, Some(at(20)));
        assert!(is(&sleepers.take_rung(), first));
        sleepers.watch_on(HERE, &DEVICE, Some(at(10)));
        assert!(sleepers.take_rung().is_empty(), "he looks soon");
        sleeps(&mut sleepers, first, true, None);
        sleeps(&mut sleepers, second, true, None);
        sleepers.watch_on(HERE, &[8], None);
        assert!(is(&sleepers.take_rung(), second), "by something else: {sleepers:?}");
    }

    #[test]
    fn who_leaves_asleep_what_has_woken_him_wakes_another_who_watches() {
        let (mut sleepers, bells) = (Sleepers::default(), [(); 4].map(|()| bell::make().unwrap()));
        let [first, second, third, fourth] = &bells;
        for bell in &bells {
            sleeps(&mut sleepers, bell, false, None);
        }
        assert!(goes_on(&mut sleepers, first).is_empty(), "the second watches, and was not woken");
        sleepers.wake_watcher(HERE);
        assert!(is(&sleepers.take_rung(), second), "not {third:?}, who does not watch");
        // A signal handler runs on top of the only watcher's sleep.
        second.wakes(HERE);
        sleepers.wake_watcher(HERE);
        assert!(sleepers.take_rung().is_empty());
        assert!(is(&goes_on(&mut sleepers, fourth), third), "nobody watches any more");
    }

    #[test]
    fn a_bell_is_rung_once_and_only_for_who_sleeps() {
        let (mut sleepers, bells) = (Sleepers::default(), [(); 2].map(|()| bell::make().unwrap()));
        let [first, second] = &bells;
        sleeps(&mut sleepers, first, false, None);
        sleeps(&mut sleepers, second, false, None);
        second.wakes(HERE);
        sleepers.wake_set(SET, HERE);
        sleepers.wake_set(SET, HERE);
        sleepers.wake_set(SET + 1, HERE);
        assert!(is(&sleepers.take_rung(), first));
        assert!(sleepers.is_anybody_asleep(HERE));
        sleepers.remove(first, HERE);
        assert!(!sleepers.is_anybody_asleep(HERE));
    }

    #[test]
    fn who_waits_for_few_sockets_and_was_not_rung_yet_is_known_and_no_event_loop() {
        let (mut sleepers, bells) = (Sleepers::default(), [(); 4].map(|()| bell::make().unwrap()));
        let mut table = Table::new(HERE);
        let mut slot = || {
            let listener = Listener::new("10.0.0.1:80".parse().unwrap(), false, 1);
            table.add(Socket::new(Kind::Listener(listener), false, Arc::default()))
        };
        let [one, other, many] = [slot(), slot(), slot()];
        let all = vec![many; FEW + 1];
        let waits_for =
            [For::Socket(one), For::Sockets(vec![other, one]), For::Sockets(all), For::Set(SET)];
        for (bell, waits_for) in bells.iter().zip(waits_for) {
            sleepers.add(bell, waits_for, HERE);
        }
        let woken = [other, one, one, many].map(|slot| sleepers.wake(slot, HERE));
        assert_eq!(woken, [true, true, false, false]);
        sleepers.wake_set(SET, HERE);
        assert_eq!(sleepers.take_rung().len(), bells.len());
    }
}
