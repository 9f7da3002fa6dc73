//! The connections, worst first, each with its ends, findings and remedies.

use uncork_doctor::{Connection, Finding, Kind, Party};

use super::sequence;
use crate::doctor::words;
use crate::page::svg::{escape, put};

/// How many connections are listed.
pub(super) const LISTED: usize = 100;

/// For how many connections stalls are drawn.
const DRAWN: usize = 20;

/// How many connections are expanded initially.
const OPEN: usize = 1;

/// How many connections without a stall are listed, if they were asked for.
const WELL: usize = 200;

/// Lists all connections with a finding.
pub(super) fn list(out: &mut String, connections: &[&Connection]) {
    if connections.is_empty() {
        return;
    }
    put!(out, "<section id=\"connections\">\n<h2>Connections, worst first</h2>");
    for (index, connection) in connections.iter().take(LISTED).enumerate() {
        one(out, index + 1, connection);
    }
    let more = connections.len().saturating_sub(LISTED);
    if more > 0 {
        put!(
            out,
            "<p class=\"soft\">{} not listed here, and lost less: \
             <code>uncork doctor --json</code> has all.</p>",
            words::counted(more as u64, "more connection is", "more connections are")
        );
    }
    put!(out, "</section>");
}

fn one(out: &mut String, number: usize, connection: &Connection) {
    let open = if number <= OPEN { " open" } else { "" };
    put!(out, "<details class=\"card\"{open}>");
    put!(
        out,
        "<summary><span class=\"number\">{number}</span><span class=\"ends\">{} → {}</span>\
         <span class=\"cost\">{}</span></summary>",
        breakable(&connection.client.endpoint.to_string()),
        breakable(&connection.server.endpoint.to_string()),
        escape(&words::cost(connection))
    );
    // A link to something inside expands it.
    put!(out, "<div id=\"c{number}\" class=\"inside\">");
    ends(out, connection);
    for finding in &connection.findings {
        self::finding(out, finding, number <= DRAWN);
    }
    put!(out, "</div>\n</details>");
}

/// Returns an address that may be broken between its groups, in a narrow column.
fn breakable(address: &str) -> String {
    escape(address).replace(':', ":<wbr>")
}

/// A function that returns a row's text for one end.
type Cell = fn(&Party) -> String;

fn ends(out: &mut String, connection: &Connection) {
    put!(out, "<div class=\"scroll\"><table class=\"parties\">");
    put!(out, "<thead><tr><th></th><th>client</th><th>server</th></tr></thead>\n<tbody>");
    let parties = [&connection.client, &connection.server];
    let known = parties.iter().any(|party| party.process.is_some());
    let helped = parties.iter().any(|party| party.uncork.is_some());
    let rows: [(&str, Option<Cell>); 8] = [
        ("address", Some(|party| party.endpoint.to_string())),
        ("process", known.then_some(|party| words::process(party).unwrap_or_else(|| "–".into()))),
        ("Nagle’s algorithm", Some(|party| words::in_force(party.nagle).to_owned())),
        ("uncork", helped.then_some(uncork)),
        ("writes", Some(words::pattern)),
        ("sent", Some(sent)),
        ("largest segment", Some(mss)),
        ("its ACKs", Some(acks)),
    ];
    for (name, cell) in rows {
        let Some(cell) = cell else { continue };
        let [client, server] = parties.map(|party| escape(&cell(party)));
        put!(out, "<tr><th>{name}</th><td>{client}</td><td>{server}</td></tr>");
    }
    put!(out, "</tbody></table></div>");
    put!(out, "<p class=\"soft\">{}</p>", escape(&story(connection)));
}

fn uncork(party: &Party) -> String {
    party.uncork.as_ref().map_or_else(|| "not in the process".to_owned(), words::uncork)
}

fn sent(party: &Party) -> String {
    let octets = words::count(party.payload_bytes, "octet");
    format!("{octets} in {}", words::count(party.data_segments, "segment"))
}

fn mss(party: &Party) -> String {
    party.mss.map_or_else(|| "not known".to_owned(), |mss| words::count(u64::from(mss), "octet"))
}

