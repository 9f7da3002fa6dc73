//! Records in one direction: one side writes, the other reads.
//!
//! Positions count octets since the beginning and never wrap; each side owns its own, and believes the other's only as far as
//! they can be true. Records are written first and shown later ([`Writer::show`]): what a program writes in pieces reaches the
//! instance in one go. If the writer dies in between its records still count ([`Reader::read_to_the_end`]): how far it has
//! written is in a word of its own, which nobody reads before that, so that it costs one store per record.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::fence;

use crate::Damaged;
use crate::memory::Memory;
use crate::record::{HEADER_BYTES, Header};

/// Length of a ring, in octets.
pub const RING_BYTES: usize = 1 << 20;
/// Longest body of a record, in octets.
pub const MOST_BYTES: usize = 32 << 10;

/// The direction of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the program to the instance.
    Commands,
    /// From the instance to the program.
    News,
}

impl Way {
    /// Returns the offset of its octets after the head.
    fn begin(self) -> usize {
        self as usize * RING_BYTES
    }

    /// The words with its positions: up to where records were shown, and up to where they were read.
    fn shown(self) -> usize {
        self as usize * 4
    }

    fn read(self) -> usize {
        self.shown() + 1
    }

    /// The word with the position up to where records were written, shown or not.
    fn written(self) -> usize {
        8 + self as usize
    }

    /// The word that says whether its reader sleeps ([`crate::bell`]).
    pub(crate) fn reader_sleeps(self) -> usize {
        self.shown() + 2
    }

    /// The word that says whether its writer waits for room.
    fn writer_waits(self) -> usize {
        self.shown() + 3
    }
}

/// The side that writes.
#[derive(Debug)]
pub struct Writer {
    memory: Arc<Memory>,
    way: Way,
    written: u64,
    shown: u64,
    /// How far the other side has read, as last seen.
    read: u64,
}

impl Writer {
    pub(crate) fn new(memory: Arc<Memory>, way: Way) -> Self {
        Self { memory, way, written: 0, shown: 0, read: 0 }
    }

    /// Returns how long the body of a record may be now.
    ///
    /// # Errors
    ///
    /// The reader claims to have read something that was not written.
    pub fn room(&mut self) -> Result<usize, Damaged> {
        let room = self.free()?.saturating_sub(HEADER_BYTES);
        // Every record begins at a multiple of eight.
        Ok((room & !7).min(MOST_BYTES))
    }

    /// Tells whether there is room for a record with a body of this length.
    ///
    /// # Errors
    ///
    /// As [`Writer::room`].
    pub fn has_room(&mut self, bytes: usize) -> Result<bool, Damaged> {
        Ok(bytes <= MOST_BYTES && self.free()? >= whole(bytes))
    }

    fn free(&mut self) -> Result<usize, Damaged> {
        let free = RING_BYTES - self.used();
        if free >= HEADER_BYTES + MOST_BYTES {
            return Ok(free);
        }
        let read = self.memory.word(self.way.read()).load(Acquire);
        if read < self.read || read > self.shown {
            return Err(Damaged("what was read was not written"));
        }
        self.read = read;
        Ok(RING_BYTES - self.used())
    }

    fn used(&self) -> usize {
        usize::try_from(self.written - self.read).unwrap_or(RING_BYTES).min(RING_BYTES)
    }

    /// Writes a record, if there is room for it.
    ///
    /// # Errors
    ///
    /// As [`Writer::room`].
    pub fn write(&mut self, header: Header, bytes: &[u8]) -> Result<bool, Damaged> {
        if !self.has_room(bytes.len())? {
            return Ok(false);
        }
        let whole = whole(bytes.len());
        let long = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.put(self.written, &header.octets(long));
        self.put(self.written + HEADER_BYTES as u64, bytes);
        self.written += whole as u64;
        self.memory.word(self.way.written()).store(self.written, Release);
        Ok(true)
    }

    fn put(&self, position: u64, bytes: &[u8]) {
        let at = place(position);
        let (first, rest) = bytes.split_at(bytes.len().min(RING_BYTES - at));
        self.memory.write(self.way.begin() + at, first);
        self.memory.write(self.way.begin(), rest);
    }

