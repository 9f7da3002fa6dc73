//! Pins: connections that are entered as an engine's, whichever stack has their ports.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use uncork_bpf::owned::Engine;

use crate::limits::ROOT;
use crate::session::Ends;

/// How many pins one user may have: a sixteenth of what the filters have room for. Root is exempt, as it could end the guardian
/// as well.
pub(super) const MOST_OF_A_USER: usize = 1 << 18;

/// The entry of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pin {
    pub(super) engine: Engine,
    /// The user of the engine's process.
    pub(super) user: Option<u32>,
    /// Whether it came to a port, rather than being opened.
    pub(super) has_come: bool,
    /// The last look at its engine's table that found it there.
    pub(super) listed: u64,
    /// Since when it has not been found there.
    pub(super) unlisted: Option<Instant>,
}

/// All pins, by local and then by remote end; and those of each engine, as there are many engines, and each is asked about
/// by itself.
#[derive(Debug, Default)]
pub(super) struct Pins {
    at: HashMap<SocketAddr, HashMap<SocketAddr, Pin>>,
    of_engines: HashMap<Engine, HashSet<Ends>>,
    of_users: HashMap<Option<u32>, usize>,
}

impl Pins {
    pub(super) fn get(&self, (local, remote): &Ends) -> Option<&Pin> {
        self.at.get(local)?.get(remote)
    }

    pub(super) fn insert(&mut self, (local, remote): Ends, pin: Pin) {
        let before = self.at.entry(local).or_default().insert(remote, pin);
        self.count_out((local, remote), before.as_ref());
        self.of_engines.entry(pin.engine).or_default().insert((local, remote));
        *self.of_users.entry(pin.user).or_default() += 1;
    }

    pub(super) fn remove(&mut self, (local, remote): &Ends) -> Option<Pin> {
        let there = self.at.get_mut(local)?;
        let pin = there.remove(remote);
        if there.is_empty() {
            self.at.remove(local);
        }
        self.count_out((*local, *remote), pin.as_ref());
        pin
    }

    pub(super) fn remove_all(&mut self, all: &[Ends]) {
        for ends in all {
            self.remove(ends);
        }
    }

