//! The effect of bulk senders on a ping beside them: with the kernel's own settings, with those that
//! `uncork lab tsq` applies by itself, and with what `uncork tune small-queues` sets on the device.

use std::time::Duration;

use anyhow::Result;
use uncork_lab::load::Bulk;
use uncork_lab::place::{Bottleneck, DEVICE, Place};
use uncork_lab::socket::Congestion;
use uncork_lab::tsq::{Length, Setting, measure_beside, target};
use uncork_queues::QueueSettings;

use super::Bed;
use super::tuning::{Tuning, may};
use crate::contest::{Case, Samples, interleave};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place;
use crate::process::NEVER;
use crate::stats::median;

const BENCH: &str = "small-queues";
const MBIT: u64 = 1_000_000;
/// The share of TCP's payload on a link, with timestamps: 1448 of 1514 octets.
const PAYLOAD_SHARE: f64 = 0.956;
/// Below this share of it, the link was not the bottleneck.
const FILLED: f64 = 0.97;
/// Indices of the figures of one measurement.
const PING: usize = 0;
const THROUGHPUT: usize = 1;
const LEAST_SHARE: usize = 2;
const LARGEST_SHARE: usize = 3;

/// What chooses the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Kernel,
    Lab,
    Tune,
}

impl Who {
    const ALL: [Self; 3] = [Self::Kernel, Self::Lab, Self::Tune];

    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "this kernel",
            Self::Lab => "the lab's settings",
            Self::Tune => "uncork tune small-queues",
        }
    }
}

/// A link, its senders, and the bars there.
struct Load {
    name: &'static str,
    rate: u64,
    senders: u32,
    ping_ms: f64,
    /// Least share of the throughput with the kernel's own settings.
    throughput: Option<f64>,
    /// How far a sender's share may be from an even one.
    shares: Option<f64>,
}

const LOADS: [Load; 3] = [
    Load {
        name: "100 Mbit/s, 1 sender",
        rate: 100 * MBIT,
        senders: 1,
        ping_ms: 1.0,
        throughput: Some(0.99),
        shares: None,
    },
    Load {
        name: "1 Gbit/s, 1 sender",
        rate: 1000 * MBIT,
        senders: 1,
        ping_ms: 0.3,
        throughput: Some(0.97),
        shares: None,
    },
    Load {
        name: "100 Mbit/s, 8 senders",
        rate: 100 * MBIT,
        senders: 8,
        ping_ms: 2.0,
        throughput: None,
        shares: Some(0.2),
    },
];

/// Measures all loads, one after the other; the settings of each side by side.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may("uncork tune", &["ip", "tc", "ethtool"])?;
    let mut rows = Vec::new();
    for load in &LOADS {
        let case = |who: Who| {
            Case::new(format!("{}: {}", load.name, who.name()), move || measure(bed, load, who))
        };
        let mut cases = Who::ALL.map(case);
        let samples = interleave(&mut cases, bed.rounds(5), bed.progress)?;
        rows.extend(
            Who::ALL.iter().enumerate().flat_map(|(case, who)| judge(load, *who, case, &samples)),
        );
    }
    Ok(rows)
}

fn measure(bed: &Bed<'_>, load: &Load, who: Who) -> Result<Vec<f64>> {
    let ms = Duration::from_millis;
    let length = Length {
        warm_up: ms(if bed.quick { 700 } else { 1000 }),
        measured: ms(if bed.quick { 700 } else { 1500 }),
    };
    let bottleneck = Bottleneck { rate: load.rate, segmentation_offload: true };
    let settings = match who {
        Who::Kernel | Who::Tune => QueueSettings::KERNEL,
        Who::Lab => Setting::SmallQueues.settings(load.rate, load.senders),
    };
    let place = Place::new(bottleneck, settings)?;
    let tuning = (who == Who::Tune).then(|| tuned(bed, &place, load)).transpose()?;
    let bulk = Bulk::start(&place, load.senders, settings, Congestion::Cubic)?;
    let measured = measure_beside(&bulk, &place, length, &NEVER)?;
    drop(bulk);
    if let Some(tuning) = tuning {
        tuning.undo()?;
    }
    Ok(vec![
        measured.ping.p50_ms,
        measured.throughput / 1e6,
        measured.least_share,
        measured.largest_share,
    ])
}

/// Does what a user on the sending host would do who knows the number of senders: uncork has to
/// find out the rate.
fn tuned(bed: &Bed<'_>, place: &Place, load: &Load) -> Result<Tuning> {
    let tuning = Tuning::new(bed)?;
    let netns = place.near.name();
    let target = target(load.rate, load.senders).as_micros();
    let senders = load.senders;
    tuning.tune(&format!(
        "small-queues --dev {DEVICE} --netns {netns} --target {target}us --senders {senders}"
    ))?;
    Ok(tuning)
}

fn judge(load: &Load, who: Who, case: usize, samples: &Samples) -> Vec<Row> {
    const KERNEL: usize = 0;
    let place = place::Place::TwoCores;
    let of = |figure| samples.get(case, figure);
    let kernel = |figure| samples.get(KERNEL, figure);
    let what = |figure: &str| (BENCH, format!("{}, {}: {figure}", load.name, who.name()));
    let ping = Row::absolute(what("ping p50"), place, Unit::Milliseconds, of(PING));
    if who == Who::Kernel {
        let rate = Row::absolute(what("throughput"), place, Unit::Megabits, of(THROUGHPUT));
        return vec![ping, rate];
    }
    let mut rows = vec![ping.beside(kernel(PING)).bar(Bar::AtMost(load.ping_ms))];
    let sides = (of(THROUGHPUT), Compare::Ratio, kernel(THROUGHPUT));
    let rate = Row::compare(what("throughput"), place, Unit::Megabits, sides);
    let rate = match load.throughput {
        Some(least) => rate.bar(Bar::AtLeast(least)),
        None => rate,
    };
    let filled = median(kernel(THROUGHPUT)) / (load.rate as f64 / 1e6 * PAYLOAD_SHARE);
    rows.push(if filled < FILLED {
        rate.note(format!(
            "this kernel's own settings filled only {:.0} % of the link on this machine, so that the \
             ratio says little",
            filled * 100.0
        ))
    } else {
        rate
    });
    if let Some(apart) = load.shares {
        for (name, figure, bar) in [
            ("least share", LEAST_SHARE, Bar::AtLeast(1.0 - apart)),
            ("largest share", LARGEST_SHARE, Bar::AtMost(1.0 + apart)),
        ] {
            let row = Row::absolute(what(name), place, Unit::Times, of(figure));
            rows.push(row.beside(kernel(figure)).bar(bar));
        }
    }
    rows
}
