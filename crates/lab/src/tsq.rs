//! TCP small queues: how much a bulk sender delays the traffic queued after it, by how much of its data
//! waits below TCP.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use uncork_queues::{QueueSettings, small_queues};

use crate::load::Bulk;
use crate::place::{Bottleneck, Place};
use crate::probe::{self, Times};
use crate::rest::rest;
use crate::sample::{Queued, Sampler};
use crate::socket::Congestion;

/// The settings of the sending host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Nothing: the kernel's defaults.
    Kernel,
    /// The kernel's default limit of 2012, when the limit was introduced.
    Limit2012,
    /// What [`small_queues`] chooses for the rate, without pacing.
    SmallQueues,
    /// What [`small_queues`] chooses, with each sender paced at its share of the rate.
    Paced,
    /// What `uncork tune small-queues` sets on the sender's device, by a [`Tuner`].
    Tuned,
    /// This limit, and nothing else.
    Limit(u32),
    /// This limit, and segment trains of at most half of it.
    LimitAndTrains(u32),
}

impl Setting {
    /// `net.ipv4.tcp_limit_output_bytes` in Linux 3.6 (46d3ceabd8d9).
    pub const LIMIT_2012_BYTES: u32 = 131_072;

    /// Returns it as kernel settings.
    #[must_use]
    pub fn settings(self, rate: u64, senders: u32) -> QueueSettings {
        let limit =
            |bytes| QueueSettings { limit_output_bytes: Some(bytes), ..QueueSettings::KERNEL };
        let chosen = || small_queues(rate, target(rate, senders), NonZeroU32::new(senders));
        match self {
            // The lab does not know settings that it does not make.
            Self::Kernel | Self::Tuned => QueueSettings::KERNEL,
            Self::Limit2012 => limit(Self::LIMIT_2012_BYTES),
            Self::SmallQueues => QueueSettings { pacing_bytes_per_second: None, ..chosen() },
            Self::Paced => chosen(),
            Self::Limit(bytes) => limit(bytes),
            Self::LimitAndTrains(bytes) => QueueSettings {
                tso_rtt_log: Some(0),
                // The kernel takes no less than a frame's headers need.
                gso_max_bytes: Some((bytes / 2).clamp(1514, 65_536)),
                ..limit(bytes)
            },
        }
    }
}

/// Sets small queues on the sending device of a place as a user would. The lab itself changes nothing
/// that is not its own, and does not know how that is done.
pub trait Tuner {
    /// Limits the queue to `target` with so many senders. Returns what was changed, in words.
    ///
    /// # Errors
    /// If it cannot be changed.
    fn tune(&self, place: &Place, target: Duration, senders: u32) -> Result<Vec<String>>;

    /// Sets all of it back.
    ///
    /// # Errors
    /// If something could not be set back.
    fn undo(&self) -> Result<()>;
}

/// Returns how long others may wait: the target of the settings here.
#[must_use]
pub fn target(rate: u64, senders: u32) -> Duration {
    match (rate, senders) {
        (rate, _) if rate >= 1_000_000_000 => Duration::from_micros(300),
        (_, 1) => Duration::from_millis(1),
        _ => Duration::from_millis(2),
    }
}

/// One setting under one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The link between the hosts.
    pub bottleneck: Bottleneck,
    /// What is set on the sending host.
    pub setting: Setting,
    /// Connections that send as fast as they can.
    pub senders: u32,
    /// The congestion control, which sets their pace.
    pub congestion: Congestion,
}

/// The measurements of one case.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Bits per second that arrived, of all connections together, without headers.
    pub throughput: f64,
    /// Throughput of the slowest connection, as a fraction of an even share.
    pub least_share: f64,
    /// Throughput of the fastest connection, as a fraction of an even share.
    pub largest_share: f64,
    /// Pings beside the load.
    pub ping: Times,
    /// One byte back and forth over TCP beside the load.
    pub request: Times,
    /// Queued data.
    pub queued: Queued,
}

/// The duration of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Length {
    /// Time until slow start has found the bottleneck and the queue has settled.
    #[serde(rename = "warm_up_ms", serialize_with = "milliseconds")]
    pub warm_up: Duration,
    /// Time that is measured.
    #[serde(rename = "measured_ms", serialize_with = "milliseconds")]
    pub measured: Duration,
}

