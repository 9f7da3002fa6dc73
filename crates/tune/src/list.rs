//! The list of what is in force.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use uncork_bpf::tune::{Counts, Pins, in_force};

use crate::Error;
use crate::bpffs;
use crate::change::{Change, Sockets, State};
use crate::journal::{self, Entry, Journal};

/// An entry and its present state.
#[derive(Debug, Serialize)]
pub struct Item {
    /// Its number, by which it is undone.
    pub id: u32,
    /// What was asked for.
    pub title: String,
    /// Seconds since 1970.
    pub since_unix: u64,
    /// Its state.
    pub standing: Standing,
    /// Its changes.
    pub changes: Vec<Line>,
    /// How many connections are as it has set them, by option; `None` if that cannot be seen.
    pub connections: Option<BTreeMap<&'static str, u64>>,
    /// How many connections were changed since, by their programs or by others.
    pub changed_since: BTreeMap<&'static str, u64>,
    /// How many connections the kernel or other entries have since kept it from setting, by option.
    pub not_set: BTreeMap<&'static str, u64>,
}

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// All of it is in force.
    InForce,
    /// Part of it no longer is; its lines say what and why.
    InPart,
    /// None of it is any longer; its lines say why.
    Lapsed,
    /// The calling process may not see it.
    Hidden,
    /// The run was killed: any part of it may be in force.
    Incomplete,
    /// The machine was rebooted since: nothing of it is in force.
    GoneWithReboot,
    /// This process has a mount namespace of its own without that bpffs: the entry's programs may
    /// be in force.
    OutOfSight,
}

/// A change and its present state.
#[derive(Debug, Serialize)]
pub struct Line {
    /// What was changed.
    pub what: String,
    /// Why it is not in force, or not fully, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub but: Option<String>,
    /// What users should know of it although it is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Programs of an entry that no journal contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The number of the entry.
    pub id: u32,
    /// Where they are pinned.
    pub bpffs: PathBuf,
    /// The directory of the journal that has lost it, if that is not this one.
    pub state: Option<PathBuf>,
}

/// Returns all entries, oldest first; one that cannot be read as its error.
///
/// # Errors
/// If the journal cannot be read.
pub fn list(journal: &Journal) -> Result<Vec<Result<Item, Error>>, Error> {
    let mut look = Look { owner: journal.mark(), counts: BTreeMap::new() };
    let entries = journal.entries()?.into_iter();
    Ok(entries.map(|(_, entry)| entry.map(|entry| look.item(&entry))).collect())
}

/// Returns entries that have programs pinned, here or where an entry of the journal has its own,
/// and that their journals do not contain: they were lost. `state` is where the journal is or was.
///
/// # Errors
/// If the journal cannot be read.
pub fn strays(state: &Path, journal: Option<&Journal>, at: &Path) -> Result<Vec<Stray>, Error> {
    let known = journal.map_or_else(|| Ok(Vec::new()), Journal::entries)?;
    let mut places = vec![at.to_owned()];
    for entry in known.iter().filter_map(|(_, entry)| entry.as_ref().ok()) {
        places.extend(entry.sockets().map(|sockets| sockets.bpffs.clone()));
    }
    places.sort_unstable();
    places.dedup();
    let mut strays = Vec::new();
    for bpffs in places {
        let pins = Pins::below(&bpffs, &journal::mark(state));
        for id in pins.entries() {
            let bpffs = bpffs.clone();
            match pins.other_owner(id) {
                None if known.iter().any(|(other, _)| *other == id) => {}
                None => strays.push(Stray { id, bpffs, state: None }),
                Some(mark) => {
                    let lost = journal::place(&mark).filter(|place| has_lost(place, id));
                    strays.extend(lost.map(|place| Stray { id, bpffs, state: Some(place) }));
                }
            }
        }
    }
    Ok(strays)
}

/// Returns whether a journal is known to lack an entry.
fn has_lost(place: &Path, id: u32) -> bool {
    place.join(format!("{id}.json")).try_exists().is_ok_and(|there| !there)
}

/// The state of a change.
enum Status {
    InForce,
    InPart(String),
    Not(String),
    Hidden(String),
}

struct Look {
    owner: String,
    /// The counts of sockets, by bpffs; `None` if they cannot be seen.
    counts: BTreeMap<PathBuf, Option<BTreeMap<u32, Counts>>>,
}

