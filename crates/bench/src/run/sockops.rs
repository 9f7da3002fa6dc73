//! The cost of `uncork tune` for connections that last for one request: its eBPF programs run for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::unistd::geteuid;

use super::Bed;
use super::nginx::{Nginx, rate, requests};
use super::on_cpu::on_cpu;
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way};
use crate::outcome::{Bar, Compare, Row, Skip, Unit};
use crate::place::Place;
use crate::process::run_to_end;
use crate::toolbox::program;

const BENCH: &str = "sockops";
/// The share of requests per second that must remain: two in a hundred may be lost.
const LEAST: f64 = 0.98;
const LIMIT: Duration = Duration::from_secs(60);

/// Runs wrk with a connection for each request against nginx, on one core, so that none of the cost
/// is hidden by waking another core: with and without `uncork tune --nodelay` in force. It uses a
/// cgroup of its own, so that no other connections are affected.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    if !geteuid().is_root() {
        return Err(Skip::new("uncork tune needs root").into());
    }
    let wrk = program("wrk")?;
    let cores = Place::OneCore.cores()?;
    let group = Group::enter()?;
    let server = Nginx::start(bed, &Way::Plain, cores.server)?;
    let ask = || {
        let url = format!("http://127.0.0.1:{}/index.html", server.port);
        let job = Job::new(&wrk).args(["-t1", "-c16", "-d1s", "-H", "Connection: close"]).arg(url);
        let before = cpu_time(&server)?;
        let text = run_to_end(job.core(cores.client).command(bed.tools)?, "wrk", LIMIT)?;
        let cpu = cpu_time(&server)?.saturating_sub(before);
        Ok(vec![rate(&text)?, cpu.as_secs_f64() * 1e6 / requests(&text)?])
    };
    let mut cases = vec![
        Case::new("not tuned", ask),
        Case::new("tuned", || {
            let _tuned = Tuned::make(bed, &group.path)?;
            ask()
        }),
        // Once more: its deviation from 1 is the machine's.
        Case::new("not tuned, again", ask),
    ];
    let samples = interleave(&mut cases, bed.rounds(25), bed.progress)?;
    let row = |case, figure, what: &str| {
        let unit = [Unit::PerSecond, Unit::Microseconds][figure];
        let what = (BENCH, format!("wrk -c16, Connection: close: {what}; against not tuned"));
        let sides = (samples.get(case, figure), Compare::Ratio, samples.get(0, figure));
        Row::compare(what, Place::OneCore, unit, sides)
    };
    let tuned = row(1, 0, "uncork tune --nodelay in force").bar(Bar::AtLeast(LEAST));
    let again = row(2, 0, "not tuned, again");
    let cpu = "CPU time of both ends a request";
    let tuned_cpu = row(1, 1, &format!("uncork tune --nodelay in force, {cpu}"));
    Ok(vec![tuned, again, tuned_cpu, row(2, 1, &format!("not tuned, again, {cpu}"))])
}

/// Returns the CPU time of the server so far, and of all programs that were run to their end: other
/// load on the machine reduces the rate, but hardly changes this.
fn cpu_time(server: &Nginx) -> Result<Duration> {
    let mut total = on_cpu(server.running.pid())?;
    let ended = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    for time in [ended.user_time(), ended.system_time()] {
        total += Duration::from_micros(u64::try_from(time.num_microseconds())?);
    }
    Ok(total)
}

/// A tuning in force until it is dropped, with a journal and a bpffs of its own.
struct Tuned<'a> {
    bed: &'a Bed<'a>,
    uncork: PathBuf,
    state: PathBuf,
    bpffs: PathBuf,
}

impl<'a> Tuned<'a> {
    fn make(bed: &'a Bed<'a>, group: &Path) -> Result<Self> {
        let (state, bpffs) = (bed.scratch.dir("journal")?, bed.scratch.dir("bpffs")?);
        let tuned = Self { bed, uncork: bed.tools.uncork()?, state, bpffs };
        let scope = ["--nodelay", "--cgroup"].map(Into::into);
        tuned.tune(scope.into_iter().chain([group.to_owned()]))?;
        Ok(tuned)
    }

    fn tune(&self, words: impl Iterator<Item = PathBuf>) -> Result<String> {
        let job = Job::new(&self.uncork).arg("tune").args(words);
        let job = job.arg("--state").arg(&self.state).arg("--bpffs").arg(&self.bpffs);
        run_to_end(job.command(self.bed.tools)?, "uncork tune", LIMIT)
    }
}

impl Drop for Tuned<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.tune(["undo", "--all"].into_iter().map(PathBuf::from)) {
            self.bed.progress.say(&format!("{error:#}"));
        }
    }
}

/// A cgroup that contains this process until it is dropped, with its new children.
struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    fn enter() -> Result<Self> {
        let missing = || Skip::new("no cgroup v2 hierarchy is mounted");
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let root =
            PathBuf::from(mount.and_then(|line| line.split(' ').nth(1)).ok_or_else(missing)?);
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(missing)?;
        let path = root.join(format!("uncork-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        let group = Self { path, before: root.join(own) };
        move_to(&group.path)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is left of it does nothing, and the next run uses another name.
        let _ = move_to(&self.before);
        let _ = fs::remove_dir(&self.path);
    }
}

fn move_to(group: &Path) -> Result<()> {
    let file = group.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string())
        .with_context(|| format!("moving into {}", group.display()))
}
