//! The effect of one bulk sender of ours on a ping through the same queue, compared with the kernel's.

use std::time::Duration;

use anyhow::Result;
use uncork_lab::place::{self, Bottleneck};
use uncork_lab::probe;
use uncork_lab::rest::rest;
use uncork_queues::QueueSettings;

use super::transfer::Transfer;
use super::{Bed, PACKETS, Who};
use crate::contest::{Case, interleave};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::process::NEVER;
use crate::run::tuning::may;

const BENCH: &str = "stack-ping";
/// Rate in bits per second of the shaper behind the device (tbf).
const RATE: u64 = 100_000_000;
const PING_MS: f64 = 1.0;
/// Least share of the throughput of the kernel's sender.
const THROUGHPUT: f64 = 0.99;

/// Measures both senders, each in a place of its own.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PACKETS, &["ip", "tc"])?;
    let case =
        |who: Who| Case::new(format!("ping beside one sender: {who:?}"), move || measure(bed, who));
    let samples = interleave(&mut Who::ALL.map(case), bed.rounds(5), bed.progress)?;
    let of = |who: Who, figure| samples.get(who.case(), figure);
    let what = |figure: &str, who: &str| (BENCH, format!("100 Mbit/s, {who}: {figure}"));
    let ping = |figure, name| {
        let (ours, kernels) = (of(Who::Ours, figure), of(Who::Kernel, figure));
        let what = what(name, "our sender; beside the kernel's");
        Row::absolute(what, Place::TwoCores, Unit::Milliseconds, ours).beside(kernels)
    };
    let sides = (of(Who::Ours, 2), Compare::Ratio, of(Who::Kernel, 2));
    let what = what("throughput", "our sender; against the kernel's");
    let throughput = Row::compare(what, Place::TwoCores, Unit::Megabits, sides);
    Ok(vec![
        ping(0, "ping p50").bar(Bar::AtMost(PING_MS)),
        ping(1, "ping p99"),
        throughput.bar(Bar::AtLeast(THROUGHPUT)),
    ])
}

/// Returns median and 99th percentile of the ping in milliseconds, and megabits per second.
fn measure(bed: &Bed<'_>, who: Who) -> Result<Vec<f64>> {
    let bottleneck = Bottleneck { rate: RATE, segmentation_offload: true };
    let place = place::Place::new(bottleneck, QueueSettings::KERNEL)?;
    let transfer = Transfer::begin(bed, who, [&place.near, &place.far])?;
    rest(Duration::from_secs(1), &NEVER)?;
    let begin = transfer.receiver.mark()?;
    let ping = probe::ping(&place)?;
    rest(Duration::from_secs(if bed.quick { 1 } else { 3 }), &NEVER)?;
    let rate = transfer.receiver.mark()?.megabits_since(&begin);
    let ping = ping.finish()?;
    Ok(vec![ping.p50_ms, ping.p99_ms, rate])
}
