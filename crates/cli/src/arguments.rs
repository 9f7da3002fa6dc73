//! The command line: the single definition from which the parser, the help, the man pages and the shell completions are made.

use core::str::FromStr;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::doctor::Doctor;
use crate::lab::Lab;
use crate::place_file::Name;
use crate::stack::Stack;
use crate::tune::Tune;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use uncork_posix::config::{Bound, Hold, Invalid, Moderation, Scope, SmallQueue, Spin};

/// Coalesce the small TCP writes of programs that cannot be changed
///
/// uncork runs a program under a preloaded library that holds small TCP writes back until the
/// logical packet is complete: until the program turns to reading, waiting, sleeping or
/// closing, or a millisecond has passed. The program itself is not changed.
#[derive(Debug, Parser)]
#[command(
    name = "uncork",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  uncork run -- ./server --port 8080     run a program with its small writes held
  uncork run --stats -- ./server         and show, at its end, what that saved
  uncork status 4711                     what is held in a running process, and why
  uncork tune --nodelay --pid 4711       cure a process that runs; uncork tune undo --all
  uncork doctor --pcap trace.pcap        where TCP lost time in a capture, and what cures it
  uncork ack client --help               watch when a receiver acknowledges
  uncork lab tsq --quick                 what a bulk sender does to everybody behind it
  uncork run --stack -- nginx            a program's sockets on a TCP stack of its own

`uncork COMMAND --help` says more about each command."
)]
pub(crate) struct Uncork {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// `uncork run` alone.
#[derive(Debug, Parser)]
struct OnlyRun {
    #[command(flatten)]
    run: Run,
}

impl Uncork {
    /// Parses the words of the command line, of which the first is the program's name.
    ///
    /// Programs are started by `uncork run` all the time, and building the definitions of all the other commands is a large
    /// part of the time that takes: they are built only where that one alone does not understand the line, so that help and
    /// errors are the same everywhere.
    pub(crate) fn read(words: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let words: Vec<_> = words.collect();
        if words.get(1).is_some_and(|first| first == "run")
            && let Ok(only) = OnlyRun::try_parse_from(&words[1..])
        {
            return Ok(Self { command: Command::Run(only.run) });
        }
        Self::try_parse_from(words)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Doctor(Doctor),
    Tune(Tune),
    Status(Status),
    Ack(uncork_ack::Ack),
    Lab(Lab),
    Stack(Stack),
    /// Print the path of the library, for LD_PRELOAD by hand
    #[command(after_help = LIBRARY_HELP)]
    Library,
    /// Write the man pages or the shell completions
    #[command(hide = true)]
    Generate(Generate),
    /// What `uncork lab kernels` starts
    #[command(hide = true)]
    Guest(Guest),
    /// What `uncork run --stack` and `uncork stack start` start
    #[command(hide = true)]
    Guardian(Guardian),
}

const LIBRARY_HELP: &str = "\
Example:
  LD_PRELOAD=$(uncork library) UNCORK_HOLD=user ./server

Where it is looked for: $UNCORK_LIBRARY, libuncork.so beside the uncork program, then
../lib/uncork/libuncork.so and ../lib/libuncork.so from there.

Exit status: 0, or 125 if no library is found or it cannot be loaded.";

const RUN_HELP: &str = "\
Options that are not given leave the variables UNCORK_HOLD, UNCORK_SCOPE, UNCORK_BOUND,
UNCORK_SPIN, UNCORK_MODERATION, UNCORK_SMALL_QUEUE, UNCORK_STATS and UNCORK_DEBUG as they are in the environment.

Examples:
  uncork run -- ./server --port 8080
  uncork run --stats -- curl http://localhost:8080/
  uncork run --hold user --stats=report.json -- redis-server
  sudo uncork run --stack --dev eth0 -- nginx
  uncork run --stack=instance -- nginx   (uncork stack start --help)

Exit status: that of the program (if a signal ended it, uncork ends by the same signal);
125 uncork failed or refused to run the program, 126 the program cannot be executed,
127 it was not found.

A program that a library cannot be preloaded into (static, Go, setuid, another
architecture or C library) is refused with the reason and what to do instead.";

/// Run a program with its small TCP writes coalesced
///
/// Runs COMMAND under libuncork.so. Without --stats and --stack, uncork turns into the program: no
/// other process remains.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// Who keeps the bytes of an unfinished packet: kernel, user or off
    ///
    /// kernel: they are handed over at once, with MSG_MORE; nothing is lost if the program is
    /// killed. user: they are gathered in the process, one system call a packet; fastest, and
    /// what is held when the program is killed by a signal that it does not handle is lost.
    /// off: nothing is held. [default: kernel]
    #[arg(long, value_name = "WHO", value_parser = Spelled::<Hold>::of(&["kernel", "user", "off"]))]
    #[arg(hide_possible_values = true)]
    pub(crate) hold: Option<Hold>,

