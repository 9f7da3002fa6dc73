//! Unmodified servers on the user-space stack with and without AF_XDP, over veth: which is better there.

use std::net::SocketAddr;

use anyhow::Result;
use uncork_lab::place::{DEVICE, NEAR, joined};
use uncork_netns::Namespace;

use super::{PRIVILEGE, Server, bulk, nginx};
use crate::contest::{Case, interleave};
use crate::launch::Way;
use crate::outcome::{Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::run::Bed;
use crate::run::nginx::Nginx;
use crate::run::tuning::may;

const BENCH: &str = "inline-ports";
const HTTP: u16 = 8080;
const BULK: u16 = 5201;
/// AF_XDP carries all traffic: the device has one queue.
const PORTS: [(&str, &[&str]); 2] =
    [("AF_XDP", &["--driver=xdp"]), ("packet sockets", &["--driver=packet"])];

/// A server on a link of its own: an XDP program changes what the device's other end may offload to it, and there is one
/// per device.
struct Bench<S> {
    _near: Namespace,
    far: Namespace,
    server: S,
}

impl<S> Bench<S> {
    /// Creates one for each port.
    fn both(
        cores: Cores,
        start: impl Fn(&Namespace, (&Way, usize)) -> Result<S>,
    ) -> Result<Vec<Self>> {
        let one = |(_, more): &(&str, &'static [&'static str])| {
            let (near, far) = joined()?;
            let server = start(&near, (&Way::Stack { device: DEVICE, more }, cores.server))?;
            Ok(Self { _near: near, far, server })
        };
        PORTS.iter().map(one).collect()
    }
}

/// Alternates small answers, and long bodies both ways, between both.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "nginx", "wrk", "iperf3"])?;
    let cores = Place::TwoCores.cores()?;
    let (http, bulk) = (SocketAddr::from((NEAR, HTTP)), SocketAddr::from((NEAR, BULK)));
    let pages = Bench::both(cores, |near, way| Nginx::start_in(bed, near, http, way))?;
    let bodies = Bench::both(cores, |near, way| bulk::serve(bed, near, bulk, way))?;
    let mut cases = Vec::new();
    for (at, (name, _)) in PORTS.iter().enumerate() {
        let (page, body) = (&pages[at], &bodies[at]);
        let server = Server::new(page.server.running.pid(), HTTP);
        cases.push(Case::new(format!("wrk -c64: {name}"), move || {
            nginx::ask(bed, &page.far, (server, "", &["-c64"]), cores)
        }));
        for (direction, arguments) in bulk::DIRECTIONS {
            let server = (body.server.pid(), bulk);
            cases.push(Case::new(format!("iperf3, {direction}: {name}"), move || {
                bulk::ask(bed, &body.far, server, (arguments, cores))
            }));
        }
    }
    let samples = interleave(&mut cases, bed.rounds(7), bed.progress)?;
    let row = |case: usize, figure, unit, what: &str| {
        let what = format!("over veth, {what}: AF_XDP; against packet sockets");
        let (xdp, packets) = (samples.get(case, figure), samples.get(case + 3, figure));
        Row::compare((BENCH, what), Place::TwoCores, unit, (xdp, Compare::Ratio, packets))
    };
    let mut rows = vec![
        row(0, 0, Unit::PerSecond, "nginx, wrk -c64, requests a CPU-second of the server"),
        row(0, 1, Unit::PerSecond, "nginx, wrk -c64, requests a second"),
    ];
    for (at, (direction, _)) in bulk::DIRECTIONS.iter().enumerate() {
        let what = format!("iperf3, {direction}");
        rows.push(row(at + 1, 0, Unit::Megabits, &format!("{what}, throughput")));
        let cpu = format!("{what}, the server's processor time");
        rows.push(row(at + 1, 1, Unit::SecondsPerGigabyte, &cpu));
    }
    Ok(rows)
}
