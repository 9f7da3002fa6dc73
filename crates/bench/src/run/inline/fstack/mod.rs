//! nginx under `uncork run --stack`, alternating with the same nginx under F-Stack's adapter, which its user has built:
//! small answers, over a veth pair for each.

mod adapter;
mod answer;
mod checkout;
mod config;
mod pages;

use anyhow::Result;
use uncork_lab::cores::allowed;
use uncork_lab::place::joined;
use uncork_netns::Namespace;

use self::adapter::{Adapter, Places};
pub(crate) use self::checkout::Checkout;
use super::{PRIVILEGE, Server, nginx, observe, ours};
use crate::contest::{Case, Samples, interleave};
use crate::outcome::{Bar, Compare, Row, Skip, Unit};
use crate::place::{Cores, Place};
use crate::run::Bed;
use crate::run::nginx::{Nginx, Serves};
use crate::run::tuning::may;

const BENCH: &str = "inline-fstack";
const PORT: u16 = 8080;

/// A load, and its bars.
struct Load {
    name: &'static str,
    arguments: &'static [&'static str],
    /// For the requests per second, and for those per second of the server's processor time.
    bars: [Option<Bar>; 2],
}

/// Loads for which F-Stack is configured in the same way.
struct Group {
    /// Its `pkt_tx_delay` in microseconds, the best of those that were tried.
    delay: u32,
    loads: &'static [Load],
}

const GROUPS: [Group; 2] = [
    // No other answer could leave together with one that waits.
    Group {
        delay: 0,
        loads: &[Load { name: "wrk -c1, keep-alive", arguments: &["-c1"], bars: [None, None] }],
    },
    Group {
        delay: 50,
        loads: &[
            Load {
                name: "wrk -c16, keep-alive",
                arguments: &["-c16"],
                bars: [Some(Bar::AtLeast(2.5)), Some(Bar::AtLeast(4.0))],
            },
            Load { name: "wrk -c64, keep-alive", arguments: &["-c64"], bars: [None, None] },
            Load {
                name: "wrk -c64, Connection: close",
                arguments: &["-c64", "-H", "Connection: close"],
                bars: [None, None],
            },
        ],
    },
];

/// nginx on our stack, and its clients' namespace.
struct Ours {
    nginx: Nginx,
    _near: Namespace,
    far: Namespace,
}

impl Ours {
    fn start(bed: &Bed<'_>, core: usize) -> Result<Self> {
        let (near, far) = joined()?;
        let at = Server::new(0, PORT).at;
        let nginx = Nginx::serving(bed, &near, (at, Serves::Words), (&ours(true), core))?;
        answer::ask(&far, at)?;
        Ok(Self { nginx, _near: near, far })
    }
}

/// Alternates all loads between both.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let Some(checkout) = &bed.fstack else {
        let why = "give --fstack DIR, a checkout of F-Stack that you have built (docs/F-STACK.md)";
        return Err(Skip::new(why).into());
    };
    may(PRIVILEGE, &["ip", "ethtool", "nginx", "wrk"])?;
    let cores = Place::TwoCores.cores()?;
    let places = places(cores)?;
    let ours = Ours::start(bed, cores.server)?;
    let mut rows = Vec::new();
    for group in &GROUPS {
        let theirs = Adapter::start(bed, checkout, (places, group.delay), PORT)?;
        let samples = measure(bed, (&ours, &theirs), group.loads, cores)?;
        for (at, load) in group.loads.iter().enumerate() {
            rows.extend(report(&samples, at, load));
        }
    }
    if places.program == cores.client {
        let shared = "there are two processors: here and in the rows below F-Stack's instance has one, and its nginx \
                      shares the other with wrk";
        // Once: it is the same for all of them.
        rows = rows
            .into_iter()
            .enumerate()
            .map(|(at, row)| if at == 0 { row.note(shared) } else { row })
            .collect();
    }
    Ok(rows)
}

/// Places the instance where our server is; nginx, which cannot share that processor, on a third one if there is one.
fn places(cores: Cores) -> Result<Places> {
    let third = allowed()?.into_iter().find(|core| ![cores.server, cores.client].contains(core));
    Ok(Places { instance: cores.server, program: third.unwrap_or(cores.client) })
}

fn measure(
    bed: &Bed<'_>,
    (ours, theirs): (&Ours, &Adapter),
    loads: &[Load],
    cores: Cores,
) -> Result<Samples> {
    let mut cases = Vec::new();
    let server = Server::new(ours.nginx.running.pid(), PORT);
    for Load { name, arguments, .. } in loads {
        cases.push(Case::new(format!("{name}: uncork run --stack"), move || {
            nginx::ask(bed, &ours.far, (server, "", arguments), cores)
        }));
        cases.push(Case::new(format!("{name}: F-Stack's adapter"), move || {
            let url = format!("http://{}/", theirs.at);
            theirs.awake(|| {
                observe(&theirs.processes(), cores, || {
                    nginx::wrk(bed, &theirs.far, (&url, arguments), cores)
                })
            })
        }));
    }
    interleave(&mut cases, bed.rounds(9), bed.progress)
}

/// Reports a load with its bars, and what other programs did meanwhile: a polling program suffers more from them than a
/// sleeping one.
fn report(samples: &Samples, at: usize, load: &Load) -> [Row; 3] {
    // Indices as in `observe`.
    const A_CPU_SECOND: usize = 0;
    const A_SECOND: usize = 1;
    const OTHERS: usize = 3;
    let [second, cpu] = load.bars;
    let sides =
        |figure, compare| (samples.get(at * 2, figure), compare, samples.get(at * 2 + 1, figure));
    let row = |what: &str, figure, bar: Option<Bar>| {
        let sides = sides(figure, Compare::Ratio);
        let row =
            Row::compare((BENCH, titled(load, what)), Place::TwoCores, Unit::PerSecond, sides);
        match bar {
            Some(bar) => row.bar(bar),
            None => row,
        }
    };
    let percent = |figures: &[f64]| figures.iter().map(|share| share * 100.0).collect::<Vec<_>>();
    let (ours, compare, theirs) = sides(OTHERS, Compare::Difference);
    let (ours, theirs) = (percent(ours), percent(theirs));
    let what = titled(load, "taken by other programs");
    let others = (&ours[..], compare, &theirs[..]);
    [
        row("requests a second", A_SECOND, second),
        row("requests a CPU-second of the server", A_CPU_SECOND, cpu),
        Row::compare((BENCH, what), Place::TwoCores, Unit::PercentOfCore, others),
    ]
}

fn titled(load: &Load, what: &str) -> String {
    let name = load.name;
    format!("602 octets, {name}, {what}: uncork run --stack --spin auto; against F-Stack's adapter")
}
