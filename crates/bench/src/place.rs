//! Which cores the two ends of an exchange run on.

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use crate::outcome::Skip;

/// Where the two ends of an exchange run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// Both on one core: shows what the writes cost.
    OneCore,
    /// A core each: waking the other core is then the largest part of a round trip.
    TwoCores,
}

/// The cores chosen for a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Core of the server (or the receiver).
    pub(crate) server: usize,
    /// Core of the client (or the sender).
    pub(crate) client: usize,
}

impl Place {
    /// Short name for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one",
            Self::TwoCores => "two",
        }
    }

    /// The cores to pin to, out of those that this process may use.
    pub(crate) fn cores(self) -> Result<Cores> {
        let allowed = allowed()?;
        match (self, allowed.as_slice()) {
            (Self::OneCore, [first, ..]) => Ok(Cores { server: *first, client: *first }),
            (Self::TwoCores, [first, second, ..]) => Ok(Cores { server: *first, client: *second }),
            _ => Err(Skip::new("needs two cores, and this process may use only one").into()),
        }
    }
}

/// The cores that this process may use, in ascending order.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("reading the CPU affinity")?;
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|&n| set.is_set(n) == Ok(true)).collect();
    if cores.is_empty() {
        bail!("the CPU affinity of this process is empty");
    }
    Ok(cores)
}

/// Pins the calling thread (and what it starts from now on) to one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).with_context(|| format!("core {core} is out of range"))?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("pinning to core {core}"))
}

/// The calling thread pinned to one core, until this is dropped.
pub(crate) struct Pinned(CpuSet);

impl Pinned {
    /// Pins the calling thread to `core`.
    pub(crate) fn to(core: usize) -> Result<Self> {
        let before = sched_getaffinity(Pid::from_raw(0)).context("reading the CPU affinity")?;
        pin(core)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Fails only if the cores went away, and then there is nothing to restore.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_pinned_and_given_its_cores_back() {
        let before = allowed().unwrap();
        let last = *before.last().unwrap();
        let pinned = Pinned::to(last).unwrap();
        assert_eq!(allowed().unwrap(), [last]);
        assert_eq!(Place::OneCore.cores().unwrap(), Cores { server: last, client: last });
        assert!(Place::TwoCores.cores().unwrap_err().is::<Skip>());
        drop(pinned);
        assert_eq!(allowed().unwrap(), before);
    }
}
