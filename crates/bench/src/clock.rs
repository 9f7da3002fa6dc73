//! A clock that all processes of the machine share.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds of CLOCK_MONOTONIC, comparable between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Monotonic(pub(crate) u64);

impl Monotonic {
    /// Returns the present time.
    pub(crate) fn now() -> Result<Self> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("reading the clock")?;
        Ok(Self(Duration::from(now).as_nanos() as u64))
    }

    /// Returns the time from `earlier` to this; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