    /// Shows the reader what was written; tells whether that is something new.
    pub fn show(&mut self) -> bool {
        let new = self.shown != self.written;
        if new {
            self.shown = self.written;
            self.memory.word(self.way.shown()).store(self.shown, Release);
        }
        new
    }

    /// Tells whether something was written and not shown.
    #[must_use]
    pub fn has_unshown(&self) -> bool {
        self.shown != self.written
    }

    /// Asks the reader to ring once it has read. Try again after this: it may just have done so.
    pub fn wait_for_room(&self) {
        self.memory.word(self.way.writer_waits()).store(1, Release);
        // Either the reader sees this, or what it has read is seen.
        fence(SeqCst);
    }
}

/// The side that reads.
#[derive(Debug)]
pub struct Reader {
    memory: Arc<Memory>,
    way: Way,
    read: u64,
    shown: u64,
    /// Whether the writer is gone.
    to_the_end: bool,
}

impl Reader {
    pub(crate) fn new(memory: Arc<Memory>, way: Way) -> Self {
        Self { memory, way, read: 0, shown: 0, to_the_end: false }
    }

    /// From now on also reads what the writer, which is gone, has written and not shown.
    pub fn read_to_the_end(&mut self) {
        self.to_the_end = true;
    }

    /// Reads the next record, its body into `into`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The record is impossible.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<Header>, Damaged> {
        if !self.has_some()? {
            return Ok(None);
        }
        let there = self.shown - self.read;
        let mut octets = [0; HEADER_BYTES];
        if there < HEADER_BYTES as u64 {
            return Err(Damaged("a record ends in its header"));
        }
        self.get(self.read, &mut octets);
        let (header, long) = Header::of(&octets).ok_or(Damaged("a record of no kind"))?;
        let whole = HEADER_BYTES as u64 + u64::from(long).next_multiple_of(8);
        if long as usize > MOST_BYTES || whole > there {
            return Err(Damaged("a record is longer than it can be"));
        }
        into.resize(long as usize, 0);
        self.get(self.read + HEADER_BYTES as u64, into);
        self.read += whole;
        Ok(Some(header))
    }

    /// Tells whether there is a record.
    ///
    /// # Errors
    ///
    /// The writer's position is impossible.
    pub fn has_some(&mut self) -> Result<bool, Damaged> {
        if self.read == self.shown {
            let as_far_as = if self.to_the_end { self.way.written() } else { self.way.shown() };
            let shown = self.memory.word(as_far_as).load(Acquire);
            if shown < self.shown || shown - self.read > RING_BYTES as u64 {
                return Err(Damaged("more was written than there is room for"));
            }
            self.shown = shown;
        }
        Ok(self.read != self.shown)
    }

    fn get(&self, position: u64, into: &mut [u8]) {
        let at = place(position);
        let (first, rest) = into.split_at_mut(into.len().min(RING_BYTES - at));
        self.memory.read(self.way.begin() + at, first);
        self.memory.read(self.way.begin(), rest);
    }

    /// Lets the writer reuse the room of what was read; tells whether it waits for that.
    pub fn give_room(&mut self) -> bool {
        self.memory.word(self.way.read()).store(self.read, Release);
        fence(SeqCst);
        let waits = self.memory.word(self.way.writer_waits());
        waits.load(Acquire) != 0 && waits.swap(0, Acquire) != 0
    }
}

/// Returns how much of the ring a record with a body of this length takes.
fn whole(bytes: usize) -> usize {
    HEADER_BYTES + bytes.next_multiple_of(8)
}