fn acks(party: &Party) -> String {
    let delay = &party.ack_delay;
    if delay.count == 0 {
        return "not measured".to_owned();
    }
    if delay.count == 1 {
        return format!("one, after {}", words::time(delay.max));
    }
    format!("after {} typically, {} at most", words::time(delay.p50), words::time(delay.max))
}

fn story(connection: &Connection) -> String {
    let rtt = connection.rtt.map_or_else(
        || "round trip not known".to_owned(),
        |rtt| format!("shortest round trip {}", words::time(rtt)),
    );
    let beginning = if connection.handshake_seen { "" } else { ", its beginning was not seen" };
    if connection.requests == 0 {
        return format!("{rtt}; seen for {}{beginning}.", words::time(connection.duration));
    }
    format!(
        "{} answered in {}; {rtt}; seen for {}{beginning}.",
        words::count(connection.requests, "request"),
        words::time(connection.request_time),
        words::time(connection.duration)
    )
}

fn finding(out: &mut String, finding: &Finding, drawn: bool) {
    let name = words::name(finding);
    put!(out, "<div class=\"finding\">");
    put!(out, "<h3>{}{}</h3>", name[..1].to_uppercase(), escape(&name[1..]));
    let times = words::count(finding.count, "time");
    let mut figures = vec![times];
    if finding.each.count > 1 {
        figures.push(format!("{} typically", words::time(finding.each.p50)));
        figures.push(format!("{} at most", words::time(finding.each.max)));
    }
    let (lost, own) = words::lost_and_own(finding.kind, finding.lost);
    if !finding.lost.is_zero() && finding.kind == Kind::Application {
        figures.push(format!("{own} of the program’s own"));
    } else if !finding.lost.is_zero() {
        figures.push(format!("{lost} lost"));
    }
    put!(out, "<p class=\"figure-line\">{}</p>", escape(&figures.join(", ")));
    put!(out, "<p class=\"prose\">{}</p>", escape(&finding.evidence));
    if let Some(holders) = words::holders(finding) {
        put!(out, "<p class=\"prose holders\">{}</p>", escape(&holders));
    }
    remedies(out, finding);
    let picture = finding.examples.first().filter(|_| drawn);
    if let Some(picture) = picture.and_then(|example| sequence::render(finding, example)) {
        put!(out, "<details class=\"drawn\"><summary>The worst of them, drawn</summary>");
        put!(out, "<figure>{picture}</figure></details>");
    }
    put!(out, "</div>");
}

/// Lists the remedies: each line separately, to be copied.
pub(super) fn remedies(out: &mut String, finding: &Finding) {
    if finding.remedies.is_empty() {
        put!(out, "<p class=\"soft\">There is no setting for this: look into the program.</p>");
        return;
    }
    put!(out, "<ul class=\"remedies\">");
    for remedy in &finding.remedies {
        put!(
            out,
            "<li><span class=\"at {role}\">{role}</span> {}<pre>{}</pre></li>",
            escape(&remedy.why),
            escape(&remedy.line),
            role = words::role(remedy.at)
        );
    }
    put!(out, "</ul>");
}

/// Lists connections without a stall, only if they were asked for.
pub(super) fn well(out: &mut String, connections: &[&Connection]) {
    if connections.is_empty() {
        return;
    }
    put!(out, "<section>\n<h2>Connections without a stall</h2>\n<ul class=\"well\">");
    for connection in connections.iter().take(WELL) {
        let oddities: Vec<_> = connection.findings.iter().map(words::name).collect();
        let oddities = match oddities.as_slice() {
            [] => String::new(),
            some => format!(" <span class=\"soft\">harmless: {}</span>", escape(&some.join(", "))),
        };
        let [client, server] = [&connection.client, &connection.server].map(words::party);
        put!(out, "<li>{} → {}{oddities}</li>", escape(&client), escape(&server));
    }
    put!(out, "</ul>");
    let more = connections.len().saturating_sub(WELL);
    if more > 0 {
        put!(
            out,
            "<p class=\"soft\">{} not listed here: <code>uncork doctor --json</code> has all.</p>",
            words::counted(more as u64, "more connection is", "more connections are")
        );
    }
    put!(out, "</section>");
}
