//! Every cause is named, and none that is not there: the doctor on every capture of the corpus,
//! held against the labels. `cargo test -p uncork-corpus --test named -- --nocapture` prints it as
//! a table; `UNCORK_CORPUS=DIR` looks at other captures.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs::File;
use std::path::{Path, PathBuf};

use uncork_capture::Capture;
use uncork_corpus::label::{self, Label, Labels};
use uncork_doctor::{Connection, Doctor, Finding, Kind, Report, Role, Settings, Severity};
use uncork_wire::read_frame;

/// How far the doctor's milliseconds may be from the client's.
const SHARE: f64 = 0.10;

/// What a sum of a few requests may be off by whatever its length: the client's own time to wake
/// up, and its timer's.
const SLACK_MS: f64 = 2.0;

fn corpus() -> PathBuf {
    std::env::var_os("UNCORK_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("captures"), PathBuf::from)
}

fn examine(path: &Path) -> Report {
    let mut capture = Capture::open(File::open(path).unwrap()).unwrap();
    let mut doctor = Doctor::new(Settings { every_connection: true, ..Settings::default() });
    while let Some(frame) = capture.next_frame().unwrap() {
        match read_frame(frame.link, frame.bytes, frame.wire_bytes) {
            Ok(segment) => doctor.segment(frame.time, &segment),
            Err(why) => doctor.unread(why),
        }
    }
    doctor.finish()
}

/// As the JSON says it.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

fn milliseconds(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Whether a label speaks of this connection.
fn is_about(label: &label::Connection, connection: &Connection) -> bool {
    let client = connection.client.endpoint;
    (label.client == client.to_string() || label.client == client.address.to_string())
        && label.server == connection.server.endpoint.to_string()
}

fn held_by(wanted: Option<&String>, found: Option<Role>) -> bool {
    wanted.is_none_or(|wanted| found.is_some_and(|found| word(found) == *wanted))
}

fn matches(wanted: &label::Finding, found: &Finding) -> bool {
    word(found.kind) == wanted.kind
        && wanted.severity.as_ref().is_none_or(|severity| word(found.severity) == *severity)
        && held_by(wanted.bytes_held_by.as_ref(), found.bytes_held_by)
        && held_by(wanted.ack_held_by.as_ref(), found.ack_held_by)
}

fn described(found: &Finding) -> String {
    let by = |role: Option<Role>| role.map_or_else(|| "-".to_owned(), word);
    format!(
        "{} ({}, {} times, {:.1} ms, bytes {}, ack {})",
        word(found.kind),
        word(found.severity),
        found.count,
        milliseconds(found.lost),
        by(found.bytes_held_by),
        by(found.ack_held_by)
    )
}

/// What is wrong with the doctor's answer about one capture.
fn complaints(label: &Label, report: &Report) -> Vec<String> {
    let mut complaints = Vec::new();
    if report.connections.is_empty() {
        complaints.push("no connection was seen".to_owned());
    }
    for connection in &report.connections {
        let about = label.connections.iter().find(|label| is_about(label, connection));
        for found in connection.findings.iter().filter(|f| f.severity > Severity::Harmless) {
            let kind = word(found.kind);
            let allowed = about.is_some_and(|about| {
                about.findings.iter().any(|f| f.kind == kind) || about.may.contains(&kind)
            });
            if !allowed {
                complaints.push(format!("names what is not there: {}", described(found)));
            }
        }
    }
    for wanted in &label.connections {
        let mut meant = report.connections.iter().filter(|c| is_about(wanted, c)).peekable();
        if meant.peek().is_none() {
            complaints.push(format!("no connection {} to {}", wanted.client, wanted.server));
        }
        let meant: Vec<_> = meant.collect();
        for finding in &wanted.findings {
            let found = meant.iter().flat_map(|c| &c.findings).any(|f| matches(finding, f));
            if !found {
                let others: Vec<_> =
                    meant.iter().flat_map(|c| &c.findings).map(described).collect();
                complaints.push(format!("does not name {finding:?}, but {others:?}"));
            }
        }
        complaints.extend(wrong_sum(wanted, &meant));
    }
    complaints
}

/// Whether the milliseconds are the client's.
fn wrong_sum(label: &label::Connection, connections: &[&Connection]) -> Option<String> {
    let measured = label.measured.as_ref()?;
    let lost_ms = measured.lost_ms?;
    let tcp = label
        .findings
        .iter()
        .any(|f| f.severity.as_deref() == Some("lost_time") && f.kind != "application");
    let application = label.findings.iter().any(|f| f.kind == "application");
    let of_tcp: f64 = connections.iter().map(|c| milliseconds(c.lost)).sum();
    let of_programs: f64 = connections
        .iter()
        .flat_map(|c| &c.findings)
        .filter(|f| f.kind == Kind::Application)
        .map(|f| milliseconds(f.lost))
        .sum();
    // What the cure took away is one of the two.
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

#[test]
fn every_cause_is_named_and_none_that_is_not_there() {
    let corpus = corpus();
    let labels = Labels::read(&corpus).unwrap();
    assert!(!labels.captures.is_empty(), "no labels in {}", corpus.display());
    let mut wrong = 0;
    for label in &labels.captures {
        let report = examine(&corpus.join(&label.file));
        let complaints = complaints(label, &report);
        let verdict = if complaints.is_empty() { "ok" } else { "WRONG" };
        println!("{:45} {verdict}", label.name);
        for complaint in &complaints {
            println!("    {complaint}");
        }
        wrong += usize::from(!complaints.is_empty());
    }
    assert_eq!(wrong, 0, "of {} captures, these are wrong (above)", labels.captures.len());
}

#[test]
fn the_corpus_is_as_large_as_promised_and_as_small() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let labels = Labels::read(&corpus).unwrap();
    assert!(labels.captures.len() >= 40, "{} captures", labels.captures.len());
    let kinds = [
        "nagle_delayed_ack",
        "delayed_ack",
        "quickack_exhausted",
        "cork_timeout",
        "tiny_packets",
        "runt",
        "sender_queue",
        "zero_window",
        "retransmission",
        "application",
    ];
    let mut all_findings =
        labels.captures.iter().flat_map(|c| &c.connections).flat_map(|c| &c.findings);
    for kind in kinds {
        assert!(all_findings.clone().any(|f| f.kind == kind), "no capture shows {kind}");
    }
    assert!(all_findings.all(|f| kinds.contains(&f.kind.as_str())), "a kind that does not exist");
    let mut bytes = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        let entry = entry.unwrap();
        bytes += entry.metadata().unwrap().len();
        let name = entry.file_name().into_string().unwrap();
        let known = name == label::FILE || labels.captures.iter().any(|c| c.file == name);
        assert!(known, "{name} has no label");
    }
    assert!(bytes <= 3_000_000, "{bytes} octets");
}
