//! The socket to which the processes of the program report.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use uncork_posix::report::{ProcessReport, SCHEMA};

/// A longer report is not ours: 4,096 closed sockets take about 2 MB, a million open ones would take 500.
const MAX_REPORT_BYTES: usize = 1 << 30;
/// How much is read at once.
const CHUNK_BYTES: usize = 1 << 16;

/// Receives one line of JSON from each connection.
pub(crate) struct Collector {
    listener: UnixListener,
    address: String,
    connections: Vec<Connection>,
    reports: Vec<Received>,
}

/// A message from a process.
#[derive(Debug)]
pub(crate) struct Received {
    /// The process's id, as seen from here.
    pub(crate) pid: i32,
    /// Its report, or why it is missing.
    pub(crate) report: Result<ProcessReport, String>,
}

struct Connection {
    stream: UnixStream,
    pid: i32,
    text: Vec<u8>,
}

impl Collector {
    /// Listens on a name that no other run of uncork has. It is an abstract one: no file is left
    /// behind, and a program that changes its root directory still reaches it.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut random = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name = format!("uncork-{}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let address = format!("unix:@{name}");
        Ok(Self { listener, address, connections: Vec::new(), reports: Vec::new() })
    }

    /// Returns the value of UNCORK_STATS.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the descriptors to wait for.
    pub(crate) fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let streams = self.connections.iter().map(|connection| connection.stream.as_fd());
        let fds = core::iter::once(self.listener.as_fd()).chain(streams);
        fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN))
    }

    /// Reads what has arrived, without blocking.
    pub(crate) fn take_in(&mut self) {
        // After any error but "none waiting" (no descriptors left, a peer that gave up) it is tried
        // again with the next event.
        while let Ok((stream, _)) = self.listener.accept() {
            self.connections.extend(admit(stream));
        }
        let reports = &mut self.reports;
        self.connections.retain_mut(|connection| match connection.read() {
            Progress::Open => true,
            Progress::Closed => {
                reports.extend(connection.reports());
                false
            }
        });
    }

    /// Returns how many reports of process `pid` have arrived.
    pub(crate) fn reports_of(&self, pid: i32) -> usize {
        self.reports.iter().filter(|received| received.pid == pid).count()
    }

    /// Returns whether a report is incomplete.
    pub(crate) fn is_unfinished(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Returns all reports in the order of their arrival; an incomplete one is reported as missing.
    pub(crate) fn into_reports(mut self) -> Vec<Received> {
        let unfinished = std::mem::take(&mut self.connections);
        self.reports.extend(unfinished.iter().flat_map(Connection::reports));
        self.reports
    }
}

/// Accepts our own processes only: every user can read the socket's name (/proc/net/unix), and reports
/// end up on our terminal. Processes of root may have become other users'.
fn admit(stream: UnixStream) -> Option<Connection> {
    stream.set_nonblocking(true).ok()?;
    let peer = getsockopt(&stream, PeerCredentials).ok()?;
    let own = geteuid();
    let admitted = own.is_root() || peer.uid() == own.as_raw();
    admitted.then(|| Connection { stream, pid: peer.pid(), text: Vec::new() })
}

enum Progress {
    Open,
    Closed,
}

impl Connection {
    fn read(&mut self) -> Progress {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Progress::Closed,
                Ok(_) if self.text.len() > MAX_REPORT_BYTES => return Progress::Closed,
                Ok(read) => self.text.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Open,
                Err(_) => return Progress::Closed,
            }
        }
    }

    fn reports(&self) -> Vec<Received> {
        let pid = self.pid;
        let received = |report| Received { pid, report };
        if self.text.is_empty() {
            return vec![received(Err("it ended before it could report".to_owned()))];
        }
        let lines = self.text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| received(parse(line, pid))).collect()
    }
}

fn parse(line: &[u8], pid: i32) -> Result<ProcessReport, String> {
    let report: ProcessReport = serde_json::from_slice(line)
        .map_err(|error| format!("its report cannot be understood: {error}"))?;
    if report.schema != SCHEMA {
        let theirs = report.schema;
        return Err(format!(
            "its library reports by schema {theirs}, this uncork reads {SCHEMA}: they are of \
             different versions"
        ));
    }
    // A process in a PID namespace of its own does not know its id here; that is 0 if there is none.
    let pid = u32::try_from(pid).ok().filter(|&pid| pid != 0).unwrap_or(report.pid);
    Ok(ProcessReport { pid, ..report })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::time::{Duration, Instant};

    fn connect(collector: &Collector) -> UnixStream {
        let name = collector.address().strip_prefix("unix:@").unwrap();
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    }

    fn report(schema: u32) -> String {
        let report = ProcessReport { schema, pid: 1, ..ProcessReport::default() };
        serde_json::to_string(&report).unwrap() + "\n"
    }

    fn take_until_finished(mut collector: Collector) -> Vec<Received> {
        let begun = Instant::now();
        collector.take_in();
        while collector.is_unfinished() && begun.elapsed() < Duration::from_secs(5) {
            collector.take_in();
        }
        collector.into_reports()
    }

    #[test]
    fn reports_in_pieces_and_at_once_arrive_whole_with_the_pid_seen_from_here() {
        let mut collector = Collector::listen().unwrap();
        let mut slow = connect(&collector);
        let mut fast = connect(&collector);
        let text = report(SCHEMA);
        slow.write_all(&text.as_bytes()[..9]).unwrap();
        fast.write_all(text.as_bytes()).unwrap();
        drop(fast);
        collector.take_in();
        assert!(collector.is_unfinished());
        slow.write_all(&text.as_bytes()[9..]).unwrap();
        drop(slow);
        let reports = take_until_finished(collector);
        assert_eq!(reports.len(), 2);
        for received in reports {
            assert_eq!(received.report.unwrap().pid, std::process::id());
        }
    }

    #[test]
    fn what_is_missing_or_not_understood_is_told() {
        let collector = Collector::listen().unwrap();
        for text in ["", "{\"half\": ", &report(SCHEMA + 1)] {
            connect(&collector).write_all(text.as_bytes()).unwrap();
        }
        let mut told = take_until_finished(collector).into_iter().map(|r| r.report.unwrap_err());
        assert_eq!(told.next().unwrap(), "it ended before it could report");
        assert!(told.next().unwrap().starts_with("its report cannot be understood"));
        assert!(told.next().unwrap().contains("different versions"));
    }
}
