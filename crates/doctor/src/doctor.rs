//! All connections of a capture.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uncork_wire::tcp::Flags;
use uncork_wire::{Endpoint, Segment, Unread};

use crate::clock::Clock;
use crate::connection::Connection;
use crate::remedy::{Context, remedies};
use crate::report::{self, Report, SCHEMA_VERSION, Summary};
use crate::{Role, Severity, hosts, verdict};

/// Options of the diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether connections without a finding, and harmless oddities, are reported, too.
    pub every_connection: bool,
    /// A program that takes this long for a reply, or longer, is named.
    pub slow_application: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { every_connection: false, slow_application: Duration::from_millis(20) }
    }
}

/// About how many connections keep examples of their stalls: at least these, at most twice as many.
const PICTURED: usize = 1000;

/// Takes in the segments of all connections, and says in the end what is wrong with each.
#[derive(Debug, Default)]
pub struct Doctor {
    settings: Settings,
    summary: Summary,
    clock: Clock,
    first_seen: Option<Duration>,
    last_seen: Duration,
    /// Connections by their ends; `None` is one that is over and has been reported.
    connections: FxHashMap<Ends, Option<Box<Connection>>>,
    /// Reports of connections that are over.
    ended: Vec<report::Connection>,
}

impl Doctor {
    /// Creates a doctor that has seen nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes in a segment, seen at a time since 1970. Times may go back a little, as captures' do.
    pub fn segment(&mut self, at: Duration, segment: &Segment) {
        self.summary.segments += 1;
        self.summary.payload_bytes += u64::from(segment.payload_bytes);
        self.summary.malformed += u64::from(segment.option_lies);
        let mut at = self.clock.read(at);
        let (ends, from) = Ends::of(segment);
        if self.clock.is_suspect()
            && let Some(Some(known)) = self.connections.get(&ends)
        {
            let timestamp = segment.timestamps.map(|(value, _)| value);
            let checked = self.clock.check(at, &known.directions[from], timestamp);
            // Frames of other connections may have come before the step was known.
            if checked < at {
                (at, self.last_seen) = (checked, checked);
            }
        }
        self.first_seen.get_or_insert(at);
        self.last_seen = self.last_seen.max(at);
        let heard = Heard { at, segment, from, settings: &self.settings };
        // Not `entry`, which would copy the key for every segment.
        let Left { before, over } = match self.connections.get_mut(&ends) {
            Some(place) => heard.at(place),
            None => heard.at(self.connections.entry(ends).or_insert_with(|| heard.first())),
        };
        if let Some(connection) = before {
            self.end(*connection);
        }
        if let Some(connection) = over {
            self.end(*connection);
        }
    }

    /// Counts a frame that yielded no segment.
    pub fn unread(&mut self, why: Unread) {
        match why {
            Unread::NotTcp => self.summary.not_tcp += 1,
            Unread::CutShort => self.summary.cut_short += 1,
            Unread::Malformed(_) => self.summary.malformed += 1,
        }
    }

    /// Returns the report of all that was seen.
    #[must_use]
    pub fn finish(mut self) -> Report {
        for connection in std::mem::take(&mut self.connections).into_values().flatten() {
            self.end(*connection);
        }
        hosts::blame_queues(&mut self.ended);
        for connection in &mut self.ended {
            prescribe(connection);
            count(&mut self.summary, connection);
        }
        let first_seen = self.first_seen.unwrap_or_default();
        self.summary.duration = self.last_seen.saturating_sub(first_seen);
        self.ended.sort_by(|a, b| {
            let order = b.lost.cmp(&a.lost).then(worst(b).cmp(&worst(a)));
            order.then(a.first_seen.total_cmp(&b.first_seen))
        });
        Report {
            schema_version: SCHEMA_VERSION,
            summary: self.summary,
            sampling: None,
            command: None,
            notes: self.clock.notes(),
            connections: self.ended,
        }
    }

    /// Drops the examples of all but the worst connections: nobody looks at the pictures of thousands.
    fn forget_pictures(&mut self) {
        self.ended.sort_by_key(|connection| std::cmp::Reverse(connection.lost));
        for connection in self.ended.iter_mut().skip(PICTURED) {
            for finding in &mut connection.findings {
                finding.examples = Vec::new();
            }
        }
    }

