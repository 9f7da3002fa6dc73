//! The savings and the cost of moderation: requests at a fixed rate, from clients that have time.

use anyhow::{Context as _, Result};
use uncork_lab::place::{NEAR, joined};

use super::{LIMIT, PRIVILEGE, Server, moderated, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Compare, Row, Unit};
use crate::place::Place;
use crate::process::run_to_end;
use crate::roles::Paced;
use crate::run::Bed;
use crate::run::on_cpu::on_cpu;
use crate::run::redis::Redis;
use crate::run::tuning::may;

const BENCH: &str = "inline-moderation";
const PORTS: [u16; 3] = [6394, 6395, 6396];
const CONNECTIONS: &str = "64";
const RATES: [u32; 3] = [10_000, 30_000, 60_000];

/// Alternates, each server on one core and its client on the other.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "redis-server"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let (mut running, mut cases) = (Vec::new(), Vec::new());
    let ways = [("moderated", moderated()), ("not moderated", ours(false)), ("kernel", Way::Plain)];
    for ((name, way), port) in ways.iter().zip(PORTS) {
        let redis = Redis::start_in(bed, &near, (NEAR, port).into(), (way, cores.server))?;
        let server = Server::new(redis.running.pid(), port);
        running.push(redis);
        let far = &far;
        let ask = move |rate: &u32| -> Result<[f64; 3]> {
            let job = Job::new(&bed.tools.bench)
                .args(["role", "pace", &server.at.to_string(), "--connections", CONNECTIONS])
                .args(["--rate", &rate.to_string()])
                .args(["--seconds", if bed.quick { "0.5" } else { "1.5" }])
                .core(cores.client);
            let before = on_cpu(server.pid)?;
            let text = run_to_end(within(far, &job.command(bed.tools)?)?, "who asks", LIMIT)?;
            let cpu = on_cpu(server.pid)?.saturating_sub(before);
            let told: Paced = serde_json::from_str(&text).context("understanding who asks")?;
            Ok([told.p50_us, told.p99_us, cpu.as_secs_f64() * 1e6 / told.answers.max(1.0)])
        };
        cases.push(Case::new(*name, move || {
            let asked: Vec<_> = RATES.iter().map(ask).collect::<Result<_>>()?;
            Ok(asked.concat())
        }));
    }
    let samples = interleave(&mut cases, bed.rounds(7), bed.progress)?;
    let row = |figure: usize, what: String, other: usize| {
        let against = ways[other].0;
        let what = format!("{what}: moderated; against {against}");
        let sides = (samples.get(0, figure), Compare::Ratio, samples.get(other, figure));
        Row::compare((BENCH, what), Place::TwoCores, Unit::Microseconds, sides)
    };
    let rows = RATES.iter().enumerate().flat_map(|(at, rate)| {
        let what = format!("redis PING over veth, {rate} a second on {CONNECTIONS} connections");
        let whats = ["time to the answer, p50", "p99", "processor time of the server for one"];
        let figures = whats.into_iter().enumerate();
        let rows = figures.flat_map(|(figure, name)| {
            [1, 2].map(|other| row(3 * at + figure, format!("{what}, {name}"), other))
        });
        rows.collect::<Vec<_>>()
    });
    Ok(rows.collect())
}
