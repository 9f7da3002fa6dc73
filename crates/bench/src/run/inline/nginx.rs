//! Small answers of nginx: with kept connections, with a connection for each request, and one at a time.

use anyhow::Result;
use uncork_lab::place::joined;
use uncork_netns::Namespace;

use super::{Asked, LIMIT, PRIVILEGE, Server, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::run_to_end;
use crate::run::Bed;
use crate::run::nginx::{Nginx, rate, requests};
use crate::run::reception::Reception;
use crate::run::tuning::may;
use crate::toolbox::program;

const BENCH: &str = "inline-nginx";
/// Each server has its own port, as they run at the same time.
const PORTS: [u16; 3] = [8080, 8081, 8082];

/// A load, and its bars.
struct Load {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Whether our server spins.
    spins: bool,
    reception: Reception,
    /// For the requests per second of the server's processor time, for those per second, and for those per second of
    /// what both processors did.
    bars: [Option<Bar>; 3],
}

const KEPT: Load = Load {
    name: "wrk -c64, keep-alive",
    arguments: &["-c64"],
    spins: false,
    reception: Reception::Own,
    bars: [Some(Bar::AtLeast(1.3)), Some(Bar::AtLeast(1.0)), None],
};

const CLOSED: Load = Load {
    name: "wrk -c64, Connection: close",
    arguments: &["-c64", "-H", "Connection: close"],
    spins: false,
    reception: Reception::Own,
    bars: [Some(Bar::AtLeast(1.3)), None, None],
};

/// Too few to keep both ends busy, unless the first answers leave while the others are generated.
const FEW: Load = Load {
    name: "wrk -c8, keep-alive",
    arguments: &["-c8"],
    spins: false,
    reception: Reception::Senders,
    bars: [None, None, None],
};

/// The bar for the server's processor time applies wherever that includes reception.
const LOADS: [Load; 7] = [
    KEPT,
    Load { reception: Reception::Senders, ..KEPT },
    CLOSED,
    Load { reception: Reception::Senders, ..CLOSED },
    FEW,
    // As F-Stack's adapter was measured: 65,000 a second.
    Load { name: "wrk -c16, keep-alive", arguments: &["-c16"], ..FEW },
    Load {
        name: "wrk -c1, --spin auto",
        arguments: &["-c1"],
        spins: true,
        reception: Reception::Senders,
        bars: [None, Some(Bar::AtLeast(2.5)), None],
    },
];

/// Alternates all loads between both, which share a core.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "nginx", "wrk"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let mut running = Vec::new();
    let mut servers = Vec::new();
    for (way, port) in [Way::Plain, ours(false), ours(true)].into_iter().zip(PORTS) {
        let at = Server::new(0, port).at;
        let nginx = Nginx::start_in(bed, &near, at, (&way, cores.server))?;
        servers.push(Server::new(nginx.running.pid(), port));
        running.push(nginx);
    }
    let mut cases = Vec::new();
    for load in &LOADS {
        let ours = servers[if load.spins { 2 } else { 1 }];
        for (name, server) in [("on the stack", ours), ("on kernel sockets", servers[0])] {
            let (near, far) = (&near, &far);
            let label = format!("{}, {}: {name}", load.name, load.reception.name());
            cases.push(Case::new(label, move || {
                load.reception.set((near, far), cores)?;
                ask(bed, far, (server, "", load.arguments), cores)
            }));
        }
    }
    let samples = interleave(&mut cases, bed.rounds(7), bed.progress)?;
    let mut rows = Vec::new();
    for (at, load) in LOADS.iter().enumerate() {
        let figures = [
            "requests a CPU-second of the server",
            "requests a second",
            "requests a CPU-second of both ends",
        ];
        for (figure, (what, bar)) in figures.iter().zip(&load.bars).enumerate() {
            let (name, reception) = (load.name, load.reception.name());
            let what = format!(
                "602 octets, {name}, {reception}, {what}: on the stack; against the kernel"
            );
            let sides =
                (samples.get(at * 2, figure), Compare::Ratio, samples.get(at * 2 + 1, figure));
            let row = Row::compare((BENCH, what), Place::TwoCores, Unit::PerSecond, sides);
            rows.push(match bar {
                Some(bar) => row.bar(*bar),
                None => row,
            });
        }
    }
    Ok(rows)
}

/// Requests the file from this server with wrk.
pub(super) fn ask(
    bed: &Bed<'_>,
    from: &Namespace,
    (server, file, arguments): (Server, &str, &[&str]),
    cores: Cores,
) -> Result<Vec<f64>> {
    let url = format!("http://{}/{file}", server.at);
    server.observe(cores, || wrk(bed, from, (&url, arguments), cores))
}

/// Returns what wrk does in some seconds, and checks that every answer was right.
pub(super) fn wrk(
    bed: &Bed<'_>,
    from: &Namespace,
    (url, arguments): (&str, &[&str]),
    cores: Cores,
) -> Result<Asked> {
    let seconds = format!("-d{}s", if bed.quick { 1 } else { 2 });
    let job = Job::new(program("wrk")?)
        .args(["-t1", &seconds])
        .args(arguments)
        .arg(url)
        .core(cores.client);
    let text = run_to_end(within(from, &job.command(bed.tools)?)?, "wrk", LIMIT)?;
    Ok(Asked { requests: requests(&text)?, rate: rate(&text)? })
}
