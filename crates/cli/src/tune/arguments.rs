//! The command line of `uncork tune`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueHint};
use uncork_posix::config::parse_duration;
use uncork_tune::small_queues::Rate;
use uncork_tune::{LONGEST_NAME_BYTES, Prefix};

const HELP: &str = "\
Examples:
  uncork tune --nodelay --pid 4711
  uncork tune --nodelay --notsent-lowat 128k --port 5432 --dry-run
  uncork tune --quickack --peer 10.0.0.0/24
  uncork tune small-queues --dev eth0 --target 1ms
  uncork tune list
  uncork tune undo --all

Exit status: 0 all of it was done, 1 something was refused or left as it is (it says what), 2 the
command line is not understood or names what is not there, 3 no permission: it names the capabilities
that are missing, 125 standard output cannot be written (what was asked for was done).";

const LIST_HELP: &str = "\
Exit status: 0, 1 if an entry of the journal cannot be read or is missing there, 125 if standard
output cannot be written.";

const UNDO_HELP: &str = "\
Exit status: 0 all is as it was, 1 something was changed by somebody else since and was left so,
or could not be set back (it stays in the list), 2 the command line is not understood or there is no
such entry, 3 no permission, 125 standard output cannot be written (what could be was undone).";

const SMALL_QUEUES_HELP: &str = "\
Examples:
  uncork tune small-queues --dev eth0
  uncork tune small-queues --dev veth0 --rate 100mbit --target 2ms --dry-run
  uncork tune small-queues --dev eth0 --verify
  uncork tune small-queues --dev eth0 --verify --load 192.0.2.7:5201 --ping 192.0.2.7

Exit status: as of uncork tune; 1 also if it was verified and taken back, or there was no load to
judge by, 130 if it was ended by Ctrl-C (and taken back).";

const SINK_HELP: &str = "\
Example: on the other host
  uncork tune sink 192.0.2.7:5201

Exit status: 130 when it is ended by Ctrl-C, 2 if the address cannot be listened on.";

/// Set TCP options of running programs' connections, and take it all back
///
/// Reaches what no preloaded library can: programs that run already, static ones, Go. New
/// connections are met by eBPF when they are established, present ones at once; the programs are not
/// stopped or restarted. What is changed stays until it is undone or the machine is booted; each
/// change is written into a journal first. All that is given of the scope must hold.
#[derive(Debug, Args)]
#[command(after_help = HELP, arg_required_else_help = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) cures: Cures,

    #[command(flatten)]
    pub(crate) scope: Scope,

    /// Print what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) places: Places,

    #[command(subcommand)]
    pub(crate) command: Option<TuneCommand>,
}

/// At least one of these must be given.
const WHICH: [&str; 6] = ["pid", "cgroup", "port", "peer", "netns", "all"];

/// What is set.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Cures {
    /// Send small segments at once (TCP_NODELAY), also what waits now
    #[arg(long)]
    pub(crate) nodelay: bool,

    /// Acknowledge at once what the peers send, by their routes' quickack
    ///
    /// The kernel refuses TCP_QUICKACK to eBPF, and a route cannot tell processes apart: it goes
    /// with --peer, --netns or --all, and means the routes of one network namespace.
    #[arg(long)]
    pub(crate) quickack: bool,

    /// The longest that an ACK may be delayed: two ticks of the kernel (8ms at 250 Hz) to 200ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) delack_max: Option<Duration>,

    /// How much may wait unsent before the program is asked for more (TCP_NOTSENT_LOWAT): 128k
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) notsent_lowat: Option<u32>,

    /// The shortest retransmission timeout: two ticks of the kernel to 200ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) rto_min: Option<Duration>,

    /// The fastest that each connection may send (SO_MAX_PACING_RATE): 100mbit
    #[arg(long, value_name = "RATE", value_parser = pacing)]
    pub(crate) pacing: Option<u32>,

    /// The congestion control: cubic, bbr, or another that the kernel has loaded
    #[arg(long, value_name = "NAME", value_parser = congestion)]
    pub(crate) congestion: Option<String>,
}

