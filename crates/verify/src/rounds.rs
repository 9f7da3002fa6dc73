//! Looking in turns with and without a change.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use uncork_lab::rest::rest;

use crate::seen::Seen;
use crate::watch::Watch;

/// One look without the change, and one with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Without.
    pub before: Seen,
    /// With.
    pub after: Seen,
}

/// How long what takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From a change until it is looked: queues empty or fill, and the smoothed round trips follow.
    pub settle: Duration,
    /// A look.
    pub look: Duration,
}

/// Looks so many times without and with the change, in turns: what else happens to the load in the
/// meantime hits both. `set` makes the change or takes it back. It stays made at the end, also when
/// this fails: whoever called takes it back.
///
/// # Errors
/// What `set` says; what went wrong with a look; soon after `stop` was set.
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
