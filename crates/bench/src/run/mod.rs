//! `uncork-bench run`: every figure that the project claims, held against its bar.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

use self::inline::fstack::Checkout;
use crate::machine::Machine;
use crate::outcome::{Outcome, Row};
use crate::place::Place;
use crate::process::Scratch;
use crate::progress::Progress;
use crate::table;
use crate::toolbox::Toolbox;

mod capture;
mod cure;
mod idle_spin;
mod inline;
mod live;
mod memcached;
mod nginx;
mod not_ours;
mod on_cpu;
mod pgbench;
mod reception;
mod redis;
mod serving;
mod small_queues;
mod small_writes;
mod sockops;
mod spin;
mod spin_redis;
mod stack;
mod startup;
mod timer;
mod timer_costs;
mod tuning;

/// A benchmark, by the name that `--only` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bench {
    /// The published experiment: small writes against what can be had at best
    SmallWrites,
    /// redis-benchmark against redis
    Redis,
    /// wrk against nginx, keep-alive and Connection: close
    Nginx,
    /// pgbench -S against PostgreSQL
    Pgbench,
    /// Sets and gets against memcached
    Memcached,
    /// A call on a descriptor that is not ours
    NotOurs,
    /// Start of a process
    Startup,
    /// Round trips with and without spinning
    Spin,
    /// redis-benchmark with one connection, both ends spinning
    SpinRedis,
    /// What spinning costs a server with nothing to do
    IdleSpin,
    /// When bytes arrive that were written just before a busy loop
    Timer,
    /// What ways of keeping time cost a write
    TimerCosts,
    /// uncork doctor on a large capture, against tshark and tcptrace
    Capture,
    /// redis-benchmark against a redis that uncork doctor watches
    Live,
    /// wrk with Connection: close against nginx, with uncork tune in force
    Sockops,
    /// Ping and throughput beside bulk senders, with what uncork tune small-queues sets
    SmallQueues,
    /// Stalled programs that uncork tune cures while they run
    Cure,
    /// The same with a program in Go
    CureGo,
    /// wrk against uncork stack serve http: answers a second of the server's processor time
    StackHttp,
    /// A long body from uncork stack serve http
    StackBulk,
    /// Bulk through 1 % of random losses: our sender against the kernel's CUBIC
    StackLoss,
    /// A ping beside one bulk sender of ours
    StackPing,
    /// uncork stack serve by AF_XDP, against a packet socket
    StackPorts,
    /// wrk against nginx under uncork run --stack
    InlineNginx,
    /// The same with many workers
    InlineWorkers,
    /// Files that nginx sends under uncork run --stack
    InlineFiles,
    /// redis-benchmark against redis under uncork run --stack
    InlineRedis,
    /// Round trips of 64 bytes to an echo under uncork run --stack
    InlineTrip,
    /// Connections that a client under uncork run --stack opens
    InlineDial,
    /// Processes under uncork run --stack that open one connection each
    InlineProcesses,
    /// What --moderation costs clients that ask at a rate of their own
    InlineModeration,
    /// A server with a thread for each connection under uncork run --stack
    InlineThreads,
    /// redis with ten thousand clients under uncork run --stack
    InlineClients,
    /// iperf3 against iperf3 under uncork run --stack
    InlineBulk,
    /// Servers under uncork run --stack with AF_XDP, against packet sockets
    InlinePorts,
    /// wrk against nginx under uncork run --stack, and against nginx under F-Stack's adapter
    InlineFstack,
    /// What uncork run --stack costs on a descriptor that is none of its business
    InlineCall,
}