    /// Which TCP sockets are helped: all or nodelay
    ///
    /// all: every one that the program does not cork itself. nodelay: only those on which it
    /// sets TCP_NODELAY. [default: all]
    #[arg(long, value_name = "WHICH", value_parser = Spelled::<Scope>::of(&["all", "nodelay"]))]
    #[arg(hide_possible_values = true)]
    pub(crate) scope: Option<Scope>,

    /// How long anything may stay held: 100us to 200ms
    ///
    /// A timer pushes what is held for so long, even if the program never calls the C library
    /// again. [default: 1ms]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) bound: Option<Bound>,

    /// How long a wait tries before it sleeps: off, auto or a duration
    ///
    /// Waking an idle (virtual) core often costs more than the round trip itself. auto learns
    /// from how long recent waits took, and gives the core back when waits are long or cores
    /// are short. A duration, up to 100ms, is tried always. [default: off]
    #[arg(long, value_name = "off|auto|DURATION", allow_hyphen_values = true)]
    pub(crate) spin: Option<Spin>,

    /// At the end, tell what was held, pushed and passed through
    ///
    /// For every process of the program: a table on standard error, or with =FILE one JSON
    /// document in FILE. uncork stays as the parent of the program and passes signals on. Of a program
    /// that a signal ends (^C) it is what was read out of it at most about a second before.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) stats: Option<Option<PathBuf>>,

