//! The report of `uncork-bench run` as a table for people.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table};

use crate::machine::Machine;
use crate::outcome::{Absent, Judged, Outcome, Row};

/// Renders the whole report.
pub(crate) fn render(machine: &Machine, outcome: &Outcome, strict: bool) -> String {
    let mut out = format!("{}; load {}\n", machine.line(), machine.load);
    if !outcome.rows.is_empty() {
        let _ = writeln!(out, "{}", table(&outcome.rows));
    }
    for row in &outcome.rows {
        if let Some(note) = &row.note {
            let _ = writeln!(out, "note: {}, {}: {note}", row.bench, row.what);
        }
    }
    absent(&mut out, "skipped", &outcome.skipped);
    absent(&mut out, "failed", &outcome.failed);
    let (kept, bars) = outcome.score();
    let _ = writeln!(out, "{kept} of {bars} bars kept; {} rows", outcome.rows.len());
    if strict && !outcome.skipped.is_empty() {
        let _ = writeln!(out, "a skip is a failure with --strict or CI=true");
    }
    out
}

fn absent(out: &mut String, what: &str, list: &[Absent]) {
    for Absent { bench, why } in list {
        let _ = writeln!(out, "{what}: {bench}: {why}");
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "benchmark",
        "what",
        "cores",
        "measured",
        "against",
        "figure",
        "min … max",
        "bar",
        "",
    ]);
    for row in rows {
        table.add_row(cells(row));
    }
    for column in 3..=6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn cells(row: &Row) -> Vec<Cell> {
    let show = |value: f64| row.figure_unit.show(value);
    let typical = match row.judged {
        Judged::Median => row.figure.median,
        Judged::Most => row.most,
    };
    let against = row.against.map_or_else(String::new, |spread| row.unit.show(spread.median));
    let bar = row.bar.map_or_else(String::new, |bar| match row.judged {
        Judged::Median => bar.to_string(),
        Judged::Most => format!("95 % {bar}"),
    });
    let verdict = match row.pass {
        Some(true) => Cell::new("pass").fg(Color::Green),
        Some(false) => Cell::new("MISSED").fg(Color::Red),
        None => Cell::new(""),
    };
    vec![
        Cell::new(row.bench),
        Cell::new(&row.what),
        Cell::new(row.place.name()),
        Cell::new(row.unit.show(row.measured.median)),
        Cell::new(against),
        Cell::new(show(typical)),
        Cell::new(format!("{} … {}", show(row.figure.min), show(row.figure.max))),
        Cell::new(bar),
        verdict,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Bar, Skip, Unit};
    use crate::place::Place;

    #[test]
    fn a_missed_bar_a_note_and_a_skip_can_all_be_seen() {
        let row = Row::absolute(("timer", "late"), Place::OneCore, Unit::Milliseconds, &[3.0]);
        let mut outcome = Outcome::default();
        outcome.take("timer", Ok(vec![row.bar_for_most(Bar::AtMost(2.0)).note("noisy")]));
        outcome.take("nginx", Err(Skip::new("apt-get install nginx").into()));
        let text = render(&Machine::read(), &outcome, true);
        for part in ["MISSED", "95 % ≤ 2", "noisy", "skipped: nginx", "0 of 1 bars", "--strict"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