impl Bench {
    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SmallWrites => "small-writes",
            Self::Redis => "redis",
            Self::Nginx => "nginx",
            Self::Pgbench => "pgbench",
            Self::Memcached => "memcached",
            Self::NotOurs => "not-ours",
            Self::Startup => "startup",
            Self::Spin => "spin",
            Self::SpinRedis => "spin-redis",
            Self::IdleSpin => "idle-spin",
            Self::Timer => "timer",
            Self::TimerCosts => "timer-costs",
            Self::Live => "live",
            Self::Sockops => "sockops",
            Self::SmallQueues => "small-queues",
            Self::Cure => "cure",
            Self::CureGo => "cure-go",
            Self::StackHttp => "stack-http",
            Self::StackBulk => "stack-bulk",
            Self::StackLoss => "stack-loss",
            Self::StackPing => "stack-ping",
            Self::StackPorts => "stack-ports",
            Self::InlineNginx => "inline-nginx",
            Self::InlineWorkers => "inline-workers",
            Self::InlineFiles => "inline-files",
            Self::InlineRedis => "inline-redis",
            Self::InlineTrip => "inline-trip",
            Self::InlineDial => "inline-dial",
            Self::InlineProcesses => "inline-processes",
            Self::InlineModeration => "inline-moderation",
            Self::InlineThreads => "inline-threads",
            Self::InlineClients => "inline-clients",
            Self::InlineBulk => "inline-bulk",
            Self::InlinePorts => "inline-ports",
            Self::InlineFstack => "inline-fstack",
            Self::InlineCall => "inline-call",
            Self::Capture => "capture",
        }
    }

    /// Returns whether it is repeated on a core for each end, to be reported without a bar.
    fn both_places(self) -> bool {
        use Bench::{Memcached, Nginx, Pgbench, Redis, SmallWrites};
        matches!(self, SmallWrites | Redis | Nginx | Pgbench | Memcached)
    }

    fn run(self, bed: &Bed<'_>, place: Place) -> Result<Vec<Row>> {
        match self {
            Self::SmallWrites => small_writes::run(bed, place),
            Self::Redis => redis::run(bed, place),
            Self::Nginx => nginx::run(bed, place),
            Self::Pgbench => pgbench::run(bed, place),
            Self::Memcached => memcached::run(bed, place),
            Self::NotOurs => not_ours::run(bed),
            Self::Startup => startup::run(bed),
            Self::Spin => spin::run(bed),
            Self::SpinRedis => spin_redis::run(bed),
            Self::IdleSpin => idle_spin::run(bed),
            Self::Timer => timer::run(bed),
            Self::TimerCosts => timer_costs::run(bed),
            Self::Live => live::run(bed),
            Self::Sockops => sockops::run(bed),
            Self::SmallQueues => small_queues::run(bed),
            Self::Cure => cure::run(bed),
            Self::CureGo => cure::run_go(bed),
            Self::StackHttp => stack::http::run(bed),
            Self::StackBulk => stack::bulk::run(bed),
            Self::StackLoss => stack::loss::run(bed),
            Self::StackPing => stack::ping::run(bed),
            Self::StackPorts => stack::ports::run(bed),
            Self::InlineNginx => inline::nginx::run(bed),
            Self::InlineWorkers => inline::workers::run(bed),
            Self::InlineFiles => inline::files::run(bed),
            Self::InlineRedis => inline::redis::run(bed),
            Self::InlineTrip => inline::trip::run(bed),
            Self::InlineDial => inline::dial::run(bed),
            Self::InlineProcesses => inline::dial::run_processes(bed),
            Self::InlineModeration => inline::moderation::run(bed),
            Self::InlineThreads => inline::threads::run(bed),
            Self::InlineClients => inline::clients::run(bed),
            Self::InlineBulk => inline::bulk::run(bed),
            Self::InlinePorts => inline::ports::run(bed),
            Self::InlineFstack => inline::fstack::run(bed),
            Self::InlineCall => inline::call::run(bed),
            Self::Capture => capture::run(bed),
        }
    }
}

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    only: Vec<Bench>,

    /// Interleaved rounds of each comparison, instead of each benchmark's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Fewer rounds and shorter ones: to see that everything runs, not to quote
    #[arg(long)]
    quick: bool,

    /// Leave out the part on two cores, which has no bars of its own
    #[arg(long)]
    one_core: bool,

    /// libautocork.so of 2007, built by you, to compare with
    #[arg(long, value_name = "PATH")]
    autocork_2007: Option<PathBuf>,

    /// Checkout of F-Stack, built by you (docs/F-STACK.md), whose adapter inline-fstack compares with
    #[arg(long, value_name = "DIR")]
    fstack: Option<PathBuf>,

    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Fail if anything has to be skipped (always so with CI=true in the environment)
    #[arg(long)]
    strict: bool,
}