    fn count_out(&mut self, ends: Ends, pin: Option<&Pin>) {
        let Some(pin) = pin else { return };
        if let Some(its) = self.of_engines.get_mut(&pin.engine) {
            its.remove(&ends);
            if its.is_empty() {
                self.of_engines.remove(&pin.engine);
            }
        }
        if let Some(count) = self.of_users.get_mut(&pin.user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&pin.user);
            }
        }
    }

    /// Returns how many more a user may have.
    pub(super) fn room(&self, user: Option<u32>) -> usize {
        if user == Some(ROOT) {
            return usize::MAX;
        }
        MOST_OF_A_USER.saturating_sub(self.of_users.get(&user).copied().unwrap_or(0))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Returns the places that have any.
    pub(super) fn places(&self) -> impl Iterator<Item = SocketAddr> {
        self.at.keys().copied()
    }

    /// Returns the engines that have any.
    pub(super) fn engines(&self) -> impl Iterator<Item = Engine> {
        self.of_engines.keys().copied()
    }

    /// Returns those of an engine.
    pub(super) fn of(&self, engine: Engine) -> impl Iterator<Item = Ends> {
        self.of_engines.get(&engine).into_iter().flatten().copied()
    }

    /// Records that this look at an engine's table has found these connections.
    pub(super) fn note_listed(&mut self, engine: Engine, all: &[Ends], look: u64) {
        for (local, remote) in all {
            let there = self.at.get_mut(local).and_then(|there| there.get_mut(remote));
            if let Some(pin) = there.filter(|pin| pin.engine == engine) {
                (pin.listed, pin.unlisted) = (look, None);
            }
        }
    }

    /// Returns the pins of an engine that this look has not found, except those that `may_be` there all the same, once no look
    /// has found them for `long`; at once where the place is not one that `waits`.
    pub(super) fn unlisted(
        &mut self,
        engine: Engine,
        look: u64,
        may_be: impl Fn(&Ends) -> bool,
        (waits, long): (impl Fn(&SocketAddr) -> bool, Duration),
    ) -> Vec<Ends> {
        let (now, mut over) = (Instant::now(), Vec::new());
        for ends in self.of_engines.get(&engine).into_iter().flatten() {
            let (local, remote) = ends;
            let pin = self.at.get_mut(local).and_then(|there| there.get_mut(remote));
            let Some(pin) = pin.filter(|pin| pin.listed != look && !may_be(ends)) else { continue };
            let since = *pin.unlisted.get_or_insert(now);
            if !waits(local) || now - since >= long {
                over.push(*ends);
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(remote: u16) -> Ends {
        (SocketAddr::from(([10, 0, 0, 1], 80)), SocketAddr::from(([10, 0, 0, 2], remote)))
    }

    fn pin(user: u32) -> Pin {
        Pin { engine: Engine::ONLY, user: Some(user), has_come: true, listed: 0, unlisted: None }
    }

    #[test]
    fn a_user_has_room_for_so_many_and_root_for_all() {
        let mut pins = Pins::default();
        pins.insert(ends(1), pin(1));
        pins.insert(ends(1), pin(1));
        pins.insert(ends(2), pin(1));
        assert_eq!(pins.room(Some(1)), MOST_OF_A_USER - 2);
        assert_eq!(pins.room(Some(2)), MOST_OF_A_USER);
        assert_eq!(pins.room(Some(0)), usize::MAX);
        // Another user's from now on.
        pins.insert(ends(2), pin(2));
        assert_eq!((pins.room(Some(1)), pins.room(Some(2))), {
            let less_one = MOST_OF_A_USER - 1;
            (less_one, less_one)
        });
        assert!(pins.remove(&ends(1)).is_some() && pins.remove(&ends(1)).is_none());
        assert!(pins.remove(&ends(2)).is_some());
        assert!(pins.is_empty() && pins.of_users.is_empty() && pins.of_engines.is_empty());
    }

    #[test]
    fn a_pin_is_of_the_engine_that_had_it_last() {
        let (mut pins, other) = (Pins::default(), Engine(2.try_into().unwrap()));
        pins.insert(ends(1), pin(1));
        pins.insert(ends(2), pin(1));
        pins.insert(ends(1), Pin { engine: other, ..pin(1) });
        assert_eq!(pins.of(Engine::ONLY).collect::<Vec<_>>(), [ends(2)]);
        assert_eq!(pins.of(other).collect::<Vec<_>>(), [ends(1)]);
        pins.remove(&ends(1));
        assert_eq!(pins.engines().collect::<Vec<_>>(), [Engine::ONLY]);
    }

    #[test]
    fn what_is_in_the_table_no_more_is_over_after_a_while_where_it_is_waited_for() {
        let mut pins = Pins::default();
        (1..=4).for_each(|remote| pins.insert(ends(remote), pin(1)));
        let long = Duration::from_secs(60);
        let mut look = 0;
        let mut look = |listed: &[Ends], waits, long| {
            look += 1;
            pins.note_listed(Engine::ONLY, listed, look);
            // Another engine's table says nothing of these.
            pins.note_listed(Engine(2.try_into().unwrap()), &[ends(1), ends(2), ends(3)], look);
            let may_be = |one: &Ends| *one == ends(4);
            let mut over = pins.unlisted(Engine::ONLY, look, may_be, (|_: &_| waits, long));
            over.sort_unstable();
            over
        };
        assert_eq!(look(&[ends(1)], true, long), []);
        assert_eq!(look(&[ends(1), ends(2)], true, Duration::ZERO), [ends(3)]);
        assert_eq!(look(&[ends(1)], false, long), [ends(2), ends(3)]);
    }
}
