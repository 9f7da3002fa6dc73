//! Undoing: setting back what was changed, and nothing else.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use uncork_bpf::tune::{Pins, Undoing, in_force};

use crate::Error;
use crate::bpffs;
use crate::change::{Change, Reach, Sockets, State};
use crate::journal::{Entry, Journal};
use crate::list::{Stray, strays};
use crate::netns::Handle;

/// How long setting back sockets that cannot be found is retried, and the interval.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(20);

/// The result of undoing an entry.
#[derive(Debug, Default)]
pub struct Undone {
    /// What is as it was before, now or already.
    pub restored: Vec<String>,
    /// What was left as it is, each with its reason.
    pub left: Vec<String>,
    /// What could not be set back and stays in the journal.
    pub failed: Vec<Error>,
}

/// An entry's number, and the result of undoing it.
pub type One = (u32, Result<Undone, Error>);

impl Undone {
    fn join(&mut self, other: Self) {
        self.restored.extend(other.restored);
        self.left.extend(other.left);
        self.failed.extend(other.failed);
    }
}

/// Undoes one entry.
///
/// # Errors
/// If there is none of that number, or it or the journal cannot be read or written.
pub fn undo(journal: &Journal, id: u32) -> Result<Undone, Error> {
    let mut entry = journal.entry(id)?;
    if entry.is_of_another_boot() {
        journal.remove(id)?;
        let restored = vec!["nothing of it is in force: the machine was booted since".to_owned()];
        bpffs::tidy(journal)?;
        return Ok(Undone { restored, ..Undone::default() });
    }
    let mut undone = Undone::default();
    let mut remaining = Vec::new();
    for change in entry.changes.iter().rev() {
        match set_back(journal, &entry, change) {
            Ok(one) => undone.join(one),
            Err(error) => {
                undone.failed.push(error);
                remaining.insert(0, change.clone());
            }
        }
    }
    if remaining.is_empty() {
        journal.remove(id)?;
    } else {
        entry.changes = remaining;
        journal.write(&entry)?;
    }
    if bpffs::tidy(journal)? {
        undone.restored.push("bpffs unmounted".to_owned());
    }
    Ok(undone)
}

/// Undoes all entries, the youngest first, and sets back the sockets of entries that the journal
/// has lost, by what is pinned in this bpffs or where other entries have theirs.
///
/// # Errors
/// If the journal cannot be read.
pub fn undo_all(journal: &Journal, at: &Path) -> Result<Vec<One>, Error> {
    let mut all = Vec::new();
    let lost = strays(journal.directory(), Some(journal), at)?;
    for (id, entry) in journal.entries()?.into_iter().rev() {
        let undone = match entry {
            Ok(_) => undo(journal, id),
            Err(error) => {
                let pins = Pins::below(at, &journal.mark());
                let mut undone = sockets_back(&pins, id, None).unwrap_or_default();
                undone.failed.push(error);
                Ok(undone)
            }
        };
        all.push((id, undone));
    }
    for Stray { id, bpffs, .. } in lost.into_iter().filter(|stray| stray.state.is_none()) {
        all.push((id, sockets_back(&Pins::below(&bpffs, &journal.mark()), id, None)));
    }
    bpffs::tidy(journal)?;
    Ok(all)
}

fn set_back(journal: &Journal, entry: &Entry, change: &Change) -> Result<Undone, Error> {
    let id = entry.id;
    if let Change::Sockets(Sockets { bpffs, reach, .. }) = change {
        if bpffs::is_out_of_sight(bpffs) {
            return Err(Error::Unable(format!(
                "bpffs is not mounted at {} for this process, which has a mount namespace of its own \
                 (as under ip netns exec), and may be so for others: undo it outside",
                bpffs.display()
            )));
        }
        let pins = Pins::below(bpffs, &journal.mark());
        let mut undone = sockets_back(&pins, id, reach.as_ref())?;
        // A run that was killed before it mounted bpffs has changed no socket.
        if entry.complete && !bpffs::is_mounted(bpffs) {
            undone.left.push(format!(
                "bpffs is not mounted at {} any more: the programs that were pinned there are gone, \
                 and connections that they had changed stay so until they end",
                bpffs.display()
            ));
        }
        return Ok(undone);
    }
    let mut undone = Undone::default();
    if change.is_none() {
        return Ok(undone);
    }
    let words = change.words();
    if let Some(younger) = younger(journal, id, change)? {
        match hand_over(journal, younger, change)? {
            Ok(heir) => undone.restored.push(format!("{words}: entry {heir} sets it back later")),
            Err(heir) => undone.left.push(format!(
                "{words}: changed by somebody before entry {heir}, which stands: left as it is"
            )),
        }
        return Ok(undone);
    }
    match change.state()? {
        None => undone.restored.push(format!("{words}: gone with what it belonged to")),
        Some(State::AsBefore) => undone.restored.push(format!("{words}: is as it was")),
        Some(State::AsSet) => {
            change.restore()?;
            undone.restored.push(change.words_back());
        }
        Some(State::Gone(why)) => undone.restored.push(format!("{words}: {why}")),
        Some(State::Other(now)) => {
            undone.left.push(format!("{now}: changed by somebody since, left as it is"));
        }
    }
    Ok(undone)
}

