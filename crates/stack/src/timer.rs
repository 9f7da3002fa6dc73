//! A hierarchical timer wheel (Varghese and Lauck, 1987): setting, moving and cancelling take a
//! constant number of steps, however many timers there are.
//!
//! A place has one entry, which is kept not here but with what is at the place ([`Entries`]): setting a timer
//! then touches no memory that is not in use anyway. A connection keeps the deadlines of its own few timers
//! and enters the earliest; one that moves to later is left in its slot, and looked at again at its old
//! time, so that an acknowledgment that moves a retransmission costs no work here.

use uncork_packet::Instant;

/// Nanoseconds of a tick, as a power of two: 4.1 µs. Deadlines are kept exactly; ticks only choose
/// the slot in which to look for them.
const TICK: u32 = 12;
/// Slots of a level, as a power of two.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Levels. Together with the ticks they span 2⁶⁰ ns: 36 years.
const LEVELS: usize = 8;

/// Entries of a coarse slot that are searched for the earliest deadline; a slot with more is refined
/// when its time begins.
const MOST_LOOKS: usize = 16;

/// Places that a slot keeps room for after it was refined.
const KEPT_PLACES: usize = 1024;

/// A timer wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// Ticks that have been processed.
    elapsed: u64,
    /// Places by level and slot, in no order. Linked lists would make the processor wait for one entry after the
    /// other: where a million connections have timers, none is in a cache when its slot's time begins.
    slots: [[Vec<u32>; SLOTS]; LEVELS],
    /// Bitmap of the slots of each level that have an entry.
    occupied: [u64; LEVELS],
    /// Cached result of [`Wheel::next`], which is asked for in every turn. Too early while entries that
    /// are due are being popped.
    next: Option<Instant>,
}

/// The timer of one place: its deadline, and where in the wheel it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    deadline: Instant,
    index: u32,
    /// Level and slot that it is in; an invalid level if it is in none.
    level: u8,
    slot: u8,
}

impl Default for Entry {
    fn default() -> Self {
        Self { deadline: Instant::NEVER, index: 0, level: u8::MAX, slot: 0 }
    }
}

impl Entry {
    /// Returns the deadline, or never.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The owner of the entries.
pub(crate) trait Entries {
    /// Returns the entry of a place, if the place is in use.
    fn entry(&mut self, place: u32) -> Option<&mut Entry>;
}

impl Wheel {
    pub(crate) const fn new() -> Self {
        let slots = [const { [const { Vec::new() }; SLOTS] }; LEVELS];
        Self { elapsed: 0, slots, occupied: [0; LEVELS], next: None }
    }

    /// Makes the entry of `place` expire at `deadline` or before; an earlier deadline
    /// that is already set is kept.
    pub(crate) fn ensure(&mut self, entries: &mut impl Entries, place: u32, deadline: Instant) {
        if entries.entry(place).is_none_or(|entry| entry.deadline <= deadline) {
            return;
        }
        self.take_out(entries, place);
        self.enter(entries, place, deadline);
        // The deadline has only moved to earlier.
        self.next = Some(self.next.map_or(deadline, |next| next.min(deadline)));
    }

    /// Removes the entry of `place`, if there is one.
    pub(crate) fn cancel(&mut self, entries: &mut impl Entries, place: u32) {
        let standing = entries.entry(place).map(|entry| entry.deadline);
        self.take_out(entries, place);
        if standing == self.next || self.occupied == [0; LEVELS] {
            self.next = self.find_next(entries);
        }
    }

    fn take_out(&mut self, entries: &mut impl Entries, place: u32) {
        let Some(entry) = entries.entry(place) else { return };
        let Entry { index, level, slot, .. } = std::mem::take(entry);
        let (level, slot) = (usize::from(level), usize::from(slot));
        let Some(places) = self.slots.get_mut(level).map(|slots| &mut slots[slot]) else { return };
        places.swap_remove(index as usize);
        // The last one of the list has taken its place.
        if let Some(entry) = places.get(index as usize).and_then(|&moved| entries.entry(moved)) {
            entry.index = index;
        }
        if places.is_empty() {
            self.occupied[level] &= !(1 << slot);
        }
    }

