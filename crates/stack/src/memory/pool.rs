//! Storage that a connection has while it holds data, and that is warm in the cache when the next
//! one gets it.

use crate::connection::{List, Reassembly};

/// The smallest storage, as a power of two: 2 KiB, so that one segment fits.
const SMALLEST: u32 = 11;
/// Sizes that are kept for later: up to 8 MiB.
const SIZES: usize = 13;

/// Lists of storage by size, last in, first out.
#[derive(Debug)]
pub(crate) struct Pool {
    /// One of the smallest, which is not in its list: most that are taken are the one that was given back last.
    spare: Box<[u8]>,
    free: [Vec<Box<[u8]>>; SIZES],
    /// Bytes in the lists, and how many they may be.
    kept_bytes: usize,
    limit_bytes: usize,
    records: Vec<List>,
    #[expect(clippy::vec_box, reason = "a connection has it boxed, as hardly any has one")]
    reassemblies: Vec<Box<Reassembly>>,
    /// Bytes of all storage, in the lists or out; from where on what is out is much, and too much; and how it is. What is
    /// taken and given back again and again changes none of it: the spare one does not count for that.
    all_bytes: usize,
    bounds: (usize, usize),
    level: Level,
}

/// How much is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Little,
    Much,
    TooMuch,
}

/// What a buffer may hold in any case: the one that is waited for may be the one that lets others go on (SOCK_MIN_SNDBUF).
pub(crate) const LEAST_BYTES: u32 = 4096;

/// Lists of segments in flight that are kept, and how long they may be.
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

    /// From so many bytes in all on buffers do not grow, and from so many on they take no more than they need.
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

    /// Bytes of storage that are out.
    pub(crate) fn lent_bytes(&self) -> usize {
        self.all_bytes - self.kept_bytes
    }

    /// Whether buffers are to stay as they are (tcp_under_memory_pressure).
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.level >= Level::Much
    }

    /// Whether there is no more for anybody but what he needs to go on (tcp_out_of_memory).
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.level == Level::TooMuch
    }

    /// Storage for at least so many bytes: the next power of two. What is in it is of no meaning.
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

    /// Gives storage back.
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

    /// An empty list of segments in flight.
    pub(crate) fn take_records(&mut self) -> List {
        self.records.pop().unwrap_or_default()
    }

    /// Gives a list back that has become empty.
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
        // One finds room in the list, and one does not.
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
