//! The command line of `uncork stack`.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use uncork_posix::config::{Moderation, SmallQueue, parse_duration};
use uncork_serve::Cidr;

use super::start::Cpus;
use super::why::Target;
use crate::arguments;
use crate::place_file::Name;

const STACK_HELP: &str = "\
Examples:
  uncork stack serve http --dev tap0 --addr 10.9.0.2/24 --host 10.9.0.1/24
  sudo uncork stack start --dev eth0 --instances 2 --cpus 2,3
  sudo uncork stack guard --dev eth0 --group www-data
  uncork stack stat
  uncork stack why 4711:9

`uncork stack COMMAND --help` says more about each command.";

/// Serve on a TCP stack in user space, keep instances and guardians for programs, and see what stacks do
///
/// The stack has small queues, autocorking and quick ACKs counted right (docs/STACK.md). serve and connect
/// are small programs on one that has addresses of its own, which nobody else may have: over a TAP that it makes,
/// or beside the kernel over any Ethernet device by a packet socket. start and guard are for unmodified programs
/// (uncork run --stack), under the addresses that this host has. stat tells of all of them, why of the sockets of such
/// programs.
#[derive(Debug, Args)]
#[command(after_help = STACK_HELP)]
pub(crate) struct Stack {
    #[command(subcommand)]
    pub(super) command: StackCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum StackCommand {
    Serve(Serve),
    Connect(Connect),
    Start(Start),
    Guard(Guardian),
    Stat(Stat),
    Why(Why),
}

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// Send back what comes (RFC 862)
    Echo,
    /// Drop what comes (RFC 863)
    Discard,
    /// Send lines of characters without end (RFC 864)
    Chargen,
    /// HTTP/1.1: / is a short body, /file a long one
    Http,
}

/// How a device is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Driver {
    /// A TAP; made if there is none of this name
    Tap,
    /// A packet socket on a device that is there
    Packet,
    /// Sockets of AF_XDP on a device that is there, one for each of its queues
    Xdp,
    /// A device of DPDK's, such as net_af_packet0,iface=eth0; for an uncork that was built with it
    Dpdk,
}

#[derive(Debug, Args)]
pub(super) struct Device {
    /// An address of the stack with the length of its network's prefix; may be repeated
    ///
    /// IPv4 or IPv6, such as 10.9.0.2/24 or fd09::2/64. Nobody else on the network may have it, this
    /// host included.
    #[arg(long, value_name = "CIDR", required = true, value_parser = Cidr::from_str)]
    pub(super) addr: Vec<Cidr>,

    /// A router to everybody who is in no network of --addr; one of each version of IP
    ///
    /// It is in one of those networks itself, or has a link-local address, unless the address of the stack has no
    /// network (prefix length 32, for IPv6 128): then the router is looked for on this link.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) gateway: Vec<IpAddr>,

    /// How the device is used
    ///
    /// Without it: a device that is there by a packet socket, unless it is a TAP; otherwise a TAP is
    /// made, and is gone when the stack ends.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(super) driver: Option<Driver>,

    /// An address that the kernel's end of the TAP gets, with its prefix; may be repeated
    ///
    /// Of a TAP that was there first it is taken away at the end.
    #[arg(long, value_name = "CIDR", value_parser = Cidr::from_str)]
    pub(super) host: Vec<Cidr>,

    /// MTU of the TAP, or of a device of DPDK's that is none of the kernel's
    ///
    /// Without it, 1500 of a TAP that is made; one that was there first keeps its own, and gets it back at the end. Of any
    /// other device it is the device's: ip link set DEVICE mtu BYTES.
    #[arg(long, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u16).range(1280..))]
    #[arg(allow_negative_numbers = true)]
    pub(super) mtu: Option<u16>,

    /// How long to go on looking, after the last frame, before sleeping
    ///
    /// A core is spent on it; wake-ups of an idle one are saved. Without it, not at all. DPDK wakes nobody: its
    /// devices are looked at a thousand times a second when nothing comes, and all the time for so long.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    pub(super) spin: Option<Duration>,

