//! `uncork doctor` on damaged captures: it always ends, by one of its exit statuses, with a
//! report, a sentence, or both.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;

use crate::common;

/// A part of the corpus: one file of each format.
const CAPTURES: [&str; 6] = [
    "format-loopback.pcap",
    "format-ethernet-0.3ms-pcapng.pcapng",
    "format-ethernet-0.3ms-nanoseconds.pcap",
    "format-ethernet-0.3ms-sll2.pcap",
    "format-bare-ip-5ms.pcap",
    "format-ipv6-2ms.pcap",
];

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/captures").join(name)
}

fn check(file: &[u8]) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged");
    fs::write(&path, file).unwrap();
    // timeout(1) exits with 124 when the command does not end.
    let mut command = std::process::Command::new("timeout");
    command.args(["20", common::UNCORK, "doctor", "--json", "--all", "--pcap"]).arg(&path);
    let output = command.env_remove("NO_COLOR").output().unwrap();
    let code = output.status.code();
    let (said, reported) = (common::stderr(&output), common::stdout(&output));
    prop_assert!(matches!(code, Some(0..=2)), "{code:?}: {said}");
    prop_assert!(!said.contains("panicked"), "{said}");
    // One sentence about the file, and one if nothing in it was TCP.
    let sentences = said.lines().count();
    prop_assert!(
        said.lines().all(|line| line.starts_with("uncork: ")) && sentences <= 2,
        "{said:?}"
    );
    prop_assert!(code != Some(2) || sentences > 0, "it failed and said nothing");
    // What could be read is reported, whatever came after; a file that is no capture is not.
    if code != Some(2) || !reported.is_empty() {
        let report: Result<Value, _> = serde_json::from_str(&reported);
        prop_assert!(report.is_ok(), "{report:?}: {reported}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn a_damaged_capture_ends_in_a_report_or_a_sentence(
        which in 0..CAPTURES.len(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..6),
        // Half of the captures stay whole.
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = fs::read(capture(CAPTURES[which])).unwrap();
        for (at, bit) in &flips {
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        check(&file)?;
    }
}