    /// Removes an entry that is due, if there is one, and returns its place.
    pub(crate) fn pop(&mut self, entries: &mut impl Entries, now: Instant) -> Option<u32> {
        let due = self.take_due(entries, now);
        if due.is_none() {
            self.next = self.find_next(entries);
        }
        due
    }

    fn take_due(&mut self, entries: &mut impl Entries, now: Instant) -> Option<u32> {
        loop {
            let (level, slot, start) = self.first_slot()?;
            if Instant::from_nanos(start << TICK) > now {
                return None;
            }
            self.elapsed = self.elapsed.max(start);
            if level == 0 {
                let mut places = self.slots[level][slot].iter().copied();
                let due = places.find(|&place| deadline_of(entries, place) <= now)?;
                self.take_out(entries, due);
                return Some(due);
            }
            self.refine(entries, level, slot);
        }
    }

    /// Moves the entries of a slot whose time has begun to finer levels.
    #[cold]
    fn refine(&mut self, entries: &mut impl Entries, level: usize, slot: usize) {
        let mut places = std::mem::take(&mut self.slots[level][slot]);
        self.occupied[level] &= !(1 << slot);
        for some in places.chunks(MOST_LOOKS) {
            // None of them may be in a cache, and none depends on another: with no other work in between, the
            // processor waits for all of them at once.
            for &place in some {
                std::hint::black_box(deadline_of(entries, place));
            }
            for &place in some {
                let deadline = deadline_of(entries, place);
                self.enter(entries, place, deadline);
            }
        }
        let left = &mut self.slots[level][slot];
        if left.is_empty() && places.capacity() <= KEPT_PLACES {
            places.clear();
            *left = places;
        }
    }

    /// Returns when to look again: at the first deadline, or before it where a slot has too many to
    /// look at them all.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn find_next(&self, entries: &mut impl Entries) -> Option<Instant> {
        let (level, slot, start) = self.first_slot()?;
        let places = &self.slots[level][slot];
        if places.len() > MOST_LOOKS && level > 0 {
            return Some(Instant::from_nanos(start << TICK));
        }
        places.iter().map(|&place| deadline_of(entries, place)).min()
    }

    /// Returns the slot whose time comes first, and the tick at which it begins.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        for level in 0..LEVELS {
            let occupied = self.occupied[level];
            if occupied == 0 {
                continue;
            }
            let shift = BITS * level as u32;
            let position = self.elapsed >> shift;
            let current = (position % SLOTS as u64) as u32;
            // Entries of a level are at most one rotation ahead, so the next occupied slot, going round
            // from the current one, is the earliest.
            let ahead = occupied.rotate_right(current).trailing_zeros();
            let start = (position + u64::from(ahead)) << shift;
            let slot = ((current + ahead) % SLOTS as u32) as usize;
            return Some((level, slot, start));
        }
        None
    }

    /// Enters a place that is in no slot.
    fn enter(&mut self, entries: &mut impl Entries, place: u32, deadline: Instant) {
        // A deadline that has passed is due in the current tick.
        let tick = (deadline.as_nanos() >> TICK).max(self.elapsed);
        // The level is that of the highest bit in which the deadline differs from now.
        let differs = (tick ^ self.elapsed) | (SLOTS as u64 - 1);
        let level = ((63 - differs.leading_zeros()) / BITS).min(LEVELS as u32 - 1) as usize;
        // A deadline beyond the range of the top level is looked at again at the end of that range.
        let horizon = (SLOTS as u64 - 1) << (BITS * (LEVELS as u32 - 1));
        let tick = tick.min(self.elapsed.saturating_add(horizon));
        let slot = ((tick >> (BITS * level as u32)) % SLOTS as u64) as usize;
        let Some(entry) = entries.entry(place) else { return };
        let places = &mut self.slots[level][slot];
        let index = places.len() as u32;
        *entry = Entry { deadline, index, level: level as u8, slot: slot as u8 };
        places.push(place);
        self.occupied[level] |= 1 << slot;
    }
}

