//! A full queue below the stack: packets that it refuses are sent as soon as there is room.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::http::Answer;
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::{Alone, alone, run};

use crate::on_stack::nginx::serving;
use crate::on_stack::{Scratch, lacks, noise};

const PORT: u16 = 8080;
const NEEDED: [(&str, &str); 2] = [("nginx", "nginx-light"), ("tc", "iproute2")];
/// A single segment together with nginx's header.
const PAGE: usize = 1_000;
/// Answers sent at once; the queue has room for four, and has sent all after fourteen milliseconds.
const CONNECTIONS: usize = 24;
const QUEUE: &str = "qdisc add dev eth0 root tbf rate 20mbit burst 2k limit 5k";
const ROUNDS: usize = 20;
/// Less than any TCP timeout.
const SOON: Duration = Duration::from_millis(150);

#[test]
fn what_a_full_queue_refuses_waits_for_a_timeout() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("answers above a full queue", || comes_soon(&alone))
}

fn comes_soon(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("fullqueue")?;
    let scratch = Scratch::new()?;
    scratch.file("page", PAGE)?;
    let server = serving(&hosts, &scratch, 1, "on")?;
    run(hosts.ours.command("tc").args(QUEUE.split(' ')), Duration::from_secs(10))?.successful()?;
    let page = Answer::of(200, &noise(PAGE));
    let mut all = (0..CONNECTIONS).map(|_| hosts.http(PORT)).collect::<Result<Vec<_>>>()?;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        for one in &mut all {
            one.request("/page", "")?;
        }
        for one in &mut all {
            ensure!(one.answer()? == page, "another page");
        }
        let took = begun.elapsed();
        ensure_soon(took, SOON, || format!("round {round}: the last answer after {took:?}"))?;
    }
    drop(all);
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
