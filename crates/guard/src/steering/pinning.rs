//! Which connections are an engine's for good, as far as it is believed.
//!
//! A process writes into its table what it likes. While it has a port it is believed, as all that comes there may be its: on the
//! kernel it would get that as well. What is in the table when it lets the port go stays its own, and nothing comes to that later but
//! what the filters have sent to it. Even so it may have been invented, for those who will connect to whom has the port next,
//! who may be another user, or have it from the kernel alone and be known to nobody. So what an engine has behind its port
//! gives way to the first SYN ([`Whose::Engines`]), unless its user has the port still.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use uncork_bpf::owned::{Engine, Protocol, Whose};
use uncork_guardian::table;

use super::pins::{MOST_OF_A_USER, Pin, ROOT};
use super::{STAYS, Steering};
use crate::session::{Ends, Role, Session};

/// So many slots of tables are read of one user's programs in one go.
const SLOTS_OF_A_USER: usize = 2 * table::SLOTS;
/// So many entries of one user's that are new behind a port are looked up in one go: as many as may be on the way to a process that
/// leaves it.
const LOOKED_UP: usize = 4096;
/// So many slots are looked at in a round for what is over; the others in the next.
const SLOTS_IN_A_ROUND: usize = 1 << 15;

/// What may still be done for each user's programs.
#[derive(Default)]
struct Allowances(HashMap<Option<u32>, Allowance>);

/// Slots that are read, and entries that are looked up.
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
    /// The connections that these have at these places stay theirs.
    pub(super) fn pin(
        &mut self,
        places: &[SocketAddr],
        sessions: &[&Session],
    ) -> Result<(), String> {
        let mut allowances = Allowances::default();
        for session in sessions {
            // Who has nothing to do with the places need not be looked at. What a guest has is its instance's.
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

    /// What of a table is not entered yet, and is to be believed.
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

    /// These are this one's from now on.
    pub(super) fn enter(&mut self, session: &Session, all: Vec<Ends>) -> Result<(), String> {
        let is_there = |ends: &&Ends| self.pinned.get(ends).is_some();
        let new = all.len() - all.iter().filter(is_there).count();
        let (engine, user) = (session.engine, session.user);
        let entered = self.owned.enter_all(Whose::Engines(engine), &all, new);
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

    /// Those who have left a place to others of their users' have done so only as long as these have it.
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

    /// An engine is there no more.
    pub(super) fn forget_left(&mut self, engine: Engine) {
        for (place, left) in &mut self.left {
            if left.remove(&engine).is_some() {
                let _ = self.owned.stand(Protocol::Tcp, *place, engine, false);
            }
        }
        self.left.retain(|_, left| !left.is_empty());
    }

    /// Whether who comes to a place may be this one's.
    fn stands(&self, session: &Session, place: &SocketAddr) -> bool {
        self.members.get(place).is_some_and(|members| members.contains(&session.engine))
    }

    /// The places of these for which that is so.
    fn stands_at(&self, session: &Session, places: &HashSet<SocketAddr>) -> HashSet<SocketAddr> {
        places.iter().filter(|place| self.stands(session, place)).copied().collect()
    }

    /// Whose a connection is that is entered as an engine's; nobody's if it was, and has given way.
    fn owner_of(&self, ends: &Ends) -> Option<Engine> {
        let pin = self.pinned.get(ends)?;
        // Most are of who has the port still, and need not be asked for.
        let may_have = pin.has_come && {
            let members = self.members.get(&ends.0);
            let left = self.left.get(&ends.0);
            !members.is_some_and(|members| members.contains(&pin.engine))
                && !left.is_some_and(|left| left.contains_key(&pin.engine))
        };
        (!may_have || !self.owned.has_given_way(*ends)).then_some(pin.engine)
    }

    /// Whether a connection is entered as another engine's, or the kernel's.
    pub(super) fn is_anothers(&self, engine: Engine, ends: &Ends) -> bool {
        self.kept.contains_key(ends) || self.owner_of(ends).is_some_and(|other| other != engine)
    }

    /// Whether a connection is a program's, or an instance's.
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

    /// What will be asked of who has a port is to take no long time: what of the tables there is not entered yet is, as far as these
    /// slots allow. Whether all is.
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
                // What has no room now has none then.
                if self.enter(session, new).is_err() || self.pinned.room(session.user) == 0 {
                    break;
                }
                if *slots == 0 {
                    return false;
                }
            }
        }
        // Should it be asked for once more, it is looked anew.
        self.read.retain(|engine, _| sessions.iter().all(|session| session.engine != *engine));
        true
    }

    /// An engine is dead: what of its table is its, and what else is entered as its, is the kernel's, as far as these slots allow. It
    /// may have written there what it likes. Gives those of the table, and whether these are all.
    pub(crate) fn bequeath(&mut self, session: &Session, slots: &mut usize) -> (Vec<Ends>, bool) {
        // They are its instance's.
        if matches!(session.role, Role::Guest(_)) {
            return (Vec::new(), true);
        }
        let before = self.bequeathed.get(&session.engine).copied().unwrap_or_default();
        let is_bound = session.user != Some(ROOT) && before >= MOST_OF_A_USER;
        let found = if is_bound { None } else { read_on(&mut self.bequeathed, session, slots) };
        let stands = self.stands_at(session, &session.held());
        // What it says to be somewhere else takes a look each.
        let mut looks = LOOKED_UP;
        let is_its = |ends: &Ends| {
            let is_plain = stands.contains(&ends.0) || self.pinned.get(ends).is_some();
            looks = looks.saturating_sub(usize::from(!is_plain));
            (is_plain || looks > 0) && self.is_its(session, ends)
        };
        let is_over = found.is_none();
        let its: Vec<_> = found.into_iter().flatten().filter(is_its).collect();
        // What fails here, the kernel has no memory for, say: the rest is done all the same.
        let _ = self.leave_to_the_kernel(&its);
        if is_over {
            self.bequeathed.remove(&session.engine);
        }
        (its, is_over)
    }

    /// Where engines have connections that are entered as theirs.
    pub(crate) fn places_with_connections(&self) -> impl Iterator<Item = SocketAddr> {
        self.pinned.places()
    }

    /// Takes out entries that are in their engines' tables no more. Of who has let a port go it is waited a little: what is about
    /// to be the kernel's is in no table, either. A long table is looked at for as many rounds as that takes.
    pub(super) fn tidy_pinned(&mut self, sessions: &[&Session]) {
        let pinned: HashSet<_> = self.pinned.all().map(|(_, pin)| pin.engine).collect();
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
            // The next one's turn.
            self.tidied.engine = Engine(self.tidied.engine.0.saturating_add(1));
            self.tidied.look += 1;
            self.tidied.read = 0;
        }
    }
}

/// How far it was looked at what is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tidied {
    /// Whose table is next, or is being read.
    engine: Engine,
    /// The number of this look.
    look: u64,
    /// So many slots of it are read.
    read: usize,
}

impl Default for Tidied {
    fn default() -> Self {
        // None has the number zero, which is that of what no look has found.
        Self { engine: Engine::ONLY, look: 1, read: 0 }
    }
}

/// The next part of a table, which is read in parts; nothing at its end.
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
