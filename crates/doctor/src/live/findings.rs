//! From what was traced of a connection to what is reported about it.

use std::collections::HashSet;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::link::{Link, Side, finished};
use super::role;
use crate::remedy::{Context, remedies};
use crate::report::{Connection, Finding, InForce, Party, Process, Severity};
use crate::{Role, Settings};

mod acks;
mod held;
mod others;

/// What is known besides the connection.
pub(super) struct Known<'a> {
    pub(super) settings: &'a Settings,
    /// When the clock of the events began, since 1970.
    pub(super) epoch: Duration,
    /// Whether sockets were polled: what they did between two polls is then not known.
    pub(super) sampled: bool,
    pub(super) commands: &'a FxHashMap<u32, String>,
    pub(super) beyond_preload: &'a HashSet<u32>,
    pub(super) elsewhere: &'a HashSet<u32>,
}

/// Returns what is wrong with a connection, and what it looked like.
pub(super) fn on(link: &Link, client: usize, known: &Known<'_>) -> Connection {
    let (first, last) = link.span();
    let ends = [client, 1 - client].map(|at| {
        let mut party = party(link, at, known.sampled);
        if let Some(process) = &mut party.process {
            process.command = known.commands.get(&process.pid).cloned();
            process.beyond_preload = known.beyond_preload.contains(&process.pid);
            process.elsewhere = known.elsewhere.contains(&process.pid);
        }
        party
    });
    let [client_party, server_party] = ends;
    let mut findings = Vec::new();
    for at in 0..2 {
        let view = View { link, at, client, sampled: known.sampled };
        findings.extend(held::by_nagle(&view));
        findings.extend(held::as_runts(&view));
        findings.extend(held::by_cork(&view));
        findings.extend(held::by_window(&view));
        findings.extend(held::until_sent_again(&view));
        findings.extend(acks::awaited(&view));
        findings.extend(acks::by_lone_segments(&view));
        findings.extend(acks::exhausted_behind_nagle(&view).or_else(|| acks::idle(&view)));
        findings.extend(others::nodelay(&view));
        findings.extend(others::tiny_packets(&view));
        findings.extend(others::sender_queue(&view));
    }
    let waited = |finding: &&Finding| finding.severity == Severity::LostTime;
    let stalls = findings.iter().filter(waited).map(|f| f.count).sum();
    let lost: Duration = findings.iter().filter(waited).map(|f| f.lost).sum();
    findings.extend(others::slow_program(
        &View { link, at: 1 - client, client, sampled: known.sampled },
        lost,
        known.settings,
    ));
    findings.sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.lost)));
    for finding in &mut findings {
        finish(finding, &client_party, &server_party, (first, client));
    }
    let (requests, request_time) = match known.sampled {
        true => (0, Duration::ZERO),
        false => requests(link, client, lost),
    };
    Connection {
        client: client_party,
        server: server_party,
        first_seen: (first + known.epoch).as_secs_f64(),
        duration: last.saturating_sub(first),
        handshake_seen: link.client().is_some(),
        rtt: rtt(link),
        requests,
        request_time,
        stalls,
        lost,
        findings,
    }
}

/// Puts the remedies, and the roles in the pictures, into a finding.
fn finish(finding: &mut Finding, client: &Party, server: &Party, roles: (Duration, usize)) {
    let context = Context {
        client,
        server,
        sender: finding.bytes_held_by.unwrap_or(Role::Server),
        bytes_held_by: finding.bytes_held_by,
        ack_held_by: finding.ack_held_by,
    };
    finding.remedies = remedies(finding.kind, &context);
    let examples = std::mem::take(&mut finding.examples);
    finding.examples = examples.into_iter().map(|e| finished(e, roles.0, roles.1)).collect();
}

