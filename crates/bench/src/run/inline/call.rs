//! The library's cost under `--stack` on a descriptor that is not a socket.

use anyhow::{Context as _, Result};
use uncork_lab::place::joined;

use super::{LIMIT, PRIVILEGE, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::process::run_to_end;
use crate::run::Bed;
use crate::run::tuning::may;

const BENCH: &str = "inline-call";
/// About a quarter of a second.
const READS: u64 = 1_000_000;

/// Measures one-byte reads of /dev/zero, pinned to one core.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip"])?;
    let core = Place::OneCore.cores()?.client;
    let (near, _far) = joined()?;
    let reads = bed.amount(READS).to_string();
    let case = |name: &'static str, way: Way| {
        let (near, reads) = (&near, &reads);
        Case::new(name, move || {
            let job = Job::new(&bed.tools.bench).args(["role", "zero", reads]).way(&way).core(core);
            let text = run_to_end(within(near, &job.command(bed.tools)?)?, "the reader", LIMIT)?;
            let nanoseconds = text.trim().parse().context("understanding the reader")?;
            Ok(vec![nanoseconds])
        })
    };
    let mut cases = [case("plain", Way::Plain), case("--stack", ours(false))];
    let samples = interleave(&mut cases, bed.rounds(25), bed.progress)?;
    let what = (BENCH, "1-byte reads of /dev/zero: under --stack; against plain");
    let sides = (samples.get(1, 0), Compare::Ratio, samples.get(0, 0));
    let row = Row::compare(what, Place::OneCore, Unit::Nanoseconds, sides);
    Ok(vec![row.bar(Bar::AtMost(1.03))])
}
