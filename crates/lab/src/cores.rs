//! Which cores the two ends of an exchange run on.

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores that the two ends of an exchange run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Core of the server (or receiver).
    pub server: usize,
    /// Core of the client (or sender).
    pub client: usize,
}

impl Cores {
    /// Returns one core for both ends: shows what the writes cost.
    ///
    /// # Errors
    /// If the available cores cannot be determined.
    pub fn one() -> Result<Self> {
        let first = allowed()?[0];
        Ok(Self { server: first, client: first })
    }

    /// Returns a core for each end, if this process may use two: waking the other core is then the
    /// largest part of a round trip.
    ///
    /// # Errors
    /// If the available cores cannot be determined.
    pub fn two() -> Result<Option<Self>> {
        Ok(match allowed()?.as_slice() {
            [first, second, ..] => Some(Self { server: *first, client: *second }),
            _ => None,
        })
    }
}

/// Returns the cores that this process may use, in ascending order: at least one.
///
/// # Errors
/// If the kernel does not tell.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("reading the CPU affinity")?;
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|&n| set.is_set(n) == Ok(true)).collect();
    if cores.is_empty() {
        bail!("the CPU affinity of this process is empty");
    }
    Ok(cores)
}

/// Pins the calling thread (and its later children) to one core.
///
/// # Errors
/// If the kernel refuses.
pub fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).with_context(|| format!("core {core} is out of range"))?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("pinning to core {core}"))
}

/// Keeps the calling thread pinned to one core until it is dropped.
#[derive(Debug)]
pub struct Pinned(CpuSet);

impl Pinned {
    /// Pins the calling thread to `core`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn to(core: usize) -> Result<Self> {
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
        assert_eq!(Cores::one().unwrap(), Cores { server: last, client: last });
        assert_eq!(Cores::two().unwrap(), None);
        drop(pinned);
        assert_eq!(allowed().unwrap(), before);
    }
}
