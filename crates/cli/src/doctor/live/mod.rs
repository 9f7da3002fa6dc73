//! `uncork doctor --pid` and `uncork doctor -- COMMAND`: diagnosis of running programs.
//!
//! It uses eBPF where that is allowed, else it polls the kernel for the state of the sockets.

mod commands;
mod namespace;
mod opened;
mod options;
mod pace;
mod polled;
mod processes;
mod records;
mod stacks;
mod symbols;
mod target;
mod traced;
mod unwind;

use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueHint};
use uncork_bpf::{Capability, missing_capabilities};
use uncork_doctor::live::{Ends, Live};
use uncork_doctor::{Report, Settings};
use uncork_posix::config::parse_duration;
use uncork_sockdiag::Answer;

use crate::failure::Failure;
use crate::output::complain;
use records::Records;
use target::Target;

/// How long a process is watched by default.
const USUAL: Duration = Duration::from_secs(10);
/// How long to wait for events before checking the command and the clock.
const TURN: Duration = Duration::from_millis(100);

/// A socket's other end is reported within this time, or not before the end.
const BOTH_TOLD: Duration = Duration::from_secs(1);

/// Converts the ends of a connection to the doctor's type.
fn ends(answer: &Answer) -> Ends {
    Ends { local: answer.local.into(), remote: answer.remote.into() }
}

/// The options of `uncork doctor` that are about processes.
#[derive(Debug, Args)]
pub(crate) struct LiveArguments {
    /// Trace this process, with what it starts meanwhile, and its TCP connections
    ///
    /// By eBPF: that needs CAP_BPF and CAP_PERFMON (and CAP_NET_ADMIN to see which options the
    /// program asks for). Without them the sockets are looked at up to a thousand times a second,
    /// which tells less. May be given several times.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pid: Vec<u32>,

    /// How long to trace the process [default: 10s]
    ///
    /// Ctrl-C ends it sooner, with a report.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    #[arg(requires = "pid", conflicts_with_all = ["pcap", "command"])]
    pub(crate) duration: Option<Duration>,

    /// Tell where in the program the writes are made that are held back
    ///
    /// By the tables that compilers leave for unwinding, else by frame pointers. Functions of Python
    /// are named if the program runs under `python -X perf`.
    #[arg(long, conflicts_with = "pcap")]
    pub(crate) stacks: bool,

    /// Trace a command and all that it starts, until it ends
    ///
    /// How it ended is in the report. With --json, what it prints on standard output goes to standard error.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Traces, and reports what was found.
pub(super) fn report(
    arguments: &LiveArguments,
    settings: Settings,
    (json, quiet): (bool, bool),
) -> Result<Report, Failure> {
    let mut live = Live::new(settings, epoch());
    let pid_namespace = namespace::of_proc().map_err(Failure::unusable)?;
    let mut target = Target::of(arguments, json, quiet)?;
    let mut records = if target.is_command() { Records::of_command() } else { Records::default() };
    let how = uncork_bpf::Settings {
        stacks: arguments.stacks,
        pid_namespace,
        ..uncork_bpf::Settings::default()
    };
    let notes = match may_trace().and_then(|()| traced::start(&target, how)) {
        Ok(tracer) => {
            // A process that ended before it was watched was not watched at all.
            target.still_stands()?;
            target.announce("tracing");
            traced::watch(tracer, &mut target, &mut live, &mut records)?
        }
        Err(why) => {
            complain(&why);
            if arguments.stacks {
                complain("without tracing, --stacks tells nothing");
            }
            polled::watch(&mut target, &mut live, &mut records)?
        }
    };
    records.wrote(|pid| live.has_written(pid));
    let mut report = live.finish();
    report.notes = notes;
    report.command = target.told();
    records.finish(&processes::trees(&target.pids), &mut report);
    Ok(report)
}

/// Says which capability is missing, and how the program gets what it needs.
fn may_trace() -> Result<(), String> {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(Capability::to_string).collect();
    let own = std::env::current_exe().unwrap_or_else(|_| "uncork".into());
    Err(format!(
        "tracing needs {}, which this process lacks: run it as root, or once \
         `sudo setcap cap_bpf,cap_perfmon,cap_net_admin+ep {}` (cap_net_admin shows which options \
         programs ask for; add cap_sys_ptrace to look into processes of other users); going on \
         without tracing: the sockets are looked at again and again",
        names.join(" and "),
        own.display()
    ))
}

/// Returns the offset from CLOCK_MONOTONIC to the time since 1970.
fn epoch() -> Duration {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.saturating_sub(monotonic())
}

/// Returns CLOCK_MONOTONIC, on which the kernel's timestamps are based.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
