//! The table of a process's connections, in memory that the guardian can still read when the process is dead.
//!
//! Slots of equal size, written by one process without asking anybody, and trusted by nobody: the guardian reads them from a
//! file whose length is sealed, and checks each address before it uses it.
//!
//! | word of a slot | holds |
//! |---|---|
//! | 0 | one in the upper half if the slot is used; then the local port, then the remote one |
//! | 1, 2 | the local address in network byte order; IPv4's are mapped into IPv6 |
//! | 3, 4 | the remote address |
//!
//! One word precedes the slots: how many of them may be in use.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::pread;

use crate::shared::{Extent, Shared};

/// How many connections fit. Only as much memory is used as there are connections.
pub const SLOTS: usize = 1 << 20;

const SLOT_WORDS: usize = 5;
const WORD_BYTES: usize = size_of::<u64>();
const SLOT_BYTES: usize = SLOT_WORDS * WORD_BYTES;
const EXTENT: Extent = Extent { words: 1 + SLOTS * SLOT_WORDS, octets: 0 };
const USED: u64 = 1 << 32;
/// How many slots are read at a time.
const READ_SLOTS: usize = 1024;

/// The entry of a connection in a [`Table`]; to be taken out with [`Table::remove`].
#[derive(Debug)]
#[must_use]
pub struct Entry(usize);

/// The table, as its writer sees it.
#[derive(Debug)]
pub struct Table {
    memory: Shared,
    /// For this process's threads only.
    free: Mutex<Free>,
}

/// Slots that are not in use.
#[derive(Debug, Default)]
struct Free {
    /// Slots below `fresh`, those that were used last on top.
    again: Vec<usize>,
    /// The first slot that was never used.
    fresh: usize,
}

impl Table {
    /// Maps a table that [`create`] has made.
    pub(crate) fn map(memory: OwnedFd) -> io::Result<Self> {
        Ok(Self { memory: Shared::map(memory.as_fd(), EXTENT)?, free: Mutex::default() })
    }

    /// Enters a connection. `None` if the table is full: then nobody will reset it.
    pub fn enter(&self, local: SocketAddr, remote: SocketAddr) -> Option<Entry> {
        let slot = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.again.pop() {
                Some(slot) => slot,
                None if free.fresh < SLOTS => {
                    free.fresh += 1;
                    // The slot is not in use yet; reading it does no harm.
                    self.memory.words()[0].store(free.fresh as u64, Ordering::Release);
                    free.fresh - 1
                }
                None => return None,
            }
        };
        let ports = u64::from(local.port()) << 16 | u64::from(remote.port());
        let ([a, b], [c, d]) = (octets(local.ip()), octets(remote.ip()));
        let [first, rest @ ..] = self.slot(slot);
        for (word, value) in rest.iter().zip([a, b, c, d]) {
            word.store(value, Ordering::Relaxed);
        }
        first.store(USED | ports, Ordering::Release);
        Some(Entry(slot))
    }

    /// Removes a connection that is over and will never be asked for again: not even TIME-WAIT is left.
    pub fn remove(&self, entry: Entry) {
        self.slot(entry.0)[0].store(0, Ordering::Release);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).again.push(entry.0);
    }

    fn slot(&self, slot: usize) -> &[AtomicU64; SLOT_WORDS] {
        let (slots, _) = self.memory.words()[1..].as_chunks();
        &slots[slot]
    }
}

/// Creates the memory of a table, whose length cannot change.
///
/// # Errors
///
/// What the kernel says.
pub fn create() -> io::Result<OwnedFd> {
    Shared::create("uncork-connections", EXTENT)
}

/// Reads the connections in a table that another process writes: whatever it has written there.
///
/// # Errors
///
/// What the kernel says.
pub fn read(memory: BorrowedFd<'_>) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    read_from(memory, 0, SLOTS).map(|(connections, _)| connections)
}

