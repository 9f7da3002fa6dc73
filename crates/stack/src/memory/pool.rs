//! Buffer storage, which a connection has only while it holds data, and which is still warm in the cache
//! when the next one gets it.

use crate::connection::{List, Reassembly};

/// The smallest buffer, as a power of two: 2 KiB, so that one segment fits.
const SMALLEST: u32 = 11;
/// Sizes that are kept for reuse: up to 8 MiB.
const SIZES: usize = 13;

/// Free lists of storage by size, last in, first out.
#[derive(Debug)]
pub(crate) struct Pool {
    /// One of the smallest buffers, outside its list: most requests are for the one that was returned last.
    spare: Box<[u8]>,
    free: [Vec<Box<[u8]>>; SIZES],
    /// Bytes in the free lists, and their limit.
    kept_bytes: usize,
    limit_bytes: usize,
    records: Vec<List>,
    #[expect(clippy::vec_box, reason = "a connection has it boxed, as hardly any has one")]
    reassemblies: Vec<Box<Reassembly>>,
    /// Bytes of all storage, free or lent; the thresholds of lent bytes for pressure and for the limit; and the current level.
    /// The spare buffer, which is taken and returned again and again, does not trigger a new look at the level.
    all_bytes: usize,
    bounds: (usize, usize),
    level: Level,
}

/// How much storage is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Little,
    Much,
    TooMuch,
}

/// Bytes that a buffer may hold in any case, as progress of this one may be what frees others (SOCK_MIN_SNDBUF).
pub(crate) const LEAST_BYTES: u32 = 4096;

/// How many lists of records in flight are kept, and how long they may be.
const KEPT_LISTS: usize = 1024;
const KEPT_RECORDS: usize = 1024;

impl Pool {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            spare: Box::default(),
            free: Default::default(),
            kept_bytes: 0,
            limit_bytes,
            records: Vec::new(),
            reassemblies: Vec::new(),
            all_bytes: 0,
            bounds: (usize::MAX, usize::MAX),
            level: Level::Little,
        }
    }

    /// Sets the thresholds of lent bytes: at the first buffers stop growing, at the second they take no more than they need.
    pub(crate) fn set_bounds(&mut self, bounds: (usize, usize)) {
        self.bounds = bounds;
        self.look_at_bounds();
    }

    fn look_at_bounds(&mut self) {
        let lent = self.lent_bytes();
        self.level = match self.bounds {
            (_, most) if lent >= most => Level::TooMuch,
            (much, _) if lent >= much => Level::Much,
            _ => Level::Little,
        };
    }

    /// Returns the bytes of storage that are lent.
    pub(crate) fn lent_bytes(&self) -> usize {
        self.all_bytes - self.kept_bytes
    }

    /// Returns whether buffers are to stay as they are (tcp_under_memory_pressure).
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.level >= Level::Much
    }

    /// Returns whether a buffer gets no more than it needs to make progress (tcp_out_of_memory).
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.level == Level::TooMuch
    }

    /// Returns storage for at least this many bytes: the next power of two. Its content is unspecified.
    #[inline(always)]
    pub(crate) fn take(&mut self, bytes: usize) -> Box<[u8]> {
        if bytes <= self.spare.len() {
            self.kept_bytes -= self.spare.len();
            return std::mem::take(&mut self.spare);
        }
        self.take_from_list(bytes)
    }

    #[inline(never)]
    fn take_from_list(&mut self, bytes: usize) -> Box<[u8]> {
        let bits = bytes.next_power_of_two().trailing_zeros().max(SMALLEST);
        let list = self.free.get_mut((bits - SMALLEST) as usize);
        let storage = if let Some(storage) = list.and_then(Vec::pop) {
            self.kept_bytes -= storage.len();
            storage
        } else {
            self.all_bytes += 1 << bits;
            vec![0; 1 << bits].into_boxed_slice()
        };
        self.look_at_bounds();
        storage
    }

    /// Takes storage back.
    #[inline(always)]
    pub(crate) fn give(&mut self, storage: Box<[u8]>) {
        let fits = self.kept_bytes + storage.len() <= self.limit_bytes;
        if storage.len() == 1 << SMALLEST && self.spare.is_empty() && fits {
            self.kept_bytes += storage.len();
            self.spare = storage;
        } else {
            self.give_to_list(storage);
        }
    }

    #[inline(never)]
    fn give_to_list(&mut self, storage: Box<[u8]>) {
        let bytes = storage.len();
        if bytes == 0 {
            return;
        }
        debug_assert!(bytes <= self.lent_bytes(), "it is not from here");
        let size = bytes.trailing_zeros() - SMALLEST;
        let list = self.free.get_mut(size as usize);
        match list.filter(|_| self.kept_bytes + bytes <= self.limit_bytes) {
            Some(list) => {
                self.kept_bytes += bytes;
                list.push(storage);
            }
            None => self.all_bytes = self.all_bytes.saturating_sub(bytes).max(self.kept_bytes),
        }
        self.look_at_bounds();
    }

    /// Returns an empty list for records in flight.
    pub(crate) fn take_records(&mut self) -> List {
        self.records.pop().unwrap_or_default()
    }

    /// Takes back a list that has become empty.
    pub(crate) fn give_records(&mut self, list: List) {
        debug_assert!(list.is_empty());
        if (1..=KEPT_RECORDS).contains(&list.capacity()) && self.records.len() < KEPT_LISTS {
            self.records.push(list);
        }
    }

    pub(crate) fn take_reassembly(&mut self) -> Box<Reassembly> {
        self.reassemblies.pop().unwrap_or_default()
    }

    pub(crate) fn give_reassembly(&mut self, mut reassembly: Box<Reassembly>) {
        if self.reassemblies.len() < KEPT_LISTS {
            reassembly.clear();
            self.reassemblies.push(reassembly);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn storage_comes_back_up_to_the_limit() {
        let mut pool = Pool::new(6 << 10);
        let (small, large) = (pool.take(1), pool.take(2049));
        assert_eq!((small.len(), large.len()), (2048, 4096));
        let address = large.as_ptr();
        pool.give(small);
        pool.give(large);
        assert_eq!((pool.kept_bytes, pool.lent_bytes()), (6 << 10, 0));
        let again = pool.take(4096);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(pool.kept_bytes, 2 << 10);
    }

    #[test]
    fn what_is_out_is_little_much_or_too_much() {
        let mut pool = Pool::new(4 << 10);
        pool.set_bounds((8 << 10, 16 << 10));
        let level = |pool: &Pool| (pool.lent_bytes() >> 10, pool.is_short(), pool.is_full());
        let (one, other, third) = (pool.take(4096), pool.take(4096), pool.take(8192));
        assert_eq!(level(&pool), (16, true, true));
        // The first fits into the free list, and the second does not.
        pool.give(one);
        assert_eq!(level(&pool), (12, true, false));
        pool.give(third);
        assert_eq!(level(&pool), (4, false, false));
        let again = pool.take(4096);
        assert_eq!(level(&pool), (8, true, false));
        pool.set_bounds((1 << 20, 1 << 20));
        assert_eq!(level(&pool), (8, false, false));
        pool.give(again);
        pool.give(other);
        assert_eq!((pool.lent_bytes(), pool.kept_bytes), (0, 4 << 10));
    }
}
