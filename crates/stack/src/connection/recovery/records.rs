//! The list of a scoreboard's records: a single segment has a place of its own, so that a request or a response needs
//! no list; several are in a list from the pool.

use std::collections::VecDeque;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use super::record::Record;
use crate::memory::Pool;

/// A list of records from the pool; boxed, as most connections have none.
pub(crate) type List = Box<Many>;

/// Records, and which of them need not be examined.
#[derive(Debug, Default)]
pub(crate) struct Many {
    records: VecDeque<Record>,
    settled: Settled,
}

impl Many {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.records.capacity()
    }
}

/// What is known about the records without examining them; not needed for a lone one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settled {
    /// All records before this number are SACKed or known to be lost, except retransmissions in flight.
    pub(super) until: SeqNumber,
    /// None of those retransmissions left before this time.
    pub(super) again_since: Instant,
}

/// The records by sequence number.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// The only record, if it is one segment that was sent while there was none; zero segments if there is none. The
    /// list is then empty.
    lone: Record,
    many: Option<List>,
}

impl Records {
    #[inline]
    fn has_lone(&self) -> bool {
        self.lone.segments > 0
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.has_lone() && self.many.as_ref().is_none_or(|many| many.is_empty())
    }

    /// Returns the only record, if it is in its own place.
    #[inline]
    pub(super) fn lone(&self) -> Option<&Record> {
        self.has_lone().then_some(&self.lone)
    }

    /// Removes and returns that record.
    #[inline]
    pub(super) fn take_lone(&mut self) -> Option<Record> {
        let lone = self.lone().copied();
        self.lone.segments = 0;
        lone
    }

