//! Which connections stay an engine's whoever owns their port, as far as its table is believed.
//!
//! A process can write anything into its table. While it owns a port it is believed, as all that arrives there may be its: on the
//! kernel it would get that as well. When it gives the port up, what is in the table stays its own, and later entries count only
//! where the filters have sent the SYN to it. Even so an entry may be invented, to catch peers that will connect to the port's
//! next owner, which may be another user's, or be on the kernel alone and unknown here. So a connection that an engine has at a
//! port that it has given up yields to the first SYN ([`Whose::Engines`]), unless its user still owns the port.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use uncork_bpf::owned::{Engine, Protocol, Whose};
use uncork_guardian::table;

use super::pins::{MOST_OF_A_USER, Pin};
use super::{STAYS, Steering};
use crate::limits::ROOT;
use crate::session::{Ends, Role, Session};

/// How many table slots are read for one user's programs in one go.
const SLOTS_OF_A_USER: usize = 2 * table::SLOTS;
/// How many new entries at ports given up are looked up for one user's programs in one go: as many as may be on the way to a
/// process that leaves a port.
const LOOKED_UP: usize = 4096;
/// How many slots are searched in a round for connections that are over; the next round does the rest.
const SLOTS_IN_A_ROUND: usize = 1 << 15;

/// What may still be done in this go for the programs of each user.
#[derive(Default)]
struct Allowances(HashMap<Option<u32>, Allowance>);

/// How many slots may still be read, and how many entries looked up.
#[derive(Clone, Copy)]
struct Allowance {
    slots: usize,
    looks: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { slots: SLOTS_OF_A_USER, looks: LOOKED_UP }
    }
}

impl Steering {
    /// Enters the connections of these sessions at these places, so that they stay theirs.
    pub(super) fn pin(
        &mut self,
        places: &[SocketAddr],
        sessions: &[&Session],
    ) -> Result<(), String> {
        let mut allowances = Allowances::default();
        for session in sessions {
            // Sessions that have nothing to do with the places are skipped. What a guest has is its instance's.
            let had: HashSet<_> =
                places.iter().filter(|place| session.had(**place)).copied().collect();
            let is_full = self.pinned.room(session.user) == 0;
            if is_full || had.is_empty() || matches!(session.role, Role::Guest(_)) {
                continue;
            }
            let left = allowances.0.entry(session.user).or_default();
            let most = if session.user == Some(ROOT) { table::SLOTS } else { left.slots };
            let (found, slots) = session.table(0, most);
            left.slots = left.slots.saturating_sub(slots);
            let new = self.new_of(session, &had, found, &mut left.looks);
            self.enter(session, new)?;
        }
        Ok(())
    }

    /// Returns the connections of a table that are not entered yet and are believed.
    fn new_of(
        &self,
        session: &Session,
        had: &HashSet<SocketAddr>,
        found: Vec<Ends>,
        looks: &mut usize,
    ) -> Vec<Ends> {
        let (room, stands) = (self.pinned.room(session.user), self.stands_at(session, had));
        let is_new = |ends: &Ends| {
            if !had.contains(&ends.0) || self.kept.contains_key(ends) {
                return false;
            }
            match self.pinned.get(ends) {
                Some(pin) if pin.engine == session.engine => return false,
                Some(_) if self.owner_of(ends).is_some() => return false,
                _ => {}
            }
            if stands.contains(&ends.0) {
                return true;
            }
            if *looks == 0 {
                return false;
            }
            *looks -= 1;
            self.owned.begun_by(*ends) == Some(session.engine)
        };
        found.into_iter().filter(is_new).take(room).collect()
    }

    /// Enters these connections as this session's.
    pub(super) fn enter(&mut self, session: &Session, all: Vec<Ends>) -> Result<(), String> {
        let is_there = |ends: &&Ends| self.pinned.get(ends).is_some();
        let new = all.len() - all.iter().filter(is_there).count();
        let (engine, user) = (session.engine, session.user);
        let whence = |local| self.whence(local);
        let entered = self.owned.enter_all(Whose::Engines(engine, &whence), &all, new);
        if let Err(error) = entered {
            self.pinned.remove_all(&all);
            return Err(error.to_string());
        }
        for ends in all {
            let pin = Pin { engine, user, has_come: true, listed: 0, unlisted: None };
            self.pinned.insert(ends, pin);
        }
        Ok(())
    }

