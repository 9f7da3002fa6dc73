//! The same stack over AF_XDP and over a packet socket, on veth: which port is better there.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use uncork_lab::place::joined;
use uncork_netns::Namespace;

use super::bulk::{self, fetch};
use super::http::{self, ask};
use super::server::serve;
use super::{Bed, PACKETS, Who};
use crate::contest::{Case, interleave};
use crate::launch::{Job, within};
use crate::outcome::{Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::{Running, run_to_end};
use crate::roles::RoundTrips;
use crate::run::on_cpu::on_cpu;
use crate::run::tuning::may;

const BENCH: &str = "stack-ports";
const PORT: u16 = 8080;
const PORTS: [Who; 2] = [Who::Xdp, Who::Ours];
/// Round trips of 64 octets in a round.
const COUNT: u64 = 20_000;
const LIMIT: Duration = Duration::from_secs(60);

/// A server on a link of its own: an XDP program changes what the device's other end may offload to it.
struct Bench {
    _near: Namespace,
    far: Namespace,
    server: Running,
    at: SocketAddr,
}

impl Bench {
    fn new(bed: &Bed<'_>, who: Who, what: &str, cores: Cores) -> Result<Self> {
        let (near, far) = joined()?;
        let server = serve(bed, &near, who, (what, PORT), Some(cores.server))?;
        Ok(Self { _near: near, far, server, at: who.at(PORT) })
    }

    fn target(&self) -> (u32, SocketAddr) {
        (self.server.pid(), self.at)
    }
}

/// Alternates small answers, round trips and a long body between both.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PACKETS, &["ip", "wrk"])?;
    let cores = Place::TwoCores.cores()?;
    let http = format!("{} {}", http::SERVICE, bulk::BYTES);
    let both = |what: &str| -> Result<Vec<Bench>> {
        PORTS.iter().map(|&who| Bench::new(bed, who, what, cores)).collect()
    };
    let (pages, echoes) = (both(&http)?, both("echo")?);
    let mut cases = Vec::new();
    for (at, who) in PORTS.iter().enumerate() {
        let (page, echo) = (&pages[at], &echoes[at]);
        let name = |what: &str| format!("{what}: {who:?}");
        cases.push(Case::new(name("wrk -c64"), move || ask(bed, &page.far, page.target(), cores)));
        cases.push(Case::new(name("round trips"), move || round_trips(bed, echo, cores)));
        cases.push(Case::new(name("a long body"), move || {
            fetch(bed, &page.far, page.target(), cores)
        }));
    }
    let samples = interleave(&mut cases, bed.rounds(9), bed.progress)?;
    let row = |case: usize, figure, unit, name: &str| {
        let what = format!("over veth, {name}: AF_XDP; against a packet socket");
        let (xdp, packets) = (samples.get(case, figure), samples.get(case + 3, figure));
        Row::compare((BENCH, what), Place::TwoCores, unit, (xdp, Compare::Ratio, packets))
    };
    Ok(vec![
        row(0, 0, Unit::PerSecond, "602 octets, wrk -c64, answers a CPU-second of the server"),
        row(0, 1, Unit::PerSecond, "602 octets, wrk -c64, answers a second"),
        row(1, 0, Unit::Microseconds, "round trip of 64 octets, p50"),
        row(1, 1, Unit::Microseconds, "the server's processor time for a round trip"),
        row(2, 0, Unit::Megabits, "a long body, throughput"),
        row(2, 1, Unit::SecondsPerGigabyte, "a long body, the server's processor time"),
    ])
}

/// Returns the median of a round trip, and the server's processor time for one, both in microseconds.
fn round_trips(bed: &Bed<'_>, echo: &Bench, cores: Cores) -> Result<Vec<f64>> {
    let count = bed.amount(COUNT);
    let job = Job::new(&bed.tools.bench)
        .args(["role", "ping", &PORT.to_string(), "--host", &echo.at.ip().to_string()])
        .args(["--count", &count.to_string(), "--warm-up", &(count / 10).to_string()])
        .core(cores.client);
    let command = within(&echo.far, &job.command(bed.tools)?)?;
    let before = on_cpu(echo.server.pid())?;
    let text = run_to_end(command, "the round trips", LIMIT)?;
    let cpu = on_cpu(echo.server.pid())?.saturating_sub(before);
    let trips: RoundTrips = serde_json::from_str(&text).context("understanding the round trips")?;
    Ok(vec![trips.p50_us, cpu.as_secs_f64() * 1e6 / (count + count / 10) as f64])
}
