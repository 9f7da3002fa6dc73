//! Lookup of the connection that a segment's addresses and ports belong to, in one probe or two.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use uncork_wire::plain::Plain;

use crate::address::Address;
use crate::hash::{self, Key};

/// Both ends of a connection, seen from this host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) local_address: Address,
    pub(crate) remote_address: Address,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl Tuple {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local_address: local.ip().into(),
            remote_address: remote.ip().into(),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    /// Returns the tuple of the connection that a received segment belongs to.
    #[inline]
    pub(crate) fn of_plain(segment: &Plain) -> Self {
        Self {
            local_address: segment.destination.into(),
            remote_address: segment.source.into(),
            local_port: segment.fields.destination_port,
            remote_port: segment.fields.source_port,
        }
    }

    pub(crate) fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_address.ip(), self.local_port)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_address.ip(), self.remote_port)
    }

    #[inline]
    pub(crate) fn is_ipv6(&self) -> bool {
        self.remote_address.is_ipv6()
    }

    /// Hashes the tuple under a secret key.
    #[inline]
    pub(crate) fn hash(&self, key: Key) -> u64 {
        match self.plain_words() {
            // The same in fewer words; the hash includes their number.
            Some((addresses, ports)) => hash::fast(key, &[addresses, u64::from(ports)]),
            None => hash::fast(key, &self.words()),
        }
    }

    /// Returns the whole tuple in two words, if its addresses are IPv4.
    #[inline]
    fn plain_words(&self) -> Option<(u64, u32)> {
        let (local, remote) = (self.local_address.as_v4()?, self.remote_address.as_v4()?);
        let ports = u32::from(self.local_port) << 16 | u32::from(self.remote_port);
        Some((words_of(local, remote), ports))
    }

    #[inline]
    fn port_word(&self) -> u64 {
        u64::from(self.local_port) << 16 | u64::from(self.remote_port)
    }

    /// Returns the whole tuple as words.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 5] {
        let [local, local_rest] = self.local_address.words();
        let [remote, remote_rest] = self.remote_address.words();
        [local, local_rest, remote, remote_rest, self.port_word()]
    }
}

#[inline]
fn words_of(local: Ipv4Addr, remote: Ipv4Addr) -> u64 {
    u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits())
}

impl fmt::Debug for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ↔ {}", self.local(), self.remote())
    }
}

/// A hash table of places: open addressing, linear probing, and backward shift on removal, so that
/// no tombstones gather.
#[derive(Debug)]
pub(crate) struct Demux {
    slots: Vec<Slot>,
    live: usize,
    /// The connection found last: segments of a connection come in runs, and its tuple need not be hashed again.
    latest: Option<(Tuple, u32)>,
    /// The tuple of that connection in two words; zeros, which match no segment, if it is not IPv4, as no port is zero.
    latest_plain: (u64, u32),
}

/// Upper half of the hash, and the place; the place of an empty slot is `u32::MAX`.
#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u32,
    place: u32,
}