    fn end(&mut self, mut connection: Connection) {
        connection.finish();
        let mut report = verdict::on(&connection, &self.settings);
        let harmless = report.findings.iter().filter(|f| f.severity == Severity::Harmless);
        self.summary.harmless += harmless.count() as u64;
        if !self.settings.every_connection {
            report.findings.retain(|finding| finding.severity > Severity::Harmless);
        }
        self.summary.connections += 1;
        if self.settings.every_connection || worst(&report) > Some(Severity::Harmless) {
            self.ended.push(report);
            if self.ended.len().is_multiple_of(PICTURED) {
                self.forget_pictures();
            }
        } else {
            self.summary.request_time += report.request_time;
        }
    }
}

/// A segment, on its way to its connection.
#[derive(Clone, Copy)]
struct Heard<'a> {
    at: Duration,
    segment: &'a Segment,
    /// Index of the end that sent it.
    from: usize,
    settings: &'a Settings,
}

/// Connections that are over with this segment: the one that had these ends before, and this one.
#[derive(Default)]
struct Left {
    before: Option<Box<Connection>>,
    over: Option<Box<Connection>>,
}

impl Heard<'_> {
    /// Returns the connection of which it is the first segment.
    fn first(self) -> Option<Box<Connection>> {
        let mut ends = [self.segment.source, self.segment.destination];
        ends.rotate_left(self.from);
        Some(Box::new(Connection::new(ends, self.at)))
    }

    /// Hands the segment to the connection at this place.
    fn at(self, place: &mut Option<Box<Connection>>) -> Left {
        let syn = self.segment.flags.has(Flags::SYN);
        let mut left = Left::default();
        match place {
            // A straggler of a connection that is over may still come.
            None if !syn => return left,
            None => *place = self.first(),
            Some(old) if syn && old.begins_anew(self.segment, self.from) => {
                left.before = std::mem::replace(place, self.first());
            }
            Some(_) => {}
        }
        if let Some(connection) = place {
            connection.segment(self.at, self.segment, self.from, self.settings);
            if connection.is_over() {
                left.over = place.take();
            }
        }
        left
    }
}

/// Adds to each finding what to do about it.
fn prescribe(connection: &mut report::Connection) {
    for finding in &mut connection.findings {
        let holder = finding.bytes_held_by;
        let sender = holder.or(finding.ack_held_by.map(Role::other)).unwrap_or(Role::Server);
        let context = Context {
            client: &connection.client,
            server: &connection.server,
            sender,
            bytes_held_by: holder,
            ack_held_by: finding.ack_held_by,
        };
        finding.remedies = remedies(finding.kind, &context);
    }
}

fn count(summary: &mut Summary, connection: &report::Connection) {
    summary.stalls += connection.stalls;
    summary.lost += connection.lost;
    summary.request_time += connection.request_time;
    let ill = worst(connection) > Some(Severity::Harmless);
    summary.connections_with_findings += u64::from(ill);
}

fn worst(connection: &report::Connection) -> Option<Severity> {
    connection.findings.iter().map(|f| f.severity).max()
}

/// The two ends of a connection in a canonical order, as numbers: they are hashed and compared for
/// every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    addresses: [u64; 4],
    ports: u32,
}

impl Ends {
    /// Returns the ends of a segment, and which of them sent it.
    fn of(segment: &Segment) -> (Self, usize) {
        let [source, destination] = [segment.source, segment.destination].map(number);
        if source <= destination {
            (Self::join(source, destination), 0)
        } else {
            (Self::join(destination, source), 1)
        }
    }

    fn join(one: (u128, u16), other: (u128, u16)) -> Self {
        let halves = |address: u128| [(address >> 64) as u64, address as u64];
        let ([a, b], [c, d]) = (halves(one.0), halves(other.0));
        Self { addresses: [a, b, c, d], ports: (u32::from(one.1) << 16) | u32::from(other.1) }
    }
}

impl Hash for Ends {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The halves of an address in one word: of IPv4's the upper one is always the same.
        let [a, b, c, d] = self.addresses;
        state.write_u64(a.rotate_left(32) ^ b);
        state.write_u64(c.rotate_left(32) ^ d);
        state.write_u32(self.ports);
    }
}

/// Returns an end as a number: an address of IPv4 as an IPv4-mapped one (RFC 4291 §2.5.5.2).
fn number(end: Endpoint) -> (u128, u16) {
    let address = match end.address {
        IpAddr::V4(address) => 0xffff_0000_0000 | u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    (address, end.port)
}
