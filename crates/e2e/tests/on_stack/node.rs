//! Node: libuv's epoll set, writev, timers between the pieces of an answer.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::http::Answer;
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, artifact};

use crate::on_stack::{Scratch, lacks};

const PORT: u16 = 8085;

#[test]
fn node_sends_other_bytes_or_hangs() -> Result<()> {
    if lacks(&[("node", "nodejs")])? {
        return Ok(());
    }
    let hosts = Hosts::new("node")?;
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(find("node").context("no node")?)?;
    command.arg(artifact::source("js/http.js")).args([&PORT.to_string(), "::"]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let chunks: String = (0..200).map(|number| format!("chunk {number};")).collect();
    let big: Vec<u8> = (0..3_000_000_u32).map(|at| ((at * 7 + (at >> 9)) & 255) as u8).collect();
    let wanted = [
        ("/small", Answer::of(200, b"hello")),
        ("/chunks", Answer::of(200, format!("{chunks}end").as_bytes())),
        ("/big", Answer::of(200, &big)),
        ("/missing", Answer::of(404, b"no\n")),
    ];
    let before = hosts.counted()?;
    hosts.crowd(8, |_| {
        for _ in 0..3 {
            let mut kept = hosts.http(PORT)?;
            for (path, wanted) in wanted {
                let got = kept.get(path)?;
                ensure!(got == wanted, "{path}: {got:?}, not {wanted:?}");
            }
        }
        Ok(())
    })?;
    hosts.check_all_on_stack(before)?;
    let status = server.stop(Signal::SIGTERM)?;
    ensure!(status.success(), "node ended with {status}");
    hosts.check_nothing_left(PORT)
}
