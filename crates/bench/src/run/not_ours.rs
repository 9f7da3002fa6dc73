//! The library's cost on a descriptor that is not a socket.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Bed;
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::process::run_to_end;

const BENCH: &str = "not-ours";
/// Few enough for many rounds: about a quarter of a second each.
const READS: u64 = 1_000_000;

/// Measures one-byte reads of /dev/zero, pinned to one core.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let core = Place::OneCore.cores()?.client;
    let reads = bed.amount(READS).to_string();
    let case = |name: &'static str, way: Way| {
        let reads = &reads;
        Case::new(name, move || {
            let job = Job::new(&bed.tools.bench).args(["role", "zero", reads]).way(&way).core(core);
            let text = run_to_end(job.command(bed.tools)?, "the reader", Duration::from_secs(120))?;
            let nanoseconds = text.trim().parse().context("understanding the reader")?;
            Ok(vec![nanoseconds])
        })
    };
    let mut cases = [
        case("plain", Way::Plain),
        case("--hold kernel", Way::Preload(&[("hold", "kernel")])),
        case("--hold user", Way::Preload(&[("hold", "user")])),
    ];
    let samples = interleave(&mut cases, bed.rounds(25), bed.progress)?;
    let row = |index: usize, name: &str| {
        let what = (BENCH, format!("1-byte reads of /dev/zero: {name}; against plain"));
        let sides = (samples.get(index, 0), Compare::Ratio, samples.get(0, 0));
        Row::compare(what, Place::OneCore, Unit::Nanoseconds, sides).bar(Bar::AtMost(1.03))
    };
    Ok(vec![row(1, "--hold kernel"), row(2, "--hold user")])
}
