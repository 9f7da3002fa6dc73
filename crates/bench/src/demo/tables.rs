//! The experiment as tables for the terminal.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};

use uncork_lab::nodelay::{Asks, Measured, Who};

use super::Demo;
use super::panel::Panel;
use crate::outcome::{digits, thousands};

/// Renders both sizes, and what to conclude from them.
pub(crate) fn render(demo: &Demo) -> String {
    let mut out = format!("{}\n", demo.machine.line());
    for panel in &demo.panels {
        let bytes = panel.buffers * 2;
        let _ = writeln!(
            out,
            "\nLogical packets of {} buffers of 2 bytes ({bytes} bytes), answered one by one; \
             client and server on one core",
            panel.buffers
        );
        let _ = writeln!(out, "{}", table(panel));
    }
    out.push('\n');
    out
}

fn table(panel: &Panel) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "",
        "a packet",
        "against\nno option",
        "against\nNODELAY",
        "writes\na packet",
        "segments\na packet",
        "buffers\na packet",
        "a core\neach",
    ]);
    for who in Who::ALL {
        table.add_row([Cell::new(who.heading()).add_attribute(Attribute::Bold)]);
        for row in panel.rows.iter().filter(|row| row.setting.who == who) {
            table.add_row(cells(panel, row));
        }
    }
    for column in 1..=7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn cells(panel: &Panel, row: &Measured) -> Vec<String> {
    vec![
        format!("  {}", row.setting.name()),
        time(row.one_core.us_per_packet),
        speed(panel.speed_against(row, Asks::Nothing)),
        speed(panel.speed_against(row, Asks::Nodelay)),
        count(row.one_core.writes_per_packet),
        count(row.one_core.segments_per_packet),
        count(row.one_core.reads_per_packet),
        row.two_cores.map(|two| time(two.us_per_packet)).unwrap_or_default(),
    ]
}

/// Formats microseconds in the unit that suits them.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us >= 1e3 => format!("{} ms", digits3(us / 1e3)),
        us => format!("{} µs", digits3(us)),
    }
}

fn digits3(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { digits(value) }
}

/// Formats `12.3×`, `1/1,200` if far slower, or nothing.
pub(crate) fn speed(times: Option<f64>) -> String {
    match times {
        Some(times) if times > 0.0 && times < 0.1 => format!("1/{}", thousands(1.0 / times)),
        Some(times) => format!("{}×", digits3(times)),
        None => String::new(),
    }
}

/// Formats a count, as an integer if it is one.
pub(crate) fn count(value: f64) -> String {
    let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_are_short() {
        assert_eq!(time(44_612.0), "44.6 ms");
        assert_eq!(time(6.234), "6.23 µs");
        assert_eq!(time(121.4), "121 µs");
        assert_eq!(speed(Some(7123.0)), "7,123×");
        assert_eq!(speed(Some(0.000_85)), "1/1,176");
        assert_eq!(speed(None), "");
        let counts = [15.0, 100.0, 1.9, 35.07, 0.0].map(count);
        assert_eq!(counts, ["15", "100", "1.9", "35.1", "0"]);
    }
}