    pub(super) fn front(&self) -> Option<&Record> {
        self.get(0)
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Record> {
        self.get_mut(0)
    }

    pub(super) fn back(&self) -> Option<&Record> {
        self.lone().or_else(|| self.many.as_ref()?.records.back())
    }

    pub(super) fn get(&self, index: usize) -> Option<&Record> {
        match &self.many {
            Some(many) => many.records.get(index),
            None => self.lone().filter(|_| index == 0),
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Record> {
        match &mut self.many {
            Some(many) => many.records.get_mut(index),
            None => Some(&mut self.lone).filter(|lone| lone.segments > 0 && index == 0),
        }
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.lone().into_iter().chain(self.many.iter().flat_map(|many| many.records.iter()))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        let has = self.has_lone();
        let many = self.many.iter_mut().flat_map(|many| many.records.iter_mut());
        has.then_some(&mut self.lone).into_iter().chain(many)
    }

    /// Returns an iterator over the records from this index on.
    pub(super) fn from(&self, index: usize) -> impl Iterator<Item = &Record> {
        let lone = self.lone().filter(|_| index == 0);
        let many = self.many.iter().map(|many| &many.records);
        let many = many.flat_map(move |many| many.range(index.min(many.len())..));
        lone.into_iter().chain(many)
    }

    /// Returns a mutable iterator over the records from this index on.
    pub(super) fn iter_mut_from(&mut self, index: usize) -> impl Iterator<Item = &mut Record> {
        let has = self.has_lone() && index == 0;
        let many = self.many.iter_mut().map(|many| &mut many.records);
        let many = many.flat_map(move |many| many.range_mut(index.min(many.len())..));
        has.then_some(&mut self.lone).into_iter().chain(many)
    }

    /// Returns whether they are in a list.
    pub(super) fn has_many(&self) -> bool {
        self.many.is_some()
    }

    /// Returns the number of records.
    pub(super) fn count(&self) -> usize {
        self.many.as_ref().map_or(usize::from(self.has_lone()), |many| many.records.len())
    }

    /// Returns how many records at the front satisfy the condition.
    pub(super) fn partition_point(&self, mut is: impl FnMut(&Record) -> bool) -> usize {
        match &self.many {
            Some(many) => many.records.partition_point(is),
            None => usize::from(self.lone().is_some_and(&mut is)),
        }
    }

    /// Adds a record at the end.
    pub(super) fn push(&mut self, record: Record, pool: &mut Pool) {
        // A train is put into the list, as it may have to be split, when there is no pool at hand.
        if record.segments == 1 && self.many.is_none() && !self.has_lone() {
            self.lone = record;
        } else {
            self.push_behind(record, pool);
        }
    }

    fn push_behind(&mut self, record: Record, pool: &mut Pool) {
        if self.many.is_none() {
            self.many = Some(pool.take_records());
        }
        let many = self.list();
        if many.is_empty() {
            many.settled = Settled { until: record.seq, ..Settled::default() };
        }
        many.records.push_back(record);
    }

    /// Moves the lone record into the list, and returns the list.
    fn list(&mut self) -> &mut Many {
        let lone = self.take_lone();
        let many = self.many.get_or_insert_default();
        if let Some(lone) = lone {
            many.settled = Settled { until: lone.seq, ..Settled::default() };
            many.records.push_back(lone);
        }
        many
    }

    /// Returns what is settled: see [`Settled`].
    pub(super) fn settled(&self) -> Settled {
        self.many.as_ref().map_or_else(Settled::default, |many| many.settled)
    }

    pub(super) fn settle(&mut self, settled: Settled) {
        if let Some(many) = &mut self.many {
            many.settled = settled;
        }
    }

    pub(super) fn insert(&mut self, index: usize, record: Record) {
        self.list().records.insert(index, record);
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.list().records.remove(index);
    }

    pub(super) fn pop_front(&mut self) -> Option<Record> {
        match &mut self.many {
            Some(many) => many.records.pop_front(),
            None => self.take_lone(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.lone.segments = 0;
        if let Some(many) = &mut self.many {
            many.records.clear();
        }
    }

    /// Gives the list back to the pool if it is empty.
    #[inline]
    pub(super) fn release(&mut self, pool: &mut Pool) {
        if self.many.is_some() {
            self.release_list(pool);
        }
    }

    /// Adds a segment while there is none. It is written directly to its place: assembling it elsewhere and copying it as a
    /// whole would make the processor wait.
    #[inline(always)]
    pub(super) fn push_first(&mut self, record: Record, pool: &mut Pool) {
        debug_assert!(self.is_empty() && record.segments == 1);
        self.release(pool);
        self.lone = record;
    }

    #[inline(never)]
    fn release_list(&mut self, pool: &mut Pool) {
        if let Some(many) = self.many.take_if(|many| many.is_empty()) {
            pool.give_records(many);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use uncork_wire::SeqNumber;

    use super::{Pool, Record, Records};

    fn record(number: u32, segments: u16) -> Record {
        let mut record = Record::default();
        (record.seq, record.segments) = (SeqNumber(number), segments);
        record
    }

    proptest! {
        #[test]
        fn whether_there_is_a_list_does_not_show(
            steps in proptest::collection::vec((0u8..6, 1u16..3, 0usize..5), 1..60),
        ) {
            let mut pool = Pool::new(0);
            let mut records = Records::default();
            let mut model: VecDeque<u32> = VecDeque::new();
            for (number, (step, segments, at)) in (0..).zip(steps) {
                let at = at.min(model.len());
                match step {
                    0 if model.is_empty() => {
                        records.push_first(record(number, 1), &mut pool);
                        model.push_back(number);
                    }
                    0 | 1 => {
                        records.push(record(number, segments), &mut pool);
                        model.push_back(number);
                    }
                    2 => {
                        records.insert(at, record(number, segments));
                        model.insert(at, number);
                    }
                    3 => {
                        prop_assert_eq!(records.pop_front().map(|one| one.seq.0), model.pop_front());
                    }
                    4 if at < model.len() => {
                        records.remove(at);
                        model.remove(at);
                    }
                    _ => records.release(&mut pool),
                }
                let at = at.min(model.len());
                prop_assert_eq!(records.is_empty(), model.is_empty());
                let numbers = |some: Vec<&Record>| some.iter().map(|one| one.seq.0).collect::<VecDeque<_>>();
                prop_assert_eq!(numbers(records.iter().collect()), model.clone());
                prop_assert_eq!(records.iter_mut().count(), model.len());
                prop_assert_eq!(records.iter_mut_from(at).count(), model.len() - at);
                prop_assert_eq!(records.count(), model.len());
                prop_assert_eq!(numbers(records.from(at).collect()), model.split_off(at));
                model.extend(records.from(at).map(|one| one.seq.0));
                prop_assert_eq!(records.get(at).map(|one| one.seq.0), model.get(at).copied());
                prop_assert_eq!(records.get_mut(at).is_some(), at < model.len());
                prop_assert_eq!(records.back().map(|one| one.seq.0), model.back().copied());
                let before = records.partition_point(|one| one.seq.0 < number / 2);
                let split = model.iter().position(|&one| one >= number / 2);
                if model.iter().is_sorted() {
                    prop_assert_eq!(before, split.unwrap_or(model.len()));
                }
            }
        }
    }
}