/// Which connections.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").args(WHICH).required(true).multiple(true)))]
pub(crate) struct Scope {
    /// Those of this process and of all that descend from it
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pid: Option<u32>,

    /// Those made in this cgroup (of the v2 hierarchy) or below it
    ///
    /// Its directory, or its name as /proc/PID/cgroup has it.
    #[arg(long, value_name = "CGROUP", value_hint = ValueHint::DirPath)]
    pub(crate) cgroup: Option<PathBuf>,

    /// Those with this port at either end
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) port: Option<u16>,

    /// Those whose other end has one of these addresses
    #[arg(long, value_name = "CIDR")]
    pub(crate) peer: Option<Prefix>,

    /// Those of this network namespace: a name of ip-netns(8), or the path of its file
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,

    /// Every connection of the machine
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "port", "peer", "netns"])]
    pub(crate) all: bool,

    /// Only connections that are established from now on
    #[arg(long, conflicts_with = "live")]
    pub(crate) new: bool,

    /// Only connections that there are
    #[arg(long)]
    pub(crate) live: bool,
}

/// Where things are kept.
#[derive(Debug, Args)]
pub(crate) struct Places {
    /// Where the journal is [default: /var/lib/uncork/tune]
    #[arg(long, value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    pub(crate) state: Option<PathBuf>,

    /// Where bpffs is, or is to be mounted [default: /sys/fs/bpf]
    ///
    /// Entries know theirs: list and undo look here only for what a journal has lost.
    #[arg(long, value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    pub(crate) bpffs: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Keep a device's queue short: no connection has more in it than a target time takes to send
    ///
    /// Sets what is needed together, in the network namespace of the device:
    /// net.ipv4.tcp_limit_output_bytes, tcp_notsent_lowat, tcp_min_tso_segs and tcp_tso_rtt_log, and
    /// the device's gso_max_size and gso_max_segs.
    #[command(after_help = SMALL_QUEUES_HELP)]
    SmallQueues(SmallQueues),
    /// Take what another host's `small-queues --load` sends, and throw it away
    ///
    /// Anybody who can reach the address can send to it, and nothing is kept.
    #[command(after_help = SINK_HELP)]
    Sink(Sink),
    /// Show what is in force, since when, and what it touched
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Set back what was changed
    ///
    /// What somebody else has changed since is told, and left as it is.
    #[command(after_help = UNDO_HELP)]
    Undo(Undo),
}

#[derive(Debug, Args)]
pub(crate) struct SmallQueues {
    /// The device through which the bulk goes
    #[arg(long, value_name = "DEV")]
    pub(crate) dev: String,

