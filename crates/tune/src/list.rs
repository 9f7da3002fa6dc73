//! What is in force.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use uncork_bpf::tune::{Pins, in_force};

use crate::Error;
use crate::bpffs;
use crate::change::{Change, State};
use crate::journal::{Entry, Journal};

/// One entry, as it stands.
#[derive(Debug, Serialize)]
pub struct Item {
    /// By which it is undone.
    pub id: u32,
    /// What was asked for.
    pub title: String,
    /// Seconds since 1970.
    pub since_unix: u64,
    /// How it stands.
    pub standing: Standing,
    /// What it changed.
    pub changes: Vec<Line>,
    /// How many connections are now as it has set them, by option; `None` if that may not be seen.
    pub connections: Option<BTreeMap<&'static str, u64>>,
    /// What the kernel or other entries kept it from since, in numbers of connections, by option.
    pub not_set: BTreeMap<&'static str, u64>,
}

/// How an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// In force.
    InForce,
    /// The run was killed: anything of it may be in force.
    Incomplete,
    /// The machine was booted since: nothing of it is.
    GoneWithReboot,
    /// Its programs are gone with the bpffs that they were pinned in.
    ProgramsGone,
    /// This process has a mount namespace of its own without that bpffs: its programs may be in
    /// force.
    OutOfSight,
}

/// One change, as it stands.
#[derive(Debug, Serialize)]
pub struct Line {
    /// What was changed.
    pub what: String,
    /// Why that is not in force, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub but: Option<String>,
    /// What somebody has to know of it although it is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// All entries, oldest first; one that cannot be read as its error.
///
/// # Errors
/// If the journal cannot be read.
pub fn list(journal: &Journal, at: &Path) -> Result<Vec<Result<Item, Error>>, Error> {
    let counts = in_force(&Pins::below(at)).ok();
    let entries = journal.entries()?.into_iter();
    Ok(entries.map(|(_, entry)| entry.map(|entry| item(&entry, at, counts.as_ref()))).collect())
}

/// Entries that have programs pinned, and that the journal does not know: it was lost.
///
/// # Errors
/// If the journal cannot be read.
pub fn strays(journal: Option<&Journal>, at: &Path) -> Result<Vec<u32>, Error> {
    let known = journal.map_or_else(|| Ok(Vec::new()), Journal::entries)?;
    let mut pinned = Pins::below(at).entries();
    pinned.retain(|id| !known.iter().any(|(other, _)| other == id));
    Ok(pinned)
}

type Counts = BTreeMap<u32, BTreeMap<&'static str, u64>>;

fn item(entry: &Entry, at: &Path, counts: Option<&Counts>) -> Item {
    let pins = Pins::below(at);
    let sockets = entry.changes.iter().any(|change| matches!(change, Change::Sockets(_)));
    let standing = if entry.is_of_another_boot() {
        Standing::GoneWithReboot
    } else if !entry.complete {
        Standing::Incomplete
    } else if sockets && bpffs::is_out_of_sight(at) {
        Standing::OutOfSight
    } else if sockets && counts.is_some() && !pins.of(entry.id).exists() {
        Standing::ProgramsGone
    } else {
        Standing::InForce
    };
    let in_force = standing != Standing::GoneWithReboot;
    let changes = entry.changes.iter().map(|change| line(change, in_force)).collect();
    let outcomes = if in_force { pins.outcomes(entry.id).unwrap_or_default() } else { Vec::new() };
    let not_set = outcomes
        .into_iter()
        .map(|(name, outcome)| (name, outcome.others + outcome.refused + outcome.unrestorable));
    Item {
        id: entry.id,
        title: entry.title.clone(),
        since_unix: entry.since_unix,
        standing,
        changes,
        connections: counts
            .filter(|_| sockets && in_force && standing != Standing::OutOfSight)
            .map(|counts| counts.get(&entry.id).cloned().unwrap_or_default()),
        not_set: not_set.filter(|(_, count)| *count > 0).collect(),
    }
}

fn line(change: &Change, in_force: bool) -> Line {
    let but = match change.state() {
        _ if !in_force => None,
        Ok(Some(State::AsSet)) => None,
        Ok(Some(State::AsBefore)) => Some("is as it was before".to_owned()),
        Ok(Some(State::Other(now) | State::Gone(now))) => Some(now),
        Ok(None) => Some("gone with what it belonged to".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let warning = if in_force && but.is_none() {
        change.warning().unwrap_or_else(|error| Some(error.to_string()))
    } else {
        None
    };
    Line { what: change.words(), but, warning }
}
