//! A hierarchical timer wheel (Varghese and Lauck, 1987): setting, moving and cancelling take a
//! constant number of steps, however many timers there are.
//!
//! A place has one entry. A connection keeps the deadlines of its own few timers and enters the
//! earliest; one that moves to later is left where it is, and looked at again when its old time
//! has come, so that an acknowledgment that moves a retransmission costs no work here.

use uncork_packet::Instant;

/// Nanoseconds of a tick, as a power of two: 4.1 µs. Deadlines are kept exactly; ticks only say in
/// which slot to look for them.
const TICK: u32 = 12;
/// Slots of a level, as a power of two.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Levels. Together with the ticks they span 2⁶⁰ ns: 36 years.
const LEVELS: usize = 8;

/// Entries of a coarse slot that are looked at to find the earliest; with more it is gone through when
/// its time begins.
const MOST_LOOKS: usize = 16;

const NOWHERE: u32 = u32::MAX;

/// Which entries are due when.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// Ticks that have been gone through.
    elapsed: u64,
    heads: [[u32; SLOTS]; LEVELS],
    /// Which slots of a level have an entry.
    occupied: [u64; LEVELS],
    nodes: Vec<Node>,
    /// See [`Wheel::next`], which is asked for in every turn. Too early while entries that are due are
    /// being popped.
    next: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    deadline: Instant,
    next: u32,
    previous: u32,
    /// Level and slot that it is in; a level that does not exist if it is in none.
    level: u8,
    slot: u8,
}

const IDLE: Node =
    Node { deadline: Instant::NEVER, next: NOWHERE, previous: NOWHERE, level: u8::MAX, slot: 0 };

