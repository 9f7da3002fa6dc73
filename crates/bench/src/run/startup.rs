//! The cost of starting a process.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::Bed;
use crate::contest::{Case, interleave};
use crate::launch::{clean, run_args, variables};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::{Pinned, Place};
use crate::stats::median;
use crate::toolbox::program;

const BENCH: &str = "startup";
/// Starts in one run, of which the median counts.
const STARTS: u64 = 40;
const MORE_MS: f64 = 2.0;

/// Starts `true` under `uncork run`, with the library preloaded, and plain; starter and started on
/// one core.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let program = program("true")?;
    let uncork = bed.tools.uncork()?;
    let library = bed.tools.preload_library()?;
    let _pinned = Pinned::to(Place::OneCore.cores()?.client)?;
    let starts = bed.amount(STARTS);
    let case = |name: &'static str, make: &dyn Fn() -> Command| {
        let mut command = make();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Case::new(name, move || {
            let times = (0..starts).map(|_| start(&mut command)).collect::<Result<Vec<_>>>()?;
            Ok(vec![median(&times)])
        })
    };
    let mut cases = [
        case("plain", &|| clean(&program)),
        case("LD_PRELOAD", &|| {
            let mut command = clean(&program);
            command.env("LD_PRELOAD", &library).envs(variables(&[("hold", "kernel")]));
            command
        }),
        case("uncork run", &|| {
            let mut command = clean(&uncork);
            command.args(run_args(&[])).arg(&program);
            command
        }),
    ];
    let samples = interleave(&mut cases, bed.rounds(15), bed.progress)?;
    let row = |index: usize, name: &str| {
        let what = (BENCH, format!("true: {name}; more than plain"));
        let sides = (samples.get(index, 0), Compare::Difference, samples.get(0, 0));
        Row::compare(what, Place::OneCore, Unit::Milliseconds, sides).bar(Bar::AtMost(MORE_MS))
    };
    Ok(vec![row(2, "uncork run"), row(1, "LD_PRELOAD")])
}

/// Returns the milliseconds from the start of `command` to its end.
fn start(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    let mut child = command.spawn().context("starting a process")?;
    let status = child.wait()?;
    let elapsed = begun.elapsed();
    ensure!(status.success(), "a process that does nothing failed: {status}");
    Ok(elapsed.as_secs_f64() * 1e3)
}
