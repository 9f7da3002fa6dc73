//! The helpers: this same program, started again in a small role, so that the role runs as a
//! process of its own (pinned, and under the library).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

mod busy;
mod costs;
mod dial;
mod exchange;
mod exec;
mod janitor;
mod keeper;
mod memcache;
mod paced;
mod ping;
mod throng;
mod usage;
mod zero;

pub(crate) use busy::Message;
pub(crate) use costs::Costs;
pub(crate) use dial::{Dials, Lives};
pub(crate) use exchange::{Packet, Record};
pub(crate) use keeper::Duty;
pub(crate) use memcache::Load;
pub(crate) use paced::Paced;
pub(crate) use ping::RoundTrips;
pub(crate) use throng::Throng;
pub(crate) use usage::Usage;

/// A part.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Becomes a program: pinned, as another user, ended together with its parent
    Exec(exec::Args),
    /// Removes a directory as soon as nobody holds the other end of standard input
    Janitor {
        /// The directory
        dir: PathBuf,
    },
    /// Does what it is told, a line each, as soon as nobody holds the other end of standard input
    Keeper,
    /// Echoes what comes, connection by connection; says the port first
    Pong {
        /// Where to listen
        #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
        at: SocketAddr,
    },
    /// Measures round trips to `pong`
    Ping(ping::Args),
    /// Says a word to all who come and hangs up; says the port first
    HangUp {
        /// Where to listen
        #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
        at: SocketAddr,
    },
    /// Measures connections to `hang-up`
    Dial(dial::Args),
    /// Measures processes that open one connection each to `hang-up`
    Call(dial::Callers),
    /// Echoes what comes, with a thread for each connection; says the port first
    Answer {
        /// Where to listen
        #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
        at: SocketAddr,
    },
    /// Measures round trips of many threads to `answer`
    Ask(throng::Args),
    /// Asks a redis at a rate of its own
    Pace(paced::Args),
    /// Reads single bytes from /dev/zero
    Zero {
        /// Number of reads
        reads: u64,
    },
    /// Runs a program and says how long it took and how much memory
    Usage(usage::Args),
    /// Measures what ways of keeping time cost
    Costs {
        /// Number of each
        times: u64,
    },
    /// Loads a memcached
    Memcache(memcache::Args),
    /// Writes to a socket and then computes without calling anything
    Busy(busy::Args),
    /// Sends logical packets and records when each write was made and each reply came
    Exchange(exchange::Args),
}

impl Role {
    /// Plays the role.
    pub(crate) fn play(self) -> Result<()> {
        match self {
            Self::Exec(args) => exec::run(&args),
            Self::Janitor { dir } => janitor::run(&dir),
            Self::Keeper => keeper::run(),
            Self::Pong { at } => ping::pong(at),
            Self::Ping(args) => ping::ping(&args),
            Self::HangUp { at } => dial::hang_up(at),
            Self::Dial(args) => dial::dial(&args),
            Self::Call(args) => dial::call(&args),
            Self::Answer { at } => throng::answer(at),
            Self::Ask(args) => throng::ask(&args),
            Self::Pace(args) => paced::pace(&args),
            Self::Zero { reads } => zero::run(reads),
            Self::Usage(args) => usage::run(&args),
            Self::Costs { times } => costs::run(times),
            Self::Memcache(args) => memcache::run(&args),
            Self::Busy(args) => busy::run(&args),
            Self::Exchange(args) => exchange::run(&args),
        }
    }
}
