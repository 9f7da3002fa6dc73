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
    /// Bytes of storage that are out, and from where on that is much, and too much.
    lent_bytes: usize,
    bounds: (usize, usize),
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
            lent_bytes: 0,
            bounds: (usize::MAX, usize::MAX),
        }
    }

    /// From so many bytes in all on buffers do not grow, and from so many on they take no more than they need.
    pub(crate) fn set_bounds(&mut self, bounds: (usize, usize)) {
        self.bounds = bounds;
    }

    /// Bytes of storage that are out.
    pub(crate) fn lent_bytes(&self) -> usize {
        self.lent_bytes
    }

    /// Whether buffers are to stay as they are (tcp_under_memory_pressure).
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.lent_bytes >= self.bounds.0
    }

    /// Whether there is no more for anybody but what he needs to go on (tcp_out_of_memory).
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.lent_bytes >= self.bounds.1
    }

    /// Storage for at least so many bytes: the next power of two. What is in it is of no meaning.
    #[inline(always)]
    pub(crate) fn take(&mut self, bytes: usize) -> Box<[u8]> {
        if bytes <= self.spare.len() {
            self.kept_bytes -= self.spare.len();
            self.lent_bytes += self.spare.len();
            return std::mem::take(&mut self.spare);
        }
        self.take_from_list(bytes)
    }

    #[inline(never)]
    fn take_from_list(&mut self, bytes: usize) -> Box<[u8]> {
        let bits = bytes.next_power_of_two().trailing_zeros().max(SMALLEST);
        self.lent_bytes += 1 << bits;
        let list = self.free.get_mut((bits - SMALLEST) as usize);
        if let Some(storage) = list.and_then(Vec::pop) {
            self.kept_bytes -= storage.len();
            return storage;
        }
        vec![0; 1 << bits].into_boxed_slice()
    }

    /// Gives storage back.
    #[inline(always)]
    pub(crate) fn give(&mut self, storage: Box<[u8]>) {
        debug_assert!(storage.len() <= self.lent_bytes, "it is not from here");
        self.lent_bytes = self.lent_bytes.saturating_sub(storage.len());
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
        if storage.is_empty() || self.kept_bytes + storage.len() > self.limit_bytes {
            return;
        }
        let size = storage.len().trailing_zeros() - SMALLEST;
        if let Some(list) = self.free.get_mut(size as usize) {
            self.kept_bytes += storage.len();
            list.push(storage);
        }
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
        pool.set_bounds((4096, 8192));
        let (small, large) = (pool.take(1), pool.take(2049));
        let other = pool.take(1);
        assert_eq!((pool.lent_bytes(), pool.is_short(), pool.is_full()), (8192, true, true));
        pool.give(other);
        assert_eq!((pool.is_short(), pool.is_full()), (true, false));
        pool.give(large);
        pool.give(small);
        assert_eq!((pool.kept_bytes, pool.lent_bytes()), (6 << 10, 0));
        let again = pool.take(4096);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(pool.kept_bytes, 2 << 10);
    }
}
