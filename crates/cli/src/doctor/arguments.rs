//! The command line of `uncork doctor`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use uncork_posix::config::parse_duration;

use super::fail_on::FailOn;
use super::live::LiveArguments;
use crate::failure::Failure;
use crate::output::shown;

const HELP: &str = "\
Conditions of --fail-on:
  stall>5ms           one stall took longer
  lost>50ms           all stalls together took longer
  share>1%            that is more than this share of the time that requests took
  nagle_delayed_ack   there is a finding of this kind that is not harmless; the kinds are
                      nagle_delayed_ack, delayed_ack, quickack_exhausted, cork_timeout,
                      tiny_packets, runt, nodelay_not_in_force, sender_queue, zero_window,
                      retransmission and application

Examples:
  uncork doctor --pcap trace.pcap
  tcpdump -i any -s 128 -U -w - port 8080 | uncork doctor --pcap -
  uncork doctor --pid 4711 --for 30s
  uncork doctor --stacks -- ./client --once
  uncork doctor --pcap trace.pcap --json | jq '.connections[].findings[].kind'
  uncork doctor --pcap trace.pcap --quiet --fail-on 'stall>5ms' --fail-on 'lost>50ms'

Exit status: 0 nothing found (harmless oddities are nothing), 1 findings, or with --fail-on
a condition that holds, 2 the command line or the capture is not understood (what could be
read is reported), 3 no permission to read it, or to see
anything of the process, 125 the report cannot be written. A command's own exit status is in the
report, and told on standard error if it is not 0; one that cannot be run ends it with 126, one
that is not found with 127.";

/// Find stalls in TCP connections: who held the bytes, who held the ACK, what cures it
///
/// Reads a capture, or watches a process or a command, and tells for each connection how much time was lost to TCP, by which
/// mechanism, at which end, and the one line that cures it. It says as well when TCP is not
/// to blame.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Doctor {
    /// The capture (pcap or pcapng), or - for standard input
    ///
    /// A capture that is still being written to a pipe is read as it comes; Ctrl-C ends it
    /// with a report.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["pid", "command"])]
    pub(crate) pcap: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) live: LiveArguments,

    /// Print the report as JSON (docs/doctor.schema.json describes it)
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the report as one self-contained page, with a diagram of each kind of stall
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,

    /// Report connections without a finding, and harmless oddities, too
    #[arg(long)]
    pub(crate) all: bool,

    /// Exit with 1 only if this holds: stall>5ms, lost>50ms, share>1% or a kind of finding
    ///
    /// May be given several times; one that holds is enough.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_on: Vec<FailOn>,

    /// How long a program may take for a reply before it is named as slow
    /// [default: 20ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) slow: Option<Duration>,

    /// Print no report; the exit status tells
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

impl Doctor {
    /// Checks that an input is given.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.pcap.is_none() && self.live.pid.is_empty() && self.live.command.is_empty() {
            return Err(Failure::unusable(
                "say what to look at: `--pcap FILE` for a capture, `--pid PID` for a process that \
                 runs, `-- COMMAND` for one that is to be started (uncork doctor --help says more)",
            ));
        }
        Ok(())
    }
}

/// Says in a sentence what a bare word was probably meant to be.
pub(crate) fn meant(word: &str, has_capture: bool) -> String {
    let name = shown(word);
    if has_capture {
        return format!(
            "{name}: one capture at a time; `cat A B | uncork doctor --pcap -` reads one behind \
             the other, `mergecap -w - A B | uncork doctor --pcap -` as they overlap"
        );
    }
    if word.parse::<u32>().is_ok() {
        return format!("to watch process {name}, say `uncork doctor --pid {name}`");
    }
    if looks_like_a_capture(Path::new(word)) {
        return format!("to read {name}, say `uncork doctor --pcap {name}`");
    }
    format!("to watch the command {name}, say `uncork doctor -- {name} …`")
}

/// Returns whether a file exists that cannot be executed, or has a name as captures have.
fn looks_like_a_capture(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let named = matches!(extension, Some("pcap" | "pcapng" | "cap" | "dump"));
    let executable = crate::command::executable(path).is_ok();
    named || path.as_os_str() == "-" || (path.is_file() && !executable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        doctor: Doctor,
    }

    fn parse(arguments: &[&str]) -> Result<Doctor, String> {
        let line = ["doctor"].iter().chain(arguments);
        Only::try_parse_from(line).map(|only| only.doctor).map_err(|error| error.to_string())
    }

    #[test]
    fn the_help_names_every_kind() {
        for (name, _) in super::super::fail_on::KINDS {
            assert!(HELP.contains(name), "{name}");
        }
    }

    #[test]
    fn conditions_and_durations_are_checked_where_they_are_given() {
        let line = ["--pcap", "-", "--fail-on", "stall>5ms", "--fail-on=runt", "--slow", "1s"];
        let doctor = parse(&line).unwrap();
        assert_eq!(doctor.fail_on.len(), 2);
        assert_eq!(doctor.slow, Some(Duration::from_secs(1)));
        let error = parse(&["--pcap", "-", "--fail-on", "stall>soon"]).unwrap_err();
        assert!(error.contains("\"soon\" is not a duration"), "{error}");
        let error = parse(&["--pcap", "-", "--slow", "soon"]).unwrap_err();
        assert!(error.contains("\"soon\" is not a duration"), "{error}");
    }
}
