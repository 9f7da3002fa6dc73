//! Small queues: what a bulk sender does to everybody behind it, by how much of its data waits
//! below TCP.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::load::Bulk;
use crate::place::{Bottleneck, Place, QueueSettings};
use crate::probe::{self, Times};
use crate::sample::{Backlog, Sampler};

/// Until slow start has found the bottleneck and the queue is what it will be.
const WARM_UP: Duration = Duration::from_millis(1500);

/// One setting under one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// What is between the hosts.
    pub bottleneck: Bottleneck,
    /// What the sending host is told.
    pub settings: QueueSettings,
    /// Connections that send as fast as they may.
    pub senders: usize,
}

/// What was measured in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// Bits a second that arrived, of all connections together, without headers.
    pub throughput: f64,
    /// Share of the slowest and of the fastest connection of an even share.
    pub shares: [f64; 2],
    /// Pings beside the load.
    pub ping: Times,
    /// One byte to and fro over TCP beside the load.
    pub request: Times,
    /// What waited at the bottleneck.
    pub backlog: Backlog,
}

/// Measures one case for `time`.
///
/// # Errors
/// Without the privilege, or if the network cannot be made.
pub fn measure(case: Case, time: Duration) -> Result<Measured> {
    let place = Place::new(case.bottleneck, case.settings)?;
    let bulk = Bulk::start(&place, case.senders)?;
    thread::sleep(WARM_UP);
    let begin = bulk.mark();
    let ping = probe::ping(&place)?;
    let request = probe::request(&place)?;
    let sampler = Sampler::start(&place)?;
    thread::sleep(time);
    let rates = bulk.mark().rates(&begin);
    let (ping, request, backlog) = (ping.finish()?, request.finish()?, sampler.finish()?);
    let throughput: f64 = rates.iter().sum();
    #[allow(clippy::cast_precision_loss)] // a handful of senders
    let even = throughput / rates.len().max(1) as f64;
    let share = |rate: Option<f64>| rate.map_or(0.0, |rate| rate / even);
    let shares = [
        share(rates.iter().copied().min_by(f64::total_cmp)),
        share(rates.iter().copied().max_by(f64::total_cmp)),
    ];
    Ok(Measured { case, throughput, shares, ping, request, backlog })
}
