//! The command lines of both programs: one definition for the parser, the help, the manual pages
//! and the completions.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

/// Port of both programs when none is given.
const DEFAULT_PORT: u16 = 1234;

/// Bytes of a write and of a read when no number is given: the MSS of Ethernet without options.
const DEFAULT_BUFFER: &str = "1460";

const ACK_HELP: &str = "\
The reference run, in two terminals:
  uncork ack server -b 1k -D -s 100000
  uncork ack client -b 1k HOST

Exit status: 0, or 2 for a bad command line or a failure.";

/// Watch when a receiver acknowledges: the delayed-ACK experiment
///
/// The server writes a buffer, sleeps and writes the next; the client reads. The server's kernel
/// tells when each segment left and when it was acknowledged, without a capture, and at the end
/// comes a verdict: quick-ACK credits spent, delayed throughout, quick throughout.
#[derive(Debug, Args)]
#[command(after_help = ACK_HELP, arg_required_else_help = true)]
pub struct Ack {
    #[command(subcommand)]
    pub(crate) role: Role,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    Server(Server),
    Client(Client),
}

const SERVER_HELP: &str = "\
Numbers of bytes, of microseconds and rates may end in k (1024) or m (1024 x 1024).

Examples:
  uncork ack server -b 1k -D -s 100000
  uncork ack server -b 1k -D -s 100000 --json --connections 1
  uncork ack server -b 1448 -D --reply 3    replies of three segments

Exit status: 0 after --connections, SIGINT or SIGTERM; 2 for a bad command line, a port that
cannot be had, or a process of a connection that failed.";

/// Send segments, and time the ACK of each
///
/// Takes any number of connections, each in a process of its own, and writes to each until the
/// client ends it. Prints a line for each segment when its ACK has come, and a verdict when the
/// connection ends.
#[derive(Clone, Debug, Args)]
#[command(after_help = SERVER_HELP)]
pub(crate) struct Server {
    /// Bytes of each write
    #[arg(short, value_name = "BUFSIZE", default_value = DEFAULT_BUFFER, value_parser = bytes)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) buffer: usize,

    /// Microseconds to sleep after each write
    #[arg(short, value_name = "SLEEP_USEC", default_value = "0", value_parser = microseconds)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) sleep: Duration,

    /// Port to listen on; 0 takes a free one and tells which
    #[arg(short, long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) port: u16,

    /// Set TCP_QUICKACK on the server's own socket before each write
    #[arg(short)]
    pub(crate) quickack: bool,

    /// Bytes a second: sleep after a write for as long as the data is ahead of this rate
    #[arg(short, value_name = "RATE", value_parser = rate)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) rate: Option<u64>,

    /// Bytes of the send buffer (SO_SNDBUF) [default: the system's]
    #[arg(short = 'S', value_name = "SNDBUF", value_parser = bytes)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) send_buffer: Option<usize>,

    /// Set TCP_NODELAY: Nagle's algorithm does not hold writes back
    #[arg(short = 'D')]
    pub(crate) nodelay: bool,

    /// Seconds to pause when SIGUSR1 comes, to the server or to the process of one connection
    #[arg(short = 'R', value_name = "SLEEP_SEC", default_value = "5", value_parser = seconds)]
    pub(crate) pause: Duration,

    /// Write only when the client asks (its --ask): N buffers for each request, each by a write of
    /// its own
    ///
    /// With -b 1448 over Ethernet and -D, each is a segment, and the ACK of each is timed.
    #[arg(long, value_name = "N", conflicts_with_all = ["sleep", "rate"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reply: Option<u32>,

    /// Listen on this address or host name only, instead of on all of IPv6 and IPv4
    #[arg(long, value_name = "ADDR")]
    pub(crate) bind: Option<String>,

    /// End after this many connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: Option<u32>,

    /// Print no line for each segment, only the verdict
    #[arg(long)]
    pub(crate) quiet: bool,

    /// An ACK that takes so many milliseconds more than the round trip is late
    #[arg(long, value_name = "MS", default_value = "20", value_parser = milliseconds)]
    pub(crate) late: Duration,

