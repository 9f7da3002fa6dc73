//! A long body over veth: our server against the same one on kernel sockets.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use uncork_lab::place::joined;
use uncork_lab::rest::rest;
use uncork_netns::Namespace;

use super::transfer::Receiver;
use super::{Bed, PACKETS, Who, server};
use crate::contest::{Case, interleave};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::NEVER;
use crate::run::on_cpu::on_cpu;
use crate::run::tuning::may;

const BENCH: &str = "stack-bulk";
const PORT: u16 = 8080;
/// A body without end, and the request for it.
pub(super) const BYTES: &str = "--bytes 1000000000000000";
const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: bench\r\n\r\n";
/// Least share of the throughput on kernel sockets.
const LEAST: f64 = 0.6;

/// Runs both servers on one core, the receiver on the other; segment trains and checksum offload as on veth.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PACKETS, &["ip"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let service = format!("http {BYTES}");
    let serve = |who| server::serve(bed, &near, who, (&service, PORT), Some(cores.server));
    let servers = [serve(Who::Ours)?, serve(Who::Kernel)?];
    let case = |who: Who| {
        let (server, far) = (&servers[who.case()], &far);
        Case::new(format!("a long body over veth: {who:?}"), move || {
            fetch(bed, far, (server.pid(), who.at(PORT)), cores)
        })
    };
    let samples = interleave(&mut Who::ALL.map(case), bed.rounds(7), bed.progress)?;
    let row = |figure, unit, name: &str| {
        let of = |who: Who| samples.get(who.case(), figure);
        let what =
            format!("a long body over veth, {name}: ours; against the same on kernel sockets");
        let sides = (of(Who::Ours), Compare::Ratio, of(Who::Kernel));
        Row::compare((BENCH, what), Place::TwoCores, unit, sides)
    };
    Ok(vec![
        row(0, Unit::Megabits, "throughput").bar(Bar::AtLeast(LEAST)),
        row(1, Unit::SecondsPerGigabyte, "the server's processor time"),
    ])
}

/// Returns megabits per second of a body without end, and the server's processor time for a gigabyte.
pub(super) fn fetch(
    bed: &Bed<'_>,
    from: &Namespace,
    (pid, at): (u32, SocketAddr),
    cores: Cores,
) -> Result<Vec<f64>> {
    let receiver = Receiver::connect(from, at, REQUEST, Some(cores.client))?;
    rest(Duration::from_millis(300), &NEVER)?;
    let (begin, spent) = (receiver.mark()?, on_cpu(pid)?);
    rest(Duration::from_secs(if bed.quick { 1 } else { 3 }), &NEVER)?;
    let (end, cpu) = (receiver.mark()?, on_cpu(pid)?.saturating_sub(spent));
    let gigabytes = (end.bytes - begin.bytes) as f64 / 1e9;
    Ok(vec![end.megabits_since(&begin), cpu.as_secs_f64() / gigabytes])
}
