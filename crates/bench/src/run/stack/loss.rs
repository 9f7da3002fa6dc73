//! Bulk through random losses: our sender against the kernel's CUBIC over the same emulated link.

use std::time::Duration;

use anyhow::Result;
use uncork_lab::place::{DEVICE, FAR, NEAR};
use uncork_lab::rest::rest;
use uncork_link::{Carrier, Layer, Loss, Path, Settings};
use uncork_netns::Namespace;

use super::transfer::Transfer;
use super::{Bed, PACKETS, PREFIX, Who};
use crate::contest::{Case, interleave};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::process::NEVER;
use crate::run::tuning::may;

const BENCH: &str = "stack-loss";
/// One frame in a hundred, in either direction.
const LOSS: f64 = 0.01;
/// Round-trip times of the link.
const ROUND_TRIPS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(40)];
/// Least share of the kernel's throughput.
const LEAST: f64 = 0.9;
/// How long before a frame is due its carrier stops sleeping: waking up takes tens of microseconds.
const SPIN: Duration = Duration::from_micros(200);

/// Runs both senders over the same link, with the same random losses in the same round.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PACKETS, &["ip"])?;
    let mut rows = Vec::new();
    for round_trip in ROUND_TRIPS {
        let what = format!("bulk, 1 % of frames lost, round trip {} ms", round_trip.as_millis());
        let case = |who: Who| {
            let mut seed = 0;
            Case::new(format!("{what}: {who:?}"), move || {
                seed += 1;
                Ok(vec![measure(bed, who, round_trip, seed)?])
            })
        };
        let samples = interleave(&mut Who::ALL.map(case), bed.rounds(7), bed.progress)?;
        let of = |who: Who| samples.get(who.case(), 0);
        let sides = (of(Who::Ours), Compare::Ratio, of(Who::Kernel));
        let what = format!("{what}: our sender; against the kernel's, CUBIC");
        let row = Row::compare((BENCH, what), Place::TwoCores, Unit::Megabits, sides);
        rows.push(row.bar(Bar::AtLeast(LEAST)));
    }
    Ok(rows)
}

/// Returns megabits per second.
fn measure(bed: &Bed<'_>, who: Who, round_trip: Duration, seed: u64) -> Result<f64> {
    let link = Link::new(round_trip, seed)?;
    let transfer = Transfer::begin(bed, who, [&link.near, &link.far])?;
    rest(Duration::from_secs(1), &NEVER)?;
    let begin = transfer.receiver.mark()?;
    rest(Duration::from_secs(if bed.quick { 2 } else { 10 }), &NEVER)?;
    Ok(transfer.receiver.mark()?.megabits_since(&begin))
}

/// Two namespaces, and the link between them that loses frames.
struct Link {
    /// Dropped first: the devices that it holds keep the namespaces alive.
    _carrier: Carrier,
    near: Namespace,
    far: Namespace,
}

impl Link {
    fn new(round_trip: Duration, seed: u64) -> Result<Self> {
        let (near, far) = (Namespace::new("loss-near")?, Namespace::new("loss-far")?);
        let path = |direction: u64| Path {
            delay: round_trip / 2,
            loss: Loss { probability: LOSS, seed: 2 * seed + direction, ..Loss::default() },
            ..Path::default()
        };
        for namespace in [&near, &far] {
            // Without multicast, which would use up random numbers.
            namespace.set("ipv6/conf/default/disable_ipv6", 1)?;
        }
        let carrier = Carrier::start(Settings {
            namespaces: [&near, &far].map(|namespace| namespace.name().to_owned()),
            device: DEVICE.to_owned(),
            layer: Layer::Ethernet,
            // What is lost is a segment, and not a train of them.
            segmentation_offload: false,
            spin: SPIN,
            paths: [path(0), path(1)],
        })?;
        for (namespace, own) in [(&near, NEAR), (&far, FAR)] {
            namespace.ip(&format!("address add {own}/{PREFIX} dev {DEVICE}"))?;
            namespace.ip(&format!("link set {DEVICE} up"))?;
        }
        Ok(Self { _carrier: carrier, near, far })
    }
}
