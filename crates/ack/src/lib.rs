//! The published delayed-ACK experiment, as `uncork ack server` and `uncork ack client`.
//!
//! The server writes a buffer, sleeps and writes the next; the client reads. This shows when the
//! client's kernel acknowledges: at once while it has quick-ACK credits, and 40 ms late when they
//! are spent and the reader does not help. The original needed a capture to see it. Here the
//! server's own kernel reports it, segment by segment ([`stamps`]), and at the end a verdict is
//! drawn from the list ([`verdict`]).

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod error;
pub mod kernel;
pub mod ledger;
mod output;
mod server;
mod signals;
mod sockets;
pub mod stamps;
pub mod verdict;

pub use arguments::Ack;

use arguments::Role;

/// Exit status of a failure of either program, the same as for an invalid command line.
const FAILED: i32 = 2;

/// Runs the server or the client and returns its exit status.
#[must_use]
pub fn run(arguments: &Ack) -> i32 {
    let done = match &arguments.role {
        Role::Server(options) => server::run(options),
        Role::Client(options) => client::run(options),
    };
    match done {
        Ok(status) => status,
        // The reader of our output is gone, which is how `… | head` ends.
        Err(error) if error.is_broken_pipe() => 0,
        Err(error) => {
            output::complain(&error);
            FAILED
        }
    }
}
