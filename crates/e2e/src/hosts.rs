//! Two hosts joined by a cable, and programs that run on them, on the user-space stack or on the kernel's.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Socket, Type};
use uncork_netns::Namespace;

use crate::http::Connection;
use crate::instance::{self, Instances};
use crate::{Alone, Beside, artifact, beside_others};

/// IPv4 address of the host whose programs run on the stack.
pub const OURS: &str = "10.95.0.1";
/// IPv6 address of that host.
pub const OUR_V6: &str = "fd95::1";
/// IPv4 address of the other host.
pub const THEIRS: &str = "10.95.0.2";
/// IPv6 address of the other host.
pub const THEIR_V6: &str = "fd95::2";
/// How long anything may take that should happen at once.
const LONG: Duration = Duration::from_secs(20);
/// Segments that the kernel of our host may see although all is on the stack: what the peers of processes that have ended
/// send on connections that were over (crate guard, `reset`).
const FEW_SEGMENTS: u64 = 500;
/// The state of a closed connection (TCP_TIME_WAIT, include/net/tcp_states.h).
const TIME_WAIT: &str = "06";
/// The state of a connection whose handshake is not complete.
const SYN_RECV: &str = "03";

/// If it is set, programs on the stack are tested with AF_XDP beside the packet sockets.
const XDP_VARIABLE: &str = "UNCORK_E2E_XDP";
/// Queues of the cable's ends in that case: a program's processes have one each.
const QUEUES: &str = "2";
const BY_XDP: [&str; 1] = ["--driver=xdp"];

/// If it is set, programs on the stack are tested with a stack for each thread.
const THREADS_VARIABLE: &str = "UNCORK_E2E_THREADS";
const OF_THREADS: &str = "--thread-sockets";

/// The two hosts.
#[derive(Debug)]
pub struct Hosts {
    /// The driver options for `uncork run --stack` or `uncork stack start`.
    driver: &'static [&'static str],
    /// The instances on whose stacks our programs run, if not on their own. They end before the hosts do.
    instances: Mutex<Option<Instances>>,
    /// The host with the stack.
    pub ours: Namespace,
    /// The other host: all its sockets are the kernel's.
    pub theirs: Namespace,
    /// Keeps tests that measure time away, until all of this is gone. `None` for a test that measures time itself.
    _beside: Option<Beside>,
}

impl Alone {
    /// Creates the two hosts, for a test that has the machine to itself.
    pub fn hosts(&self, label: &str) -> Result<Hosts> {
        Hosts::with_driver(label, Hosts::wanted_driver(), None)
    }

    /// Creates the two hosts with so many instances, on whose stacks programs of our host run.
    pub fn with_instances(&self, label: &str, count: u32) -> Result<Hosts> {
        self.hosts(label)?.on_instances(count)
    }
}

/// The counters of our host's kernel.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    /// Connections that were opened, by either end.
    opens: u64,
    segments: u64,
}

impl Hosts {
    /// Creates the hosts, for a test that does not measure time. One pair at a time: a test with two would deadlock with one
    /// that waits to be alone in between.
    pub fn new(label: &str) -> Result<Self> {
        Self::with_driver(label, Self::wanted_driver(), Some(beside_others()))
    }

    /// Returns whether each thread of the programs under test is to have a stack.
    pub fn is_for_threads() -> bool {
        std::env::var_os(THREADS_VARIABLE).is_some()
    }

