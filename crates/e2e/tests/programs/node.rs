//! Node's http server: one thread, epoll, writev.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use uncork_e2e::http::Connection;
use uncork_e2e::skip::{find, skip};
use uncork_e2e::{Daemon, Mode, artifact, beside_others, daemon, same_as_plain};

use crate::programs::Scratch;

#[test]
fn node_sends_other_bytes_or_hangs() -> Result<()> {
    if find("node").is_none() {
        return skip("Node is not installed (Debian: nodejs)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both_and_spinning(), |mode| {
        let scratch = Scratch::new()?;
        let port = daemon::free_port()?;
        let mut command = scratch.reporting(mode).command(find("node").context("node")?)?;
        command.arg(artifact::source("js/http.js")).arg(port.to_string());
        let server = Daemon::serving(command, &scratch.path("log"), port)?;
        mode.check_loaded(server.pid())?;
        let mut answers = Vec::new();
        let mut kept = Connection::open(port)?;
        for _ in 0..10 {
            for path in ["/small", "/chunks", "/big", "/missing"] {
                answers.push(kept.get(path)?);
            }
        }
        let status = server.stop(Signal::SIGTERM)?;
        scratch.check_helped(mode)?;
        Ok((answers, status))
    })
}
