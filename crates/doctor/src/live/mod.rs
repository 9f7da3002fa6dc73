//! From live tracing to a report.
//!
//! The tracing itself is done elsewhere: [`Live`] is handed [`Event`]s in the order in which they
//! come, and the processes that were found for sockets, and is asked once for its
//! [`report`](Live::finish). It reads no file and no clock.
//!
//! ```text
//! Event ─▶ link (both ends of a connection) ─▶ stalls, sums ─▶ findings ─▶ Report
//! ```

mod event;
mod findings;
mod link;
mod preloaded;
mod sums;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashMap;
use uncork_wire::Endpoint;

use crate::report::{Connection, Process, Report, SCHEMA_VERSION, Sampling, Severity, Summary};
use crate::{Role, Settings};
pub use event::*;
use link::Link;
pub use preloaded::Preloaded;

/// Takes in the events of the tracing, and says in the end what is wrong.
#[derive(Debug, Default)]
pub struct Live {
    settings: Settings,
    /// The offset from times since the machine was started to times since 1970.
    epoch: Duration,
    links: FxHashMap<[Endpoint; 2], Link>,
    /// Ports with a listener: the end with such a port accepted its connection.
    listening: HashSet<u16>,
    /// The command lines of processes.
    commands: FxHashMap<u32, String>,
    /// Processes into which no library can be preloaded.
    beyond_preload: HashSet<u32>,
    /// Processes in other network namespaces than ours.
    elsewhere: HashSet<u32>,
    /// Processes with a socket that has ended and had sent something.
    wrote: HashSet<u32>,
    /// Connections with a socket that has ended, in that order.
    closing: VecDeque<[Endpoint; 2]>,
    ended: Vec<Connection>,
    harmless: u64,
    connections: u64,
    /// Time of requests on connections that are not in the report.
    unreported_request_time: Duration,
    segments: u64,
    payload_bytes: u64,
    span: Option<(Duration, Duration)>,
    /// Set if nothing is traced: sockets are polled now and then.
    sampling: Option<Sampling>,
}

impl Live {
    /// Creates a report without events. `epoch` is what has to be added to times since the machine
    /// was started to get times since 1970.
    #[must_use]
    pub fn new(settings: Settings, epoch: Duration) -> Self {
        Self { settings, epoch, ..Self::default() }
    }

    /// Notes that what comes is from polling the sockets now and then, this often so far. To be
    /// called before anything else, and again whenever the figures have changed.
    pub fn sampled(&mut self, sampling: Sampling) {
        self.sampling = Some(sampling);
    }

    /// Notes whether TCP_NODELAY was in force at one end when its socket was polled.
    pub fn nodelay(&mut self, ends: Ends, on: bool) {
        let key = key(ends);
        if let Some(link) = self.links.get_mut(&key) {
            link.nodelay(ends.local, on);
        }
    }

    /// Notes that there is a listener on this port.
    pub fn listening(&mut self, port: u16) {
        self.listening.insert(port);
    }

    /// Notes the command line of a process, quoted for a shell, if it is known, and whether a
    /// library can be preloaded into its program.
    pub fn started(&mut self, pid: u32, command: Option<String>, can_preload: bool) {
        match command {
            Some(command) => self.commands.insert(pid, command),
            None => self.commands.remove(&pid),
        };
        if can_preload {
            self.beyond_preload.remove(&pid);
        } else {
            self.beyond_preload.insert(pid);
        }
    }

    /// Notes whether a process is in another network namespace than this one.
    pub fn elsewhere(&mut self, pid: u32, is_elsewhere: bool) {
        if is_elsewhere {
            self.elsewhere.insert(pid);
        } else {
            self.elsewhere.remove(&pid);
        }
    }

    /// Takes in an event.
    pub fn event(&mut self, event: Event) {
        let (ends, at) = match &event {
            Event::Held(held) => (held.ends, held.message_begin),
            Event::AckTimer(timer) => (timer.ends, timer.at.saturating_sub(timer.held)),
            Event::Lost(lost) => (lost.ends, lost.at.saturating_sub(lost.waited)),
            Event::Socket(socket) => (socket.ends, socket.since),
        };
        if let Event::Socket(socket) = &event
            && socket.bytes_out > 0
        {
            self.wrote.extend([socket.owner.pid, socket.writer.pid]);
        }
        let key = key(ends);
        let ended = matches!(event, Event::Socket(_));
        let link = self.links.entry(key).or_insert_with(|| Link::new(key, at));
        // The same ports again: another connection.
        if link.is_told(ends.local) {
            let old = std::mem::replace(link, Link::new(key, at));
            link.event(event);
            self.end(old);
        } else {
            link.event(event);
        }
        if ended {
            self.closing.push_back(key);
        }
    }

