//! What connections between the same two hosts do to each other.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::report::{Connection, Kind, Role, Severity};
use crate::verdict::words::{count, ms};

/// A sender's queue that others have to pass.
struct Queue {
    /// Median time that an ACK takes through it.
    delay: Duration,
    /// Whether a connection was found to wait in it.
    blamed: bool,
}

/// Blames a sender's queue for waits that look like the other end's program: that is how a request
/// looks, where it was captured, that queues after its own host's bulk transfer. If there is such a
/// queue and the wait is as long as its delay, the queue is to blame.
pub(crate) fn blame_queues(connections: &mut [Connection]) {
    let mut queues = queues(connections);
    for connection in connections.iter_mut() {
        wait_behind(connection, &mut queues);
    }
    for connection in connections {
        let from_to = ends(connection, Role::Client);
        for finding in &mut connection.findings {
            let way = match finding.bytes_held_by {
                Some(Role::Server) => (from_to.1, from_to.0),
                _ => from_to,
            };
            let blamed = queues.get(&way).is_some_and(|queue| queue.blamed);
            if finding.kind == Kind::SenderQueue && blamed {
                finding.severity = Severity::LostTime;
            }
        }
    }
}

/// Returns the addresses of a connection, the given end's first.
fn ends(connection: &Connection, first: Role) -> (IpAddr, IpAddr) {
    let client = connection.client.endpoint.address;
    let server = connection.server.endpoint.address;
    match first {
        Role::Client => (client, server),
        Role::Server => (server, client),
    }
}

fn queues(connections: &[Connection]) -> BTreeMap<(IpAddr, IpAddr), Queue> {
    let mut queues = BTreeMap::new();
    for connection in connections {
        for finding in &connection.findings {
            if let (Kind::SenderQueue, Some(sender)) = (finding.kind, finding.bytes_held_by) {
                let queue = queues
                    .entry(ends(connection, sender))
                    .or_insert(Queue { delay: Duration::ZERO, blamed: false });
                queue.delay = queue.delay.max(finding.each.p99);
            }
        }
    }
    queues
}

fn wait_behind(connection: &mut Connection, queues: &mut BTreeMap<(IpAddr, IpAddr), Queue>) {
    for sender in [Role::Client, Role::Server] {
        let Some(queue) = queues.get_mut(&ends(connection, sender)) else { continue };
        for finding in &mut connection.findings {
            if finding.kind != Kind::Application || finding.each.p50 > queue.delay * 5 / 4 {
                continue;
            }
            queue.blamed = true;
            finding.kind = Kind::SenderQueue;
            finding.bytes_held_by = Some(sender);
            let waited = match finding.count {
                1 => "it, or its request, waited",
                _ => "they, or their requests, waited",
            };
            finding.evidence = format!(
                "{} came late ({}, median), while a bulk transfer of the {sender}'s host filled a \
                 queue of that length: {waited} in it.",
                count(finding.count, "reply", "replies"),
                ms(finding.each.p50),
            );
            connection.stalls += finding.count;
            connection.lost += finding.lost;
            connection.request_time = connection.request_time.max(connection.lost);
        }
    }
}
