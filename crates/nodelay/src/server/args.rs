//! The server's command line: one definition for the parser, the help, the manual page and the
//! completions.

use std::str::FromStr;

use clap::{Parser, ValueEnum};

use super::{Options, Replies};
use crate::{DEFAULT_BUFFERS, DEFAULT_PACKETS, DEFAULT_PORT, MAX_BUFFERS, MAX_PACKETS};

/// Receive logical packets made of small writes and count the reads that it takes
///
/// Takes one connection after another. From each it reads logical packets, answers each with 2
/// bytes, and tells how many reads returned data: one a packet when the client's small writes
/// arrive together, many when each travels alone.
#[derive(Debug, Parser)]
#[command(
    name = "tcp_nodelay_server",
    version,
    infer_long_args = true,
    override_usage = "tcp_nodelay_server [OPTIONS] [PORT] [PACKETS] [no_delay|cork|rate]",
    after_help = "With --json, standard output carries one JSON object a line and nothing else: \
                  one a connection, with \"event\":\"connection\", after one with \
                  \"event\":\"listening\" when the port is 0.\n\n\
                  Exit status: 0 after --connections, 1 when the port cannot be had, 2 for a bad \
                  command line. Without --connections it serves until it is killed."
)]
pub(crate) struct Args {
    /// Port to listen on; 0 takes a free one and tells which
    #[arg(value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,

    /// Logical packets to receive from each connection before closing it; the word may stand
    /// here as well
    #[arg(value_name = "PACKETS", default_value_t = PacketsOrWord::Packets(DEFAULT_PACKETS))]
    packets: PacketsOrWord,

    /// What to do about replies, if not just send them
    #[arg(value_name = "WORD", value_enum)]
    word: Option<Word>,

    /// Number of buffers of 2 bytes in a logical packet; the client needs the same number
    #[arg(
        long,
        value_name = "NR",
        default_value_t = DEFAULT_BUFFERS,
        value_parser = clap::value_parser!(u32).range(1..=MAX_BUFFERS)
    )]
    buffers: u32,

    /// Exit after this many connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,

    /// Listen on this address or host name only, instead of on all of IPv6 and IPv4
    #[arg(long, value_name = "ADDR")]
    bind: Option<String>,

    /// Print one JSON object for each connection instead
    #[arg(long)]
    json: bool,
}

/// How replies are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Word {
    /// Set TCP_NODELAY
    #[value(name = "no_delay", alias = "no-delay")]
    NoDelay,
    /// Cork each reply with TCP_CORK
    #[value(name = "cork")]
    Cork,
    /// Send no replies, and print the times between packets
    #[value(name = "rate")]
    Rate,
}

/// The second place of the command line holds either; a word means the default number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketsOrWord {
    Packets(u64),
    Word(Word),
}

impl FromStr for PacketsOrWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(word) = <Word as ValueEnum>::from_str(text, false) {
            return Ok(Self::Word(word));
        }
        match text.parse() {
            Ok(packets) if (1..=MAX_PACKETS).contains(&packets) => Ok(Self::Packets(packets)),
            _ => Err(format!(
                "give a number of packets from 1 to {MAX_PACKETS}, or no_delay, cork or rate"
            )),
        }
    }
}

impl std::fmt::Display for PacketsOrWord {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Packets(packets) => write!(out, "{packets}"),
            Self::Word(word) => {
                let name = word.to_possible_value();
                out.write_str(name.as_ref().map_or("", |name| name.get_name()))
            }
        }
    }
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
        let (packets, word) = match (self.packets, self.word) {
            (PacketsOrWord::Packets(packets), word) => (packets, word),
            (PacketsOrWord::Word(word), None) => (DEFAULT_PACKETS, Some(word)),
            (PacketsOrWord::Word(first), Some(_)) => {
                return Err(<Args as clap::CommandFactory>::command().error(
                    clap::error::ErrorKind::ArgumentConflict,
                    format!(
                        "only one word can be given, and `{}` stands where the number of packets \
                         was expected",
                        PacketsOrWord::Word(first)
                    ),
                ));
            }
        };
        let replies = match word {
            None => Replies::Plain,
            Some(Word::NoDelay) => Replies::NoDelay,
            Some(Word::Cork) => Replies::Corked,
            Some(Word::Rate) => Replies::None,
        };
        Ok(Options {
            port: self.port,
            bind: self.bind,
            packets,
            buffers: self.buffers,
            replies,
            connections: self.connections,
            json: self.json,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn options(words: &[&str]) -> Result<Options, clap::Error> {
        let words = ["tcp_nodelay_server"].iter().chain(words);
        Args::try_parse_from(words).and_then(Args::into_options)
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn published_command_line_and_defaults_agree() {
        assert_eq!(options(&["5001", "10000"]).unwrap(), options(&[]).unwrap());
        assert_eq!(options(&[]).unwrap().buffers, 15);
    }

    #[test]
    fn the_word_stands_in_second_or_third_place() {
        for (word, replies) in [
            ("no_delay", Replies::NoDelay),
            ("no-delay", Replies::NoDelay),
            ("cork", Replies::Corked),
            ("rate", Replies::None),
        ] {
            let second = options(&["5001", word]).unwrap();
            let third = options(&["5001", "10000", word]).unwrap();
            assert_eq!(second, third);
            assert_eq!(second.replies, replies);
        }
    }

    #[test]
    fn two_words_are_refused() {
        let error = options(&["5001", "cork", "rate"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("`cork`"), "{error}");
    }
}
