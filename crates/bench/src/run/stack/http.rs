//! Small answers over veth: how many a server gives per second of processor time, on our stack, on kernel
//! sockets, and nginx.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use uncork_lab::place::{NEAR, joined};
use uncork_netns::Namespace;

use super::server::serve;
use super::{Bed, PACKETS, Who};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::run_to_end;
use crate::run::nginx::{Nginx, rate, requests};
use crate::run::on_cpu::on_cpu;
use crate::run::reception::Reception;
use crate::run::tuning::may;
use crate::toolbox::program;

const BENCH: &str = "stack-http";
const PORT: u16 = 8080;
const NGINX_PORT: u16 = 8081;
/// The body, which nginx has as a file of the same length.
pub(super) const SERVICE: &str = "http --body 602";
/// Least answers per second of processor time, as a multiple of those on kernel sockets.
const LEAST: f64 = 1.5;
const LIMIT: Duration = Duration::from_secs(60);

/// Address and process of one of the servers.
struct Server {
    name: &'static str,
    pid: u32,
    at: SocketAddr,
}

/// Runs wrk with 64 kept connections alternating between the four, which share a core; wrk has the other.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PACKETS, &["ip", "nginx", "wrk"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let start = |who| serve(bed, &near, who, (SERVICE, PORT), Some(cores.server));
    let [ours, moderated, kernels] = [Who::Ours, Who::Moderated, Who::Kernel].map(start);
    let (ours, moderated, kernels) = (ours?, moderated?, kernels?);
    let nginx =
        Nginx::start_in(bed, &near, (NEAR, NGINX_PORT).into(), (&Way::Plain, cores.server))?;
    let server = |name, pid, at| Server { name, pid, at };
    let servers = [
        server("ours", ours.pid(), Who::Ours.at(PORT)),
        server("ours, moderated", moderated.pid(), Who::Moderated.at(PORT)),
        server("the same on kernel sockets", kernels.pid(), Who::Kernel.at(PORT)),
        server("nginx", nginx.running.pid(), (NEAR, NGINX_PORT).into()),
    ];
    let mut cases = Vec::new();
    for reception in Reception::ALL {
        for server in &servers {
            let (near, far) = (&near, &far);
            let (pid, at) = (server.pid, server.at);
            let label = format!("wrk -c64, {}: {}", reception.name(), server.name);
            cases.push(Case::new(label, move || {
                reception.set((near, far), cores)?;
                ask(bed, far, (pid, at), cores)
            }));
        }
    }
    let samples = interleave(&mut cases, bed.rounds(9), bed.progress)?;
    let mut rows = Vec::new();
    for (at, reception) in Reception::ALL.into_iter().enumerate() {
        for ours in [0, 1] {
            let row = |figure, name: &str, other: usize| {
                let [our_name, other_name] =
                    [ours, other].map(|server: usize| servers[server].name);
                let reception = reception.name();
                let what = format!(
                    "602 octets, wrk -c64, {reception}, {name}: {our_name}; against {other_name}"
                );
                let side = |server| samples.get(at * servers.len() + server, figure);
                let sides = (side(ours), Compare::Ratio, side(other));
                Row::compare((BENCH, what), Place::TwoCores, Unit::PerSecond, sides)
            };
            rows.push(row(0, "answers a CPU-second of the server", 2).bar(Bar::AtLeast(LEAST)));
            rows.push(row(0, "answers a CPU-second of the server", 3));
            rows.push(row(1, "answers a second", 2));
            rows.push(row(1, "answers a second", 3));
        }
    }
    Ok(rows)
}

/// Returns the answers per second of the server's processor time, and per second of all processor time.
pub(super) fn ask(
    bed: &Bed<'_>,
    from: &Namespace,
    (pid, at): (u32, SocketAddr),
    cores: Cores,
) -> Result<Vec<f64>> {
    let seconds = format!("-d{}s", if bed.quick { 1 } else { 3 });
    let job = Job::new(program("wrk")?)
        .args(["-t1", "-c64", &seconds, &format!("http://{at}/")])
        .core(cores.client);
    let command = within(from, &job.command(bed.tools)?)?;
    let before = on_cpu(pid)?;
    let text = run_to_end(command, "wrk", LIMIT)?;
    let cpu = on_cpu(pid)?.saturating_sub(before);
    Ok(vec![requests(&text)? / cpu.as_secs_f64(), rate(&text)?])
}
