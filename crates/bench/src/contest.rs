//! Interleaved rounds, with this program's progress line.

use anyhow::Result;
use uncork_lab::contest::{self, Rounds, Watch};
pub(crate) use uncork_lab::contest::{Case, Samples};

use crate::progress::Progress;

impl Watch for Progress {
    fn begin(&self, steps: usize) {
        Progress::begin(self, steps);
    }

    fn on(&self, what: &str) {
        Progress::on(self, what);
    }

    fn done(&self) {
        Progress::done(self);
    }
}

/// Runs all cases once without counting it, then `rounds` times.
pub(crate) fn interleave(
    cases: &mut [Case<'_>],
    rounds: usize,
    progress: &Progress,
) -> Result<Samples> {
    contest::interleave(cases, Rounds::warm(rounds), progress)
}
