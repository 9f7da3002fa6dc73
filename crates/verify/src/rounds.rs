//! Alternating measurements with and without a change.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use uncork_lab::rest::rest;

use crate::seen::Seen;
use crate::watch::Watch;

/// One measurement without the change, and one with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Measured without the change.
    pub before: Seen,
    /// Measured with the change.
    pub after: Seen,
}

/// Durations of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From a change to the measurement: queues empty or fill, and the smoothed round-trip times follow.
    pub settle: Duration,
    /// Of a measurement.
    pub look: Duration,
}

/// Measures alternately without and with the change: whatever else happens to the load in the
/// meantime affects both. `set` makes the change or takes it back. It is in force at the end, even
/// if this fails: the caller takes it back.
///
/// # Errors
/// What `set` returns; what went wrong with a measurement; soon after `stop` was set.
pub fn rounds(
    watch: &mut Watch,
    (times, count): (Times, usize),
    stop: &AtomicBool,
    mut set: impl FnMut(bool) -> Result<()>,
) -> Result<Vec<Round>> {
    let mut rounds = Vec::with_capacity(count);
    for round in 0..count {
        if round > 0 {
            set(false)?;
            rest(times.settle, stop)?;
        }
        let before = watch.look(times.look, stop)?;
        set(true)?;
        rest(times.settle, stop)?;
        rounds.push(Round { before, after: watch.look(times.look, stop)? });
    }
    Ok(rounds)
}