    /// Ends the hold of engines that left a place to others of their user's, once no such other has it any more.
    pub(super) fn keep_left(&mut self, place: &SocketAddr, sessions: &[&Session]) {
        let Some(left) = self.left.get_mut(place) else { return };
        let members = self.members.get(place).map_or(&[][..], Vec::as_slice);
        let standing = sessions.iter().filter(|session| members.contains(&session.engine));
        let users: HashSet<_> = standing.map(|session| session.user).collect();
        for (engine, _) in left.extract_if(|_, user| !users.contains(user)) {
            let _ = self.owned.stand(Protocol::Tcp, *place, engine, false);
        }
        if left.is_empty() {
            self.left.remove(place);
        }
    }

    /// Forgets all places that an engine had left, as the engine is gone.
    pub(super) fn forget_left(&mut self, engine: Engine) {
        for (place, left) in &mut self.left {
            if left.remove(&engine).is_some() {
                let _ = self.owned.stand(Protocol::Tcp, *place, engine, false);
            }
        }
        self.left.retain(|_, left| !left.is_empty());
    }

    /// Tells whether new connections to a place may be this session's.
    fn stands(&self, session: &Session, place: &SocketAddr) -> bool {
        self.members.get(place).is_some_and(|members| members.contains(&session.engine))
    }

    /// Returns those of these places for which that holds.
    fn stands_at(&self, session: &Session, places: &HashSet<SocketAddr>) -> HashSet<SocketAddr> {
        places.iter().filter(|place| self.stands(session, place)).copied().collect()
    }

    /// Returns the engine that a connection is entered for; none if the connection has given way.
    fn owner_of(&self, ends: &Ends) -> Option<Engine> {
        let pin = self.pinned.get(ends)?;
        // Most belong to engines that still have the port, for which the filters need not be asked.
        let may_have = pin.has_come && {
            let members = self.members.get(&ends.0);
            let left = self.left.get(&ends.0);
            !members.is_some_and(|members| members.contains(&pin.engine))
                && !left.is_some_and(|left| left.contains_key(&pin.engine))
        };
        (!may_have || !self.owned.has_given_way(*ends)).then_some(pin.engine)
    }

    /// Tells whether a connection is entered as another engine's, or the kernel's.
    pub(super) fn is_anothers(&self, engine: Engine, ends: &Ends) -> bool {
        self.kept.contains_key(ends) || self.owner_of(ends).is_some_and(|other| other != engine)
    }

    /// Tells whether a connection belongs to this program or instance.
    pub(crate) fn is_its(&self, session: &Session, ends: &Ends) -> bool {
        if matches!(session.role, Role::Guest(_)) {
            return session.has_been_given(ends);
        }
        if self.is_anothers(session.engine, ends) {
            return false;
        }
        session.has_opened(ends)
            || self.stands(session, &ends.0)
            || self.owner_of(ends) == Some(session.engine)
            || (session.had(ends.0) && self.owned.begun_by(*ends) == Some(session.engine))
    }

    /// Enters what is new in the tables of a port's members, within these slots, so that the next request about the port is
    /// quick. Returns whether everything is entered.
    pub(crate) fn prepare(&mut self, port: u16, sessions: &[&Session], slots: &mut usize) -> bool {
        for session in sessions {
            let held: HashSet<_> =
                session.held().into_iter().filter(|place| place.port() == port).collect();
            let stands = self.stands_at(session, &held);
            if stands.is_empty() || matches!(session.role, Role::Guest(_)) {
                continue;
            }
            if *slots == 0 {
                return false;
            }
            while let Some(found) = read_on(&mut self.read, session, slots) {
                let new = self.new_of(session, &stands, found, &mut 0);
                // What finds no room now would find none then either.
                if self.enter(session, new).is_err() || self.pinned.room(session.user) == 0 {
                    break;
                }
                if *slots == 0 {
                    return false;
                }
            }
        }
        // If this is called again, tables are read anew.
        self.read.retain(|engine, _| sessions.iter().all(|session| session.engine != *engine));
        true
    }

