//! Unmodified servers on the user-space stack (`uncork run --stack`), alternating with the same on kernel sockets, over
//! veth; clients use the kernel's, on a core of their own.

pub(super) mod bulk;
pub(super) mod call;
pub(super) mod clients;
pub(super) mod dial;
pub(super) mod files;
pub(super) mod fstack;
pub(super) mod moderation;
pub(super) mod nginx;
pub(super) mod ports;
pub(super) mod redis;
pub(super) mod threads;
pub(super) mod trip;
pub(super) mod workers;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use uncork_lab::place::{DEVICE, NEAR};

use super::on_cpu::{idle, of_ended, on_cpu};
use crate::launch::Way;
use crate::place::Cores;

/// What needs root besides the namespaces.
const PRIVILEGE: &str = "packet sockets and eBPF";
/// How long a server may take to become reachable through the stack.
const LIMIT: Duration = Duration::from_secs(60);

/// On the stack; a spinning server spends a core on being quick, which only matters where a client waits.
const fn ours(spins: bool) -> Way {
    let more: &[&str] = if spins { &["--spin", "auto"] } else { &["--spin", "off"] };
    Way::Stack { device: DEVICE, more }
}

/// On the stack, with many requests waiting for each other: what a server that is quicker than its clients gains.
const fn moderated() -> Way {
    Way::Stack { device: DEVICE, more: &["--moderation", "128us"] }
}

/// A server and its address.
#[derive(Clone, Copy, Debug)]
struct Server {
    pid: u32,
    at: SocketAddr,
}

impl Server {
    fn new(pid: u32, port: u16) -> Self {
        Self { pid, at: (NEAR, port).into() }
    }

    /// Measures its process with [`observe`].
    fn observe(self, cores: Cores, ask: impl FnOnce() -> Result<Asked>) -> Result<Vec<f64>> {
        observe(&[self.pid], cores, ask)
    }
}

/// Returns the requests per second of processor time of these processes, which are the server; per second; and per second of
/// what both processors did, whether the server's, its client's, or neither's; and how much of a processor all others used,
/// without the server and its client, which has ended meanwhile: 1 is all of one.
fn observe(server: &[u32], cores: Cores, ask: impl FnOnce() -> Result<Asked>) -> Result<Vec<f64>> {
    let used = || server.iter().map(|pid| on_cpu(*pid)).sum::<Result<Duration>>();
    let (before, begun, rested, ended) = (used()?, Instant::now(), idle(cores)?, of_ended()?);
    let Asked { requests, rate } = ask()?;
    let cpu = used()?.saturating_sub(before);
    let took = begun.elapsed();
    let busy = (took * 2).saturating_sub(idle(cores)?.saturating_sub(rested));
    let others = busy.saturating_sub(cpu + of_ended()?.saturating_sub(ended));
    let others = others.as_secs_f64() / took.as_secs_f64();
    Ok(vec![requests / cpu.as_secs_f64(), rate, requests / busy.as_secs_f64(), others])
}

/// The work of a client.
struct Asked {
    /// Total number of requests.
    requests: f64,
    /// Requests per second.
    rate: f64,
}
