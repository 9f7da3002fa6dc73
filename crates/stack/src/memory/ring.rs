//! The bytes of one direction of a connection: a ring that grows, gives its storage back when it is
//! released, and can be written ahead of its end.

use super::Pool;

/// A ring of bytes. The length of its storage is a power of two, or zero.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    storage: Box<[u8]>,
    /// Index of the first byte.
    start: u32,
    /// Number of bytes.
    bytes: u32,
}

impl Ring {
    /// Returns the number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.bytes
    }

    /// Returns how many bytes it could hold without growing.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Appends bytes.
    #[inline(always)]
    pub(crate) fn push(&mut self, bytes: &[u8], pool: &mut Pool) {
        if self.storage.is_empty() && !bytes.is_empty() {
            self.storage = pool.take(bytes.len());
        }
        // Mostly there is room for them in one piece.
        let from = self.start as usize + self.bytes as usize;
        match self.storage.get_mut(from..from + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.write_ahead(0, bytes, pool),
        }
        self.bytes += length(bytes);
    }

    /// Writes bytes `gap` octets after the last one; they count only once [`Self::extend`]
    /// has been called.
    pub(crate) fn write_ahead(&mut self, gap: u32, bytes: &[u8], pool: &mut Pool) {
        let from = self.bytes + gap;
        self.reserve(from + length(bytes), pool);
        let (head, tail) = self.place(from, bytes.len());
        let (front, back) = bytes.split_at(head.1 - head.0);
        self.storage[head.0..head.1].copy_from_slice(front);
        if tail > 0 {
            self.storage[..tail].copy_from_slice(back);
        }
    }

    /// Extends the ring by `bytes` octets that were written ahead.
    pub(crate) fn extend(&mut self, bytes: u32) {
        self.bytes += bytes;
        debug_assert!(self.bytes as usize <= self.storage.len());
    }

    /// Returns `bytes` octets from `offset` on, in the one or two pieces in which they lie.
    #[inline]
    pub(crate) fn slices(&self, offset: u32, bytes: u32) -> (&[u8], &[u8]) {
        debug_assert!(offset + bytes <= self.bytes);
        let (head, tail) = self.place(offset, bytes as usize);
        (&self.storage[head.0..head.1], &self.storage[..tail])
    }

    /// Returns all bytes, if there are any and they lie in one piece.
    #[inline]
    pub(crate) fn piece(&self) -> Option<&[u8]> {
        let from = self.start as usize;
        self.storage.get(from..from + self.bytes as usize).filter(|piece| !piece.is_empty())
    }

    /// Drops the first bytes. The storage stays, even if the ring becomes empty
    /// ([`Self::release`]), as something may be written ahead in it.
    pub(crate) fn consume(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.bytes);
        self.bytes -= bytes;
        let mask = self.storage.len().wrapping_sub(1);
        self.start = index((self.start as usize + bytes as usize) & mask);
    }

    /// Gives the storage back to the pool, and drops all bytes.
    #[inline(always)]
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        pool.give(std::mem::take(&mut self.storage));
        self.start = 0;
        self.bytes = 0;
    }

    /// Returns the first piece as a range, and how many bytes wrap round to the beginning.
    #[inline]
    fn place(&self, offset: u32, bytes: usize) -> ((usize, usize), usize) {
        let capacity = self.storage.len();
        if bytes == 0 {
            return ((0, 0), 0);
        }
        let from = (self.start as usize + offset as usize) & (capacity - 1);
        let to = (from + bytes).min(capacity);
        ((from, to), bytes - (to - from))
    }

    #[inline]
    fn reserve(&mut self, wanted: u32, pool: &mut Pool) {
        if wanted as usize > self.storage.len() {
            self.grow(wanted, pool);
        }
    }

    /// Grows to hold at least `wanted` bytes. What was written ahead is moved too.
    fn grow(&mut self, wanted: u32, pool: &mut Pool) {
        let capacity = self.storage.len();
        let mut larger = pool.take(wanted as usize);
        if capacity > 0 {
            let (end, beginning) = self.storage.split_at(self.start as usize);
            larger[..beginning.len()].copy_from_slice(beginning);
            larger[beginning.len()..capacity].copy_from_slice(end);
        }
        pool.give(std::mem::replace(&mut self.storage, larger));
        self.start = 0;
    }
}

fn length(bytes: &[u8]) -> u32 {
    index(bytes.len())
}

/// Converts a position: buffers are limited far below 4 GiB (`Config`).
#[expect(clippy::cast_possible_truncation, reason = "see above")]
fn index(place: usize) -> u32 {
    place as u32
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{Pool, Ring};

    #[derive(Debug, Clone)]
    enum Step {
        Push(Vec<u8>),
        Ahead(u32, Vec<u8>),
        Consume(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 1..3000);
        let step = prop_oneof![
            bytes().prop_map(Step::Push),
            (0u32..3000, bytes()).prop_map(|(gap, bytes)| Step::Ahead(gap, bytes)),
            (0u32..6000).prop_map(Step::Consume),
        ];
        proptest::collection::vec(step, 1..40)
    }

    proptest! {
        #[test]
        fn a_ring_is_a_queue(steps in steps()) {
            let mut pool = Pool::new(1 << 20);
            let mut ring = Ring::default();
            let mut model = VecDeque::new();
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        ring.push(&bytes, &mut pool);
                        model.extend(bytes);
                    }
                    Step::Ahead(gap, bytes) => {
                        // First the part beyond the gap, then what closes the gap, as segments do.
                        ring.write_ahead(gap, &bytes, &mut pool);
                        let filler = vec![0xa5; gap as usize];
                        ring.write_ahead(0, &filler, &mut pool);
                        ring.extend(gap + u32::try_from(bytes.len()).unwrap());
                        model.extend(filler);
                        model.extend(bytes);
                    }
                    Step::Consume(bytes) => {
                        let bytes = bytes.min(ring.len());
                        ring.consume(bytes);
                        model.drain(..bytes as usize);
                    }
                }
                let (head, tail) = ring.slices(0, ring.len());
                prop_assert!(head.iter().chain(tail).eq(model.iter()));
                let from = ring.len() / 3;
                let (head, tail) = ring.slices(from, ring.len() - from);
                prop_assert!(head.iter().chain(tail).eq(model.iter().skip(from as usize)));
            }
        }
    }

    #[test]
    fn an_empty_ring_owns_nothing() {
        let mut pool = Pool::new(1 << 20);
        let mut ring = Ring::default();
        ring.push(b"x", &mut pool);
        assert!(ring.capacity() > 0);
        ring.release(&mut pool);
        assert_eq!((ring.capacity(), ring.len()), (0, 0));
        assert_eq!(ring.slices(0, 0), (&[][..], &[][..]));
    }
}
