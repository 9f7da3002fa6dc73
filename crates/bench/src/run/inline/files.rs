//! Files that nginx sends by sendfile(2), on the stack and on kernel sockets.

use anyhow::Result;
use uncork_lab::place::joined;

use super::{PRIVILEGE, Server, nginx, ours};
use crate::contest::{Case, interleave};
use crate::launch::Way;
use crate::outcome::{Compare, Row, Unit};
use crate::place::Place;
use crate::run::Bed;
use crate::run::nginx::{FILES, Nginx};
use crate::run::tuning::may;

const BENCH: &str = "inline-files";
const PORTS: [u16; 2] = [8080, 8081];
/// The clients that request them.
const CLIENTS: &str = "-c16";

/// Requests each file from both in turn, which share a core.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "nginx", "wrk"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let mut running = Vec::new();
    for (way, port) in [ours(false), Way::Plain].into_iter().zip(PORTS) {
        let at = Server::new(0, port).at;
        running.push(Nginx::start_in(bed, &near, at, (&way, cores.server))?);
    }
    let mut cases = Vec::new();
    for (file, _) in FILES {
        for nginx in &running {
            let (server, far) = (Server::new(nginx.running.pid(), nginx.port), &far);
            cases.push(Case::new(format!("{file} at port {}", nginx.port), move || {
                nginx::ask(bed, far, (server, file, &[CLIENTS]), cores)
            }));
        }
    }
    let samples = interleave(&mut cases, bed.rounds(7), bed.progress)?;
    let mut rows = Vec::new();
    for (at, (_, bytes)) in FILES.iter().enumerate() {
        let figures = ["files a second", "files a CPU-second of the server"];
        for (what, figure) in figures.iter().zip([1, 0]) {
            let what = format!(
                "{bytes} octets by sendfile, wrk {CLIENTS}, {what}: on the stack; against the kernel"
            );
            let sides =
                (samples.get(at * 2, figure), Compare::Ratio, samples.get(at * 2 + 1, figure));
            rows.push(Row::compare((BENCH, what), Place::TwoCores, Unit::PerSecond, sides));
        }
    }
    Ok(rows)
}
