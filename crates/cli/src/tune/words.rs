//! The messages of `uncork tune`.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use uncork_tune::{Applied, Item, Plan, Standing, Stray, Undone};

/// Says what would be changed.
pub(super) fn planned(plan: &Plan, prepared: &[String]) -> String {
    let mut text = format!("would set {}\n", plan.title);
    lines(&mut text, "", prepared);
    lines(&mut text, "left: ", &plan.left);
    lines(&mut text, "note: ", &plan.notes);
    text
}

/// Says what was changed. `journal` is the option that names it.
pub(super) fn applied(applied: &Applied, journal: &str) -> String {
    let mut text = format!("entry {}\n", applied.id);
    lines(&mut text, "", &applied.changes);
    let tighter = if applied.looser_only { " or tighter" } else { "" };
    for (cure, outcome) in &applied.outcomes {
        let _ = writeln!(
            text,
            "  {cure}: set on {} now, so already{tighter} on {}",
            connections(outcome.set),
            outcome.already
        );
    }
    lines(&mut text, "note: ", &applied.notes);
    let _ = writeln!(text, "uncork tune undo {}{journal} takes it back", applied.id);
    text
}

/// Says that nothing is in force.
pub(super) const NOTHING: &str = "nothing is tuned\n";

/// Says what is in force.
pub(super) fn listed(items: &[Item]) -> String {
    let mut text = String::new();
    for item in items {
        let standing = match item.standing {
            Standing::InForce => "in force for",
            Standing::Incomplete => {
                "broken off: anything of it may be in force, undo it; begun before"
            }
            Standing::GoneWithReboot => "gone, the machine was booted since; made before",
            Standing::InPart => "in force in part, for",
            Standing::Lapsed => "nothing of it is in force any more, undo clears it; made before",
            Standing::Hidden => "whether it is in force may not be seen from here; made before",
            Standing::OutOfSight => {
                "its programs cannot be seen from this mount namespace (as under ip netns exec), look \
                 outside; made before"
            }
        };
        let age = age(item.since_unix);
        let _ = writeln!(text, "{}  {}\n   {standing} {age}", item.id, item.title);
        for line in &item.changes {
            let but = line.but.as_ref().map(|but| format!(" ({but})")).unwrap_or_default();
            let _ = writeln!(text, "   - {}{but}", line.what);
            if let Some(warning) = &line.warning {
                let _ = writeln!(text, "     beware: {warning}");
            }
        }
        for (name, count) in item.connections.iter().flatten() {
            let _ = writeln!(text, "   {name} is set on {}", connections(*count));
        }
        for (name, count) in &item.changed_since {
            let _ = writeln!(
                text,
                "   {name} was set on {} and changed by somebody since",
                connections(*count)
            );
        }
        for (name, count) in &item.not_set {
            let _ = writeln!(text, "   {name} was refused or another's on {}", connections(*count));
        }
    }
    text
}

/// Describes programs that no journal contains.
pub(super) fn stray(stray: &Stray, journal: &str) -> String {
    let id = stray.id;
    match &stray.state {
        None => format!(
            "entry {id} has programs in force and is not in the journal: uncork tune undo --all{journal}"
        ),
        Some(state) => format!(
            "entry {id} has programs in force, and the journal that it was in is lost: uncork tune \
             undo --all --state {}",
            state.display()
        ),
    }
}

/// Says what was set back.
pub(super) fn undone(id: u32, undone: &Undone) -> String {
    let verb = if undone.failed.is_empty() { "undone" } else { "undone in part" };
    let mut text = format!("entry {id} {verb}\n");
    lines(&mut text, "", &undone.restored);
    text
}

fn lines(text: &mut String, before: &str, all: &[String]) {
    for line in all {
        let _ = writeln!(text, "  {before}{line}");
    }
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

fn age(since_unix: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = now.saturating_sub(since_unix);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_two_units_at_most() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(age(now - 5), "5 s");
        assert_eq!(age(now - 61), "1 min");
        assert_eq!(age(now - 3 * 3600 - 120), "3 h 2 min");
        assert_eq!(age(now - 2 * 86_400 - 3600), "2 d 1 h");
    }
}
