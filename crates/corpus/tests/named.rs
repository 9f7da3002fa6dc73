//! Every cause is named, and none that is absent: the doctor on every capture of the corpus,
//! compared with the labels. `cargo test -p uncork-corpus --test named -- --nocapture` prints it as
//! a table; `UNCORK_CORPUS=DIR` looks at other captures.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};

use uncork_capture::Capture;
use uncork_corpus::label::{self, Labels};
use uncork_doctor::{Doctor, Settings};
use uncork_wire::read_frame;

/// Captures on which the doctor is known to be wrong, and how. They are checked all the same; once
/// the fault is gone, the line has to go, too.
const KNOWN: [(&str, &str); 0] = [];

fn corpus() -> PathBuf {
    std::env::var_os("UNCORK_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("captures"), PathBuf::from)
}

fn examine(path: &Path) -> serde_json::Value {
    let mut capture = Capture::open(File::open(path).unwrap()).unwrap();
    let mut doctor = Doctor::new(Settings { every_connection: true, ..Settings::default() });
    while let Some(frame) = capture.next_frame().unwrap() {
        match read_frame(frame.link, frame.bytes, frame.wire_bytes) {
            Ok(segment) => doctor.segment(frame.time, &segment),
            Err(why) => doctor.unread(why),
        }
    }
    serde_json::to_value(doctor.finish()).unwrap()
}

#[test]
fn every_cause_is_named_and_none_that_is_not_there() {
    let corpus = corpus();
    let labels = Labels::read(&corpus).unwrap();
    assert!(!labels.captures.is_empty(), "no labels in {}", corpus.display());
    let mut wrong = 0;
    for label in &labels.captures {
        let report = examine(&corpus.join(&label.file));
        let complaints = common::complaints(label, &report);
        let known = KNOWN.iter().find(|(name, _)| *name == label.name);
        let (verdict, is_wrong) = match (known, complaints.is_empty()) {
            (None, true) => ("ok".to_owned(), false),
            (None, false) => ("WRONG".to_owned(), true),
            (Some((_, fault)), false) => (format!("known: {fault}"), false),
            (Some(_), true) => ("mended: take it out of KNOWN".to_owned(), true),
        };
        println!("{:45} {verdict}", label.name);
        for complaint in &complaints {
            println!("    {complaint}");
        }
        wrong += usize::from(is_wrong);
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