fn milliseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Measures one case, and returns what the tuner changed for it.
///
/// # Errors
/// Without the privilege, if the network cannot be made or tuned, or soon after `stop` was set.
pub fn measure(
    case: Case,
    length: Length,
    tuner: &dyn Tuner,
    stop: &AtomicBool,
) -> Result<(Measured, Vec<String>)> {
    let rate = case.bottleneck.rate;
    let settings = case.setting.settings(rate, case.senders);
    let place = Place::new(case.bottleneck, settings)?;
    let is_tuned = case.setting == Setting::Tuned;
    let changed = if is_tuned {
        tuner.tune(&place, target(rate, case.senders), case.senders)?
    } else {
        Vec::new()
    };
    let bulk = Bulk::start(&place, case.senders, settings, case.congestion)?;
    let measured = measure_beside(&bulk, &place, length, stop);
    drop(bulk);
    if is_tuned {
        tuner.undo()?;
    }
    Ok((measured?, changed))
}

/// Measures the effect of these senders on others.
///
/// # Errors
/// If a connection is gone, or soon after `stop` was set.
pub fn measure_beside(
    bulk: &Bulk,
    place: &Place,
    length: Length,
    stop: &AtomicBool,
) -> Result<Measured> {
    rest(length.warm_up, stop)?;
    let begin = bulk.mark();
    let ping = probe::ping(place)?;
    let request = probe::request(place)?;
    let sampler = Sampler::start(place, &bulk.addresses()?)?;
    rest(length.measured, stop)?;
    let rates = bulk.mark().rates(&begin);
    let (ping, request, queued) = (ping.finish()?, request.finish()?, sampler.finish()?);
    let throughput: f64 = rates.iter().sum();
    // Nothing arrived: no share is larger than another.
    #[allow(clippy::cast_precision_loss)] // a few connections
    let even = (throughput / rates.len().max(1) as f64).max(1.0);
    let share = |rate: Option<f64>| rate.unwrap_or_default() / even;
    Ok(Measured {
        throughput,
        least_share: share(rates.iter().copied().min_by(f64::total_cmp)),
        largest_share: share(rates.iter().copied().max_by(f64::total_cmp)),
        ping,
        request,
        queued,
    })
}

/// Returns the median of each figure in several measurements of one case.
#[must_use]
pub fn median(rounds: &[Measured]) -> Option<Measured> {
    let middle = |figure: &dyn Fn(&Measured) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    // Figures that belong together stay together: the ping's are those of the round in the middle.
    let round = |figure: &dyn Fn(&Measured) -> f64| {
        let mut all: Vec<&Measured> = rounds.iter().collect();
        all.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
        all.get(all.len() / 2).copied()
    };
    Some(Measured {
        ping: round(&|measured| measured.ping.p50_ms)?.ping,
        request: round(&|measured| measured.request.p50_ms)?.request,
        queued: round(&|measured| measured.queued.backlog_p50_ms)?.queued,
        throughput: middle(&|measured| measured.throughput),
        least_share: middle(&|measured| measured.least_share),
        largest_share: middle(&|measured| measured.largest_share),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(throughput: f64, ping_ms: f64) -> Measured {
        let times = |p50_ms| Times { count: 1, p50_ms, p99_ms: p50_ms * 2.0, max_ms: 9.0 };
        Measured {
            throughput,
            least_share: 1.0,
            largest_share: 1.0,
            ping: times(ping_ms),
            request: times(ping_ms),
            queued: Queued::default(),
        }
    }

    #[test]
    fn each_figure_is_the_median_of_its_own() {
        let rounds = [measured(95.0, 3.0), measured(94.0, 1.0), measured(96.0, 2.0)];
        let middle = median(&rounds).unwrap();
        assert_eq!((middle.throughput, middle.ping.p50_ms, middle.ping.p99_ms), (95.0, 2.0, 4.0));
        assert!(median(&[]).is_none());
    }

    #[test]
    fn a_train_is_at_most_half_the_limit_in_the_sweep() {
        let settings = Setting::LimitAndTrains(16_384).settings(100_000_000, 1);
        assert_eq!(
            (settings.limit_output_bytes, settings.gso_max_bytes),
            (Some(16_384), Some(8192))
        );
        for setting in [Setting::Kernel, Setting::Tuned] {
            assert_eq!(setting.settings(1, 1), QueueSettings::KERNEL);
        }
        assert_eq!(Setting::SmallQueues.settings(100_000_000, 8).pacing_bytes_per_second, None);
        assert!(Setting::Paced.settings(100_000_000, 8).pacing_bytes_per_second.is_some());
    }
}
