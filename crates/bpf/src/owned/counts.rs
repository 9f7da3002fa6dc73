//! Counts of entries of kinds that most stacks have none of.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::{Error, Ours};

/// The map's name.
pub(super) const COUNTS: &str = "counts";

/// The kinds that are counted, in the order of `struct counts` in `owned/maps.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Addresses,
    Connections,
    ListenersAtAddresses,
}

/// The counts as the programs see them, which do not look for kinds that have no entry.
pub(super) struct Counts {
    map: MapHandle,
    there: Mutex<[u32; 3]>,
}

impl Counts {
    pub(super) fn in_map(map: MapHandle) -> Self {
        Self { map, there: Mutex::default() }
    }

    /// Counts an entry that was made.
    pub(super) fn one_more(&self, what: Ours) -> Result<(), Error> {
        self.so_many_more(what, 1)
    }

    /// Counts an entry that was removed.
    pub(super) fn one_less(&self, what: Ours) -> Result<(), Error> {
        self.so_many_less(what, 1)
    }

    /// Counts entries of one kind that were, or are about to be, made.
    pub(super) fn so_many_more(&self, like: Ours, more: usize) -> Result<(), Error> {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.change(like, |count| count.saturating_add(more))
    }

    /// Counts entries of one kind that were removed.
    pub(super) fn so_many_less(&self, like: Ours, less: usize) -> Result<(), Error> {
        let less = u32::try_from(less).unwrap_or(u32::MAX);
        self.change(like, |count| count.saturating_sub(less))
    }

    fn change(&self, what: Ours, change: impl Fn(u32) -> u32) -> Result<(), Error> {
        let Some(counted) = counted(what) else { return Ok(()) };
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        let before = there[counted as usize];
        there[counted as usize] = change(before);
        if (before == 0) == (there[counted as usize] == 0) {
            // The programs only test whether there are any.
            return Ok(());
        }
        let octets: Vec<u8> = there.iter().flat_map(|count| count.to_ne_bytes()).collect();
        Ok(self.map.update(&0_u32.to_ne_bytes(), &octets, MapFlags::ANY)?)
    }
}

fn counted(what: Ours) -> Option<Counted> {
    match what {
        Ours::Address(_) => Some(Counted::Addresses),
        Ours::Connection(..) => Some(Counted::Connections),
        Ours::Port(_, local) if local.ip().is_unspecified() => None,
        Ours::Port(..) => Some(Counted::ListenersAtAddresses),
    }
}
