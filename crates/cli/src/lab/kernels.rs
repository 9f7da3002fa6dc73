//! `uncork lab kernels`.

mod row;
mod words;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;
use uncork_lab::kernels::{Failed, Lab, Options, Pattern, bisect, difference};

use super::arguments::Kernels;
use super::{INTERRUPTED, bar, failed, json, kernels_page, open_page, stopped_by_signals};
use crate::failure::Failure;
use crate::output;
use crate::tables::Width;
pub(super) use row::{HEADINGS, Row};
pub(super) use words::{COMMITS, figures, found};

/// Exit status if a kernel did not boot.
const NOT_UP: i32 = 1;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    kernels: &'a [Row],
    #[serde(skip_serializing_if = "Option::is_none")]
    bisect: Option<&'a Found>,
}

/// The result of `--bisect`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Found {
    /// The first kernel that differs; `None` if the last one does not.
    first: Option<String>,
    /// The kernel before it, which does not differ.
    before: Option<String>,
    /// The first run in which it differs.
    run: Option<&'static str>,
    /// How the first kernel of all behaves in that run.
    was: Option<Pattern>,
    /// How the kernel that differs behaves in it.
    is: Option<Pattern>,
}

/// Why there are no more rows.
enum End {
    Interrupted,
    NotUp,
}

/// The rows, as they are measured.
struct Rows<'a> {
    lab: &'a Lab,
    stop: &'a AtomicBool,
    bar: ProgressBar,
    rows: Vec<Row>,
    /// The place of each row: in the order in which the kernels were named, this machine's first.
    places: Vec<usize>,
}

pub(super) fn run(arguments: &Kernels) -> Result<i32, Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::own("uncork lab kernels knows virtual machines of x86-64 only"));
    }
    if arguments.bisect && arguments.kernels.len() < 2 {
        return Err(Failure::unusable("--bisect needs two kernels at least"));
    }
    let page = arguments.html.as_deref().map(open_page).transpose()?;
    let options = Options {
        time: Duration::from_millis(if arguments.quick { 4000 } else { 10_000 }),
        emulate: arguments.emulate,
        limit: arguments.limit,
    };
    let stop = stopped_by_signals()?;
    let lab = Lab::prepare(&arguments.kernels, options)
        .map_err(|error| Failure::unusable(format!("{error:#}")))?;
    let steps = if arguments.bisect { 0 } else { lab.kernels.len() + 1 };
    let mut rows =
        Rows { lab: &lab, stop: &stop, bar: bar(steps), rows: Vec::new(), places: Vec::new() };
    let mut found = None;
    let ended =
        if arguments.bisect { rows.search().map(|it| found = Some(it)) } else { rows.all() };
    rows.bar.finish_and_clear();
    let rows = rows.in_order();
    if matches!(ended, Err(End::Interrupted)) {
        return Ok(INTERRUPTED);
    }
    if let Some(page) = page {
        page.write(&kernels_page::render(&rows, found.as_ref()))?;
    }
    if arguments.json {
        json(&Document { version: 1, kernels: &rows, bisect: found.as_ref() })?;
    } else {
        output::print(&words::render(&rows, found.as_ref(), Width::of_stdout()))?;
    }
    for row in rows.iter().filter(|row| row.error().is_some()) {
        output::complain(words::failure(row));
    }
    Ok(if rows.iter().all(|row| row.shown().is_some()) { 0 } else { NOT_UP })
}

impl Rows<'_> {
    /// Measures this machine's row, where possible, and one for each kernel.
    fn all(&mut self) -> Result<(), End> {
        if uncork_netns::missing_capabilities().is_empty() {
            self.bar.set_message("this machine");
            match self.lab.here(self.stop) {
                Ok(shown) => self.push(0, Row::of(None, Ok(shown))),
                Err(_) if self.stop.load(Relaxed) => return Err(End::Interrupted),
                Err(error) => self.push(0, Row::of(None, Err(unknown(&error)))),
            }
        }
        self.bar.inc(1);
        for number in 0..self.lab.kernels.len() {
            self.boot(number)?;
            self.bar.inc(1);
        }
        Ok(())
    }

    /// Boots a kernel, and returns the number of its row.
    fn boot(&mut self, number: usize) -> Result<usize, End> {
        let kernel = &self.lab.kernels[number];
        self.bar.set_message(kernel.name.clone());
        let row = match self.lab.boot(kernel, self.stop) {
            Ok(shown) => Ok(shown),
            Err(_) if self.stop.load(Relaxed) => return Err(End::Interrupted),
            Err(error) => Err(error.downcast().unwrap_or_else(|error| unknown(&error))),
        };
        self.push(number + 1, Row::of(Some(kernel.name.clone()), row));
        Ok(self.rows.len() - 1)
    }

    fn push(&mut self, place: usize, row: Row) {
        self.rows.push(row);
        self.places.push(place);
    }

    fn in_order(self) -> Vec<Row> {
        let mut rows: Vec<_> = self.places.into_iter().zip(self.rows).collect();
        rows.sort_by_key(|(place, _)| *place);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Boots the first, and then as many as are needed to find the first that differs from it.
    fn search(&mut self) -> Result<Found, End> {
        let first = self.boot(0)?;
        if self.rows[first].shown().is_none() {
            return Err(End::NotUp);
        }
        let mut found = Found::default();
        let mut up = |rows: &mut Self, number: usize| {
            let row = rows.boot(number)?;
            let (Some(one), Some(other)) = (rows.rows[first].shown(), rows.rows[row].shown())
            else {
                return Err(End::NotUp);
            };
            let difference = difference(&one.runs, &other.runs);
            if let Some((run, was, is)) = difference {
                found = Found { run: Some(run), was: Some(was), is: Some(is), ..Found::default() };
            }
            Ok(difference.is_some())
        };
        let number = bisect(self.lab.kernels.len(), |number| up(self, number))?;
        let name = |number: usize| Some(self.lab.kernels[number].name.clone());
        if let Some(number) = number {
            found.first = name(number);
            found.before = name(number - 1);
        }
        Ok(found)
    }
}

/// Returns an error that has no console.
fn unknown(error: &anyhow::Error) -> Failed {
    Failed { sentence: failed(error).to_string(), console: Vec::new() }
}
