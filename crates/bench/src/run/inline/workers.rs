//! nginx with many workers: what each costs the others, all of which see what comes into the same device.

use anyhow::Result;
use uncork_lab::place::joined;

use super::nginx::wrk;
use super::{PRIVILEGE, Server, ours};
use crate::contest::{Case, interleave};
use crate::launch::Way;
use crate::outcome::{Compare, Row, Unit};
use crate::place::Place;
use crate::run::Bed;
use crate::run::nginx::{Nginx, Serves};
use crate::run::tuning::may;

const BENCH: &str = "inline-workers";
const WORKERS: [usize; 3] = [1, 8, 32];

/// The workers share a core. One server at a time, as another's would see that traffic, too.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "nginx", "wrk"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let mut cases = Vec::new();
    for workers in WORKERS {
        for (name, way) in [("on the stack", ours(false)), ("on kernel sockets", Way::Plain)] {
            let (near, far) = (&near, &far);
            cases.push(Case::new(format!("{workers} workers: {name}"), move || {
                let at = Server::new(0, 8080).at;
                let how = (&way, cores.server);
                let _server = Nginx::serving(bed, near, (at, Serves::WordsBy(workers)), how)?;
                let url = format!("http://{at}/");
                // Until each worker has its first connections.
                let load: (&str, &[&str]) = (&url, &["-c64"]);
                wrk(bed, far, load, cores)?;
                let rate = wrk(bed, far, load, cores)?.rate;
                Ok(vec![rate])
            }));
        }
    }
    let samples = interleave(&mut cases, bed.rounds(5), bed.progress)?;
    let rows = WORKERS.iter().enumerate().map(|(at, workers)| {
        let what = format!(
            "602 octets, wrk -c64, {workers} workers, requests a second: on the stack; against the kernel"
        );
        let (ours, kernels) = (samples.get(at * 2, 0), samples.get(at * 2 + 1, 0));
        let sides = (ours, Compare::Ratio, kernels);
        Row::compare((BENCH, what), Place::TwoCores, Unit::PerSecond, sides)
    });
    Ok(rows.collect())
}
