//! The cache of cookies received from servers (RFC 7413 §4.1.3): a table of a fixed size in which the oldest of
//! a set is evicted. It takes no memory before the first cookie is requested.

use std::net::IpAddr;

use uncork_wire::tcp::Cookie;

use crate::hash::{self, Key};

/// Peers that are remembered, in sets of [`WAYS`] (Linux's tcp_metrics has at least as many sets).
const SETS: usize = 256;
const WAYS: usize = 4;

/// What is known about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    ends: (IpAddr, IpAddr),
    /// When it was last changed, counted in changes of the whole table.
    age: u64,
    pub(crate) cookie: Option<Cookie>,
    /// The segment size in its SYN-ACK.
    pub(crate) mss: Option<u16>,
    experiment: Experiment,
}

/// Whether to request a cookie with the experimental option: once, if the standard option brings none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Experiment {
    #[default]
    NotYet,
    Next,
    Never,
}

impl Entry {
    pub(crate) fn asks_by_experiment(&self) -> bool {
        self.experiment == Experiment::Next
    }
}

/// What a SYN-ACK has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lesson {
    pub(crate) mss: Option<u16>,
    pub(crate) cookie: Option<Cookie>,
    /// A cookie was requested and none came: true if by the experimental option, false if by the standard one.
    pub(crate) refused: Option<bool>,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    key: Key,
    entries: Vec<Option<Entry>>,
    changes: u64,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Cache {
    pub(crate) fn new(key: Key) -> Self {
        Self { key, entries: Vec::new(), changes: 0 }
    }

    /// Returns what is known about the peer of these ends (local, remote).
    pub(crate) fn get(&self, ends: (IpAddr, IpAddr)) -> Option<&Entry> {
        let from = self.set(ends);
        let set = self.entries.get(from..from + WAYS)?;
        set.iter().flatten().find(|entry| entry.ends == ends)
    }

    /// Records what a SYN-ACK has shown (tcp_fastopen_cache_set).
    pub(crate) fn learn(&mut self, ends: (IpAddr, IpAddr), lesson: Lesson) {
        if self.entries.is_empty() {
            self.entries = vec![None; SETS * WAYS];
        }
        self.changes += 1;
        let from = self.set(ends);
        let set = &mut self.entries[from..from + WAYS];
        let known = set.iter().position(|entry| entry.is_some_and(|entry| entry.ends == ends));
        // An empty place counts as the oldest.
        let oldest = || {
            let ages = set.iter().enumerate();
            ages.min_by_key(|(_, entry)| entry.map_or(0, |entry| entry.age)).map_or(0, |(at, _)| at)
        };
        let place = known.unwrap_or_else(oldest);
        let fresh = Entry { ends, age: 0, cookie: None, mss: None, experiment: Experiment::NotYet };
        let mut entry = set[place].filter(|entry| entry.ends == ends).unwrap_or(fresh);
        entry.age = self.changes;
        entry.mss = lesson.mss.or(entry.mss);
        if lesson.cookie.is_some() {
            entry.cookie = lesson.cookie;
        } else if let (Some(experimental), None) = (lesson.refused, entry.cookie) {
            let next = if experimental { Experiment::Never } else { Experiment::Next };
            entry.experiment = entry.experiment.max(next);
        }
        set[place] = Some(entry);
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.entries = Vec::new();
    }

    /// Returns where the set of a peer begins; outsiders cannot choose it, as the hash is keyed.
    fn set(&self, (local, remote): (IpAddr, IpAddr)) -> usize {
        let mut words = [0; 4];
        for (half, address) in words.chunks_exact_mut(2).zip([local, remote]) {
            let octets = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            for (word, from) in half.iter_mut().zip([0, 8]) {
                *word = octets[from..].first_chunk().map_or(0, |&part| u64::from_ne_bytes(part));
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "a place among few")]
        let set = hash::fast(self.key, &words) as usize % SETS;
        set * WAYS
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use uncork_wire::tcp::Cookie;

    use super::{Cache, Lesson, SETS, WAYS};
    use crate::hash::Key;

    fn ends(n: u32) -> (IpAddr, IpAddr) {
        (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::from(n)))
    }

    fn given(octets: &[u8]) -> Lesson {
        Lesson { mss: Some(1000), cookie: Cookie::new(octets), refused: None }
    }

    #[test]
    fn a_cookie_stays_until_another_comes_and_refusals_do_not_take_it_away() {
        let mut cache = Cache::new(Key(1, 2));
        assert_eq!(cache.get(ends(1)), None);
        cache.learn(ends(1), given(&[1, 2, 3, 4]));
        let nothing = Lesson { mss: Some(900), cookie: None, refused: Some(false) };
        cache.learn(ends(1), nothing);
        let entry = cache.get(ends(1)).unwrap();
        assert_eq!((entry.cookie, entry.mss), (Cookie::new(&[1, 2, 3, 4]), Some(900)));
        assert!(!entry.asks_by_experiment());
        cache.clear();
        assert_eq!(cache.get(ends(1)), None);
    }

    #[test]
    fn the_experiments_option_is_tried_once() {
        let mut cache = Cache::new(Key(1, 2));
        let refused =
            |experimental| Lesson { mss: None, cookie: None, refused: Some(experimental) };
        for (experimental, next) in [(false, true), (true, false), (false, false)] {
            cache.learn(ends(1), refused(experimental));
            assert_eq!(cache.get(ends(1)).unwrap().asks_by_experiment(), next);
        }
    }

    #[test]
    fn the_table_is_bounded_and_the_latest_stays() {
        let mut cache = Cache::new(Key(1, 2));
        for n in 0..20_000 {
            cache.learn(ends(n), given(&n.to_be_bytes()));
            assert_eq!(cache.get(ends(n)).unwrap().cookie, Cookie::new(&n.to_be_bytes()));
        }
        assert_eq!(cache.entries.len(), SETS * WAYS);
    }
}