    /// For how long what has come may wait for more, when many requests come: off or 10us to 1ms
    ///
    /// As network cards moderate their interrupts, and as `uncork run --moderation` has it. Not with --spin. [default: off]
    #[arg(long, value_name = "off|DURATION", allow_hyphen_values = true)]
    pub(super) moderation: Option<Moderation>,

    /// How much of one connection may be in the device's queue
    ///
    /// Two segments at the least, whatever is said here; as of `uncork run --small-queue`. [default: 131072]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(super) small_queue: Option<SmallQueue>,

    /// Write what passes into a capture (pcapng)
    ///
    /// A file that is there is overwritten once all else has succeeded, unless another one records into it. A recording
    /// that breaks off, as by a full disk, is told at once, and disturbs nothing else.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) record: Option<PathBuf>,

    /// Where `uncork stack stat` can ask, instead of the usual place
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(super) socket: Option<PathBuf>,

    /// How long connections may take to end after Ctrl-C, before they are reset
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    pub(super) grace: Duration,
}

const SERVE_HELP: &str = "\
Examples:
  uncork stack serve http --dev tap0 --addr 10.9.0.2/24 --host 10.9.0.1/24
  curl http://10.9.0.2:8080/
  uncork stack serve echo --dev eth0 --addr 192.0.2.77/24 --gateway 192.0.2.1 --port 7000
  uncork stack serve http --kernel --addr 127.0.0.1/8

Ctrl-C and SIGTERM end it: no new connections, FIN on those that there are, resets on what is left
after --grace. A second one resets at once.

Exit status: 0 it was told to end, 1 the device has failed, 2 the command line is wrong or names what
cannot be used, 3 a capability is missing.";

/// Serve echo, discard, chargen or HTTP on an address of the stack's own
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub(super) struct Serve {
    /// What to serve
    #[arg(value_enum)]
    pub(super) protocol: Protocol,

    /// The network device: one that is there, the name of a TAP to be made, or a device of DPDK's with its arguments
    #[arg(long, value_name = "DEV", required_unless_present = "kernel")]
    pub(super) dev: Option<String>,

    /// The port: 7 for echo, 9 for discard, 19 for chargen, 8080 for http unless it is given
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(super) port: Option<u16>,

    /// Octets of the body of / (http) [default: 602]
    #[arg(long, value_name = "BYTES")]
    pub(super) body: Option<u64>,

    /// Octets of /file (http) [default: 100000000]
    #[arg(long, value_name = "BYTES")]
    pub(super) bytes: Option<u64>,

    /// Serve on kernel sockets instead, with epoll, to compare with; --addr is an address of this host
    #[arg(long)]
    #[arg(conflicts_with_all = ["dev", "gateway", "driver", "host", "mtu", "spin", "moderation", "small_queue", "record", "socket"])]
    pub(super) kernel: bool,

    #[command(flatten)]
    pub(super) device: Device,
}

const CONNECT_HELP: &str = "\
Examples:
  uncork stack connect 10.9.0.1:80 --dev tap0 --addr 10.9.0.2/24 --host 10.9.0.1/24
  printf 'GET / HTTP/1.0\\r\\n\\r\\n' | uncork stack connect 192.0.2.10:80 --dev eth0 --addr 192.0.2.77/24

Exit status: 0 the other end has closed, 1 the connection or the device has failed, 2 the command line
is wrong or names what cannot be used, 3 a capability is missing, 130 it was ended by Ctrl-C or SIGTERM.";

/// Connect standard input and output to somebody, over the stack
///
/// The end of standard input ends that direction only; what comes is still written, until the other
/// side ends, too.
#[derive(Debug, Args)]
#[command(after_help = CONNECT_HELP)]
pub(super) struct Connect {
    /// Address and port of the other end, such as 10.0.0.1:80 or [fd00::1]:80
    #[arg(value_name = "ADDR:PORT")]
    pub(super) remote: SocketAddr,