    /// How long what is queued may take to send: 50us to 1s
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = target)]
    pub(crate) target: Duration,

    /// How fast the link is: 100mbit
    ///
    /// 32kbit to 2tbit. Not given: what its shaper (tbf or htb) says, else its own speed, else what it is seen to
    /// send in a second in which there is more to send.
    #[arg(long, value_name = "RATE", value_parser = link)]
    pub(crate) rate: Option<u64>,

    /// How many connections send in bulk at a time
    ///
    /// Not given: as many as have more to send now, over a second; one, if none has.
    #[arg(long, value_name = "N")]
    pub(crate) senders: Option<NonZeroU32>,

    /// Pace each connection over the device at its part of the rate (eBPF)
    ///
    /// Empties the queue almost, also of many senders. The price: none gets more than its part while
    /// others are silent, and a rate that is said or measured too high brings the queue back.
    #[arg(long)]
    pub(crate) pace: bool,

    /// Measure round trips, queue and throughput before and after, in turns, and take it back if it
    /// did not help
    ///
    /// Judges by the load that there is: it watches the connections over the device and sends
    /// nothing. Without one it changes nothing. Takes about fifteen seconds, during which the
    /// settings are made, taken back and made again.
    #[arg(long)]
    pub(crate) verify: bool,

    /// With --verify: judge by pings to this host (IPv4) beside the load
    #[arg(long, value_name = "HOST", requires = "verify")]
    pub(crate) ping: Option<String>,

    /// With --verify: make the load, to somebody there who throws it away
    ///
    /// `uncork tune sink` on another host of yours, or a discard service. So many connections as
    /// --senders says send as fast as they may.
    #[arg(long, value_name = "HOST:PORT", requires = "verify")]
    pub(crate) load: Option<String>,

    /// With --verify: how long each of the six measurements takes, 200ms to 60s
    #[arg(long, value_name = "DURATION", requires = "verify", value_parser = each)]
    #[arg(default_value = "1500ms")]
    pub(crate) each: Duration,

    /// The network namespace of the device: a name of ip-netns(8), or the path of its file
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,

    /// Print what would be changed, and change nothing
    #[arg(long, conflicts_with_all = ["verify", "ping", "load", "each"])]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Sink {
    /// The address to listen on: 192.0.2.7:5201
    #[arg(value_name = "ADDRESS:PORT", value_parser = address_and_port)]
    pub(crate) address: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print a JSON array, one element an entry
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Undo {
    /// The number of the entry, as the list has it
    #[arg(value_name = "ID")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) id: Option<u32>,

    /// Undo all entries, the youngest first
    #[arg(long)]
    pub(crate) all: bool,
}

/// Parses a size: `131072`, `128k`, `1m`.
fn bytes(text: &str) -> Result<u32, String> {
    let (digits, unit) = number_and_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => Some(1),
        "k" => Some(1 << 10),
        "m" => Some(1 << 20),
        _ => None,
    };
    let size = factor.and_then(|factor: u64| digits.parse::<u64>().ok()?.checked_mul(factor));
    // The kernel takes an int.
    let size = size.filter(|size| (1..=0x7fff_ffff).contains(size));
    size.and_then(|size| u32::try_from(size).ok())
        .ok_or_else(|| format!("{text:?} is not a size such as 131072, 128k or 1m, below 2048m"))
}

/// Parses a rate as written for tc(8), in bits a second.
fn bits(text: &str) -> Result<u64, String> {
    let (digits, unit) = number_and_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "bit" => Some(1),
        "kbit" => Some(1_000),
        "mbit" => Some(1_000_000),
        "gbit" => Some(1_000_000_000),
        "tbit" => Some(1_000_000_000_000),
        _ => None,
    };
    let bits = factor.and_then(|factor: u64| digits.parse::<u64>().ok()?.checked_mul(factor));
    bits.ok_or_else(|| format!("{text:?} is not a rate such as 512kbit, 100mbit or 10gbit"))
}

/// Parses the rate of a link, in bytes a second.
fn link(text: &str) -> Result<u64, String> {
    let bytes_per_second = bits(text)? / 8;
    let link = Rate { bytes_per_second, source: String::new() };
    link.sensible().map_err(|_| "32kbit to 2tbit are possible".to_owned())?;
    Ok(bytes_per_second)
}

/// Parses a pacing rate: programs may pass the kernel 32 bits, of which the last value means no limit.
fn pacing(text: &str) -> Result<u32, String> {
    let rate = u32::try_from(bits(text)? / 8).unwrap_or(u32::MAX);
    if (1..u32::MAX).contains(&rate) { Ok(rate) } else { Err("8bit to 34gbit are possible".into()) }
}

fn target(text: &str) -> Result<Duration, String> {
    let target = parse_duration(text).map_err(|error| error.to_string())?;
    let sensible = Duration::from_micros(50)..=Duration::from_secs(1);
    if sensible.contains(&target) { Ok(target) } else { Err("50us to 1s are possible".to_owned()) }
}