fn deadline_of(entries: &mut impl Entries, place: u32) -> Instant {
    entries.entry(place).map_or(Instant::NEVER, |entry| entry.deadline)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;
    use uncork_packet::Instant;

    use super::{Entries, Entry, Wheel};

    struct Places(Vec<Entry>);

    impl Places {
        fn new() -> Self {
            Self(vec![Entry::default(); 20])
        }
    }

    impl Entries for Places {
        fn entry(&mut self, place: u32) -> Option<&mut Entry> {
            self.0.get_mut(place as usize)
        }
    }

    #[test]
    fn an_entry_comes_up_when_it_is_due_and_not_before() {
        let (mut wheel, mut places) = (Wheel::new(), Places::new());
        let due = Instant::from_millis(40);
        wheel.ensure(&mut places, 3, due);
        wheel.ensure(&mut places, 3, Instant::from_millis(90));
        assert_eq!(wheel.pop(&mut places, Instant::from_nanos(due.as_nanos() - 1)), None);
        assert_eq!(wheel.next(), Some(due));
        assert_eq!(wheel.pop(&mut places, due), Some(3));
        assert_eq!((wheel.pop(&mut places, due), wheel.next()), (None, None));
    }

    #[test]
    fn a_cancelled_entry_does_not_come_up() {
        let (mut wheel, mut places) = (Wheel::new(), Places::new());
        for place in 0..4 {
            wheel.ensure(&mut places, place, Instant::from_millis(1));
        }
        wheel.cancel(&mut places, 1);
        wheel.cancel(&mut places, 7);
        let mut due: Vec<_> =
            std::iter::from_fn(|| wheel.pop(&mut places, Instant::from_millis(1))).collect();
        due.sort_unstable();
        assert_eq!(due, [0, 2, 3]);
    }

    proptest! {
        #[test]
        fn every_entry_comes_up_at_the_first_look_at_or_after_its_time(
            steps in proptest::collection::vec(
                (0u32..20, 0u64..1 << 45, 0u64..1 << 40, any::<bool>()), 1..80),
        ) {
            let (mut wheel, mut places) = (Wheel::new(), Places::new());
            let mut model: BTreeMap<u32, Instant> = BTreeMap::new();
            let mut now = Instant::ZERO;
            for (place, ahead, pass, cancel) in steps {
                if cancel {
                    wheel.cancel(&mut places, place);
                    model.remove(&place);
                } else {
                    let deadline = now + Duration::from_nanos(ahead);
                    wheel.ensure(&mut places, place, deadline);
                    let standing = model.entry(place).or_insert(deadline);
                    *standing = deadline.min(*standing);
                }
                // An engine sleeps until `next` and looks then: never later than any deadline.
                let target = now + Duration::from_nanos(pass);
                loop {
                    let first = model.values().min().copied();
                    let next = wheel.next();
                    prop_assert_eq!(next.is_some(), first.is_some());
                    if let (Some(next), Some(first)) = (next, first) {
                        prop_assert!(next <= first, "{next:?} after {first:?}");
                    }
                    let Some(wake) = next.filter(|next| *next <= target) else { break };
                    now = now.max(wake);
                    while let Some(place) = wheel.pop(&mut places, now) {
                        let deadline = model.remove(&place);
                        prop_assert!(deadline.is_some_and(|deadline| deadline <= now));
                    }
                    prop_assert!(model.values().all(|deadline| *deadline > now));
                }
                now = target;
            }
        }
    }
}
