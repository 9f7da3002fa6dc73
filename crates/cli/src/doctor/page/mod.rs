//! The report as a self-contained page of HTML: no script, no font, no picture but those in it. What
//! comes from a capture is escaped, and the page's own policy would keep a browser from following it.

mod connections;
mod kinds;
mod sequence;
mod spread;

use uncork_doctor::{Connection, Kind, Report, Severity};

use super::words;
use crate::page::document;
use crate::page::svg::{escape, put};

/// Renders the whole page.
pub(crate) fn render(report: &Report) -> String {
    let (ill, well): (Vec<_>, Vec<_>) = report.connections.iter().partition(|c| is_ill(c));
    let mut body = String::new();
    header(&mut body, report);
    kinds::overview(&mut body, &ill);
    kinds::sections(&mut body, &ill);
    connections::list(&mut body, &ill);
    connections::well(&mut body, &well);
    capture(&mut body, report);
    document(&format!("uncork doctor: {}", words::verdict(report)), &body)
}

/// Returns whether something is wrong with it.
fn is_ill(connection: &Connection) -> bool {
    connection.findings.iter().any(|finding| finding.severity > Severity::Harmless)
}

/// Writes the sentence, and its numbers in large type.
fn header(out: &mut String, report: &Report) {
    let summary = &report.summary;
    put!(out, "<header>\n<p class=\"brand\">uncork doctor</p>");
    put!(out, "<h1>{}</h1>", escape(&words::verdict(report)));
    if summary.connections_with_findings > 0 {
        put!(out, "<div class=\"figures\">");
        if summary.stalls > 0 {
            let share = words::share_of_requests(report);
            let waiting = words::time(summary.request_time);
            let stalls = if summary.stalls == 1 { "stall" } else { "stalls" };
            figure(out, &words::thousands(summary.stalls), stalls, "that TCP is to blame for");
            figure(out, &words::time(summary.lost), "lost", "while somebody waited");
            if let Some(share) = share {
                figure(out, &share, "of request time", &format!("which was {waiting}"));
            }
        }
        let ill = words::thousands(summary.connections_with_findings);
        let all = format!("of {} seen", words::thousands(summary.connections));
        let connections = match summary.connections_with_findings {
            1 => "connection affected",
            _ => "connections affected",
        };
        figure(out, &ill, connections, &all);
        put!(out, "</div>");
    }
    put!(out, "</header>");
}

fn figure(out: &mut String, number: &str, what: &str, more: &str) {
    let [number, what, more] = [number, what, more].map(escape);
    put!(out, "<div><b>{number}</b><strong>{what}</strong><span>{more}</span></div>");
}

/// Writes what the report was made from.
fn capture(out: &mut String, report: &Report) {
    let summary = &report.summary;
    let mut facts = vec![
        format!("{} of TCP", words::count(summary.segments, "segment")),
        format!("{} of data", words::count(summary.payload_bytes, "octet")),
        format!("{} from the first to the last", words::time(summary.duration)),
    ];
    for (number, what) in [
        (summary.not_tcp, "of other protocols"),
        (summary.cut_short, "cut too short to be read"),
        (summary.malformed, "with headers that contradict themselves"),
    ] {
        if number > 0 {
            facts.push(format!("{} {what}", words::count(number, "frame")));
        }
    }
    match summary.harmless {
        0 => {}
        1 => facts.push("1 harmless oddity".to_owned()),
        more => facts.push(format!("{} harmless oddities", words::thousands(more))),
    }
    put!(out, "<footer>\n<p>Seen: {}.</p>", escape(&facts.join(", ")));
    let ended = report.command.as_ref().and_then(words::ended);
    for note in ended.iter().chain(&report.notes) {
        put!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    put!(
        out,
        "<p>Made by <code>uncork doctor</code>, version {}. Times are those of the capture; lost \
         is what somebody waited beyond the path’s own round trip.</p>\n</footer>",
        env!("CARGO_PKG_VERSION")
    );
}

/// Returns the anchor of a kind's section.
fn anchor(kind: Kind) -> String {
    let name = serde_json::to_value(kind).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
