//! How long peers took to hear of a kill.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::peers::Does;
use super::strike::Victims;

/// How long a peer may take to hear of a kill.
const SOON: Duration = Duration::from_millis(100);

/// A kind of kill with this many peers was made ten times or more.
const OFTEN: usize = 240;

/// All times, by what was killed.
#[derive(Debug, Default)]
pub(super) struct Heard {
    times: BTreeMap<Victims, Vec<(Duration, Does)>>,
    resets: usize,
    ends: usize,
}

impl Heard {
    pub(super) fn note(&mut self, victims: Victims, does: Does, took: Duration, is_reset: bool) {
        self.times.entry(victims).or_default().push((took, does));
        if is_reset {
            self.resets += 1;
        } else {
            self.ends += 1;
        }
    }

    /// Fails if the median peer has not heard in time: of all, and of each kind of kill made often.
    /// All peers of one kill may be late together because the machine was busy with something else,
    /// so a few kills say nothing of their kind; a peer that never hears has failed its round
    /// already.
    pub(super) fn check(&self) -> Result<()> {
        let all: Vec<_> = self.times.values().flatten().copied().collect();
        let often = self.times.iter().filter(|(_, times)| times.len() >= OFTEN);
        let kinds = often.map(|(victims, times)| (format!("{victims:?}"), times.clone()));
        for (what, mut times) in kinds.chain([("all kills".to_owned(), all)]) {
            times.sort_unstable_by_key(|(took, _)| *took);
            let median = times.get(times.len() / 2).context("nobody has heard of anything")?.0;
            ensure!(median < SOON, "{what}: half of the peers heard of it after {median:?}");
        }
        Ok(())
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} resets and {} FINs", self.resets, self.ends)?;
        for (victims, times) in &self.times {
            let mut times = times.clone();
            times.sort_unstable_by_key(|(took, _)| *took);
            let part = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
            let late = times.iter().filter(|(took, _)| *took >= SOON).count();
            write!(f, "\n  {victims:?}: {} peers, ", times.len())?;
            write!(f, "p50 {:?}, p99 {:?}, max {:?}", part(50).0, part(99).0, part(100))?;
            write!(f, ", {late} later than {SOON:?}")?;
        }
        Ok(())
    }
}