/// Returns the next entry after this one that has changed the same thing.
fn younger(journal: &Journal, id: u32, change: &Change) -> Result<Option<Entry>, Error> {
    let same = |entry: &Entry| entry.changes.iter().any(|other| other.same_thing(change));
    Ok(journal.standing_after(id)?.into_iter().find(same))
}

/// Hands the earlier value to a younger entry and returns that entry's number; as an error, if it
/// does not take the value because the setting was changed in between.
fn hand_over(
    journal: &Journal,
    mut younger: Entry,
    change: &Change,
) -> Result<Result<u32, u32>, Error> {
    let id = younger.id;
    let mut taken = false;
    for other in younger.changes.iter_mut().filter(|other| other.same_thing(change)) {
        taken |= other.inherit(change);
    }
    if !taken {
        return Ok(Err(id));
    }
    journal.write(&younger)?;
    Ok(Ok(id))
}

/// Detaches an entry's programs and sets back the sockets that they have changed.
fn sockets_back(pins: &Pins, id: u32, reach: Option<&Reach>) -> Result<Undone, Error> {
    let mut undone = Undone::default();
    if pins.is_hidden() {
        return Err(pins.hidden().into());
    }
    if !pins.of(id).exists() || pins.other_owner(id).is_some() {
        // The run was killed before it changed anything.
        return Ok(undone);
    }
    let _alone = bpffs::lock(pins.bpffs())?;
    pins.detach(id)?;
    if let Some(undoing) = Undoing::start(pins, id)? {
        let only = reach.and_then(|reach| reach.netns.as_ref());
        let begin = Instant::now();
        let mut round = 0;
        // Twice: a program that was running while it was detached may have changed one more. And
        // again: a connection that is about to end is in no table that is iterated.
        while round < 2 || remaining(pins, id)? > 0 && begin.elapsed() < PATIENCE {
            thread::sleep(if round < 2 { Duration::ZERO } else { BETWEEN });
            let all = match only {
                Some(netns) => Handle::find(netns)?.into_iter().collect(),
                None => Handle::all(),
            };
            for handle in all {
                handle.within(|| undoing.restore_here())??;
            }
            round += 1;
        }
        for (name, outcome) in undoing.outcomes()? {
            if outcome.set > 0 {
                undone.restored.push(format!("{name} of {} as before", connections(outcome.set)));
            }
            if outcome.others > 0 {
                undone.left.push(format!(
                    "{name} of {}: changed by somebody since, left as it is",
                    connections(outcome.others)
                ));
            }
        }
    }
    let remaining = remaining(pins, id)?;
    if remaining > 0 {
        return Err(Error::Unable(format!(
            "{} could not be set back (a network namespace that \
             cannot be entered, or a value that the kernel refuses): its programs are detached, and \
             undoing can be tried again while they last",
            if remaining == 1 {
                "1 option of a connection".to_owned()
            } else {
                format!("{remaining} options of connections")
            }
        )));
    }
    pins.remove(id)?;
    Ok(undone)
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

/// Returns how many options of connections an entry still holds.
fn remaining(pins: &Pins, id: u32) -> Result<u64, Error> {
    let counts = in_force(pins)?.remove(&id).unwrap_or_default().into_values();
    Ok(counts.map(|count| count.set + count.changed).sum())
}
