//! `uncork lab nodelay`.

pub(super) mod page;
mod tables;

use indicatif::ProgressBar;
use serde::Serialize;
use uncork_lab::contest::Watch;
use uncork_lab::nodelay::{Measured, Plan, Room, Setting, measure};

use super::arguments::Nodelay;
use super::{INTERRUPTED, bar, json, kernel, open_page, stopped_by_signals, unless_stopped};
use crate::failure::Failure;
use crate::output;
use crate::tables::Width;

/// Buffers of two bytes in a logical packet: as published, and many.
const BUFFERS: [u32; 2] = [15, 100];

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    kernel: &'a str,
    #[serde(flatten)]
    plan: Plan,
    rows: &'a [Measured],
}

pub(super) fn run(arguments: &Nodelay) -> Result<i32, Failure> {
    let telling = &arguments.telling;
    let page = telling.html.as_deref().map(open_page).transpose()?;
    let uncork = std::env::current_exe()
        .map_err(|error| Failure::own(format!("uncork's own file cannot be found: {error}")))?;
    let stop = stopped_by_signals()?;
    let plan = Plan::new(telling.quick);
    let bar = Bar(bar(0));
    let measured = Room::new(&uncork, &stop).and_then(|room| {
        let mut rows = Vec::new();
        for buffers in BUFFERS {
            rows.extend(measure(&room, &Setting::all(buffers), &plan, &bar)?);
        }
        Ok(rows)
    });
    bar.0.finish_and_clear();
    let Some(rows) = unless_stopped(measured, &stop)? else { return Ok(INTERRUPTED) };
    let kernel = kernel();
    if let Some(page) = page {
        page.write(&page::render(&rows, &plan, &kernel))?;
    }
    if telling.json {
        json(&Document { version: 1, kernel: &kernel, plan, rows: &rows })?;
    } else {
        output::print(&tables::render(&rows, &plan, &kernel, Width::of_stdout()))?;
    }
    Ok(0)
}

/// A progress bar for the measurements, one part after the other.
struct Bar(ProgressBar);

impl Watch for Bar {
    fn begin(&self, steps: usize) {
        self.0.set_length(steps as u64);
        self.0.set_position(0);
    }

    fn on(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn done(&self) {
        self.0.inc(1);
    }
}

/// Returns the rows by number of buffers.
fn panels(rows: &[Measured]) -> impl Iterator<Item = &[Measured]> + Clone {
    rows.chunk_by(|one, next| one.setting.pattern.buffers == next.setting.pattern.buffers)
}

/// Formats the heading: `15 buffers of 2 bytes`.
fn heading(rows: &[Measured]) -> String {
    format!("Logical packets of {} buffers of 2 bytes", rows[0].setting.pattern.buffers)
}

/// Formats microseconds, as a number.
fn time(us: f64) -> String {
    match us {
        us if us >= 1000.0 => format!("{us:.0}"),
        us if us >= 100.0 => format!("{us:.1}"),
        us => format!("{us:.2}"),
    }
}

/// Formats a count, as an integer if it is one.
fn count(value: f64) -> String {
    let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats bytes per millisecond: as published, but shorter.
fn rate(bytes_per_ms: f64) -> String {
    if bytes_per_ms < 10.0 { format!("{bytes_per_ms:.2}") } else { format!("{bytes_per_ms:.0}") }
}

/// Formats the published throughput: of each run, if there were several.
fn published_rate(row: &Measured) -> String {
    let rates = row.published.map_or(&[][..], |published| published.bytes_per_ms);
    rates.iter().copied().map(rate).collect::<Vec<_>>().join(", ")
}

/// Formats the published reads of the server.
fn published_reads(row: &Measured) -> String {
    row.published.and_then(|published| published.reads_per_packet).map(count).unwrap_or_default()
}

/// Describes the number of logical packets of a run.
fn amounts(plan: &Plan) -> String {
    format!(
        "{} logical packets a run ({} on a core each, {} where each stalls)",
        plan.packets, plan.packets_on_two_cores, plan.stalled_packets
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_make_sense() {
        assert_eq!([44_612.4, 121.44, 5.678].map(time), ["44612", "121.4", "5.68"]);
        assert_eq!([15.0, 11.9281, 1.0, 0.0].map(count), ["15", "11.9", "1", "0"]);
        assert_eq!([0.749_757, 168.86].map(rate), ["0.75", "169"]);
    }
}
