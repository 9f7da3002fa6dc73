//! A server with a thread for each connection, which waits in read(2): under `uncork run --stack`, which moves it to the kernel
//! when it has noticed that; kept on the stack; and on kernel sockets.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use uncork_lab::place::{DEVICE, NEAR, joined};

use super::{LIMIT, PRIVILEGE, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Compare, Row, Unit};
use crate::place::Place;
use crate::process::{Running, run_to_end};
use crate::roles::Throng;
use crate::run::Bed;
use crate::run::tuning::may;

const BENCH: &str = "inline-threads";
const PORTS: [u16; 3] = [7020, 7021, 7022];
const THREADS: [usize; 3] = [4, 16, 64];
const SECONDS: f64 = 1.0;

/// Both ends have both cores, as threads of one program on a single core would not contend.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip"])?;
    let (near, far) = joined()?;
    let (mut running, mut cases) = (Vec::new(), Vec::new());
    let stays = Way::Stack { device: DEVICE, more: &["--spin", "off", "--stay"] };
    let ways = [
        ("under --stack", ours(false)),
        ("kept on the stack", stays),
        ("on kernel sockets", Way::Plain),
    ];
    for ((name, way), port) in ways.into_iter().zip(PORTS) {
        let at = SocketAddr::from((NEAR, port));
        let job = Job::new(&bed.tools.bench).args(["role", "answer", "--at", &at.to_string()]);
        let command = within(&near, &job.way(&way).command(bed.tools)?)?;
        let (mut server, mut lines) = Running::start_piped(command, "who answers")?;
        lines.find(|line| line.strip_prefix("port ")?.parse::<u16>().ok())?;
        server.listens_in(&near, port)?;
        running.push(server);
        let far = &far;
        let ask = move |threads: &usize| -> Result<[f64; 2]> {
            let job = Job::new(&bed.tools.bench)
                .args(["role", "ask", &at.to_string(), "--threads", &threads.to_string()])
                .args(["--seconds", &SECONDS.to_string()]);
            let text = run_to_end(within(far, &job.command(bed.tools)?)?, "the throng", LIMIT)?;
            let Throng { rate, longest_us } =
                serde_json::from_str(&text).context("understanding the throng")?;
            Ok([rate, longest_us])
        };
        cases.push(Case::new(name, move || {
            let asked: Vec<_> = THREADS.iter().map(ask).collect::<Result<_>>()?;
            Ok(asked.concat())
        }));
    }
    let samples = interleave(&mut cases, bed.rounds(7), bed.progress)?;
    let row = |case: usize, figure: usize, what: String, unit| {
        let sides = (samples.get(case, figure), Compare::Ratio, samples.get(2, figure));
        Row::compare((BENCH, what), Place::TwoCores, unit, sides)
    };
    let rows = THREADS.iter().enumerate().flat_map(|(at, threads)| {
        let what = format!("64 bytes and back over veth, {threads} threads that block");
        ["under --stack", "kept on it (--stay)"].into_iter().enumerate().flat_map(
            move |(case, how)| {
                let what =
                    [format!("{what}, a second: {how}"), format!("{what}, the longest: {how}")];
                let [rate, longest] = what;
                [
                    row(case, 2 * at, rate, Unit::PerSecond),
                    row(case, 2 * at + 1, longest, Unit::Microseconds),
                ]
            },
        )
    });
    Ok(rows.collect())
}