fn place(position: u64) -> usize {
    // Less than the ring's length, which is a power of two.
    usize::try_from(position & (RING_BYTES as u64 - 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use proptest::prelude::*;

    use super::*;
    use crate::record::News;

    fn pair() -> (Writer, Reader) {
        let file = Memory::create(2 * RING_BYTES).unwrap();
        let memory = Arc::new(Memory::map(file.as_fd(), 2 * RING_BYTES).unwrap());
        (Writer::new(Arc::clone(&memory), Way::News), Reader::new(memory, Way::News))
    }

    fn header(number: u32) -> Header {
        News::Data.of_number(number)
    }

    #[test]
    fn nothing_is_seen_before_it_is_shown() {
        let (mut writer, mut reader) = pair();
        let mut bytes = Vec::new();
        assert!(writer.write(header(1), b"abc").unwrap());
        assert_eq!(reader.next(&mut bytes), Ok(None));
        assert!(writer.show());
        assert!(!writer.show());
        assert_eq!(reader.next(&mut bytes).unwrap().unwrap().number, 1);
        assert_eq!(bytes, b"abc");
        assert_eq!(reader.next(&mut bytes), Ok(None));
    }

    #[test]
    fn what_was_not_shown_is_read_when_its_writer_is_gone() {
        let (mut writer, mut reader) = pair();
        let mut bytes = Vec::new();
        assert!(writer.write(header(1), b"shown").unwrap());
        writer.show();
        assert!(writer.write(header(2), b"last words").unwrap());
        assert_eq!(reader.next(&mut bytes).unwrap().unwrap().number, 1);
        assert_eq!(reader.next(&mut bytes), Ok(None));
        reader.read_to_the_end();
        assert_eq!(reader.next(&mut bytes).unwrap().unwrap().number, 2);
        assert_eq!(bytes, b"last words");
        assert_eq!(reader.next(&mut bytes), Ok(None));
    }

    #[test]
    fn a_full_ring_takes_nothing_until_it_was_read() {
        let (mut writer, mut reader) = pair();
        let piece = vec![7; MOST_BYTES];
        let mut taken = 0;
        while writer.write(header(0), &piece).unwrap() {
            taken += 1;
        }
        assert!(taken >= RING_BYTES / MOST_BYTES - 1, "{taken}");
        writer.wait_for_room();
        writer.show();
        let mut bytes = Vec::new();
        for _ in 0..taken {
            assert!(reader.next(&mut bytes).unwrap().is_some());
            assert_eq!(bytes, piece);
        }
        writer.wait_for_room();
        assert!(reader.give_room(), "the writer waits");
        assert!(!reader.give_room(), "he has been told");
        assert!(writer.write(header(0), &piece).unwrap());
    }

    #[test]
    fn positions_that_cannot_be_are_found() {
        let (mut writer, mut reader) = pair();
        let mut bytes = Vec::new();
        writer.memory.word(Way::News.shown()).store(RING_BYTES as u64 + 8, Release);
        assert!(reader.next(&mut bytes).is_err());
        writer.memory.word(Way::News.shown()).store(8, Release);
        assert!(reader.next(&mut bytes).is_err(), "half a header");
        reader.read_to_the_end();
        assert!(reader.next(&mut bytes).is_err(), "less was written than shown");
        writer.memory.word(Way::News.read()).store(9, Release);
        while let Ok(true) = writer.write(header(0), &[0; MOST_BYTES]) {}
        assert!(writer.room().is_err(), "what was not shown was read");
    }

    proptest! {
        #[test]
        fn records_come_as_they_were_written(
            pieces in prop::collection::vec((any::<u32>(), 0..MOST_BYTES, any::<bool>()), 1..120)
        ) {
            let (mut writer, mut reader) = pair();
            let mut waiting = std::collections::VecDeque::new();
            let mut bytes = Vec::new();
            let mut read_all = |writer: &mut Writer, waiting: &mut std::collections::VecDeque<(u32, Vec<u8>)>| {
                writer.show();
                while let Some(header) = reader.next(&mut bytes).unwrap() {
                    let (number, expected) = waiting.pop_front().unwrap();
                    assert_eq!((header.number, &bytes), (number, &expected));
                }
                reader.give_room();
            };
            for (number, long, reads) in pieces {
                let piece: Vec<u8> = (0..long).map(|at| (at as u32 ^ number) as u8).collect();
                if !writer.write(header(number), &piece).unwrap() {
                    read_all(&mut writer, &mut waiting);
                    prop_assert!(writer.write(header(number), &piece).unwrap());
                }
                waiting.push_back((number, piece));
                if reads {
                    read_all(&mut writer, &mut waiting);
                }
            }
            read_all(&mut writer, &mut waiting);
            prop_assert!(waiting.is_empty());
        }
    }
}
