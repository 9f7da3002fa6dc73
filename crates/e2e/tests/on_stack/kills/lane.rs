//! A pair of hosts, and what is served there.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use uncork_e2e::http::{Answer, Connection};
use uncork_e2e::skip::find;
use uncork_e2e::{Alone, Daemon, Hosts, artifact};

use super::peers::{ALL, Does, Peer, Talk, Wanted};
use super::remains::{Process, processes};
use crate::on_stack::{Scratch, nginx, noise, wait_until};

pub(super) const PORT: u16 = 8088;
const WORKERS: u32 = 4;
/// Peers of each kind.
const EACH: usize = 6;
const SIZES: [(&str, usize); 3] = [("small", 602), ("big", 1 << 20), ("huge", 20 << 20)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    /// Several workers, which their master replaces when one is gone.
    Nginx,
    /// One thread.
    Redis,
    /// A thread for each connection.
    Python,
}

impl Server {
    fn program(self) -> Result<PathBuf> {
        match self {
            Self::Nginx => find("nginx").context("no nginx"),
            Self::Redis => find("redis-server").context("no redis"),
            Self::Python => Ok("/usr/bin/python3".into()),
        }
    }
}

pub(super) struct Lane {
    pub(super) hosts: Hosts,
    pub(super) wanted: Wanted,
    /// How many instances programs run on; none if each has a stack of its own.
    instances: u32,
    scratch: Scratch,
}

impl Lane {
    pub(super) fn new(alone: &Alone, number: usize, instances: u32) -> Result<Self> {
        let hosts = alone.hosts(&format!("kills{number}"))?;
        // The environment's wish for instances does not count here.
        hosts.stop_instances()?;
        let (scratch, mut wanted) = (Scratch::new()?, Wanted::default());
        for (name, length) in SIZES {
            scratch.file(name, length)?;
            wanted.files.push((name, noise(length)));
        }
        Ok(Self { hosts, wanted, instances, scratch })
    }

    /// Makes sure that there are as many instances as there should be, and that all serve.
    pub(super) fn begin(&self) -> Result<()> {
        if self.instances == 0 {
            return Ok(());
        }
        if !processes(&self.hosts)?.iter().any(Process::is_guardian) {
            return self.hosts.start_instances(self.instances);
        }
        // Each instance has its device when it is up.
        wait_until("all instances are up", || {
            let living = processes(&self.hosts)?.iter().filter(|one| one.is_instance()).count();
            let all = self.instances as usize;
            Ok((living, self.hosts.packet_sockets()?) == (all, all))
        })
    }

    pub(super) fn start(&self, server: Server) -> Result<Daemon> {
        let mut command = self.hosts.on_stack(server.program()?)?;
        let (root, port) = (self.scratch.root(), PORT.to_string());
        match server {
            Server::Nginx => {
                let path = self.scratch.path("nginx.conf");
                fs::write(&path, nginx::configuration(&self.scratch, PORT, WORKERS, "on"))?;
                command.arg("-c").arg(path).args(["-e", "stderr", "-p"]).arg(root);
            }
            Server::Redis => {
                command.args(["--port", &port, "--bind", "0.0.0.0", "::", "--save", ""]);
                command.args(["--protected-mode", "no", "--dir"]).arg(root);
            }
            Server::Python => {
                command.arg(artifact::source("py/http11.py")).arg(port).arg(root).arg("0.0.0.0");
            }
        }
        let daemon = Daemon::on_stack(command, &self.scratch.path("log"), &self.hosts, PORT)?;
        match server {
            Server::Redis => self.fill()?,
            Server::Nginx => {
                let is_there = || Ok(self.workers()?.len() == WORKERS as usize);
                wait_until("all workers are there", is_there)?;
            }
            Server::Python => {}
        }
        Ok(daemon)
    }

    /// Puts the files into redis.
    fn fill(&self) -> Result<()> {
        let mut stream = self.hosts.connect(PORT)?;
        for (name, bytes) in &self.wanted.files {
            let (key, value) = (name.len(), bytes.len());
            write!(stream, "*3\r\n$3\r\nset\r\n${key}\r\n{name}\r\n${value}\r\n")?;
            stream.write_all(bytes)?;
            stream.write_all(b"\r\n")?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            ensure!(&answer == b"+OK\r\n", "{}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    pub(super) fn talk(&self, server: Server) -> Result<Talk> {
        let stream = self.hosts.connect(PORT)?;
        Ok(match server {
            Server::Redis => Talk::Redis(BufReader::new(stream)),
            Server::Nginx | Server::Python => Talk::Http(Connection::over(stream)?),
        })
    }

    /// Makes some peers of each kind.
    pub(super) fn peers(&self, server: Server, daemon: &Daemon) -> Result<Vec<Peer>> {
        let workers = self.workers()?;
        let kinds = ALL.iter().cycle().take(ALL.len() * EACH);
        kinds.map(|does| self.peer(server, (daemon.pid(), &workers), *does)).collect()
    }

    fn workers(&self) -> Result<Vec<u32>> {
        let all = processes(&self.hosts)?.into_iter();
        Ok(all.filter(Process::is_worker).map(|worker| worker.pid).collect())
    }

    fn peer(&self, server: Server, (pid, workers): (u32, &[u32]), does: Does) -> Result<Peer> {
        let mut talk = self.talk(server)?;
        let mut owner = (server != Server::Nginx).then_some(pid);
        if does != Does::Listens {
            if let (Server::Nginx, Talk::Http(connection)) = (server, &mut talk) {
                owner = Some(worker_of(connection, workers)?);
            }
            talk.get("small", &self.wanted)?;
        }
        if does == Does::Downloads {
            talk.ask("huge")?;
            talk.wait()?;
        }
        Ok(Peer { does, owner, talk })
    }
}

/// Returns the nginx worker that has a connection.
fn worker_of(connection: &mut Connection, workers: &[u32]) -> Result<u32> {
    let told = connection.get("/pid")?;
    let is_his = |pid: &&u32| Answer::of(200, pid.to_string().as_bytes()) == told;
    workers.iter().find(is_his).copied().context("no worker has that number")
}