    /// Move its TCP to a stack in user space, under this host's own addresses
    ///
    /// Its sockets are served by a TCP stack that runs inside of it; all else stays the kernel's, and so do
    /// connections by loopback and by other devices. uncork needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF for this
    /// (root has them) and Linux 6.6; the program needs nothing. A process of uncork's remains as its
    /// guardian, which opens devices for it and resets its connections if it is killed. inline: the stack
    /// runs on the program's own threads. instance: it is in a process of its own, which `uncork stack start` has
    /// started, and uncork needs no privilege. Nor does it where `uncork stack guard` is the guardian. [default: inline]
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "inline", hide_possible_values = true)]
    pub(crate) stack: Option<InProcess>,

    /// Which instances --stack=instance attaches to, by their name, and which of them
    ///
    /// NUMBER counts from 0. Without it: the one with the fewest programs. [default: default]
    #[arg(long, value_name = "NAME[:NUMBER]", requires = "stack")]
    pub(crate) instance: Option<Wanted>,

    /// The guardian service that --stack uses, by its name, instead of one of the program's own
    ///
    /// `uncork stack guard` is one; it has the devices, and uncork needs no privilege. Without it, who has no privilege
    /// uses the service of the name default.
    #[arg(long, value_name = "NAME", requires = "stack", value_parser = Name::from_str)]
    pub(crate) guardian: Option<Name>,

    /// With --stack: each thread has a stack of its own
    ///
    /// What a thread makes, listeners and connections, is on a stack of that thread's, with packet sockets of its own.
    /// Threads that have a listener each (SO_REUSEPORT) then share nothing, and wait for no lock of another one's. Any
    /// thread may still use any descriptor. With --stack=instance each thread is on an instance by itself: the one
    /// that the fewest of its program's threads have.
    #[arg(long, requires = "stack")]
    pub(crate) thread_sockets: bool,

    /// With --stack: what the kernel is quicker for stays on the stack, too
    ///
    /// Without it the ports and connections of a program whose threads wait one for each connection become the kernel's when
    /// that is seen, and `uncork stack why` says so; and so does a port whose processes serve one short connection after the
    /// other. A port that processes leave to one another again and again becomes the kernel's all the same.
    #[arg(long, requires = "stack")]
    pub(crate) stay: bool,

    /// A network device for --stack; may be repeated
    ///
    /// It must be an Ethernet one that is up and has an address. Without it: all of those (not with
    /// link-local addresses alone).
    #[arg(long, value_name = "DEV", requires = "stack")]
    pub(crate) dev: Vec<String>,

    /// A port that may be listened on by --stack; may be repeated
    ///
    /// Listeners at other ports stay the kernel's. Without it: all.
    #[arg(long, value_name = "PORT", requires = "stack")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) port: Vec<u16>,

    /// How --stack gets its frames
    ///
    /// packet: by packet sockets. xdp: beside them by AF_XDP, on queues of the devices that are each process's own; what
    /// comes by other queues comes by the packet sockets, by which all is sent. [default: packet]
    #[arg(long, value_name = "HOW", requires = "stack", hide_possible_values = true)]
    pub(crate) driver: Option<Driver>,

    /// How many queues of each device a process takes with --driver=xdp, if they are free
    ///
    /// A process that has all gets everything by AF_XDP; with several processes give the device as many queues
    /// (ethtool -L). More than a device has are refused. [default: 1]
    #[arg(long, value_name = "N", requires = "stack", allow_negative_numbers = true)]
    pub(crate) queues: Option<NonZeroU32>,

    /// With --stack: for how long what has come may wait for more, when many requests come: off or 10us to 1ms
    ///
    /// As network cards moderate their interrupts: a few requests are then taken in, answered and sent at once, which
    /// takes a quarter to a half less processor time for each. Try 128us for a server that is quicker than those who ask. Who
    /// has time for each answer gets it so much later. Nothing waits for longer than a quarter of the time in which the quicker
    /// ones ask again, and nothing at all while few ask. Not with --spin; instances are told by
    /// `uncork stack start`. [default: off]
    #[arg(long, value_name = "off|DURATION", requires = "stack", allow_hyphen_values = true)]
    pub(crate) moderation: Option<Moderation>,

    /// With --stack: how much of one connection may be in the device's queue
    ///
    /// What is there delays everybody else's packets, and nothing can overtake it. A connection has less than that
    /// there where a millisecond of what it gets through is less; and two segments at the least, whatever is said here.
    /// More may help one bulk sender on a device that is filled late. [default: 131072]
    #[arg(long, value_name = "BYTES", requires = "stack", allow_hyphen_values = true)]
    pub(crate) small_queue: Option<SmallQueue>,

    /// Let the library say what it does: 1 sockets helped and passed through, 2 each push
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) debug: Option<u8>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// How the stack of a program that is not ours, or of an instance, gets its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Driver {
    #[default]
    Packet,
    Xdp,
}

/// Returns how many queues of a device each process gets; `None` without AF_XDP.
pub(crate) fn queues(
    driver: Option<Driver>,
    queues: Option<NonZeroU32>,
) -> Result<Option<NonZeroU32>, String> {
    match (driver.unwrap_or_default(), queues) {
        (Driver::Xdp, queues) => Ok(Some(queues.unwrap_or(NonZeroU32::MIN))),
        (Driver::Packet, None) => Ok(None),
        (Driver::Packet, Some(_)) => {
            Err("--queues is for AF_XDP: give --driver=xdp beside it, or leave it out".to_owned())
        }
    }
}

/// Where a stack runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InProcess {
    /// On the program's own threads
    Inline,
    /// In a process of its own, to which the program attaches
    Instance,
}

/// An instance, or any of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: Name,
    pub(crate) number: Option<u32>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let number = number.map(|number| {
            number.parse().map_err(|_| format!("{number:?} is no number of an instance: 0, 1 …"))
        });
        Ok(Self { name: name.parse()?, number: number.transpose()? })
    }
}

const STATUS_HELP: &str = "\
Examples:
  uncork status 4711
  uncork status --json $(pgrep -x nginx)

Exit status: 0 the library is in the process, 1 it is not, 2 the command line is wrong,
3 no permission to look, 4 no such process, 125 standard output cannot be written. Of several
processes, the largest.

