//! Processor time of programs: other load on the machine reduces a rate, but hardly changes this.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::place::Cores;

/// Returns the time of a process and its children so far (without those that it waits for), with all threads that
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

/// Returns the time of all that this process has started and that has ended.
pub(super) fn of_ended() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("asking what children took")?;
    let time = |value: TimeVal| {
        Duration::from_micros(u64::try_from(value.num_microseconds()).unwrap_or(0))
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// The unit of /proc/stat: USER_HZ, which is 100 on every machine that this runs on.
const TICK: Duration = Duration::from_millis(10);

/// Returns how long these two processors have been idle so far. The rest of the time is all the work done there,
/// including interrupts, which are attributed to no process where they come while all sleep.
pub(super) fn idle(cores: Cores) -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let of = |core: usize| {
        let name = format!("cpu{core}");
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(&name));
        // proc_stat(5): idle and iowait are the fourth and the fifth.
        let ticks = line?.split_whitespace().skip(4).take(2).map(str::parse::<u32>);
        Some(TICK * ticks.collect::<Result<Vec<_>, _>>().ok()?.into_iter().sum())
    };
    let both = of(cores.server).zip(of(cores.client));
    let (server, client) = both.context("understanding /proc/stat")?;
    Ok(server + client)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_has_ended_is_counted_and_so_is_what_runs() {
        let before = of_ended().unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        let took = of_ended().unwrap().saturating_sub(before);
        assert!(took > Duration::from_millis(5), "{took:?}");
        assert!(on_cpu(std::process::id()).unwrap() > Duration::ZERO);
    }
}