    fn wanted_driver() -> &'static [&'static str] {
        if std::env::var_os(XDP_VARIABLE).is_some() { &BY_XDP } else { &[] }
    }

    /// Creates the hosts with packet sockets in any case: for tests in which AF_XDP only serves one program at a time.
    pub fn by_packet_sockets(label: &str) -> Result<Self> {
        Self::with_driver(label, &[], Some(beside_others()))
    }

    /// Creates the hosts with AF_XDP queues for programs on the stack.
    pub fn by_xdp(label: &str) -> Result<Self> {
        Self::with_driver(label, &BY_XDP, Some(beside_others()))
    }

    fn with_driver(
        label: &str,
        driver: &'static [&'static str],
        beside: Option<Beside>,
    ) -> Result<Self> {
        let ours = Namespace::new(&format!("{label}-o"))?;
        let theirs = Namespace::new(&format!("{label}-t"))?;
        ours.ip(&format!("link add eth0 type veth peer name eth0 netns {}", theirs.name()))?;
        for (host, v4, v6) in [(&ours, OURS, OUR_V6), (&theirs, THEIRS, THEIR_V6)] {
            host.set("ipv6/conf/eth0/disable_ipv6", 0)?;
            host.ip(&format!("address add {v4}/24 dev eth0"))?;
            host.ip(&format!("address add {v6}/64 dev eth0 nodad"))?;
            if !driver.is_empty() {
                let queues = ["-L", "eth0", "rx", QUEUES, "tx", QUEUES];
                uncork_netns::run(host.command("ethtool").args(queues))?;
            }
            host.ip("link set eth0 up")?;
        }
        let hosts = Self { driver, instances: Mutex::new(None), ours, theirs, _beside: beside };
        if instance::are_wanted() {
            hosts.start_instances(1)?;
        }
        Ok(hosts)
    }

    /// Starts that many instances, in place of any that were killed: programs started from now on run on them.
    pub fn start_instances(&self, count: u32) -> Result<()> {
        let mut instances = self.instances();
        let devices = ["eth0"];
        let started = match instances.take() {
            Some(killed) => {
                let name = killed.kill()?;
                Instances::start_as(self.driver, &self.ours, &devices, count, &name)?
            }
            None => Instances::start_with(self.driver, &self.ours, &devices, count)?,
        };
        *instances = Some(started);
        Ok(())
    }

    /// Creates the hosts with instances, on whose stacks programs of our host run.
    pub fn with_instances(label: &str, count: u32) -> Result<Self> {
        Self::new(label)?.on_instances(count)
    }

    /// Runs programs on that many instances from now on.
    pub fn on_instances(self, count: u32) -> Result<Self> {
        self.stop_instances()?;
        self.start_instances(count)?;
        Ok(self)
    }

    /// Returns the instances, if programs run on some.
    pub fn instances(&self) -> MutexGuard<'_, Option<Instances>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the instances.
    pub fn stop_instances(&self) -> Result<()> {
        self.instances().take().map_or(Ok(()), |mut instances| instances.stop())
    }

    /// Returns a command that runs a program on our host by `uncork run --stack`.
    pub fn on_stack(&self, program: impl AsRef<Path>) -> Result<Command> {
        self.on_stack_with(&[], program)
    }

    /// Returns such a command with more options.
    pub fn on_stack_with(&self, more: &[&str], program: impl AsRef<Path>) -> Result<Command> {
        let uncork = artifact::uncork()?;
        let mut command = self.ours.command(uncork.to_str().context("a path in UTF-8")?);
        match self.instances().as_ref() {
            Some(instances) => command.args(instances.arguments()),
            None => command.args(["run", "--stack", "--dev", "eth0"]).args(self.driver),
        };
        let wanted = Self::is_for_threads() && !more.contains(&OF_THREADS);
        let of_threads = wanted.then_some(OF_THREADS);
        command.args(of_threads).args(more).arg("--").arg(program.as_ref());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("UNCORK_") || name == "LD_PRELOAD" {
                command.env_remove(name.as_ref());
            }
        }
        command.env("UNCORK_LIBRARY", artifact::library()?);
        Ok(command)
    }

    /// Returns a command that runs a program on the other host.
    pub fn beside(&self, program: impl AsRef<Path>) -> Result<Command> {
        Ok(self.theirs.command(program.as_ref().to_str().context("a path in UTF-8")?))
    }

    /// Connects from the other host.
    pub fn connect(&self, port: u16) -> Result<TcpStream> {
        self.connect_to(end(OURS, port)?)
    }

    /// Connects from the other host to an address of our host.
    pub fn connect_to(&self, to: SocketAddr) -> Result<TcpStream> {
        self.theirs.within(move || {
            let stream = TcpStream::connect_timeout(&to, LONG)?;
            stream.set_read_timeout(Some(LONG))?;
            stream.set_write_timeout(Some(LONG))?;
            Ok(stream)
        })
    }

    /// Connects from this port of the other host, which may have had a connection that our host has ended.
    pub fn connect_from(&self, port: u16, to: SocketAddr) -> Result<TcpStream> {
        self.theirs.within(move || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
            socket.bind(&end(any, port)?.into())?;
            socket.connect_timeout(&to.into(), LONG)?;
            socket.set_read_timeout(Some(LONG))?;
            Ok(socket.into())
        })
    }

    /// Runs `work` on many threads of the other host at once, and returns the result of each.
    pub fn crowd<T: Send>(
        &self,
        count: usize,
        work: impl Fn(usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let path = Path::new("/run/netns").join(self.theirs.name());
        let (path, work) = (&path, &work);
        thread::scope(|scope| {
            let run = |who| {
                scope.spawn(move || {
                    setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?;
                    work(who)
                })
            };
            let threads: Vec<_> = (0..count).map(run).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<T>>| {
                thread.join().unwrap_or_else(|_| bail!("a thread panicked"))
            };
            threads.into_iter().map(join).collect()
        })
    }

    /// Opens an HTTP connection from the other host.
    pub fn http(&self, port: u16) -> Result<Connection> {
        Connection::over(self.connect(port)?)
    }

    /// Waits until connections to a port are on the stack. One may move to the kernel later (for a server that forks): what
    /// counts is where it was opened.
    pub fn wait_for_stack(&self, port: u16, server: &crate::Daemon) -> Result<()> {
        let to = end(OURS, port)?;
        let patience = Instant::now() + LONG;
        loop {
            let short = Duration::from_secs(1);
            let connect = move || Ok(TcpStream::connect_timeout(&to, short));
            let before = self.counted()?;
            let why = match self.theirs.within(connect)? {
                // The kernel counts it after the last segment of the handshake, and shows it as half open before. If it shows
                // it otherwise, the connection may have been passed to it since.
                Ok(stream)
                    if !self.is_half_open(stream.local_addr()?)?
                        && self.opened_since(before)? == 0 =>
                {
                    return Ok(());
                }
                Ok(_) => "all connections are the kernel's".to_owned(),
                Err(error) => error.to_string(),
            };
            let said = server.said();
            ensure!(Instant::now() < patience, "nobody is on the stack: {why}\n{said}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Fails if a connection of the other host is one of our kernel's.
    pub fn check_on_stack(&self, stream: &TcpStream) -> Result<()> {
        let theirs = stream.local_addr()?;
        if let Some(line) = self.kernels_line(theirs)? {
            bail!("the connection of {theirs} is the kernel's: {line}");
        }
        Ok(())
    }

    /// Returns whether our kernel has a connection with this end of the other host's.
    pub fn kernel_has(&self, remote: SocketAddr) -> Result<bool> {
        Ok(self.kernels_line(remote)?.is_some())
    }

    /// Returns whether our kernel has one in TIME-WAIT with this end of the other host's.
    pub fn kernel_waits(&self, remote: SocketAddr) -> Result<bool> {
        Ok(self.kernels_line_in(remote, |state| state == TIME_WAIT)?.is_some())
    }

    /// Returns whether our kernel waits for the last segment of a handshake with this end of the other host's.
    fn is_half_open(&self, remote: SocketAddr) -> Result<bool> {
        Ok(self.kernels_line_in(remote, |state| state == SYN_RECV)?.is_some())
    }

    /// Returns our kernel's line for its connection with this end of the other host's. One in TIME-WAIT is an older one,
    /// whose port the other host has reused.
    fn kernels_line(&self, remote: SocketAddr) -> Result<Option<String>> {
        self.kernels_line_in(remote, |state| state != TIME_WAIT)
    }

    fn kernels_line_in(
        &self,
        remote: SocketAddr,
        in_state: impl Fn(&str) -> bool,
    ) -> Result<Option<String>> {
        let wanted = format!(":{:04X}", remote.port());
        // Third and fourth column: remote address, state (proc_pid_net(5)).
        let is_it = |line: &&str| {
            let columns: Vec<_> = line.split_whitespace().skip(2).take(2).collect();
            matches!(columns[..], [remote, state] if remote.ends_with(&wanted) && in_state(state))
        };
        let shown = shown(&self.ours, &["/proc/net/tcp", "/proc/net/tcp6"])?;
        Ok(shown.lines().find(is_it).map(str::to_owned))
    }

    /// Returns our host kernel's TCP counters so far.
    pub fn counted(&self) -> Result<Counted> {
        let opens = count(&self.ours, &["ActiveOpens", "PassiveOpens"])?;
        Ok(Counted { opens, segments: count(&self.ours, &["InSegs", "OutSegs"])? })
    }

    /// Returns how many segments the other host's kernel has received so far.
    pub fn heard_by_them(&self) -> Result<u64> {
        count(&self.theirs, &["InSegs"])
    }

    /// Fails if any traffic since `before` went through the kernel's TCP.
    pub fn check_all_on_stack(&self, before: Counted) -> Result<()> {
        let opens = self.opened_since(before)?;
        ensure!(opens == 0, "{opens} connections were the kernel's");
        let segments = self.counted()?.segments - before.segments;
        ensure!(segments <= FEW_SEGMENTS, "the kernel has had {segments} segments");
        Ok(())
    }

    /// Returns how many connections were opened since `before` and were the kernel's from the beginning.
    pub fn opened_since(&self, before: Counted) -> Result<u64> {
        Ok(self.counted()?.opens - before.opens)
    }

    /// Returns how many packet sockets of stacks there are on our host: one per stack, as it has one device.
    pub fn packet_sockets(&self) -> Result<usize> {
        let all = shown(&self.ours, &["/proc/net/packet"])?;
        // "sk RefCnt Type …": a guardian's own socket is not SOCK_RAW.
        Ok(all.lines().skip(1).filter(|line| line.split_whitespace().nth(2) == Some("3")).count())
    }

    /// Returns how many packet sockets there are including guardians' own.
    fn all_packet_sockets(&self) -> Result<usize> {
        Ok(shown(&self.ours, &["/proc/net/packet"])?.lines().skip(1).count())
    }

    /// Returns how many of them belong to a stack. Others are kept ready for new programs.
    pub fn devices_in_use(&self) -> Result<usize> {
        let all = shown(&self.ours, &["/proc/net/packet"])?;
        // "sk RefCnt Type Proto Iface R …": R, whether it is bound (packet_seq_show).
        let is_in_use = |line: &&str| {
            let mut words = line.split_whitespace().skip(2);
            (words.next(), words.nth(2)) == (Some("3"), Some("1"))
        };
        Ok(all.lines().skip(1).filter(is_in_use).count())
    }

    /// Fails unless all that belonged to the programs of our host is gone: processes, guardians, packet sockets, listeners,
    /// filters.
    pub fn check_nothing_left(&self, port: u16) -> Result<()> {
        self.stop_instances()?;
        let patience = Instant::now() + LONG;
        let (left, packet_sockets) = loop {
            let processes =
                Command::new("ip").args(["netns", "pids", self.ours.name()]).output()?;
            let left = named(&String::from_utf8_lossy(&processes.stdout));
            // A process that is being torn down is in no list any more, and has its sockets for some hundredths of a second.
            let packet_sockets = self.all_packet_sockets()?;
            if left.is_empty() && packet_sockets == 0 || Instant::now() > patience {
                break (left, packet_sockets);
            }
            thread::sleep(Duration::from_millis(20));
        };
        ensure!(left.is_empty(), "processes are left: {}", left.join(", "));
        ensure!(packet_sockets == 0, "{packet_sockets} packet sockets are left");
        let device = self.ours.command("ip").args(["link", "show", "dev", "eth0"]).output()?;
        let device = String::from_utf8_lossy(&device.stdout).into_owned();
        ensure!(!device.contains("prog/xdp"), "an XDP program is left: {device}");
        ensure!(!self.ours.listens(port), "something listens on port {port}");
        // A filter would take the segment away from the kernel, which answers that there is no listener.
        let to = end(OURS, port)?;
        let connect = move || Ok(TcpStream::connect_timeout(&to, Duration::from_secs(2)));
        let refused = self.theirs.within(connect)?.map_err(|error| error.kind());
        match refused {
            Err(ErrorKind::ConnectionRefused) => Ok(()),
            other => bail!("the port is not the kernel's: {other:?}"),
        }
    }
}

/// Returns the socket address of an address and a port.
pub fn end(ip: &str, port: u16) -> Result<SocketAddr> {
    Ok(SocketAddr::new(ip.parse::<IpAddr>()?, port))
}

/// Lists processes by number, with their command lines.
fn named(pids: &str) -> Vec<String> {
    let name = |pid: &str| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        // A zombie has no command line, and nothing else either.
        (!line.is_empty()).then(|| format!("{pid} {}", line.replace('\0', " ")))
    };
    pids.split_whitespace().filter_map(name).collect()
}

/// Returns the contents of a host's files under /proc.
fn shown(host: &Namespace, files: &[&str]) -> Result<String> {
    let output = host.command("cat").args(files).output()?;
    ensure!(output.status.success(), "cat {files:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the sum of these counters of a host's TCP.
fn count(host: &Namespace, wanted: &[&str]) -> Result<u64> {
    let shown = shown(host, &["/proc/net/snmp"])?;
    let mut lines = shown.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next().context("no counters of TCP")?.split_whitespace();
    let values = lines.next().context("no counters of TCP")?.split_whitespace();
    let found = names.zip(values).filter(|(name, _)| wanted.contains(name));
    let values: Vec<u64> = found.map(|(_, value)| value.parse()).collect::<Result<_, _>>()?;
    ensure!(values.len() == wanted.len(), "no counters {wanted:?}");
    Ok(values.into_iter().sum())
}