    /// Print JSON objects, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Server {
    /// Returns the time from one write to the next at this rate.
    pub(crate) fn pace(&self) -> Duration {
        let seconds = self.rate.map_or(0.0, |rate| self.buffer as f64 / rate as f64);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

const CLIENT_HELP: &str = "\
Numbers of bytes and of microseconds may end in k (1024) or m (1024 x 1024).

Examples:
  uncork ack client -b 1k localhost
  uncork ack client -b 1k --trace-quickack localhost
  uncork ack client -b 1k -L 4k localhost    a reader that stays behind: the credits show
  uncork ack client -b 4344 -s 100000 --ask HOST    asks a server that was given --reply 3

Exit status: 0, also when the server ended the connection; 2 for a bad command line or a failure.";

/// Receive what `uncork ack server` sends
///
/// Reads for some seconds, then tells how much came.
#[derive(Clone, Debug, Args)]
#[command(after_help = CLIENT_HELP)]
pub(crate) struct Client {
    /// Bytes of each read; reads are repeated until so many have come, unless -L is given
    #[arg(short, value_name = "BUFSIZE", default_value = DEFAULT_BUFFER, value_parser = bytes)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) buffer: usize,

    /// Run on this CPU only
    #[arg(short, value_name = "CPU")]
    #[arg(allow_negative_numbers = true)]
    pub(crate) cpu: Option<usize>,

    /// Port of the server
    #[arg(short, long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    #[arg(allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Bytes of the receive buffer (SO_RCVBUF) [default: the system's]
    #[arg(short, value_name = "RCVBUF", value_parser = bytes)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) receive_buffer: Option<usize>,

    /// Microseconds to sleep after each buffer that was read
    #[arg(short, value_name = "SLEEP_USEC", default_value = "0", value_parser = microseconds)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) sleep: Duration,

    /// Seconds to run
    #[arg(short, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) time: Duration,

    /// Debug: tell the time and the bytes of each read on standard error
    #[arg(short)]
    pub(crate) debug: bool,

    /// Set SO_RCVLOWAT, and read once a buffer however little comes
    #[arg(short = 'L', value_name = "LOWAT", value_parser = bytes)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) low_mark: Option<usize>,

    /// Print TCP_QUICKACK before and after each read
    #[arg(long)]
    pub(crate) trace_quickack: bool,

    /// Set TCP_QUICKACK to this before each read [default: leave it alone]
    ///
    /// The kernel forgets it: "off" ends when an ACK has been sent late.
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    pub(crate) quickack: Option<Switch>,

    /// After the first read and 60 ms, send so many segments of one byte
    ///
    /// Kernels before commit 059217c18be6 then lose a quick-ACK credit for each. 10 is the initial
    /// window (RFC 6928): no more leave at once, each as a segment.
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=10))]
    pub(crate) talk: u8,

    /// Before each buffer, ask for it: send one byte. For a server with --reply
    #[arg(long, conflicts_with_all = ["low_mark", "talk"])]
    pub(crate) ask: bool,

    /// Print JSON objects, one a line
    #[arg(long)]
    pub(crate) json: bool,

    /// Name or address of the server
    #[arg(value_name = "HOST", value_hint = clap::ValueHint::Hostname)]
    pub(crate) host: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Largest buffer in bytes: larger than any socket buffer, and too small to run out of memory.
const MOST_BYTES: u64 = 1 << 30;

fn bytes(text: &str) -> Result<usize, String> {
    match number(text) {
        Some(bytes @ 1..=MOST_BYTES) => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        _ => Err("give a number of bytes from 1 to 1024m, such as 1460, 16k or 1m".to_owned()),
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let rate = number(text).filter(|rate| *rate > 0);
    rate.ok_or_else(|| "give bytes a second, such as 30000, 100k or 30m".to_owned())
}

fn microseconds(text: &str) -> Result<Duration, String> {
    let wanted = "give a whole number of microseconds up to a day, such as 100000";
    number(text).map(Duration::from_micros).filter(up_to_a_day).ok_or_else(|| wanted.to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.filter(|time| !time.is_zero()).filter(up_to_a_day);
    seconds.ok_or_else(|| "give seconds up to a day, such as 10 or 0.5".to_owned())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let ms = text.parse::<f64>().ok().and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
    let ms = ms.filter(|time| !time.is_zero()).filter(up_to_a_day);
    ms.ok_or_else(|| "give milliseconds, such as 20 or 0.5".to_owned())
}

fn up_to_a_day(time: &Duration) -> bool {
    *time <= Duration::from_secs(86_400)
}

/// Parses a number that may end in k or m, as in the published programs.
fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser};

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        ack: Ack,
    }

    fn role(line: &str) -> Result<Role, String> {
        let words = ["ack"].into_iter().chain(line.split_whitespace());
        Program::try_parse_from(words).map(|it| it.ack.role).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Program::command().debug_assert();
    }

    #[test]
    fn the_reference_run_is_understood() {
        let Role::Server(server) = role("server -b 1k -D -s 100000").unwrap() else { panic!() };
        assert_eq!((server.buffer, server.nodelay), (1024, true));
        assert_eq!((server.sleep, server.port), (Duration::from_millis(100), 1234));
        assert_eq!(server.pause, Duration::from_secs(5));
        let Role::Client(client) = role("client -b 1k ::1").unwrap() else { panic!() };
        assert_eq!((client.buffer, client.host.as_str()), (1024, "::1"));
        assert_eq!(client.time, Duration::from_secs(10));
    }

    #[test]
    fn each_published_option_is_there() {
        let line = "server -b 2m -s 1k -p 5 -q -r 30m -S 64k -D -R 2";
        let Role::Server(server) = role(line).unwrap() else { panic!() };
        assert_eq!((server.buffer, server.rate), (2 << 20, Some(30 << 20)));
        assert_eq!((server.send_buffer, server.quickack), (Some(64 << 10), true));
        assert_eq!(server.sleep, Duration::from_micros(1024));
        assert_eq!(server.pace().as_millis(), 66);
        let line = "client -b 9 -c 1 -p 7 -r 8k -s 3 -t 0.5 -d -L 4k host";
        let Role::Client(client) = role(line).unwrap() else { panic!() };
        assert_eq!((client.cpu, client.port, client.debug), (Some(1), 7, true));
        assert_eq!((client.receive_buffer, client.low_mark), (Some(8192), Some(4096)));
        assert_eq!(client.time, Duration::from_millis(500));
    }

    #[test]
    fn what_means_nothing_is_refused_with_what_would() {
        for (line, says) in [
            ("server -b 0", "number of bytes"),
            ("server -b 1g", "number of bytes"),
            ("server -b +5", "number of bytes"),
            ("server -b 99999999999999999999k", "number of bytes"),
            ("server -r 0", "bytes a second"),
            ("server -s -1", "-1"),
            ("server -R 0", "seconds"),
            ("client", "HOST"),
            ("client -t nan host", "seconds"),
            ("client -p 0 host", "0"),
            ("client --talk 11 host", "11"),
            ("client --ask -L 4k host", "-L"),
            ("server --reply 0", "0"),
            ("server --reply 3 -s 100", "-s"),
            ("client --quickack maybe host", "maybe"),
        ] {
            let error = role(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
