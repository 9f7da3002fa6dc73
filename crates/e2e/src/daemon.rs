//! A server that runs beside a test, and is ended with it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Hosts;
use crate::run::{kill_group, tail, wait};

const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(20);

/// A running server. Dropping it kills it and all processes that it started.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` with its output in the file `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let name = format!("{:?}", command.get_program());
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.process_group(0).spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { child, name, log: log.to_owned() })
    }

    /// Starts `command` and waits until it accepts connections on `port`.
    pub fn serving(command: Command, log: &Path, port: u16) -> Result<Self> {
        let mut daemon = Self::start(command, log)?;
        let deadline = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("{} ended with {status} instead of serving\n{}", daemon.name, daemon.said());
            }
            if Instant::now() > deadline {
                bail!("{} does not answer on port {port}\n{}", daemon.name, daemon.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// Starts `command`, and waits until it listens on `port` of our host and the listener is on the stack.
    pub fn on_stack(command: Command, log: &Path, hosts: &Hosts, port: u16) -> Result<Self> {
        let mut daemon = Self::start(command, log)?;
        let deadline = Instant::now() + START;
        while !hosts.ours.listens(port) {
            if let Some(status) = daemon.child.try_wait()? {
                bail!(
                    "{} ended with {status} instead of listening\n{}",
                    daemon.name,
                    daemon.said()
                );
            }
            if Instant::now() > deadline {
                bail!("{} does not listen on port {port}\n{}", daemon.name, daemon.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        hosts.wait_for_stack(port, &daemon)?;
        Ok(daemon)
    }

    /// Returns the process id of the program that was started.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program itself.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        Ok(())
    }

    /// Asks it to stop by `signal` and returns how it ended.
    pub fn stop(mut self, signal: Signal) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} had ended with {status} before it was asked to\n{}", self.name, self.said());
        }
        self.signal(signal)?;
        match wait(&mut self.child, STOP)? {
            Some(status) => Ok(status),
            None => bail!("{} did not stop on {signal}\n{}", self.name, self.said()),
        }
    }

    /// Waits until it exits by itself.
    pub fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        match wait(&mut self.child, limit)? {
            Some(status) => Ok(status),
            None => bail!("{} had not ended after {limit:?}\n{}", self.name, self.said()),
        }
    }

    /// Returns the last lines that it printed.
    pub fn said(&self) -> String {
        tail(&String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        kill_group(&mut self.child);
    }
}

/// Returns a free port below the range that the kernel uses for outgoing connections.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    // Test programs that run at the same time begin at different ports.
    let start = u16::try_from(std::process::id() * 97 % u32::from(COUNT))?;
    for _ in 0..COUNT {
        let port = FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port from {FIRST} on")
}
