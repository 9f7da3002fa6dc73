//! Records that libuncork.so has kept of the sockets that it helps, matched with what was seen of them.

use uncork_wire::Endpoint;

use crate::Role;
use crate::report::{Connection, Finding, Kind, Party, Report, Uncork};
use crate::verdict::words::count;

/// The library's record of a socket, and what is needed to find the socket's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preloaded {
    /// Process id.
    pub process: u32,
    /// Descriptor that the socket had there.
    pub fd: i32,
    /// The socket's own end; not known of a socket that was closed.
    pub local: Option<Endpoint>,
    /// The other end.
    pub peer: Endpoint,
    /// The record.
    pub uncork: Uncork,
}

impl Report {
    /// Matches the library's records with their connections, and says of each finding whether the
    /// library cures it already.
    pub fn preloaded(&mut self, records: &[Preloaded]) {
        let ends: Vec<_> = self.connections.iter().flat_map(ends).collect();
        for connection in &mut self.connections {
            let [client, server] = ends_of(connection);
            connection.client.uncork = of_end(records, &client, &ends);
            connection.server.uncork = of_end(records, &server, &ends);
            for role in [Role::Client, Role::Server] {
                let party =
                    if role == Role::Client { &connection.client } else { &connection.server };
                if let Some(uncork) = &party.uncork {
                    let findings = connection.findings.iter_mut();
                    let own = findings.filter(|finding| finding.bytes_held_by == Some(role));
                    own.for_each(|finding| tell(finding, role, uncork));
                }
            }
        }
    }
}

/// One end of a connection, by which records are found.
#[derive(Debug, Clone, Copy, PartialEq)]
struct End {
    process: u32,
    fd: Option<i32>,
    local: Endpoint,
    peer: Endpoint,
}

fn ends_of(connection: &Connection) -> [Option<End>; 2] {
    let end = |own: &Party, other: &Party| {
        let process = own.process.as_ref()?;
        let (local, peer) = (plain(own.endpoint), plain(other.endpoint));
        Some(End { process: process.pid, fd: process.fd, local, peer })
    };
    let (client, server) = (&connection.client, &connection.server);
    [end(client, server), end(server, client)]
}

fn ends(connection: &Connection) -> impl Iterator<Item = End> {
    ends_of(connection).into_iter().flatten()
}

/// Returns an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2) as IPv4.
fn plain(end: Endpoint) -> Endpoint {
    Endpoint { address: end.address.to_canonical(), port: end.port }
}

/// Returns the record of an end, the complete one before one that was read while the socket was
/// open. A record that might be another connection's is left alone.
fn of_end(records: &[Preloaded], end: &Option<End>, all: &[End]) -> Option<Uncork> {
    let end = end.as_ref()?;
    let fits = |record: &&Preloaded| belongs(record, end);
    let complete = || records.iter().filter(fits).filter(|record| record.uncork.complete);
    let on_the_way = || records.iter().filter(fits).filter(|record| record.local.is_some());
    let alone = |record: &&Preloaded| all.iter().filter(|end| belongs(record, end)).count() == 1;
    let found = match complete().count() {
        1 => complete().find(alone).or_else(|| on_the_way().next()),
        _ => on_the_way().next(),
    };
    found.map(|record| record.uncork.clone())
}

fn belongs(record: &Preloaded, end: &End) -> bool {
    record.process == end.process
        && plain(record.peer) == end.peer
        && end.fd.is_none_or(|fd| fd == record.fd)
        && record.local.is_none_or(|local| plain(local) == end.local)
}

/// Says what a finding about this end's bytes means under the library.
fn tell(finding: &mut Finding, role: Role, uncork: &Uncork) {
    // Lost segments, shut windows and slow programs are outside the library's scope.
    if !matches!(
        finding.kind,
        Kind::NagleDelayedAck
            | Kind::Runt
            | Kind::CorkTimeout
            | Kind::TinyPackets
            | Kind::DelayedAck
            | Kind::NoDelayNotInForce
    ) {
        return;
    }
    finding.remedies.retain(|remedy| remedy.at != role || !remedy.line.starts_with("uncork run"));
    let more = if uncork.helps() {
        let writes = count(uncork.writes, "write", "writes");
        let packets = count(uncork.pushes, "packet", "packets");
        format!(
            " The program of the {role} runs under uncork already (hold {}), which has made \
             {packets} of its {writes}: what is found here came before it could help, or \
             from bytes that did not go through it.",
            uncork.hold
        )
    } else {
        let why = uncork.state.trim_start_matches("passed: ");
        format!(
            " The program of the {role} runs under uncork, which leaves this socket alone: {why}."
        )
    };
    finding.evidence.push_str(&more);
}
