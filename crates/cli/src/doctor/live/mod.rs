//! `uncork doctor --pid` and `uncork doctor -- COMMAND`: what is wrong now.
//!
//! By eBPF where that is allowed, else by asking the kernel about the sockets again and again.

mod commands;
mod namespace;
mod polled;
mod processes;
mod sockdiag;
mod stacks;
mod symbols;
mod target;
mod traced;
mod unwind;

use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueHint};
use uncork_bpf::{Capability, missing_capabilities};
use uncork_doctor::live::Live;
use uncork_doctor::{Report, Settings};
use uncork_posix::config::parse_duration;

use crate::failure::Failure;
use crate::output::complain;
use target::Target;

/// How long a process is watched unless it is said.
const USUAL: Duration = Duration::from_secs(10);
/// How long to wait for something to happen before looking at the command and at the clock.
const TURN: Duration = Duration::from_millis(100);

/// The options of `uncork doctor` that are about processes.
#[derive(Debug, Args)]
pub(crate) struct LiveArguments {
    /// Trace this process, with what it starts meanwhile, and its TCP connections
    ///
    /// By eBPF: that needs CAP_BPF and CAP_PERFMON (and CAP_NET_ADMIN to see which options the
    /// program asks for). Without them the sockets are looked at a hundred times a second, which
    /// tells less. May be given several times.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Vec<u32>,

    /// How long to trace the process [default: 10s]
    ///
    /// Ctrl-C ends it sooner, with a report.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    #[arg(requires = "pid")]
    pub(crate) duration: Option<Duration>,

    /// Tell where in the program the writes are made that are held back
    ///
    /// By the tables that compilers leave for unwinding, else by frame pointers. Functions of Python
    /// are named if the program runs under `python -X perf`.
    #[arg(long, conflicts_with = "pcap")]
    pub(crate) stacks: bool,

    /// Trace a command and all that it starts, until it ends
    ///
    /// With --json, what it prints on standard output goes to standard error.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Traces, and says what was found.
pub(super) fn report(
    arguments: &LiveArguments,
    settings: Settings,
    (json, quiet): (bool, bool),
) -> Result<Report, Failure> {
    let mut live = Live::new(settings, epoch());
    let pid_namespace = namespace::of_proc().map_err(Failure::unusable)?;
    let target = Target::of(arguments, json)?;
    let how = uncork_bpf::Settings {
        stacks: arguments.stacks,
        pid_namespace,
        ..uncork_bpf::Settings::default()
    };
    match may_trace().and_then(|()| traced::start(&target, how)) {
        Ok(tracer) => {
            // Who has ended before it was watched was not watched at all.
            target.still_stands()?;
            if !quiet {
                target.announce();
            }
            traced::watch(tracer, target, &mut live)?;
        }
        Err(why) => {
            complain(&why);
            if arguments.stacks {
                complain("without tracing, --stacks tells nothing");
            }
            polled::watch(target, &mut live)?;
        }
    }
    Ok(live.finish())
}

/// Says which capability is missing, and how the binary gets it.
fn may_trace() -> Result<(), String> {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(Capability::to_string).collect();
    let own = std::env::current_exe().unwrap_or_else(|_| "uncork".into());
    Err(format!(
        "tracing needs {}, which this process lacks: run it as root, or give the program what it \
         needs by `sudo setcap cap_bpf,cap_perfmon,cap_net_admin,cap_sys_ptrace+ep {}`; going on \
         without tracing: the sockets are looked at a hundred times a second",
        names.join(" and "),
        own.display()
    ))
}

/// What has to be added to CLOCK_MONOTONIC to get the time since 1970.
fn epoch() -> Duration {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.saturating_sub(monotonic())
}

/// CLOCK_MONOTONIC, which the kernel's time stamps count in.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