    /// The network device: one that is there, the name of a TAP to be made, or a device of DPDK's with its arguments
    #[arg(long, value_name = "DEV")]
    pub(super) dev: String,

    #[command(flatten)]
    pub(super) device: Device,
}

/// What is said of a service for programs, be it instances or a guardian.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(super) struct Service {
    /// What this is called, if there are others beside it [default: default]
    #[arg(long, value_name = "NAME", value_parser = Name::from_str)]
    pub(super) name: Option<Name>,

    /// A network device; may be repeated
    ///
    /// It must be an Ethernet one that is up and has an address. Without it: all of those (not with
    /// link-local addresses alone).
    #[arg(long, value_name = "DEV")]
    pub(super) dev: Vec<String>,

    /// A port that programs may listen on with the stack; may be repeated
    ///
    /// Listeners at other ports stay the kernel's. Without it: all.
    #[arg(long, value_name = "PORT", value_parser = tcp_port)]
    pub(super) port: Vec<u16>,

    /// A group whose users may run programs with it, besides root
    #[arg(long, value_name = "GROUP")]
    pub(super) group: Option<String>,
}

const START_HELP: &str = "\
Examples:
  sudo uncork stack start
  sudo uncork stack start --dev eth0 --instances 2 --cpus 2,3 --spin 50us --group www-data
  sudo uncork stack start --name web --config /etc/uncork.ini
  uncork run --stack=instance -- nginx

Ctrl-C, SIGTERM and SIGHUP end it, and its instances with it; a second one kills them.

Exit status: 0 it was told to end, 1 the system has failed, 2 the command line or the file is wrong, or names what
cannot be used, 3 a privilege is missing.";

/// Start instances: stacks in processes of their own, for programs under `uncork run --stack=instance`
///
/// Each instance has a TCP stack under this host's own addresses; programs attach to it over shared memory. Needs
/// what `uncork run --stack` needs (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, Linux 6.6) and root, for the file that tells
/// programs where the instances are. Programs need nothing. Runs until it is ended, and starts instances
/// again that have died.
#[derive(Debug, Default, Args)]
#[command(after_help = START_HELP)]
pub(super) struct Start {
    #[command(flatten)]
    pub(super) service: Service,

    /// How many instances there are [default: 1]
    #[arg(long, value_name = "N", value_parser = instance_count)]
    pub(super) instances: Option<u32>,

    /// The processors of the instances, such as 2,4-6: the first is the first one's
    ///
    /// Without it they run where there is room.
    #[arg(long, value_name = "LIST", value_parser = Cpus::from_str)]
    pub(super) cpus: Option<Cpus>,

    /// How long an instance goes on looking, after the last frame, before it sleeps
    ///
    /// A core is spent on it; wake-ups of an idle one are saved. Without it, not at all.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    pub(super) spin: Option<Duration>,

    /// For how long what has come may wait for more, when many requests come: off or 10us to 1ms
    ///
    /// As network cards moderate their interrupts, and as `uncork run --moderation` has it. Not with --spin. [default: off]
    #[arg(long, value_name = "off|DURATION", allow_hyphen_values = true)]
    pub(super) moderation: Option<Moderation>,

    /// How much of one connection may be in the device's queue
    ///
    /// Two segments at the least, whatever is said here; as of `uncork run --small-queue`. [default: 131072]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(super) small_queue: Option<SmallQueue>,

    /// How instances get their frames
    ///
    /// packet: by packet sockets. xdp: beside them by AF_XDP; the queues of each device are divided among the instances,
    /// and what comes by another one's comes by the packet sockets, by which all is sent. [default: packet]
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub(super) driver: Option<arguments::Driver>,

    /// A file with what is not said here
    ///
    /// Lines such as `dev = eth0` in a section `[stack]`; keys: name, dev, port, driver, instances, cpus, spin, moderation,
    /// small-queue, group.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config: Option<PathBuf>,
}

const GUARD_HELP: &str = "\
Examples:
  sudo uncork stack guard
  sudo uncork stack guard --dev eth0 --port 80 --port 443 --group www-data
  uncork run --stack -- nginx