/// Reads those in at most `most` slots, from this one on. Also returns how many slots there were: fewer at the table's end.
///
/// # Errors
///
/// What the kernel says.
pub fn read_from(
    memory: BorrowedFd<'_>,
    first: usize,
    most: usize,
) -> io::Result<(Vec<(SocketAddr, SocketAddr)>, usize)> {
    let mut count = [0; WORD_BYTES];
    pread(memory, &mut count, 0)?;
    let count = usize::try_from(u64::from_ne_bytes(count)).unwrap_or(SLOTS).min(SLOTS);
    let end = count.min(first.saturating_add(most));
    let mut bytes = vec![0; READ_SLOTS * SLOT_BYTES];
    let mut connections = Vec::new();
    for first in (first..end).step_by(READ_SLOTS) {
        let wanted = READ_SLOTS.min(end - first) * SLOT_BYTES;
        let got = pread(memory, &mut bytes[..wanted], (WORD_BYTES + first * SLOT_BYTES) as u64)?;
        let (slots, _) = bytes[..got].as_chunks::<SLOT_BYTES>();
        connections.extend(slots.iter().filter_map(decode));
    }
    Ok((connections, end.saturating_sub(first)))
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<(SocketAddr, SocketAddr)> {
    let (words, _) = slot.as_chunks::<WORD_BYTES>();
    let first = u64::from_ne_bytes(words[0]);
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&slot[at * WORD_BYTES..(at + 2) * WORD_BYTES]);
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    };
    // Two ports, each a half of the lower half.
    let (local, remote) = ((first >> 16) as u16, first as u16);
    (first & USED != 0)
        .then(|| (SocketAddr::new(address(1), local), SocketAddr::new(address(3), remote)))
}

/// Returns an address in network byte order, as two words of memory.
fn octets(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let word = |at: usize| octets[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    [word(0), word(8)]
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::fs::ftruncate;

    use super::*;

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_one_side_has_entered_and_not_removed_the_other_reads() {
        let memory = create().unwrap();
        let table = Table::map(memory.try_clone().unwrap()).unwrap();
        assert_eq!(read(memory.as_fd()).unwrap(), []);
        let local = end("10.0.0.1:80");
        let remotes: Vec<_> =
            (1..=3000).map(|port| SocketAddr::from(([10, 0, 0, 2], port))).collect();
        let mut entries: Vec<_> =
            remotes.iter().map(|remote| table.enter(local, *remote).unwrap()).collect();
        let wanted: Vec<_> = remotes.iter().map(|remote| (local, *remote)).collect();
        assert_eq!(read(memory.as_fd()).unwrap(), wanted);
        table.remove(entries.remove(7));
        let mut without = wanted.clone();
        without.remove(7);
        assert_eq!(read(memory.as_fd()).unwrap(), without);
        // In parts, the last of which has fewer slots than it may.
        let some = |first, most| read_from(memory.as_fd(), first, most).unwrap();
        assert_eq!(some(0, 7), (wanted[..7].to_vec(), 7));
        assert_eq!(some(2000, 2000), (wanted[2000..].to_vec(), 1000));
        assert_eq!(some(3000, 1), (vec![], 0));
        // In the slot that is free now.
        let other = (end("[fd00::1]:443"), end("[fd00::2]:65535"));
        entries.push(table.enter(other.0, other.1).unwrap());
        without.insert(7, other);
        assert_eq!(read(memory.as_fd()).unwrap(), without);
    }

    #[test]
    fn whatever_is_written_there_is_read_without_harm_and_its_length_stays() {
        let memory = create().unwrap();
        let table = Table::map(memory.try_clone().unwrap()).unwrap();
        for word in &table.memory.words()[..1 + 10 * SLOT_WORDS] {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(read(memory.as_fd()).unwrap().len(), 10);
        for bytes in [0, 1 << 40] {
            ftruncate(&memory, bytes).unwrap_err();
        }
    }
}
