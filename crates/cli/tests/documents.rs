//! The examples in the documents that read a capture are run as they stand there, by a shell.
//! (That the parser takes all the others is tested in `src/documents.rs`.)

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "common/examples.rs"]
#[allow(dead_code, reason = "the other test uses the rest")]
mod examples;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;

/// The name of the capture in the examples.
const CAPTURE: &str = "trace.pcap";

#[test]
fn the_examples_that_read_a_capture_work_as_they_stand_there() {
    let directory = tempfile::tempdir().unwrap();
    let capture = examples::repository().join("crates/corpus/captures/format-loopback.pcap");
    fs::copy(capture, directory.path().join(CAPTURE)).unwrap();
    let packed = Command::new("gzip").args(["--keep", CAPTURE]).current_dir(&directory).status();
    assert!(packed.unwrap().success());

    let has_jq = Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut lines = BTreeSet::new();
    for shown in examples::all().into_iter().filter(|shown| shown.whole) {
        let commands = examples::commands(&shown.line);
        let first =
            commands.first().is_some_and(|words| ["uncork", "zcat"].contains(&words[0].as_str()));
        if first && shown.line.contains("uncork doctor --pcap") {
            // What comes after jq is not ours to test.
            let end = shown.line.find("| jq").filter(|_| !has_jq).unwrap_or(shown.line.len());
            lines.insert(shown.line[..end].to_owned());
        }
    }
    assert!(lines.len() >= 4, "only {lines:?}");

    let own = Path::new(common::UNCORK).parent().unwrap().display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap());
    for line in lines {
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(&directory).env("PATH", &path);
        let output = shell.output().unwrap();
        let said = common::stderr(&output);
        // The capture has a stall, so the status is 1, unless another program ends the pipe.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {said}");
        assert!(said.is_empty(), "{line}: {said}");
        let quiet = line.contains("--quiet");
        assert_eq!(output.stdout.is_empty(), quiet, "{line}");
    }
}