Without uncork at hand: grep libuncork.so /proc/PID/smaps";

/// Show whether the library is in a process, and its sockets
///
/// Says whether libuncork.so (or libautocork.so) is in the process, from which file, with
/// which settings, and lists its TCP sockets with what is held and why. The process is not
/// stopped or changed.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct Status {
    /// Print a JSON array, one element a process
    #[arg(long)]
    pub(crate) json: bool,

    /// Process ids
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pids: Vec<i32>,
}

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// What to write
    #[arg(value_enum)]
    pub(crate) what: Generated,

    /// Directory to write into
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Guest {
    #[command(subcommand)]
    pub(crate) part: GuestPart,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuestPart {
    /// The only program of a virtual machine
    Init {
        /// How long each run takes
        milliseconds: u64,
    },
    /// A program that ends when the one that started it does
    Machine {
        /// That one's process id
        parent: u32,
        /// The program
        program: String,
        /// And its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Guardian {
    #[command(subcommand)]
    pub(crate) part: GuardianPart,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuardianPart {
    /// Starts the other and ends, so that nobody is its parent
    Begin(Guarded),
    /// The guardian
    Serve(Guarded),
    /// Who waits for the guardian's end, at the other end of the socket that is the standard input
    Inherit,
    /// What `uncork stack start` starts; what it is to do comes by the standard input
    Instance {
        /// Which it is, to be seen in ps(1)
        number: u32,
    },
}

/// What a guardian is for.
#[derive(Debug, Args)]
pub(crate) struct Guarded {
    /// Process id of the program
    pub(crate) program: u32,
    /// As of `uncork run`
    #[arg(long)]
    pub(crate) dev: Vec<String>,
    /// As of `uncork run`
    #[arg(long)]
    pub(crate) port: Vec<u16>,
    /// As of `uncork run`, if it is to be AF_XDP
    #[arg(long)]
    pub(crate) queues: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Generated {
    /// Manual pages
    Man,
    /// Completions for bash, zsh and fish
    Completions,
}

/// Parses by [`FromStr`], whose error says what is wrong, and lists the spellings for the shell completions.
#[derive(Clone)]
struct Spelled<T> {
    spellings: &'static [&'static str],
    parse: fn(&str) -> Result<T, Invalid>,
}

impl<T: FromStr<Err = Invalid>> Spelled<T> {
    fn of(spellings: &'static [&'static str]) -> Self {
        Self { spellings, parse: T::from_str }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Spelled<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        self.parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.spellings.iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use std::time::Duration;

    #[test]
    fn what_the_doctor_advises_of_uncork_is_understood() {
        use crate::doctor::samples;

        let reports = [samples::every_kind(), samples::evening(), samples::many()];
        let findings = reports.iter().flat_map(|r| &r.connections).flat_map(|c| &c.findings);
        let mut understood = [0; 2];
        for remedy in findings.flat_map(|finding| &finding.remedies) {
            let Some(words) = remedy.line.strip_prefix("uncork ") else { continue };
            // What a shell inserts.
            let words = words
                .split_once("$(")
                .map_or(words.to_owned(), |(words, _)| words.to_owned() + "eth0");
            let line: Vec<_> = ["uncork"].into_iter().chain(words.split(' ')).collect();
            let parsed = Uncork::try_parse_from(&line);
            let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", remedy.line));
            understood[usize::from(matches!(parsed.command, Command::Tune(_)))] += 1;
        }
        assert!(understood.iter().all(|&count| count > 10), "{understood:?}");
    }

    fn run(arguments: &[&str]) -> Result<Run, String> {
        let line = || ["uncork", "run"].iter().chain(arguments).map(OsString::from);
        let told = |read: &Result<Uncork, clap::Error>| match read {
            Ok(read) => format!("{read:?}"),
            Err(error) => error.render().to_string(),
        };
        let read = Uncork::read(line());
        assert_eq!(told(&read), told(&Uncork::try_parse_from(line())), "by either way the same");
        match read.map_err(|error| error.to_string())?.command {
            Command::Run(run) => Ok(run),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn help_and_complaints_of_run_are_those_of_the_whole() {
        for word in ["--help", "-h", "--version", "--holt", "--bound=1h"] {
            run(&[word]).unwrap_err();
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Uncork::command().debug_assert();
    }

    #[test]
    fn what_follows_the_command_is_the_commands() {
        let run = run(&["--hold", "user", "ls", "--stats", "--hold", "--", "-x"]).unwrap();
        assert_eq!(run.hold, Some(Hold::User));
        assert_eq!(run.stats, None);
        assert_eq!(run.command, ["ls", "--stats", "--hold", "--", "-x"]);
    }

    #[test]
    fn the_file_of_stats_needs_its_equals_sign() {
        assert_eq!(run(&["--stats", "ls"]).unwrap().stats, Some(None));
        let run = run(&["--stats=report", "--", "ls"]).unwrap();
        assert_eq!(run.stats, Some(Some("report".into())));
    }

    #[test]
    fn durations_and_words_come_from_the_library_s_own_types() {
        let given = run(&["--spin", "50us", "--bound=2ms", "--scope", "nodelay", "ls"]).unwrap();
        assert_eq!(given.spin, Some(Spin::For(Duration::from_micros(50))));
        assert_eq!(given.bound, Some(Bound(Duration::from_millis(2))));
        assert_eq!(given.scope, Some(Scope::Nodelay));
        let error = run(&["--hold", "maybe", "ls"]).unwrap_err();
        assert!(error.contains("\"maybe\" is not one of kernel, user, off"), "{error}");
        let error = run(&["--bound", "2s", "ls"]).unwrap_err();
        assert!(error.contains("100us to 200ms"), "{error}");
        let error = run(&["--bound", "-1ms", "ls"]).unwrap_err();
        assert!(error.contains("\"-1ms\" is not a duration"), "{error}");
        let error = Uncork::try_parse_from(["uncork", "status", "-1"]).unwrap_err().to_string();
        assert!(error.contains("-1 is not in 1.."), "{error}");
    }

    #[test]
    fn a_stack_is_inline_and_devices_and_ports_are_for_it() {
        let given = run(&["--stack", "--dev", "eth0", "--dev=eth1", "--port", "80", "ls"]).unwrap();
        assert_eq!(given.stack, Some(InProcess::Inline));
        assert_eq!((given.dev, given.port), (vec!["eth0".to_owned(), "eth1".to_owned()], vec![80]));
        assert_eq!(given.command, ["ls"]);
        assert_eq!(run(&["--stack=inline", "ls"]).unwrap().stack, Some(InProcess::Inline));
        assert!(run(&["--stack", "--thread-sockets", "ls"]).unwrap().thread_sockets);
        let small = run(&["--stack", "--small-queue", "6000", "ls"]).unwrap().small_queue;
        assert_eq!(small.and_then(SmallQueue::bytes), Some(6000));
        for wrong in [
            &["--stack=kernel", "ls"][..],
            &["--dev", "eth0", "ls"],
            &["--port=80", "ls"],
            &["--thread-sockets", "ls"],
            &["--small-queue=6000", "ls"],
            &["--stack", "--small-queue=0", "ls"],
        ] {
            run(wrong).unwrap_err();
        }
    }

    #[test]
    fn an_instance_is_named_by_its_name_its_number_or_both() {
        let given = run(&["--stack=instance", "ls"]).unwrap();
        assert_eq!((given.stack, given.instance), (Some(InProcess::Instance), None));
        for (word, name, number) in [("web", "web", None), ("default:3", "default", Some(3))] {
            let given = run(&["--stack=instance", "--instance", word, "ls"]).unwrap();
            assert_eq!(given.instance, Some(Wanted { name: name.parse().unwrap(), number }));
        }
        for wrong in ["a/b", "web:", "web:x", ":1", "web:1:2"] {
            run(&["--stack=instance", "--instance", wrong, "ls"]).unwrap_err();
        }
        run(&["--instance", "web", "ls"]).unwrap_err();
    }

    #[test]
    fn a_command_is_required() {
        assert!(run(&[]).unwrap_err().contains("COMMAND"));
        assert!(run(&["--hold", "user"]).unwrap_err().contains("COMMAND"));
    }
}