fn each(text: &str) -> Result<Duration, String> {
    let each = parse_duration(text).map_err(|error| error.to_string())?;
    let sensible = Duration::from_millis(200)..=Duration::from_secs(60);
    if sensible.contains(&each) { Ok(each) } else { Err("200ms to 60s are possible".to_owned()) }
}

fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address and a port: 192.0.2.7:5201, [::]:5201".to_owned())
}

fn congestion(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic();
    if text.is_empty() || text.len() >= LONGEST_NAME_BYTES || !text.chars().all(plain) {
        return Err(format!("{text:?} is not a name of up to {} letters", LONGEST_NAME_BYTES - 1));
    }
    Ok(text.to_owned())
}

fn number_and_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        tune: Tune,
    }

    fn parse(line: &str) -> Result<Tune, String> {
        let words = ["tune"].into_iter().chain(line.split_whitespace());
        Only::try_parse_from(words).map(|only| only.tune).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cure_and_a_scope_are_needed() {
        let without = parse("--nodelay").unwrap_err();
        assert!(WHICH.iter().all(|scope| without.contains(&format!("--{scope}"))), "{without}");
        assert!(parse("--pid 1").unwrap_err().contains("--nodelay"));
        assert!(parse("--nodelay --all --pid 1").unwrap_err().contains("--all"));
        assert!(parse("--nodelay --pid 1 --new --live").is_err());
        let tune = parse("--nodelay --delack-max 8ms --peer 10.0.0.0/8 --port 80").unwrap();
        assert!(tune.command.is_none());
        assert_eq!(tune.cures.delack_max, Some(Duration::from_millis(8)));
        let without = parse("undo").unwrap_err();
        assert!(without.contains("ID") && without.contains("--all"), "{without}");
        assert!(parse("undo 1 --all").unwrap_err().contains("--all"));
        assert!(parse("list --state /tmp").unwrap().command.is_some());
    }

    #[test]
    fn sizes_and_rates_are_checked_where_they_are_given() {
        assert_eq!(bytes("128k"), Ok(131_072));
        assert_eq!(bytes("2047m"), Ok(2_146_435_072));
        for wrong in ["", "k", "0", "2048m", "1g", "-1"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(link("100mbit"), Ok(12_500_000));
        assert_eq!(link("1Gbit"), Ok(125_000_000));
        for wrong in ["", "100", "mbit", "99999999999999gbit"] {
            assert!(link(wrong).unwrap_err().contains("is not a rate"), "{wrong}");
        }
        assert_eq!(pacing("8bit"), Ok(1));
        assert!(pacing("7bit").is_err());
        assert_eq!(link("64kbit"), Ok(8000));
        assert_eq!(link("2tbit"), Ok(250_000_000_000));
        for absurd in ["0mbit", "0bit", "1bit", "8bit", "31kbit", "10tbit", "10000gbit"] {
            assert_eq!(link(absurd).unwrap_err(), "32kbit to 2tbit are possible", "{absurd}");
        }
        assert!(pacing("35gbit").is_err());
        assert!(congestion("a-name-too-long-x").is_err());
        assert!(target("2s").is_err());
        assert!(each("100ms").is_err());
    }

    #[test]
    fn what_verifies_needs_verify() {
        let small = |line: &str| parse(&format!("small-queues --dev eth0 {line}"));
        for alone in ["--ping 192.0.2.1", "--load 192.0.2.1:9", "--each 1s", "--verify --dry-run"] {
            assert!(small(alone).unwrap_err().contains("--verify"), "{alone}");
        }
        // A conflict with a required option removes the requirement.
        for alone in ["--ping 192.0.2.1", "--load 192.0.2.1:9", "--each 1s"] {
            assert!(
                small(&format!("--dry-run {alone}")).unwrap_err().contains("--dry-run"),
                "{alone}"
            );
        }
        assert!(small("--dry-run").is_ok());
        assert!(small("--verify --load 192.0.2.1:9 --senders 8 --pace").is_ok());
        assert!(small("--senders 0").is_err());
    }
}
