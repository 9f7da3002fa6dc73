//! The findings, kind by kind: how each comes about, what it looked like, how long it took.

use std::collections::HashSet;
use std::time::Duration;

use uncork_doctor::{Bucket, Connection, Finding, Kind, Severity};

use super::connections::{LISTED, remedies};
use super::spread::{self, CLUSTERS};
use super::{anchor, sequence};
use crate::doctor::table::{OfKind, kinds};
use crate::doctor::words;
use crate::page::svg::{escape, put};

/// How many connections a section links to.
const NAMED: usize = 8;

/// A finding, its connection, and that connection's number in the list.
#[derive(Clone, Copy)]
struct Numbered<'a> {
    number: usize,
    connection: &'a Connection,
    finding: &'a Finding,
}

impl Numbered<'_> {
    /// Returns a link with the connection's number; both ends if it is not listed.
    fn link(&self) -> String {
        let Self { number, connection, .. } = self;
        if *number > LISTED {
            let ends = format!("{} → {}", connection.client.endpoint, connection.server.endpoint);
            return escape(&ends);
        }
        format!("connection <a href=\"#c{number}\">{number}</a>")
    }
}

/// Writes one line for each kind.
pub(super) fn overview(out: &mut String, connections: &[&Connection]) {
    if connections.is_empty() {
        return;
    }
    put!(out, "<section>\n<h2>What was found</h2>\n<div class=\"card scroll\">\n<table>");
    let rows = kinds(connections);
    // A program's own time is not lost: it has a column of its own.
    let by_programs = rows.iter().any(|row| row.kind == Kind::Application);
    let own = if by_programs { "<th>not TCP</th>" } else { "" };
    put!(
        out,
        "<thead><tr><th>finding</th><th>connections</th><th>times</th><th>lost</th>{own}</tr>\
         </thead>\n<tbody>"
    );
    for row in rows {
        let (lost, own) = words::lost_and_own(row.kind, row.lost);
        let own = if by_programs { format!("<td>{own}</td>") } else { String::new() };
        put!(
            out,
            "<tr><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td><td>{lost}</td>{own}</tr>",
            anchor(row.kind),
            escape(words::kind_name(row.kind)),
            words::thousands(row.connections),
            words::thousands(row.times),
        );
    }
    put!(out, "</tbody>\n</table>\n</div>\n</section>");
}

/// Writes a section for each kind, worst first.
pub(super) fn sections(out: &mut String, connections: &[&Connection]) {
    for row in kinds(connections) {
        let mut findings: Vec<Numbered<'_>> = Vec::new();
        for (index, connection) in connections.iter().enumerate() {
            let of_kind = connection.findings.iter().filter(|finding| {
                finding.kind == row.kind && finding.severity > Severity::Harmless
            });
            let number = index + 1;
            findings.extend(of_kind.map(|finding| Numbered { number, connection, finding }));
        }
        findings.sort_by_key(|numbered| std::cmp::Reverse(numbered.finding.lost));
        section(out, &row, &findings);
    }
}