/// Returns the requests, and the time from each one's first write to its reply's last segment: as
/// the client saw it, else as the server did, which does not see the way there and back.
fn requests(link: &Link, client: usize, lost: Duration) -> (u64, Duration) {
    let sockets = [client, 1 - client].map(|at| link.sides[at].socket.as_ref());
    match sockets {
        // A request that has no reply yet may have lost time.
        [Some(client), _] if !client.waits.is_empty() => {
            (client.waits.len(), client.wait_time.max(lost))
        }
        [_, Some(server)] => {
            let time = server.turn_time + server.writing.time + lost;
            (server.turns.len(), time)
        }
        _ => (0, Duration::ZERO),
    }
}

fn rtt(link: &Link) -> Option<Duration> {
    let sockets = link.sides.iter().filter_map(|side| side.socket.as_ref());
    sockets.map(|socket| socket.min_rtt).filter(|rtt| !rtt.is_zero()).min()
}

fn party(link: &Link, at: usize, sampled: bool) -> Party {
    let (own, other) = (&link.sides[at], &link.sides[1 - at]);
    let (socket, opposite) = (own.socket.as_ref(), other.socket.as_ref());
    let writing = socket.map(|socket| &socket.writing);
    let data_segments = socket.map(|s| s.segments_out).or(opposite.map(|s| s.segments_in));
    Party {
        endpoint: link.ends[at],
        process: process(own),
        data_segments: data_segments.unwrap_or(0).into(),
        payload_bytes: socket.map(|s| s.bytes_out).or(opposite.map(|s| s.bytes_in)).unwrap_or(0),
        messages: writing.map_or(0, |writing| writing.messages),
        segments_per_message: writing.map_or(0, |writing| writing.typical_segments),
        message_bytes: writing.map_or(0, |writing| writing.typical_bytes),
        mss: own.mss(),
        nagle: nagle(own, sampled),
        uncork: None,
        ack_delay: own.late_acks.spread(),
    }
}

/// Returns the process that has the socket, else the one that wrote to it, opened it or listened for it.
fn process(side: &Side) -> Option<Process> {
    let told = side.socket.as_ref().and_then(|socket| {
        let owner = &socket.owner;
        let who = if socket.writer.pid == 0 { owner } else { &socket.writer };
        let name = match who.name.as_str() {
            "" if who.pid == owner.pid => owner.name.clone(),
            "" => return None,
            name => name.to_owned(),
        };
        let tid = (socket.writer.pid != 0).then_some(who.tid);
        let (pid, fd) = (who.pid, socket.fd);
        (pid != 0).then_some(Process { pid, tid, name, fd, ..Process::default() })
    });
    match (&side.process, told) {
        (Some(found), Some(told)) if found.pid == told.pid => {
            Some(Process { fd: found.fd.or(told.fd), tid: told.tid.or(found.tid), ..found.clone() })
        }
        (Some(found), _) => Some(found.clone()),
        (None, told) => told,
    }
}

fn nagle(side: &Side, sampled: bool) -> InForce {
    let held = side.nagle_late.count + side.nagle_round_trip.count + side.runts.count > 0;
    let told = side.socket.as_ref().map(|socket| socket.options.nodelay);
    match (held, if sampled { side.nodelay } else { told }) {
        (true, Some(true)) => InForce::Changed,
        (true, _) | (false, Some(false)) => InForce::On,
        (false, Some(true)) => InForce::Off,
        (false, None) => InForce::Unknown,
    }
}

/// One end of a connection as a sender of data.
struct View<'a> {
    link: &'a Link,
    at: usize,
    client: usize,
    sampled: bool,
}

impl<'a> View<'a> {
    fn role(&self) -> Role {
        role(self.at, self.client)
    }

    fn side(&self) -> &'a Side {
        &self.link.sides[self.at]
    }

    fn other(&self) -> &'a Side {
        &self.link.sides[1 - self.at]
    }

    /// Names the end with its program: `server (redis-server, 4711)`.
    fn name(&self) -> String {
        named(self.role(), self.side())
    }

    fn other_name(&self) -> String {
        named(self.role().other(), self.other())
    }
}

fn named(role: Role, side: &Side) -> String {
    match process(side) {
        Some(process) => format!("{role} ({}, process {})", process.name, process.pid),
        None => role.to_string(),
    }
}
