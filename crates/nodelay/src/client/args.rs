//! The client's command line: one definition for the parser, the help, the manual page and the
//! completions.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

use super::Options;
use crate::{DEFAULT_BUFFERS, DEFAULT_PACKETS, DEFAULT_PORT, MAX_BUFFERS, MAX_PACKETS};

/// Options that the older, positional command line lacks.
const MODERN_ONLY: [&str; 12] = [
    "cork",
    "more",
    "header_plus_payload",
    "no_delay",
    "nr_logical_packets",
    "port",
    "rate",
    "no_reply",
    "sendfile",
    "single_request",
    "verbose",
    "writev",
];

/// Send logical packets made of small writes and time them
///
/// Connects to a tcp_nodelay_server, sends logical packets of several buffers of 2 bytes, one
/// write(2) a buffer, and waits for a reply of 2 bytes after each. Prints the bytes sent per
/// millisecond, or the whole story with --verbose.
#[derive(Debug, Parser)]
#[command(
    name = "tcp_nodelay_client",
    version,
    infer_long_args = true,
    override_usage = "tcp_nodelay_client [OPTIONS] [SERVER]\n       \
                      tcp_nodelay_client [--buffers NR] [--json] SERVER PORT PACKETS [no_delay|cork]",
    after_help = "With neither --no_delay nor --cork, nor --single_request, each packet costs the \
                  40 ms of a delayed ACK: 10000 packets take about 7 minutes.\n\n\
                  Exit status: 0 when all packets were sent and answered, 1 when not, 2 for a bad \
                  command line."
)]
pub(crate) struct Args {
    /// Cork the socket (TCP_CORK) before each logical packet and uncork it after
    #[arg(short = 'c', long)]
    cork: bool,

    /// Send all writes of a logical packet but the last with MSG_MORE: what a program can do at
    /// best without gathering its writes (not in the published client)
    #[arg(long, conflicts_with = "cork")]
    more: bool,

    /// Send each logical packet in two writes: the first 3 buffers, then the rest
    #[arg(
        short = 'H',
        long = "header_plus_payload",
        alias = "header-plus-payload",
        conflicts_with = "single_request"
    )]
    header_plus_payload: bool,

    /// Send each logical packet as --header_plus_payload does, and the payload out of a file, with
    /// sendfile(2) (not in the published client)
    #[arg(long, conflicts_with_all = ["header_plus_payload", "single_request"])]
    sendfile: bool,

    /// Set TCP_NODELAY: send each write at once
    #[arg(short = 'n', long = "no_delay", alias = "no-delay")]
    no_delay: bool,

    /// Number of logical packets to send
    #[arg(
        short = 'N',
        long = "nr_logical_packets",
        alias = "nr-logical-packets",
        value_name = "NR",
        default_value_t = DEFAULT_PACKETS,
        value_parser = clap::value_parser!(u64).range(1..=MAX_PACKETS)
    )]
    nr_logical_packets: u64,

    /// Port of the server
    #[arg(
        short = 'p',
        long,
        value_name = "PORT",
        default_value_t = DEFAULT_PORT,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    port: u16,

    /// Send this many packets a second at most, each at its own time, instead of each as soon as
    /// the one before was answered
    #[arg(
        short = 'r',
        long,
        value_name = "RATE",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    rate: Option<u32>,

    /// Do not wait for replies: for a server that was started with the word rate
    #[arg(long = "no_reply", alias = "no-reply", requires = "rate")]
    no_reply: bool,

    /// Send each logical packet in a single write
    #[arg(short = 's', long = "single_request", alias = "single-request")]
    single_request: bool,

    /// Send each logical packet with one writev(2) of its buffers, or one for each 1024 of them
    /// (not in the published client)
    #[arg(long, conflicts_with_all = ["header_plus_payload", "sendfile", "single_request"])]
    writev: bool,

    /// Print packets, writes a packet, time and option as well, not only the bytes per
    /// millisecond
    #[arg(short = 'v', long)]
    verbose: bool,

    /// Number of buffers of 2 bytes in a logical packet; the server needs the same number
    #[arg(
        long,
        value_name = "NR",
        default_value_t = DEFAULT_BUFFERS,
        value_parser = clap::value_parser!(u32).range(1..=MAX_BUFFERS)
    )]
    buffers: u32,

    /// Print one JSON object instead, with the distribution of the latencies
    #[arg(long)]
    json: bool,

    /// Host name or address of the server
    #[arg(value_name = "SERVER", default_value = "localhost")]
    server: String,

    /// Port of the server (older command line)
    #[arg(
        value_name = "PORT",
        requires = "old_packets",
        conflicts_with_all = MODERN_ONLY,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    old_port: Option<u16>,

    /// Number of logical packets to send (older command line)
    #[arg(value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..=MAX_PACKETS))]
    old_packets: Option<u64>,

    /// Socket option to set (older command line)
    #[arg(value_name = "OPTION", value_enum)]
    old_option: Option<OptionWord>,
}

/// Socket options of the older command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OptionWord {
    /// Set TCP_NODELAY
    #[value(name = "no_delay", alias = "no-delay")]
    NoDelay,
    /// Cork each logical packet with TCP_CORK
    #[value(name = "cork")]
    Cork,
}

/// How each logical packet is cut into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// One write a buffer.
    Buffers,
    /// The first [`HEADER_BUFFERS`] buffers, then the rest.
    HeaderPlusPayload,
    /// The first [`HEADER_BUFFERS`] buffers, then the rest out of a file.
    Sendfile,
    /// One write.
    SingleRequest,
    /// All buffers where they are, in one call.
    Writev,
}

impl Cut {
    /// Returns whether a header precedes the rest.
    fn has_header(self) -> bool {
        matches!(self, Self::HeaderPlusPayload | Self::Sendfile)
    }
}