/// The environment of every benchmark.
pub(crate) struct Bed<'a> {
    /// Our programs.
    pub(crate) tools: &'a Toolbox,
    /// The working directory.
    pub(crate) scratch: &'a Scratch,
    /// The progress line.
    pub(crate) progress: &'a Progress,
    /// The library of 2007.
    pub(crate) autocork_2007: Option<PathBuf>,
    /// The checkout of F-Stack.
    pub(crate) fstack: Option<Checkout>,
    /// Whether runs are shorter.
    pub(crate) quick: bool,
    rounds: Option<u32>,
}

impl Bed<'_> {
    /// Returns how many rounds are run: the user's number, or `full`, or few if it has to be quick.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        match self.rounds {
            Some(rounds) => rounds as usize,
            None if self.quick => full.min(3),
            None => full,
        }
    }

    /// Returns how much work one run does: `full`, or a fifth of it if it has to be quick.
    pub(crate) fn amount(&self, full: u64) -> u64 {
        if self.quick { (full / 5).max(1) } else { full }
    }
}

/// The JSON file.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    machine: &'a Machine,
    quick: bool,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Runs what was requested; true if every bar is met.
pub(crate) fn run(args: &Args) -> Result<bool> {
    args.json.as_deref().map_or(Ok(()), writable)?;
    let machine = Machine::read();
    let tools = Toolbox::find()?;
    let scratch = Scratch::new(&tools)?;
    let progress = Progress::new();
    let autocork_2007 = args.autocork_2007.as_deref().map(existing).transpose()?;
    let fstack = args.fstack.as_deref().map(|dir| Checkout::at(&existing(dir)?)).transpose()?;
    let bed = Bed {
        tools: &tools,
        scratch: &scratch,
        progress: &progress,
        autocork_2007,
        fstack,
        quick: args.quick,
        rounds: args.rounds,
    };
    let strict = args.strict || std::env::var_os("CI").is_some_and(|value| value == "true");
    let mut outcome = Outcome::default();
    for bench in chosen(&args.only) {
        measure(&bed, bench, args.one_core, &mut outcome);
    }
    progress.end();
    print!("{}", table::render(&machine, &outcome, strict));
    if let Some(path) = &args.json {
        let report = Report { schema: 1, machine: &machine, quick: args.quick, outcome: &outcome };
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(outcome.success(strict))
}

/// Checks that the figures can be written, before the hour that it takes to measure them. The file's
/// contents are kept until then.
fn writable(path: &Path) -> Result<()> {
    let opened = fs::File::options().append(true).create(true).open(path);
    opened.map(drop).with_context(|| format!("writing {}", path.display()))
}

fn chosen(only: &[Bench]) -> Vec<Bench> {
    let wanted = |bench: &Bench| only.is_empty() || only.contains(bench);
    Bench::value_variants().iter().copied().filter(wanted).collect()
}

fn measure(bed: &Bed<'_>, bench: Bench, one_core: bool, outcome: &mut Outcome) {
    let name = bench.name();
    if !bench.both_places() {
        take(bed, (bench, Place::OneCore), name, outcome);
        return;
    }
    for place in [Place::OneCore, Place::TwoCores] {
        if place == Place::TwoCores && one_core {
            continue;
        }
        let title = format!("{name} ({} core{})", place.name(), plural(place));
        take(bed, (bench, place), &title, outcome);
        // What keeps one place from running keeps the other as well: report it once.
        if outcome.skipped.last().is_some_and(|absent| absent.bench == title) {
            break;
        }
    }
}

/// Runs one, and reports the result at once, as a whole run takes a while.
fn take(bed: &Bed<'_>, (bench, place): (Bench, Place), title: &str, outcome: &mut Outcome) {
    let score = |outcome: &Outcome| {
        let (kept, bars) = outcome.score();
        (kept, bars, outcome.rows.len())
    };
    bed.progress.title(title);
    let (kept, bars, rows) = score(outcome);
    outcome.take(title, bench.run(bed, place));
    let (kept, bars, rows) = {
        let now = score(outcome);
        (now.0 - kept, now.1 - bars, now.2 - rows)
    };
    bed.progress.say(&match (rows, bars) {
        (0, _) => format!("{title}: no figures"),
        (_, 0) => format!("{title}: {rows} figures without a bar"),
        _ => format!("{title}: {kept} of {bars} bars kept"),
    });
}

fn plural(place: Place) -> &'static str {
    if place == Place::TwoCores { "s" } else { "" }
}

fn existing(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("looking for {}", path.display()))
}
