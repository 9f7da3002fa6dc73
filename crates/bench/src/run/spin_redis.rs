//! redis-benchmark GET with one connection, both ends spinning, a core each.

use anyhow::Result;

use super::Bed;
use super::redis::{Ask, Redis, ask};
use super::serving::calibrate;
use crate::contest::{Case, interleave};
use crate::launch::Way;
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::toolbox::program;

const BENCH: &str = "spin-redis";

const SPIN: Way = Way::Preload(&[("spin", "auto")]);

/// Compares plain with both spinning.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let cores = Place::TwoCores.cores()?;
    let benchmark = program("redis-benchmark")?;
    let how = (bed.tools, benchmark.as_path());
    let seconds = if bed.quick { 0.3 } else { 1.0 };
    // Kept until all is measured: they end when dropped.
    let mut servers = Vec::new();
    let mut cases = Vec::new();
    for (name, way) in [("plain", Way::Plain), ("--spin auto on both ends", SPIN)] {
        let server = Redis::start(bed, &way, cores.server)?;
        let port = server.port;
        servers.push(server);
        let get = Ask { test: "get", connections: 1, pipeline: 1, requests: 0 };
        let requests = calibrate(seconds, |requests| {
            ask(how, (Ask { requests, ..get }, port), (&way, cores.client))
        })?;
        let get = Ask { requests, ..get };
        cases.push(Case::new(name, move || Ok(vec![ask(how, (get, port), (&way, cores.client))?])));
    }
    let samples = interleave(&mut cases, bed.rounds(11), bed.progress)?;
    let what = (BENCH, "GET -c1: --spin auto on both ends; against none");
    let sides = (samples.get(1, 0), Compare::Ratio, samples.get(0, 0));
    let row = Row::compare(what, Place::TwoCores, Unit::PerSecond, sides);
    Ok(vec![row.bar(Bar::AtLeast(4.0))])
}
