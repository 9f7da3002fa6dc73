//! The cost of a timer for a write, by the way it is implemented (docs/TIMER.md).

use std::time::Duration;

use anyhow::{Context, Result};

use super::Bed;
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way};
use crate::outcome::{Compare, Row, Unit};
use crate::place::Place;
use crate::process::run_to_end;
use crate::roles::Costs;

const BENCH: &str = "timer-costs";
const TIMES: u64 = 400_000;

/// Measures each way separately, on one core; reported, without bars.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let core = Place::OneCore.cores()?.client;
    let times = bed.amount(TIMES).to_string();
    let mut cases = [Case::new("costs", || {
        let job = Job::new(&bed.tools.bench)
            .args(["role", "costs", times.as_str()])
            .way(&Way::Plain)
            .core(core);
        let text = run_to_end(job.command(bed.tools)?, "the costs", Duration::from_secs(120))?;
        let costs: Costs = serde_json::from_str(&text).context("understanding the costs")?;
        Ok(vec![
            costs.clock,
            costs.timerfd,
            costs.wake,
            costs.mutex,
            costs.biased,
            costs.call_alone,
            costs.call_accompanied,
        ])
    })];
    let samples = interleave(&mut cases, bed.rounds(15), bed.progress)?;
    let row = |figure: usize, what: &str, against: usize| {
        let what = (BENCH, what.to_owned());
        let sides = (samples.get(0, figure), Compare::Ratio, samples.get(0, against));
        Row::compare(what, Place::OneCore, Unit::Nanoseconds, sides)
    };
    Ok(vec![
        row(0, "reading the clock; against owning the lock", 4),
        row(1, "setting and clearing a timerfd; against reading the clock", 0),
        row(2, "waking a sleeping thread, until it runs; against reading the clock", 0),
        row(3, "a mutex, taken and released; against owning the lock", 4),
        row(6, "a write and its read, with a second thread that libc knows; against without", 5),
    ])
}
