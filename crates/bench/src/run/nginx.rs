//! wrk against nginx.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use uncork_netns::Namespace;

use super::Bed;
use super::serving::{Load, compare};
use crate::launch::{Job, Way, within};
use crate::outcome::Row;
use crate::place::Place;
use crate::process::{Running, free_port, run_to_end};
use crate::toolbox::program;

const BENCH: &str = "nginx";
/// Bytes of the page that is served.
const BODY_BYTES: usize = 602;
/// Other files, and their sizes in bytes.
pub(crate) const FILES: [(&str, usize); 2] = [("100k", 100_000), ("1m", 1_000_000)];

/// The contents that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Files, with Debian's settings for sending (sendfile, tcp_nopush).
    Files,
    /// [`BODY_BYTES`] from its configuration, with the settings that F-Stack requires: no sendfile, all connections
    /// accepted at a time, a listener with SO_REUSEPORT for each worker.
    Words,
    /// The same with so many workers; the others have one.
    WordsBy(usize),
}

/// An nginx on a port of its own.
pub(crate) struct Nginx {
    /// The server.
    pub(crate) running: Running,
    /// Its port.
    pub(crate) port: u16,
}

impl Nginx {
    /// Starts an nginx.
    pub(crate) fn start(bed: &Bed<'_>, way: &Way, core: usize) -> Result<Self> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let (job, dir) = prepare(bed, at, Serves::Files)?;
        let job = job.way(way).core(core);
        let mut running = Running::start(job.command(bed.tools)?, "nginx", &dir)?;
        running.wait_for(at.port())?;
        Ok(Self { running, port: at.port() })
    }

    /// Starts one at an address of a namespace.
    pub(crate) fn start_in(
        bed: &Bed<'_>,
        namespace: &Namespace,
        at: SocketAddr,
        how: (&Way, usize),
    ) -> Result<Self> {
        Self::serving(bed, namespace, (at, Serves::Files), how)
    }

    /// Starts one with what it is to serve.
    pub(crate) fn serving(
        bed: &Bed<'_>,
        namespace: &Namespace,
        (at, serves): (SocketAddr, Serves),
        (way, core): (&Way, usize),
    ) -> Result<Self> {
        let (job, dir) = prepare(bed, at, serves)?;
        let command = within(namespace, &job.way(way).core(core).command(bed.tools)?)?;
        let mut running = Running::start(command, "nginx", &dir)?;
        running.listens_in(namespace, at.port())?;
        Ok(Self { running, port: at.port() })
    }
}

/// Returns the job of one that serves at this address, and its own directory.
pub(crate) fn prepare(bed: &Bed<'_>, at: SocketAddr, serves: Serves) -> Result<(Job, PathBuf)> {
    let dir = bed.scratch.dir("nginx")?;
    for (name, bytes) in [("index.html", BODY_BYTES)].iter().chain(&FILES) {
        fs::write(dir.join(name), "x".repeat(*bytes))?;
    }
    let conf = dir.join("nginx.conf");
    fs::write(&conf, configuration(&dir, at, serves))?;
    let job = Job::new(program("nginx")?)
        .arg("-p")
        .arg(&dir)
        .arg("-c")
        .arg(&conf)
        .arg("-e")
        .arg(dir.join("error.log"));
    Ok((job, dir))
}

/// Returns the body that is served.
pub(crate) fn body() -> String {
    "x".repeat(BODY_BYTES)
}

/// Returns the configuration, without logs.
fn configuration(dir: &Path, at: SocketAddr, serves: Serves) -> String {
    let dir = dir.display();
    // The workers of root's nginx could otherwise not enter the directory.
    let user = if geteuid().is_root() { "user root;" } else { "" };
    let (events, sending, server) = match serves {
        Serves::Files => ("", "sendfile on; tcp_nopush on;", format!("listen {at}; root {dir};")),
        Serves::Words | Serves::WordsBy(_) => {
            let answer = format!("location / {{ return 200 {}; }}", body());
            ("multi_accept on;", "sendfile off;", format!("listen {at} reuseport; {answer}"))
        }
    };
    let workers = if let Serves::WordsBy(workers) = serves { workers } else { 1 };
    format!(
        "daemon off; {user} worker_processes {workers}; pid {dir}/nginx.pid;
        error_log {dir}/error.log;
        events {{ worker_connections 512; {events} }}
        http {{
            {sending} access_log off; default_type text/plain;
            keepalive_requests 1000000000;
            client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
            fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi;
            scgi_temp_path {dir}/scgi;
            server {{ {server} }}
        }}\n"
    )
}

/// Measures keep-alive and a connection for each request, sixteen at a time.
pub(crate) fn run(bed: &Bed<'_>, place: Place) -> Result<Vec<Row>> {
    let cores = place.cores()?;
    let wrk = program("wrk")?;
    let load = |name: &str, headers: &'static [&'static str]| {
        let wrk = &wrk;
        let run = move |way: &Way, server: &Nginx| {
            let url = format!("http://127.0.0.1:{}/index.html", server.port);
            let job = Job::new(wrk)
                .args(["-t1", "-c16", "-d1s"])
                .args(headers)
                .arg(url)
                .way(way)
                .core(cores.client);
            let limit = Duration::from_secs(60);
            rate(&run_to_end(job.command(bed.tools)?, "wrk", limit)?)
        };
        Load { name: name.to_owned(), run: Box::new(run) }
    };
    let loads = [
        load("wrk -c16, keep-alive", &[]),
        load("wrk -c16, Connection: close", &["-H", "Connection: close"]),
    ];
    compare(bed, (BENCH, place), |way| Nginx::start(bed, way, cores.server), &loads)
}

/// Returns the requests per second, if every one was answered correctly.
pub(crate) fn rate(text: &str) -> Result<f64> {
    let complaint = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("Non-2xx") || line.starts_with("Socket errors")
    };
    if let Some(line) = text.lines().find(complaint) {
        bail!("wrk complains: {}", line.trim());
    }
    let value = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    let value = value.and_then(|value| value.trim().parse().ok());
    value.with_context(|| format!("understanding wrk, which says {text:?}"))
}

/// Returns how many requests wrk has made.
pub(crate) fn requests(text: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.trim().split_once(" requests in "));
    let count = line.and_then(|(count, _)| count.parse().ok()).filter(|count| *count > 0.0);
    count.with_context(|| format!("understanding wrk, which says {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_with_errors_is_no_rate() {
        let good = "  3 requests in 1.00s\nRequests/sec:  12345.67\nTransfer/sec: 1MB\n";
        assert_eq!(rate(good).unwrap(), 12_345.67);
        let bad = "  Non-2xx or 3xx responses: 7\nRequests/sec: 99999.0\n";
        assert!(rate(bad).unwrap_err().to_string().contains("Non-2xx"));
        assert!(rate("unable to connect").is_err());
    }
}