Ctrl-C, SIGTERM and SIGHUP end it.

Exit status: 0 it was told to end, 1 the system has failed, 2 the command line is wrong, or names what cannot be
used, 3 a privilege is missing.";

/// Be the guardian of programs under `uncork run --stack` whose users have no privilege (uncorkd)
///
/// What takes a privilege is done here: devices are opened, packets steered, and peers of what dies reset. Programs
/// have their stacks on their own threads, as with a guardian of their own, and need nothing. Needs what `uncork run
/// --stack` needs (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, Linux 6.6) and root, for the file that tells programs where it
/// is. Runs until it is ended; uncorkd.service has systemd start it, which is told when programs can come (Type=notify).
#[derive(Debug, Default, Args)]
#[command(after_help = GUARD_HELP)]
pub(super) struct Guardian {
    #[command(flatten)]
    pub(super) service: Service,

    /// How programs get their frames
    ///
    /// As of `uncork run --stack`. [default: packet]
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub(super) driver: Option<arguments::Driver>,

    /// How many queues of each device a process takes with --driver=xdp, if they are free; no more than there are
    /// [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) queues: Option<NonZeroU32>,

    /// How much of the kernel's memory packet sockets of one user's programs may take, in MiB
    ///
    /// Each process takes 29 on each device, and what finds no room serves by the kernel. Root's are not counted. Those of all
    /// users may take half of the machine's memory, or this if it is more. [default: a third of the machine's memory]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub(super) user_memory: Option<NonZeroU32>,
}

/// How many instances may share a port.
const MOST_INSTANCES: u32 = 64;

pub(crate) fn instance_count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST_INSTANCES).contains(count));
    count.ok_or_else(|| format!("{text:?} is no number of instances: 1 to {MOST_INSTANCES}"))
}

pub(super) fn tcp_port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{text:?} is no port: 1 to 65535"))
}

const STAT_HELP: &str = "\
Examples:
  uncork stack stat
  uncork stack stat 4711 --json
  uncork stack stat $(pgrep -n -x nginx)

Exit status: 0 it has answered, or those that run are listed, 1 none runs, or it has not answered, 2 the command line
is wrong, or the process has no stack of its own yet, 3 it is another user's, 4 no stack runs in this process,
125 standard output cannot be written.";

/// Show each connection of a running stack, why it is not sending, and what stayed with the kernel
///
/// A program under `uncork run --stack` is asked by its PID, each of its processes for itself; what of its sockets is not
/// on the stack is told with the reason. An instance (`uncork stack start`) is asked for all that is attached to it. Without
/// PID and --socket: the one that runs, `uncork stack serve` and `connect` included; several are listed.
#[derive(Debug, Args)]
#[command(after_help = STAT_HELP)]
pub(super) struct Stat {
    /// The process of the stack
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(super) pid: Option<u32>,

    /// Where it can be asked, if it was started with --socket
    #[arg(long, value_name = "PATH", conflicts_with = "pid", value_hint = ValueHint::FilePath)]
    pub(super) socket: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

const WHY_HELP: &str = "\
Examples:
  uncork stack why 4711:9
  uncork stack why $(pgrep -o -x nginx)
  uncork stack why 4711 --json

Exit status: 0 the socket is on the stack, or all were listed, 1 it is the kernel's, or nothing has been
decided yet, 2 the command line is wrong, or the descriptor is no TCP socket, 3 no permission to look into
the process, 4 there is no such process, or it does not run under uncork run --stack, 125 standard output cannot
be written.";

/// Say why a socket of a program under `uncork run --stack` is on the stack, or the kernel's
///
/// Reads the program's memory; the program is neither stopped nor changed.
#[derive(Debug, Args)]
#[command(after_help = WHY_HELP)]
pub(super) struct Why {
    /// A process, or a process and one of its descriptors: 4711 or 4711:9
    #[arg(value_name = "PID[:FD]", allow_negative_numbers = true)]
    pub(super) target: Target,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}