    /// Returns whether a socket of this process has ended, or the tracing of it, that had sent something.
    #[must_use]
    pub fn has_written(&self, pid: u32) -> bool {
        self.wrote.contains(&pid)
    }

    /// Closes connections whose sockets were reported before `until`: by then their other ends have
    /// had time to be reported, too.
    pub fn forget(&mut self, until: Duration) {
        while let Some(key) = self.closing.pop_front() {
            let Some(link) = self.links.get(&key) else { continue };
            if link.span().1 > until {
                self.closing.push_front(key);
                return;
            }
            if let Some(link) = self.links.remove(&key) {
                self.end(link);
            }
        }
    }

    /// Notes the process that was found for one end.
    pub fn process(&mut self, ends: Ends, process: Process) {
        if let Some(link) = self.links.get_mut(&key(ends)) {
            link.process(ends.local, process);
        }
    }

    /// Returns what is wrong.
    #[must_use]
    pub fn finish(mut self) -> Report {
        for (_, link) in std::mem::take(&mut self.links) {
            self.end(link);
        }
        self.ended.sort_by(|a, b| {
            let order = b.lost.cmp(&a.lost).then(worst(b).cmp(&worst(a)));
            order.then(a.first_seen.total_cmp(&b.first_seen))
        });
        let mut summary = Summary {
            connections: self.connections,
            harmless: self.harmless,
            request_time: self.unreported_request_time,
            duration: self.span.map_or(Duration::ZERO, |(from, to)| to.saturating_sub(from)),
            ..Summary::default()
        };
        for connection in &self.ended {
            summary.stalls += connection.stalls;
            summary.lost += connection.lost;
            summary.request_time += connection.request_time;
            let ill = worst(connection) > Some(Severity::Harmless);
            summary.connections_with_findings += u64::from(ill);
        }
        summary.segments = self.segments;
        summary.payload_bytes = self.payload_bytes;
        Report {
            schema_version: SCHEMA_VERSION,
            summary,
            sampling: self.sampling,
            command: None,
            notes: Vec::new(),
            connections: self.ended,
        }
    }

    fn end(&mut self, mut link: Link) {
        link.settle();
        let client = self.client(&link);
        let known = findings::Known {
            settings: &self.settings,
            epoch: self.epoch,
            sampled: self.sampling.is_some(),
            commands: &self.commands,
            beyond_preload: &self.beyond_preload,
            elsewhere: &self.elsewhere,
        };
        let mut report = findings::on(&link, client, &known);
        self.connections += 1;
        for party in [&report.client, &report.server] {
            self.segments += party.data_segments;
            self.payload_bytes += party.payload_bytes;
        }
        let span = link.span();
        self.span = Some(self.span.map_or(span, |(a, b)| (a.min(span.0), b.max(span.1))));
        let harmless = |severity| severity == Severity::Harmless;
        self.harmless += report.findings.iter().filter(|f| harmless(f.severity)).count() as u64;
        if !self.settings.every_connection {
            report.findings.retain(|finding| !harmless(finding.severity));
        }
        if self.settings.every_connection || worst(&report) > Some(Severity::Harmless) {
            self.ended.push(report);
        } else {
            self.unreported_request_time += report.request_time;
        }
    }

    /// Returns which end is the client: as the sockets tell, else as the listeners do, else the one
    /// with the higher port.
    fn client(&self, link: &Link) -> usize {
        link.client().unwrap_or_else(|| {
            let listens = link.ends.map(|end| self.listening.contains(&end.port));
            match listens {
                [true, false] => 1,
                [false, true] => 0,
                _ => usize::from(link.ends[1].port > link.ends[0].port),
            }
        })
    }
}

fn worst(connection: &Connection) -> Option<Severity> {
    connection.findings.iter().map(|finding| finding.severity).max()
}

/// Returns the two ends in a canonical order.
fn key(ends: Ends) -> [Endpoint; 2] {
    let mut key = [ends.local, ends.remote];
    key.sort_unstable();
    key
}

/// Returns the role of an end, given which end is the client.
fn role(end: usize, client: usize) -> Role {
    if end == client { Role::Client } else { Role::Server }
}