/// Buffers that make the header of [`Cut::HeaderPlusPayload`] and of [`Cut::Sendfile`].
pub(crate) const HEADER_BUFFERS: u32 = 3;

/// How the result is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// The bytes per millisecond.
    Rate,
    /// The published line of the modern command line.
    Verbose,
    /// The published line of the positional command line.
    Positional,
    /// One JSON object.
    Json,
}

/// Parses the command line; on an invalid one, says what is wrong and exits with 2.
pub(crate) fn parse() -> Options {
    match Args::try_parse().and_then(Args::into_options) {
        Ok(options) => options,
        Err(error) => error.exit(),
    }
}

impl Args {
    fn into_options(self) -> Result<Options, clap::Error> {
        // No two of them are combined.
        let cut = match (self.single_request, self.header_plus_payload, self.sendfile) {
            (true, _, _) => Cut::SingleRequest,
            (_, true, _) => Cut::HeaderPlusPayload,
            (_, _, true) => Cut::Sendfile,
            _ if self.writev => Cut::Writev,
            _ => Cut::Buffers,
        };
        if cut.has_header() && self.buffers <= HEADER_BUFFERS {
            let option = if self.sendfile { "--sendfile" } else { "--header_plus_payload" };
            return Err(Args::command().error(
                ErrorKind::ValueValidation,
                format!(
                    "{option} needs --buffers {} or more: the header alone is {} buffers",
                    HEADER_BUFFERS + 1,
                    HEADER_BUFFERS
                ),
            ));
        }
        let style = match (self.json, self.old_port, self.verbose) {
            (true, _, _) => Style::Json,
            (false, Some(_), _) => Style::Positional,
            (false, None, true) => Style::Verbose,
            (false, None, false) => Style::Rate,
        };
        Ok(Options {
            server: self.server,
            port: self.old_port.unwrap_or(self.port),
            packets: self.old_packets.unwrap_or(self.nr_logical_packets),
            buffers: self.buffers,
            cut,
            no_delay: self.no_delay || self.old_option == Some(OptionWord::NoDelay),
            cork: self.cork || self.old_option == Some(OptionWord::Cork),
            more: self.more,
            rate: self.rate,
            await_reply: !self.no_reply,
            style,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<Options, clap::Error> {
        let words = ["tcp_nodelay_client"].iter().chain(words);
        Args::try_parse_from(words).and_then(Args::into_options)
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_published_ones() {
        let found = options(&[]).unwrap();
        assert_eq!(found.server, "localhost");
        assert_eq!((found.port, found.packets, found.buffers), (5001, 10_000, 15));
        assert_eq!((found.cut, found.style), (Cut::Buffers, Style::Rate));
        assert!(!found.no_delay && !found.cork && found.await_reply);
        assert_eq!(found.rate, None);
    }

    #[test]
    fn modern_long_short_and_hyphenated_names_agree() {
        let long = options(&[
            "--cork",
            "--no_delay",
            "--nr_logical_packets=7",
            "--port=6001",
            "--rate=9",
            "--single_request",
            "--verbose",
            "there",
        ]);
        let short = options(&["-c", "-n", "-N", "7", "-p6001", "-r9", "-s", "-v", "there"]);
        let hyphens = options(&[
            "--cork",
            "--no-delay",
            "--nr-logical-packets=7",
            "--port=6001",
            "--rate=9",
            "--single-request",
            "--verbose",
            "there",
        ]);
        let long = long.unwrap();
        assert_eq!(long, short.unwrap());
        assert_eq!(long, hyphens.unwrap());
        assert_eq!((long.port, long.packets, long.rate), (6001, 7, Some(9)));
        assert_eq!(options(&["-H"]).unwrap(), options(&["--header-plus-payload"]).unwrap());
        assert_eq!(options(&["-H"]).unwrap().cut, Cut::HeaderPlusPayload);
    }

    #[test]
    fn unambiguous_beginnings_of_names_are_understood() {
        assert_eq!(options(&["--head", "--nr=3"]).unwrap(), options(&["-H", "-N3"]).unwrap());
    }

    #[test]
    fn positional_command_line_is_understood() {
        let found = options(&["localhost", "5002", "300", "no_delay"]).unwrap();
        assert_eq!((found.port, found.packets, found.style), (5002, 300, Style::Positional));
        assert!(found.no_delay && !found.cork);
        let found = options(&["localhost", "5002", "300", "cork"]).unwrap();
        assert!(!found.no_delay && found.cork);
        let found = options(&["localhost", "5002", "300"]).unwrap();
        assert!(!found.no_delay && !found.cork);
    }

    #[test]
    fn a_header_without_payload_is_refused() {
        let error = options(&["-H", "--buffers", "3"]).unwrap_err();
        assert!(error.to_string().contains("--buffers 4 or more"), "{error}");
        assert!(options(&["-H", "--buffers", "4"]).is_ok());
        let error = options(&["--sendfile", "--buffers", "3"]).unwrap_err();
        assert!(error.to_string().contains("--sendfile needs --buffers 4 or more"), "{error}");
    }

    #[test]
    fn a_packet_is_cut_in_one_way() {
        assert_eq!(options(&["--writev", "-n"]).unwrap().cut, Cut::Writev);
        assert_eq!(options(&["--sendfile", "-c"]).unwrap().cut, Cut::Sendfile);
        let ways = ["-s", "-H", "--writev", "--sendfile"];
        for (index, one) in ways.iter().enumerate() {
            for other in &ways[index + 1..] {
                assert!(options(&[one, other]).is_err(), "{one} {other}");
            }
        }
        // These were unambiguous abbreviations before the new options were added.
        assert_eq!(options(&["--si"]).unwrap().cut, Cut::SingleRequest);
    }
}