fn section(out: &mut String, row: &OfKind, findings: &[Numbered<'_>]) {
    let name = words::kind_name(row.kind);
    put!(out, "<section id=\"{}\">", anchor(row.kind));
    put!(out, "<h2>{}{}</h2>", name[..1].to_uppercase(), escape(&name[1..]));
    put!(out, "<p class=\"figure-line\">{}</p>", escape(&cost(row)));
    put!(out, "<p class=\"prose\">{}</p>", escape(words::explanation(row.kind)));
    put!(out, "<div class=\"pair\">");
    let drawn = findings.iter().find_map(|numbered| {
        let example = numbered.finding.examples.first()?;
        Some((numbered, example, sequence::render(numbered.finding, example)?))
    });
    if let Some((numbered, example, picture)) = &drawn {
        let at = words::time(example.begin);
        put!(out, "<figure class=\"card\">\n{picture}<figcaption>");
        put!(
            out,
            "On {}, {at} after its first segment. Times are milliseconds since the stall \
             began; long intervals are to scale, short ones spread.</figcaption>\n</figure>",
            numbered.link()
        );
    }
    put!(out, "<div class=\"column\">");
    let buckets = spread::sum(findings.iter().map(|numbered| &numbered.finding.histogram));
    if let Some(picture) = spread::render(&buckets) {
        // Queued data is as late as the queue is long: no timer ends it.
        let (title, caption) = match row.kind {
            Kind::SenderQueue => ("How late ACKs and replies were", in_all(&buckets)),
            _ => ("How long each took", clusters(&buckets) + &path(findings)),
        };
        put!(out, "<figure class=\"card\">\n<h3>{title}</h3>\n{picture}<figcaption>");
        put!(out, "{}</figcaption>\n</figure>", escape(&caption));
    }
    let Some(first) = findings.first() else { return };
    put!(out, "<div class=\"card seen\">\n<h3>What was seen on {}</h3>", first.link());
    put!(out, "<p>{}</p>", escape(&first.finding.evidence));
    if let Some(holders) = words::holders(first.finding) {
        put!(out, "<p class=\"holders\">{}</p>", escape(&holders));
    }
    put!(out, "</div>\n</div>\n</div>");
    put!(out, "<h3>What to do, for {}</h3>", first.link());
    remedies(out, first.finding);
    worst(out, findings);
    put!(out, "</section>");
}

fn cost(row: &OfKind) -> String {
    let times = words::count(row.times, "time");
    let connections = words::count(row.connections, "connection");
    match (row.severity, row.kind) {
        (Severity::LostTime, Kind::Application) => {
            format!("{times} on {connections}: {} of the program’s own", words::time(row.lost))
        }
        (Severity::LostTime, _) => {
            format!("{times} on {connections}: {} lost", words::time(row.lost))
        }
        _ => format!("{times} on {connections}; nobody is known to have waited"),
    }
}

/// Says that the path is part of what was measured, where it is long enough to move a cluster.
fn path(findings: &[Numbered<'_>]) -> String {
    const LONG: Duration = Duration::from_millis(5);
    let waits_for_ack = |finding: &Finding| {
        matches!(
            finding.kind,
            Kind::NagleDelayedAck | Kind::DelayedAck | Kind::QuickAckExhausted | Kind::Runt
        )
    };
    let waiting = findings.iter().filter(|numbered| waits_for_ack(numbered.finding));
    let longest = waiting.filter_map(|numbered| numbered.connection.rtt).max();
    match longest {
        Some(rtt) if rtt >= LONG && findings.len() == 1 => {
            format!(" The path’s round trip ({}) is part of each.", words::time(rtt))
        }
        Some(rtt) if rtt >= LONG => {
            format!(" The path’s round trip (up to {}) is part of each.", words::time(rtt))
        }
        _ => String::new(),
    }
}

fn in_all(buckets: &[Bucket]) -> String {
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    format!("{} in all.", words::thousands(all))
}

/// Describes what stands out in a distribution.
fn clusters(buckets: &[Bucket]) -> String {
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let near = CLUSTERS.iter().map(|cluster| (cluster, spread::within(buckets, cluster)));
    let near: Vec<String> = near
        .filter(|(_, near)| *near > 0)
        .map(|(cluster, near)| {
            let how_many = if near == all { "all".to_owned() } else { words::thousands(near) };
            format!("{how_many} near {}, {}", cluster.name, cluster.what)
        })
        .collect();
    let measured = words::thousands(all);
    match near.as_slice() {
        [] if all == 1 => "One, and not near 40 or 200 ms.".to_owned(),
        [] => format!("{measured} in all, none near 40 or 200 ms."),
        [near] if all == 1 => format!("One, {}.", near.trim_start_matches("all ")),
        near => format!("{measured} in all: {}.", near.join("; ")),
    }
}

/// Links to the worst connections.
fn worst(out: &mut String, findings: &[Numbered<'_>]) {
    let mut seen = HashSet::new();
    let numbers: Vec<usize> =
        findings.iter().map(|numbered| numbered.number).filter(|n| seen.insert(*n)).collect();
    let listed = numbers.iter().filter(|number| **number <= LISTED).take(NAMED);
    let links: Vec<String> =
        listed.map(|number| format!("<a href=\"#c{number}\">{number}</a>")).collect();
    if numbers.len() < 2 || links.is_empty() {
        return;
    }
    let more = match numbers.len() - links.len() {
        0 => String::new(),
        more => format!(" and {} more", words::thousands(more as u64)),
    };
    put!(out, "<p class=\"soft\">Connections, worst first: {}{more}.</p>", links.join(", "));
}
