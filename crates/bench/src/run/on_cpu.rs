//! How long a program was on a processor: what else runs on the machine takes from a rate, but hardly
//! from this.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Time of a process and its children so far (those that it waits for not counted), with all threads that
/// they have now.
pub(super) fn on_cpu(pid: u32) -> Result<Duration> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let mut total = Duration::ZERO;
    for pid in std::iter::once(pid).chain(children) {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            // Nanoseconds on a processor (Documentation/scheduler/sched-stats.rst).
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
            let first = first.with_context(|| format!("understanding schedstat of {pid}"))?;
            total += Duration::from_nanos(first);
        }
    }
    Ok(total)
}