    /// Gives the kernel those connections in a dead engine's table that really are its own, within these slots: the table may say
    /// anything. Returns them, and whether these are all.
    pub(crate) fn bequeath(&mut self, session: &Session, slots: &mut usize) -> (Vec<Ends>, bool) {
        // Those of a guest are its instance's.
        if matches!(session.role, Role::Guest(_)) {
            return (Vec::new(), true);
        }
        let before = self.bequeathed.get(&session.engine).copied().unwrap_or_default();
        let is_bound = session.user != Some(ROOT) && before >= MOST_OF_A_USER;
        let found = if is_bound { None } else { read_on(&mut self.bequeathed, session, slots) };
        let stands = self.stands_at(session, &session.held());
        // Entries elsewhere take a lookup each.
        let mut looks = LOOKED_UP;
        let is_its = |ends: &Ends| {
            let is_plain = stands.contains(&ends.0) || self.pinned.get(ends).is_some();
            looks = looks.saturating_sub(usize::from(!is_plain));
            (is_plain || looks > 0) && self.is_its(session, ends)
        };
        let is_over = found.is_none();
        let its: Vec<_> = found.into_iter().flatten().filter(is_its).collect();
        // If this fails, for want of memory in the kernel, say, the rest is done all the same.
        let _ = self.leave_to_the_kernel(&its);
        if is_over {
            self.bequeathed.remove(&session.engine);
        }
        (its, is_over)
    }

    /// Returns the places where engines have connections that are entered as theirs.
    pub(crate) fn places_with_connections(&self) -> impl Iterator<Item = SocketAddr> {
        self.pinned.places()
    }

    /// Removes entries that are no longer in their engines' tables; if the engine has given the port up, only after a while, as a
    /// connection on its way to the kernel is in no table either. A long table is read over several rounds.
    pub(super) fn tidy_pinned(&mut self, sessions: &[&Session]) {
        let pinned: HashSet<_> = self.pinned.engines().collect();
        let mut sessions: Vec<_> =
            sessions.iter().filter(|session| pinned.contains(&session.engine)).collect();
        sessions.sort_unstable_by_key(|session| session.engine);
        let first = sessions.partition_point(|session| session.engine < self.tidied.engine);
        sessions.rotate_left(first);
        let mut slots = SLOTS_IN_A_ROUND;
        for session in sessions {
            if self.tidied.engine != session.engine {
                self.tidied =
                    Tidied { engine: session.engine, look: self.tidied.look + 1, read: 0 };
            }
            let (found, looked) = session.table(self.tidied.read, slots);
            self.pinned.note_listed(session.engine, &found, self.tidied.look);
            self.tidied.read += looked;
            slots -= looked;
            if slots == 0 {
                return;
            }
            let stands = self.stands_at(session, &session.held());
            let may_be = |ends: &Ends| session.has_opened(ends);
            let waits = |place: &SocketAddr| !stands.contains(place);
            let Tidied { look, .. } = self.tidied;
            let over = self.pinned.unlisted(session.engine, look, may_be, (waits, STAYS));
            self.forget_all(&over);
            // The next engine's turn.
            self.tidied.engine = Engine(self.tidied.engine.0.saturating_add(1));
            self.tidied.look += 1;
            self.tidied.read = 0;
        }
    }
}

/// How far the tables were searched for connections that are over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tidied {
    /// The engine whose table is next, or is being read.
    engine: Engine,
    /// The number of this look.
    look: u64,
    /// How many of its slots are read.
    read: usize,
}

impl Default for Tidied {
    fn default() -> Self {
        // No look has the number zero, which marks a pin that no look has found.
        Self { engine: Engine::ONLY, look: 1, read: 0 }
    }
}

/// Reads the next part of a table; none at its end.
fn read_on(
    all: &mut HashMap<Engine, usize>,
    session: &Session,
    slots: &mut usize,
) -> Option<Vec<Ends>> {
    let read = all.entry(session.engine).or_default();
    let (found, looked) = session.table(*read, *slots);
    (*read, *slots) = (*read + looked, *slots - looked);
    (looked > 0).then_some(found)
}
