//! Applies a plan: each change is in the journal before it is made.

use std::path::Path;

use uncork_bpf::tune::{Cure, Outcome, Pins, Programs};

use crate::Error;
use crate::bpffs;
use crate::journal::{Entry, Journal};
use crate::plan::{Plan, SocketPlan};
use crate::undo::undo;

/// The shortest timeout of TCP (TCP_TIMEOUT_MIN).
const TICKS: u32 = 2;

/// The result of a run.
#[derive(Debug)]
pub struct Applied {
    /// The entry's number, by which it is undone.
    pub id: u32,
    /// Each change, in words.
    pub changes: Vec<String>,
    /// The outcome for existing sockets.
    pub outcomes: Vec<(Cure, Outcome)>,
    /// What was asked for and not done, each with its reason.
    pub left: Vec<String>,
    /// Remarks on what was done.
    pub notes: Vec<String>,
    /// Whether sockets with a tighter setting of their own were left alone.
    pub looser_only: bool,
}

/// Returns what would be changed, each change in words, if it can be. What the kernel refuses is left out.
///
/// # Errors
/// If nothing is left to be changed, or there is no bpffs for the programs.
pub fn check(plan: &mut Plan, at: &Path) -> Result<Vec<String>, Error> {
    if let Some(sockets) = &mut plan.sockets {
        plan.left.extend(without_refused(sockets)?);
    }
    plan.sockets.take_if(|sockets| sockets.cures.is_empty());
    if plan.changes.is_empty() && plan.sockets.is_none() {
        return Err(Error::Unable(format!("nothing was changed: {}", plan.left.join("; "))));
    }
    plan.prepared(at)
}

/// Makes the changes of a plan. If that fails half-way, what was changed is changed back.
///
/// # Errors
/// The change that could not be made. If the others could not be changed back either, the entry
/// stays in the journal.
pub fn apply(journal: &Journal, mut plan: Plan, at: &Path) -> Result<Applied, Error> {
    let changes = check(&mut plan, at)?;
    let mut left = std::mem::take(&mut plan.left);
    let notes = std::mem::take(&mut plan.notes);
    let id = journal.next_id(&Pins::below(at, &journal.mark()).entries())?;
    let mut entry = Entry::new(id, plan.title.clone());
    journal.write(&entry)?;
    let looser_only = plan.sockets.as_ref().is_some_and(|sockets| sockets.scope.looser_only);
    let outcomes = match carry_out(journal, &mut entry, &plan, at) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            let undone = undo(journal, id)?;
            if undone.failed.is_empty() {
                return Err(error);
            }
            return Err(Error::Unable(format!(
                "{error}; and not all of it could be taken back: uncork tune undo {id} tries again"
            )));
        }
    };
    for (cure, outcome) in &outcomes {
        left.extend(remarks(cure, outcome));
    }
    Ok(Applied { id, changes, outcomes, left, notes, looser_only })
}

fn carry_out(
    journal: &Journal,
    entry: &mut Entry,
    plan: &Plan,
    at: &Path,
) -> Result<Vec<(Cure, Outcome)>, Error> {
    // All at once: undoing checks each change, and finds those that were never made as they were
    // before. Writing the entry after each of a thousand routes would take a thousand times as long.
    entry.changes.clone_from(&plan.changes);
    journal.write(entry)?;
    for change in &plan.changes {
        change.apply()?;
    }
    let mut outcomes = Vec::new();
    if let Some(sockets) = &plan.sockets {
        entry.changes.push(sockets.change(at));
        journal.write(entry)?;
        bpffs::ensure(journal, at)?;
        let _alone = bpffs::lock(at)?;
        let pins = Pins::below(at, &journal.mark());
        let programs =
            Programs::start(&pins, entry.id, &sockets.cures, &sockets.scope, sockets.new)?;
        for handle in &sockets.live {
            handle.within(|| programs.apply_here())??;
        }
        outcomes = programs.outcomes()?;
    }
    entry.complete = true;
    journal.write(entry)?;
    Ok(outcomes)
}

/// Removes what the kernel refuses, found out by trying, and says so.
fn without_refused(sockets: &mut SocketPlan) -> Result<Vec<String>, Error> {
    let refused = uncork_bpf::tune::refused(&sockets.cures)?;
    sockets.cures.retain(|cure| !refused.iter().any(|(other, _)| other == cure));
    let release = nix::sys::utsname::uname()
        .map(|system| system.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let sentence = |(cure, errno): (Cure, i32)| {
        let why = possible(&cure)
            .filter(|_| errno == libc::EINVAL)
            .unwrap_or_else(|| std::io::Error::from_raw_os_error(errno).to_string());
        format!("{cure}: Linux {release} refuses it to eBPF: {why}")
    };
    Ok(refused.into_iter().map(sentence).collect())
}

/// Says how the kernel bounds what a cure sets (sol_tcp_sockopt, net/core/filter.c), if it does.
fn possible(cure: &Cure) -> Option<String> {
    if !matches!(cure, Cure::DelackMax(_) | Cure::RtoMin(_)) {
        return None;
    }
    let least = match uncork_bpf::tune::tick() {
        Ok(Some(tick)) => format!("{:.1?}", tick * TICKS),
        _ => format!("{TICKS} ticks of the kernel"),
    };
    Some(format!("{least} to 200ms are possible"))
}

fn remarks(cure: &Cure, outcome: &Outcome) -> Vec<String> {
    let mut remarks = Vec::new();
    let sockets =
        |count: u64| if count == 1 { "1 socket".into() } else { format!("{count} sockets") };
    if outcome.others > 0 {
        remarks.push(format!(
            "{cure}: {} left to another entry that has set it before",
            sockets(outcome.others)
        ));
    }
    if outcome.unrestorable > 0 {
        remarks.push(format!(
            "{cure}: {} left alone, for the kernel would not take the old value back",
            sockets(outcome.unrestorable)
        ));
    }
    if outcome.refused > 0 {
        let why = std::io::Error::from_raw_os_error(outcome.errno);
        remarks.push(format!("{cure}: refused on {}: {why}", sockets(outcome.refused)));
    }
    remarks
}