impl Look {
    fn item(&mut self, entry: &Entry) -> Item {
        let gone = entry.is_of_another_boot();
        let sockets = entry.sockets().filter(|_| !gone);
        let (mut changes, mut real, mut nominal) = (Vec::new(), Vec::new(), Vec::new());
        for change in &entry.changes {
            let status = if gone { Status::InForce } else { self.status(entry.id, change) };
            let warning = match &status {
                Status::InForce if !gone => {
                    change.warning().unwrap_or_else(|error| Some(error.to_string()))
                }
                _ => None,
            };
            changes.push(Line { what: change.words(), but: status.why(), warning });
            if change.is_none() { &mut nominal } else { &mut real }.push(status);
        }
        let standing = match () {
            () if gone => Standing::GoneWithReboot,
            () if !entry.complete => Standing::Incomplete,
            () if sockets.is_some_and(|sockets| bpffs::is_out_of_sight(&sockets.bpffs)) => {
                Standing::OutOfSight
            }
            () if real.is_empty() => Standing::of(&nominal),
            () => Standing::of(&real),
        };
        let counts = sockets.and_then(|sockets| self.counts(entry.id, sockets));
        let some = |number: u64| (number > 0).then_some(number);
        let changed = counts.iter().flatten();
        let changed = changed.filter_map(|(name, count)| Some((*name, some(count.changed)?)));
        Item {
            id: entry.id,
            title: entry.title.clone(),
            since_unix: entry.since_unix,
            standing,
            changes,
            changed_since: changed.collect(),
            not_set: sockets.map(|sockets| self.not_set(entry.id, sockets)).unwrap_or_default(),
            connections: counts.map(|counts| {
                counts
                    .into_iter()
                    .filter_map(|(name, count)| Some((name, some(count.set)?)))
                    .collect()
            }),
        }
    }

    fn status(&mut self, id: u32, change: &Change) -> Status {
        if let Change::Sockets(sockets) = change {
            return self.of_sockets(id, sockets);
        }
        match change.state() {
            Ok(Some(State::AsSet)) => Status::InForce,
            Ok(Some(State::AsBefore)) => Status::Not("is as it was before".to_owned()),
            Ok(Some(State::Other(now) | State::Gone(now))) => Status::Not(now),
            Ok(None) => Status::Not("gone with what it belonged to".to_owned()),
            Err(error) if error.is_permission() => Status::Hidden(error.to_string()),
            Err(error) => Status::Not(error.to_string()),
        }
    }

    fn of_sockets(&mut self, id: u32, sockets: &Sockets) -> Status {
        let pins = Pins::below(&sockets.bpffs, &self.owner);
        let Some(counts) = self.counts(id, sockets) else {
            return Status::Hidden(format!("{} cannot be looked into", sockets.bpffs.display()));
        };
        if !pins.of(id).exists() {
            return Status::Not("its programs are gone with the bpffs they were in".to_owned());
        }
        let left = counts.values().any(|count| count.set > 0);
        match sockets.ended(&pins, id) {
            Ok(None) => Status::InForce,
            // Only existing connections were meant, and those that are left are as set.
            Ok(Some(_)) if left && !sockets.meets_new() => Status::InForce,
            Ok(Some(why)) if left => Status::InPart(why),
            Ok(Some(why)) => Status::Not(why),
            Err(error) => Status::Hidden(error.to_string()),
        }
    }

    fn counts(&mut self, id: u32, sockets: &Sockets) -> Option<Counts> {
        let pins = Pins::below(&sockets.bpffs, &self.owner);
        let hidden = || pins.is_hidden() || bpffs::is_out_of_sight(&sockets.bpffs);
        let all = self
            .counts
            .entry(sockets.bpffs.clone())
            .or_insert_with(|| if hidden() { None } else { in_force(&pins).ok() });
        all.as_ref().map(|all| all.get(&id).cloned().unwrap_or_default())
    }

    fn not_set(&self, id: u32, sockets: &Sockets) -> BTreeMap<&'static str, u64> {
        let outcomes = Pins::below(&sockets.bpffs, &self.owner).outcomes(id).unwrap_or_default();
        let kept_from = outcomes
            .into_iter()
            .map(|(name, outcome)| (name, outcome.others + outcome.refused + outcome.unrestorable));
        kept_from.filter(|(_, count)| *count > 0).collect()
    }
}

impl Status {
    fn why(&self) -> Option<String> {
        match self {
            Self::InForce => None,
            Self::InPart(why) | Self::Not(why) | Self::Hidden(why) => Some(why.clone()),
        }
    }
}

impl Standing {
    fn of(all: &[Status]) -> Self {
        let any = |is: fn(&Status) -> bool| all.iter().any(is);
        let (in_force, not) =
            (any(|it| matches!(it, Status::InForce)), any(|it| matches!(it, Status::Not(_))));
        match () {
            () if any(|it| matches!(it, Status::InPart(_))) || in_force && not => Self::InPart,
            () if in_force => Self::InForce,
            () if any(|it| matches!(it, Status::Hidden(_))) => Self::Hidden,
            () => Self::Lapsed,
        }
    }
}