impl Wheel {
    pub(crate) const fn new() -> Self {
        Self {
            elapsed: 0,
            heads: [[NOWHERE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            nodes: Vec::new(),
            next: None,
        }
    }

    /// Sees to it that the entry of `place` comes up at `deadline` or before; an earlier one that
    /// stands is left as it is.
    #[inline]
    pub(crate) fn ensure(&mut self, place: u32, deadline: Instant) {
        let standing = self.nodes.get(place as usize).map_or(Instant::NEVER, |node| node.deadline);
        if deadline < standing {
            self.set(place, deadline);
        }
    }

    #[cold]
    fn set(&mut self, place: u32, deadline: Instant) {
        if self.nodes.len() <= place as usize {
            self.nodes.resize(place as usize + 1, IDLE);
        }
        self.take_out(place);
        self.nodes[place as usize].deadline = deadline;
        self.enter(place);
        // It has only moved to earlier.
        self.next = Some(self.next.map_or(deadline, |next| next.min(deadline)));
    }

    /// Takes the entry of `place` out, if there is one.
    pub(crate) fn cancel(&mut self, place: u32) {
        let standing = self.nodes.get(place as usize).map(|node| node.deadline);
        self.take_out(place);
        if standing == self.next || self.occupied == [0; LEVELS] {
            self.next = self.find_next();
        }
    }

    fn take_out(&mut self, place: u32) {
        let Some(&node) = self.nodes.get(place as usize) else { return };
        let (level, slot) = (usize::from(node.level), usize::from(node.slot));
        if level >= LEVELS {
            return;
        }
        match node.previous {
            NOWHERE => self.heads[level][slot] = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        if node.next != NOWHERE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if self.heads[level][slot] == NOWHERE {
            self.occupied[level] &= !(1 << slot);
        }
        self.nodes[place as usize] = IDLE;
    }

    /// Takes out an entry that is due, if there is one.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        let due = self.take_due(now);
        if due.is_none() {
            self.next = self.find_next();
        }
        due
    }

    fn take_due(&mut self, now: Instant) -> Option<u32> {
        loop {
            let (level, slot, start) = self.first_slot()?;
            if Instant::from_nanos(start << TICK) > now {
                return None;
            }
            self.elapsed = self.elapsed.max(start);
            let mut place = self.heads[level][slot];
            if level == 0 {
                while place != NOWHERE {
                    let node = self.nodes[place as usize];
                    if node.deadline <= now {
                        self.take_out(place);
                        return Some(place);
                    }
                    place = node.next;
                }
                return None;
            }
            // The slot's time has begun: its entries move to finer levels.
            while place != NOWHERE {
                let deadline = self.nodes[place as usize].deadline;
                let next = self.nodes[place as usize].next;
                self.take_out(place);
                self.nodes[place as usize].deadline = deadline;
                self.enter(place);
                place = next;
            }
        }
    }

    /// When to look again: at the first deadline, or before it where too many are close together to
    /// look at them all.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn find_next(&self) -> Option<Instant> {
        let (level, slot, start) = self.first_slot()?;
        let mut earliest = Instant::NEVER;
        let mut place = self.heads[level][slot];
        let mut looked = 0;
        while place != NOWHERE {
            let node = &self.nodes[place as usize];
            earliest = earliest.min(node.deadline);
            place = node.next;
            looked += 1;
            if looked > MOST_LOOKS && level > 0 {
                return Some(Instant::from_nanos(start << TICK));
            }
        }
        Some(earliest)
    }

    /// The slot whose time comes first, and the tick at which it begins.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        for level in 0..LEVELS {
            let occupied = self.occupied[level];
            if occupied == 0 {
                continue;
            }
            let shift = BITS * level as u32;
            let position = self.elapsed >> shift;
            let current = (position % SLOTS as u64) as u32;
            // Entries of a level are at most one turn ahead, so the next occupied slot, going round
            // from the current one, is the earliest.
            let ahead = occupied.rotate_right(current).trailing_zeros();
            let start = (position + u64::from(ahead)) << shift;
            let slot = ((current + ahead) % SLOTS as u32) as usize;
            return Some((level, slot, start));
        }
        None
    }

    fn enter(&mut self, place: u32) {
        // A deadline that has passed comes up in the current tick.
        let tick = (self.nodes[place as usize].deadline.as_nanos() >> TICK).max(self.elapsed);
        // The level is that of the highest bit in which the deadline differs from now.
        let differs = (tick ^ self.elapsed) | (SLOTS as u64 - 1);
        let level = ((63 - differs.leading_zeros()) / BITS).min(LEVELS as u32 - 1) as usize;
        // What is further away than the top level reaches is looked at again at its end.
        let horizon = (SLOTS as u64 - 1) << (BITS * (LEVELS as u32 - 1));
        let tick = tick.min(self.elapsed.saturating_add(horizon));
        let slot = ((tick >> (BITS * level as u32)) % SLOTS as u64) as usize;
        let next = self.heads[level][slot];
        if next != NOWHERE {
            self.nodes[next as usize].previous = place;
        }
        let node = &mut self.nodes[place as usize];
        (node.next, node.previous) = (next, NOWHERE);
        (node.level, node.slot) = (level as u8, slot as u8);
        self.heads[level][slot] = place;
        self.occupied[level] |= 1 << slot;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;
    use uncork_packet::Instant;

    use super::Wheel;

    #[test]
    fn an_entry_comes_up_when_it_is_due_and_not_before() {
        let mut wheel = Wheel::new();
        let due = Instant::from_millis(40);
        wheel.ensure(3, due);
        wheel.ensure(3, Instant::from_millis(90));
        assert_eq!(wheel.pop(Instant::from_nanos(due.as_nanos() - 1)), None);
        assert_eq!(wheel.next(), Some(due));
        assert_eq!(wheel.pop(due), Some(3));
        assert_eq!((wheel.pop(due), wheel.next()), (None, None));
    }

    #[test]
    fn a_cancelled_entry_does_not_come_up() {
        let mut wheel = Wheel::new();
        for place in 0..4 {
            wheel.ensure(place, Instant::from_millis(1));
        }
        wheel.cancel(1);
        wheel.cancel(7);
        let mut due: Vec<_> = std::iter::from_fn(|| wheel.pop(Instant::from_millis(1))).collect();
        due.sort_unstable();
        assert_eq!(due, [0, 2, 3]);
    }

    proptest! {
        #[test]
        fn every_entry_comes_up_at_the_first_look_at_or_after_its_time(
            steps in proptest::collection::vec(
                (0u32..20, 0u64..1 << 45, 0u64..1 << 40, any::<bool>()), 1..80),
        ) {
            let mut wheel = Wheel::new();
            let mut model: BTreeMap<u32, Instant> = BTreeMap::new();
            let mut now = Instant::ZERO;
            for (place, ahead, pass, cancel) in steps {
                if cancel {
                    wheel.cancel(place);
                    model.remove(&place);
                } else {
                    let deadline = now + Duration::from_nanos(ahead);
                    wheel.ensure(place, deadline);
                    let standing = model.entry(place).or_insert(deadline);
                    *standing = deadline.min(*standing);
                }
                // An engine sleeps until `next` and looks then: never later than anything is due.
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
                    while let Some(place) = wheel.pop(now) {
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
