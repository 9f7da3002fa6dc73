//! The cases of `tsq` that are measured, and their order.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use uncork_queues::QueueSettings;

use crate::place::Bottleneck;
use crate::socket::Congestion;
use crate::tsq::{Case, Length, Measured, Setting, Tuner, measure, median};

/// 100 Mbit/s and 1 Gbit/s, for which figures were published.
pub const RATES: [u64; 2] = [100_000_000, 1_000_000_000];
/// One connection, and several.
pub const SENDERS: [u32; 2] = [1, 8];
const SETTINGS: [Setting; 4] =
    [Setting::Kernel, Setting::Limit2012, Setting::Tuned, Setting::Paced];
/// The sweep, from today's usual limit of the kernel down to less than two frames.
const LIMITS: [u32; 5] = [4 << 20, 131_072, 32_768, 8192, 4096];

/// The cases to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Settings side by side, for each rate and number of senders.
    pub compared: Vec<Case>,
    /// The same places by limit: with the kernel's trains and, where the device takes trains, with trains
    /// of half the limit.
    pub sweep: Vec<Case>,
    /// How often each is measured; rounds alternate, so that a busy minute does not affect one setting alone.
    pub rounds: usize,
    /// How long a measurement takes.
    pub length: Length,
}

/// A case with its measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// What the lab set, as kernel settings.
    pub settings: QueueSettings,
    /// What `uncork tune` changed, in its words.
    pub tuned: Vec<String>,
    /// Medians of the rounds.
    #[serde(flatten)]
    pub measured: Measured,
}

/// All measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// See [`Plan::compared`].
    pub compared: Vec<Row>,
    /// See [`Plan::sweep`].
    pub sweep: Vec<Row>,
}

impl Plan {
    /// Plans all cases or, if `quick`, a few cases once.
    #[must_use]
    pub fn new(quick: bool, congestion: Congestion) -> Self {
        let milliseconds = Duration::from_millis;
        let case = |rate, offload, senders, setting| {
            let bottleneck = Bottleneck { rate, segmentation_offload: offload };
            Case { bottleneck, setting, senders, congestion }
        };
        let mut plan = Self {
            compared: Vec::new(),
            sweep: Vec::new(),
            rounds: 3,
            length: Length { warm_up: milliseconds(1000), measured: milliseconds(1200) },
        };
        if quick {
            plan.rounds = 1;
            plan.length = Length { warm_up: milliseconds(700), measured: milliseconds(700) };
            for (rate, senders) in [(RATES[0], 1), (RATES[0], 8), (RATES[1], 1)] {
                for setting in [Setting::Kernel, Setting::Tuned, Setting::Paced] {
                    plan.compared.push(case(rate, true, senders, setting));
                }
            }
            return plan;
        }
        for rate in RATES {
            for offload in [true, false] {
                for senders in SENDERS {
                    let here = |setting| case(rate, offload, senders, setting);
                    plan.compared.extend(SETTINGS.map(here));
                    plan.sweep.extend(LIMITS.map(|limit| here(Setting::Limit(limit))));
                    if offload {
                        plan.sweep.extend(LIMITS.map(|limit| here(Setting::LimitAndTrains(limit))));
                    }
                }
            }
        }
        plan
    }

    /// Returns how many measurements that is.
    #[must_use]
    pub fn steps(&self) -> usize {
        (self.compared.len() + self.sweep.len()) * self.rounds
    }

    /// Measures all of it; `step` is called with each case before it is measured.
    ///
    /// # Errors
    /// Without the privilege, if the network cannot be made, or soon after `stop` was set.
    pub fn run(
        &self,
        tuner: &dyn Tuner,
        stop: &AtomicBool,
        mut step: impl FnMut(&Case),
    ) -> Result<Outcome> {
        let cases: Vec<Case> = self.compared.iter().chain(&self.sweep).copied().collect();
        let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); cases.len()];
        let mut tuned = vec![Vec::new(); cases.len()];
        for _ in 0..self.rounds {
            for (case, (measured, tuned)) in cases.iter().zip(rounds.iter_mut().zip(&mut tuned)) {
                step(case);
                let (one, changed) = measure(*case, self.length, tuner, stop)?;
                measured.push(one);
                *tuned = changed;
            }
        }
        let rows =
            cases.iter().zip(rounds.iter().zip(tuned)).filter_map(|(case, (rounds, tuned))| {
                let settings = case.setting.settings(case.bottleneck.rate, case.senders);
                Some(Row { case: *case, settings, tuned, measured: median(rounds)? })
            });
        let mut compared: Vec<Row> = rows.collect();
        let sweep = compared.split_off(self.compared.len());
        Ok(Outcome { compared, sweep })
    }
}

/// Returns the figures published in 2012 with the first small queues: ping under one bulk sender in
/// milliseconds, before and after (46d3ceabd8d9, "tcp: TCP Small Queues").
#[must_use]
pub fn published_ping_ms(case: &Case) -> Option<&'static str> {
    if case.senders != 1 || !case.bottleneck.segmentation_offload {
        return None;
    }
    match (case.bottleneck.rate, case.setting) {
        (100_000_000, Setting::Kernel) => Some("132"),
        (100_000_000, Setting::Limit2012) => Some("< 8"),
        (1_000_000_000, Setting::Kernel) => Some("50"),
        (1_000_000_000, Setting::Limit2012) => Some("< 1"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_plan_takes_less_than_twenty_seconds_and_has_one_and_eight_senders() {
        let plan = Plan::new(true, Congestion::Cubic);
        let each = plan.length.warm_up + plan.length.measured;
        let steps = u32::try_from(plan.steps()).unwrap();
        assert!((each + Duration::from_millis(400)) * steps < Duration::from_secs(20));
        assert!(
            SENDERS.iter().all(|senders| plan.compared.iter().any(|case| case.senders == *senders))
        );
    }

    #[test]
    fn the_whole_plan_has_each_setting_with_and_without_offload_and_the_published_cases() {
        let plan = Plan::new(false, Congestion::Cubic);
        assert_eq!(plan.compared.len(), 2 * 2 * 2 * SETTINGS.len());
        assert_eq!(plan.compared.iter().filter_map(published_ping_ms).count(), 4);
        // Each limit at all eight places, and with trains where the device takes any.
        assert_eq!(plan.sweep.len(), (8 + 4) * LIMITS.len());
        let tuned = plan.compared.iter().filter(|case| case.setting == Setting::Tuned);
        assert_eq!(tuned.count(), 8);
    }
}
