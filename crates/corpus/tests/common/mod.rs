//! The judge, shared by the tests that compare the doctor with labels.

use serde_json::Value;
use uncork_corpus::label::{self, Label};

/// How far the doctor's milliseconds may differ from the client's.
const SHARE: f64 = 0.10;

/// What a sum of a few requests may be off by, whatever its length: the time the client itself
/// takes to wake up, and its timer.
const SLACK_MS: f64 = 2.0;

/// Returns whether a label is about this connection.
fn is_about(label: &label::Connection, connection: &Value) -> bool {
    let endpoint = |end: &str| connection[end]["endpoint"].as_str().unwrap().to_owned();
    let client = endpoint("client");
    // An address alone stands for all its ports.
    let address = client.rsplit_once(':').unwrap().0.trim_matches(['[', ']']).to_owned();
    (label.client == client || label.client == address) && label.server == endpoint("server")
}

fn findings(connection: &Value) -> &[Value] {
    connection["findings"].as_array().unwrap()
}

fn matches(wanted: &label::Finding, found: &Value) -> bool {
    let says = |wanted: &Option<String>, member: &str| {
        wanted.is_none() || found[member].as_str() == wanted.as_deref()
    };
    found["kind"] == *wanted.kind
        && says(&wanted.severity, "severity")
        && says(&wanted.bytes_held_by, "bytes_held_by")
        && says(&wanted.ack_held_by, "ack_held_by")
}

fn described(found: &Value) -> String {
    let word = |member: &str| found[member].as_str().unwrap_or("-").to_owned();
    format!(
        "{} ({}, {} times, {:.1} ms, bytes {}, ack {})",
        word("kind"),
        word("severity"),
        found["count"],
        found["lost_ms"].as_f64().unwrap(),
        word("bytes_held_by"),
        word("ack_held_by")
    )
}

/// Returns what is wrong with the doctor's answer about one run, which is a report as JSON.
pub(crate) fn complaints(label: &Label, report: &Value) -> Vec<String> {
    let mut complaints = wrong_names(label, report);
    complaints.extend(wrong_sums(label, report));
    complaints
}

/// Returns what it names wrongly, or does not name.
pub(crate) fn wrong_names(label: &Label, report: &Value) -> Vec<String> {
    let connections = report["connections"].as_array().unwrap();
    let mut complaints = Vec::new();
    if connections.is_empty() {
        complaints.push("no connection was seen".to_owned());
    }
    for connection in connections {
        let about = label.connections.iter().find(|label| is_about(label, connection));
        for found in findings(connection).iter().filter(|f| f["severity"] != "harmless") {
            let kind = found["kind"].as_str().unwrap();
            let allowed = about.is_some_and(|about| {
                about.findings.iter().any(|f| f.kind == kind)
                    || about.may.iter().any(|may| may == kind)
            });
            if !allowed {
                complaints.push(format!("names what is not there: {}", described(found)));
            }
        }
    }
    for wanted in &label.connections {
        let meant = about(wanted, report);
        if meant.is_empty() {
            complaints.push(format!("no connection {} to {}", wanted.client, wanted.server));
        }
        for finding in &wanted.findings {
            if !meant.iter().flat_map(|c| findings(c)).any(|f| matches(finding, f)) {
                let others: Vec<_> =
                    meant.iter().flat_map(|c| findings(c)).map(described).collect();
                complaints.push(format!("does not name {finding:?}, but {others:?}"));
            }
        }
    }
    complaints
}

/// Returns where its milliseconds are not the client's.
pub(crate) fn wrong_sums(label: &Label, report: &Value) -> Vec<String> {
    let sum = |wanted| wrong_sum(wanted, &about(wanted, report));
    label.connections.iter().filter_map(sum).collect()
}

/// Returns the connections that a label is about.
fn about<'a>(label: &label::Connection, report: &'a Value) -> Vec<&'a Value> {
    let connections = report["connections"].as_array().unwrap();
    connections.iter().filter(|connection| is_about(label, connection)).collect()
}

/// Returns a complaint unless the milliseconds are the client's.
fn wrong_sum(label: &label::Connection, connections: &[&Value]) -> Option<String> {
    let measured = label.measured.as_ref()?;
    let lost_ms = measured.lost_ms?;
    let tcp = label
        .findings
        .iter()
        .any(|f| f.severity.as_deref() == Some("lost_time") && f.kind != "application");
    let application = label.findings.iter().any(|f| f.kind == "application");
    let sum = |values: &mut dyn Iterator<Item = &Value>| -> f64 {
        values.map(|value| value["lost_ms"].as_f64().unwrap()).sum()
    };
    let of_tcp = sum(&mut connections.iter().copied());
    let of_programs = sum(&mut connections
        .iter()
        .flat_map(|c| findings(c))
        .filter(|found| found["kind"] == "application"));
    // The time that the cure took away is one of the two.
    let said = match (tcp, application) {
        (true, _) => of_tcp,
        (false, true) => of_programs,
        (false, false) => return None,
    };
    let slack = lost_ms.abs() * SHARE + SLACK_MS + measured.noise_ms();
    let low = if measured.indirect { SLACK_MS } else { lost_ms - slack };
    let fits = said >= low && said <= lost_ms + slack;
    (!fits).then(|| format!("says {said:.1} ms, and the client measured {lost_ms:.1} ms"))
}