const EMPTY: Slot = Slot { tag: 0, place: u32::MAX };

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Demux {
    pub(crate) fn new() -> Self {
        Self { slots: vec![EMPTY; 64], live: 0, latest: None, latest_plain: (0, 0) }
    }

    /// Returns the place with this hash for which `is` returns true, if it is in the table.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut index = self.home(tag(hash));
        loop {
            let slot = self.slots[index];
            if slot.place == EMPTY.place {
                return None;
            }
            if slot.tag == tag(hash) && is(slot.place) {
                return Some(slot.place);
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns the remembered place, if it is that of this tuple.
    #[inline]
    pub(crate) fn latest(&self, tuple: &Tuple) -> Option<u32> {
        self.latest.filter(|(latest, _)| latest == tuple).map(|(_, place)| place)
    }

    /// Returns the remembered place, if a plain segment belongs to it.
    #[inline(always)]
    pub(crate) fn latest_plain(&self, segment: &Plain) -> Option<u32> {
        let addresses = words_of(segment.destination, segment.source);
        let fields = &segment.fields;
        let ports = u32::from(fields.destination_port) << 16 | u32::from(fields.source_port);
        let (_, place) = self.latest?;
        (self.latest_plain == (addresses, ports)).then_some(place)
    }

    /// Returns whether `place` is the remembered one.
    #[inline]
    pub(crate) fn is_latest(&self, place: u32) -> bool {
        self.latest.is_some_and(|(_, latest)| latest == place)
    }

    /// Remembers the place of a connection in the table.
    #[inline]
    pub(crate) fn remember(&mut self, tuple: &Tuple, place: u32) {
        if self.latest.is_none_or(|(_, latest)| latest != place) {
            self.latest = Some((*tuple, place));
            self.latest_plain = tuple.plain_words().unwrap_or_default();
        }
    }

    /// Adds a place, which must not be in the table.
    pub(crate) fn insert(&mut self, hash: u64, place: u32) {
        // At most three quarters full: a probe then looks at 2.5 slots on average, in one cache line.
        if (self.live + 1) * 4 > self.slots.len() * 3 {
            let larger = vec![EMPTY; self.slots.len() * 2];
            let smaller = std::mem::replace(&mut self.slots, larger);
            for slot in smaller.into_iter().filter(|slot| slot.place != EMPTY.place) {
                self.put(slot);
            }
        }
        self.put(Slot { tag: tag(hash), place });
        self.live += 1;
    }

    /// Removes a place.
    pub(crate) fn remove(&mut self, hash: u64, place: u32) {
        self.latest = self.latest.filter(|&(_, latest)| latest != place);
        let mask = self.slots.len() - 1;
        let mut hole = self.home(tag(hash));
        while self.slots[hole].place != place {
            if self.slots[hole].place == EMPTY.place {
                return;
            }
            hole = (hole + 1) & mask;
        }
        self.live -= 1;
        // Entries that were pushed beyond the hole by its entry move back.
        let mut next = (hole + 1) & mask;
        while self.slots[next].place != EMPTY.place {
            let home = self.home(self.slots[next].tag);
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = EMPTY;
    }

    fn put(&mut self, slot: Slot) {
        let mut index = self.home(slot.tag);
        while self.slots[index].place != EMPTY.place {
            index = (index + 1) & (self.slots.len() - 1);
        }
        self.slots[index] = slot;
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{Demux, Tuple};
    use crate::hash::Key;

    #[test]
    fn a_tuple_tells_what_it_was_made_of() {
        for (local, remote) in
            [("10.0.0.1:80", "10.0.0.2:40000"), ("[fd00::1]:80", "[fd00::2]:40000")]
        {
            let tuple = Tuple::new(local.parse().unwrap(), remote.parse().unwrap());
            assert_eq!(tuple.local().to_string(), local);
            assert_eq!(tuple.remote().to_string(), remote);
            let turned = Tuple::new(remote.parse().unwrap(), local.parse().unwrap());
            assert_ne!(tuple.hash(Key(1, 2)), turned.hash(Key(1, 2)));
        }
    }

    #[test]
    fn what_was_found_last_is_forgotten_with_its_place() {
        let name = |port: u16| {
            let local = format!("10.0.0.1:{port}");
            Tuple::new(local.parse().unwrap(), "10.0.0.2:40000".parse().unwrap())
        };
        let mut table = Demux::new();
        let hash = name(80).hash(Key(1, 2));
        table.insert(hash, 7);
        table.remember(&name(80), 7);
        assert_eq!((table.latest(&name(80)), table.latest(&name(81))), (Some(7), None));
        // Another connection may get the place.
        table.remove(hash, 7);
        assert_eq!(table.latest(&name(80)), None);
    }

    proptest! {
        #[test]
        fn the_table_is_a_map(steps in proptest::collection::vec((any::<bool>(), 0u64..40, 0u32..200), 1..600)) {
            // Few hashes, so that many entries want the same slots.
            let mut table = Demux::new();
            let mut model: HashMap<u32, u64> = HashMap::new();
            for (insert, hash, place) in steps {
                let hash = hash << 32;
                if insert && !model.contains_key(&place) {
                    table.insert(hash, place);
                    model.insert(place, hash);
                } else if let Some(hash) = model.remove(&place) {
                    table.remove(hash, place);
                }
                for place in 0..200 {
                    let hash = model.get(&place).copied();
                    let found = table.find(hash.unwrap_or(0), |other| other == place);
                    prop_assert_eq!(found.is_some(), hash.is_some(), "place {}", place);
                }
            }
        }
    }
}
