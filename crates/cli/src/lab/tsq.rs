//! `uncork lab tsq`.

use serde::Serialize;
use uncork_lab::plan::{Outcome, Plan};
use uncork_lab::tsq::{Case, Length, Setting};

use super::arguments::Tsq;
use super::tuner::InPlace;
use super::{
    INTERRUPTED, bar, failed, json, kernel, open_page, page, stopped_by_signals, tables,
    unless_stopped,
};
use crate::failure::Failure;
use crate::output;
use crate::tables::Width;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    kernel: &'a str,
    rounds: usize,
    #[serde(flatten)]
    length: Length,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

pub(super) fn run(arguments: &Tsq) -> Result<i32, Failure> {
    let page = arguments.telling.html.as_deref().map(open_page).transpose()?;
    let stop = stopped_by_signals()?;
    let plan = Plan::new(arguments.telling.quick, arguments.congestion.into());
    let bar = bar(plan.steps());
    let mut begun = false;
    let tuner = InPlace::new().map_err(|error| failed(&error))?;
    let done = plan.run(&tuner, &stop, |case| {
        if begun {
            bar.inc(1);
        }
        begun = true;
        bar.set_message(name(case));
    });
    bar.finish_and_clear();
    let Some(outcome) = unless_stopped(done, &stop)? else { return Ok(INTERRUPTED) };
    let kernel = kernel();
    if let Some(page) = page {
        page.write(&page::render(&outcome, &kernel))?;
    }
    if arguments.telling.json {
        let (rounds, length) = (plan.rounds, plan.length);
        let document = Document { version: 1, kernel: &kernel, rounds, length, outcome: &outcome };
        json(&document)?;
    } else {
        output::print(&tables::render(&outcome, &kernel, Width::of_stdout()))?;
    }
    Ok(0)
}

fn name(case: &Case) -> String {
    format!("{}, {}", place(case), setting(case.setting))
}

/// Describes link and load.
pub(super) fn place(case: &Case) -> String {
    let senders = match case.senders {
        1 => "1 sender".to_owned(),
        more => format!("{more} senders"),
    };
    let offload = if case.bottleneck.segmentation_offload { "" } else { ", no offload" };
    format!("{}, {senders}{offload}", rate(case.bottleneck.rate))
}

/// Formats a rate: `100 Mbit/s`, `1 Gbit/s`.
pub(super) fn rate(bits: u64) -> String {
    match bits {
        bits if bits >= 1_000_000_000 => format!("{} Gbit/s", bits / 1_000_000_000),
        bits => format!("{} Mbit/s", bits / 1_000_000),
    }
}

/// Describes the setting.
pub(super) fn setting(setting: Setting) -> String {
    match setting {
        Setting::Kernel => "this kernel".to_owned(),
        Setting::Limit2012 => "limit of 2012".to_owned(),
        Setting::SmallQueues => "small queues".to_owned(),
        Setting::Paced => "small queues, paced".to_owned(),
        Setting::Tuned => "tune small-queues".to_owned(),
        Setting::Limit(bytes) => format!("limit {}", size(bytes)),
        Setting::LimitAndTrains(bytes) => format!("{}, trains half", size(bytes)),
    }
}

/// Formats a size: `4 MiB`, `32 KiB`.
pub(super) fn size(bytes: u32) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
