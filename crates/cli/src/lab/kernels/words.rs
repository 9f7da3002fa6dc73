//! The rows as a table, and the remarks below it.

use uncork_ack::kernel::Side;
use uncork_lab::kernels::{Accelerator, Shown};

use super::row::HEADINGS;
use super::{Found, Row};
use crate::lab::broad::Broad;
use crate::lab::paragraph;
use crate::output::shown as harmless;
use crate::tables::Width;

pub(super) fn render(rows: &[Row], found: Option<&Found>, width: Width) -> String {
    let all = rows.iter().map(|row| {
        let cells = std::iter::once(row.name()).chain(figures(row));
        cells.map(|cell| harmless(&cell).into_owned()).collect()
    });
    let table = Broad {
        names: "kernel",
        groups: &[&["release"], &HEADINGS, &COMMITS],
        rows: all.collect(),
        words: true,
    };
    let mut text = table.render(width);
    text.push('\n');
    let emulated = |row: &&Shown| row.accelerator == Some(Accelerator::Emulation);
    if let Some(row) = rows.iter().filter_map(Row::shown).find(emulated) {
        let why = row.no_kvm.as_ref().map_or(String::new(), |why| format!(" (KVM: {why})"));
        let remark = format!(
            "* emulated{}: its clock counts instructions, so that delays of less than a millisecond \
             mean little.",
            harmless(&why)
        );
        text += &paragraph(&remark, width);
    }
    if let Some(found) = found {
        text += &paragraph(&self::found(found), width);
    }
    let last = "late from N: the ACK of segment N and of those behind it took 40 ms or so. Commits: \
                whether the kernel behaves as since them. docs/QUICKACK.md says what decides when an \
                ACK is sent.";
    text + &paragraph(last, width)
}

/// The commits that are distinguished, as headings.
pub(in crate::lab) const COMMITS: [&str; 2] = ["059217c18be6", "4720852ed9af"];

/// Returns the cells of a row: its release, then by [`HEADINGS`] and [`COMMITS`].
pub(in crate::lab) fn figures(row: &Row) -> Vec<String> {
    let (Some(shown), Some(both)) = (row.shown(), row.corrections()) else {
        return vec!["did not come up".to_owned()];
    };
    let mut cells = vec![release(shown)];
    cells.extend(row.patterns().iter().map(ToString::to_string));
    cells.push(has(both.measured.credit_counting, both.by_version.credit_counting));
    cells.push(has(both.measured.mss_boundary, both.by_version.mss_boundary));
    cells
}

fn release(shown: &Shown) -> String {
    let release = debian(&shown.identity.version).map_or_else(
        || shown.identity.release.clone(),
        |it| format!("{} ({it})", shown.identity.release),
    );
    match shown.accelerator {
        Some(Accelerator::Emulation) => format!("{release} *"),
        _ => release,
    }
}

/// Returns the version of Debian's package, which its kernels report.
fn debian(version: &str) -> Option<&str> {
    version.split_once(" Debian ").and_then(|(_, rest)| rest.split_whitespace().next())
}

/// Says whether a kernel has a commit, and what its version says, if that differs.
fn has(measured: Side, by_version: Side) -> String {
    let word = |side| match side {
        Side::After => "yes",
        Side::Before => "no",
        Side::Unknown => "?",
    };
    if measured == by_version || by_version == Side::Unknown {
        return word(measured).to_owned();
    }
    format!("{} (by version: {})", word(measured), word(by_version))
}

/// Returns the result of `--bisect` as a sentence.
pub(in crate::lab) fn found(found: &Found) -> String {
    let (Some(first), Some(before)) = (&found.first, &found.before) else {
        return "The last kernel behaves as the first one does: none was looked for between them."
            .to_owned();
    };
    let (Some(run), Some(was), Some(is)) = (found.run, found.was, found.is) else {
        return format!("The first that differs is {first}.");
    };
    format!(
        "The first that differs is {first}: {run} is {is} there, and was {was}. {before}, before it, \
         does not differ."
    )
}

/// Says why a kernel has no row, with the end of its output.
pub(super) fn failure(row: &Row) -> String {
    let Some(error) = row.error() else { return String::new() };
    let mut text = format!("{}: {}", row.whole_name(), error.sentence);
    if !error.console.is_empty() {
        text += "; the last lines of its console:";
    }
    for line in &error.console {
        text += &format!("\n    {}", harmless(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::broad::tests::assert_whole;
    use crate::lab::samples;

    #[test]
    fn a_terminal_of_80_columns_breaks_no_word() {
        let rows = samples::kernels();
        let text = render(&rows, None, Width::fixed(Some(80), false));
        let mut words: Vec<String> = rows.iter().flat_map(figures).collect();
        words.extend(rows.iter().map(Row::name));
        words.extend(HEADINGS.iter().chain(&COMMITS).map(|heading| (*heading).to_owned()));
        assert_whole(&text, 80, &words);
    }

    #[test]
    fn a_version_that_says_something_else_is_mentioned() {
        assert_eq!(has(Side::After, Side::After), "yes");
        assert_eq!(has(Side::Before, Side::Unknown), "no");
        assert_eq!(has(Side::Unknown, Side::Unknown), "?");
        assert_eq!(has(Side::Before, Side::After), "no (by version: yes)");
    }

    #[test]
    fn debian_s_version_is_found() {
        let version = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)";
        assert_eq!(debian(version), Some("6.1.192-2"));
        assert_eq!(debian("#1 SMP"), None);
    }
}
