//! The committed man pages and completions match the present command line.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use uncork_posix::socket::flag;

use crate::common::{output, stderr, uncork};

fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

fn generated(what: &str) -> BTreeMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let output = output(uncork().args(["generate", what, "--out"]).arg(directory.path()));
    assert!(output.status.success(), "{}", stderr(&output));
    files(directory.path())
}

/// Returns the root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

#[test]
fn the_committed_pages_and_completions_are_not_stale() {
    for what in ["man", "completions"] {
        let committed = files(&root().join(what));
        let now = generated(what);
        let names: Vec<_> = committed.keys().collect();
        assert_eq!(names, now.keys().collect::<Vec<_>>(), "files in {what}/");
        for (name, text) in &now {
            assert!(
                committed[name] == *text,
                "{what}/{name} is stale: run `cargo run -p uncork -- generate {what} --out {what}`"
            );
        }
    }
}

#[test]
fn every_reason_to_pass_a_socket_through_is_in_the_manual() {
    let page = generated("man").remove("uncork-run.1").unwrap().replace('\\', "");
    let reasons: Vec<_> = (0..32).filter_map(|bit| flag::reason(1 << bit)).collect();
    assert!(!reasons.is_empty());
    for reason in reasons {
        assert!(page.contains(&format!("\n.B {reason}\n")), "{reason} is not in uncork-run.roff");
    }
}

#[test]
fn the_pages_have_no_mistakes_that_mandoc_knows() {
    if Command::new("mandoc").arg("-V").output().is_err() {
        let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!in_ci, "mandoc is not installed");
        let _ = writeln!(
            std::io::stderr(),
            "skipped: what mandoc says of the pages: it is not installed"
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in generated("man") {
        let page = directory.path().join(&name);
        fs::write(&page, text).unwrap();
        let mut lint = Command::new("mandoc");
        let checked = output(lint.args(["-T", "lint", "-W", "error"]).arg(&page));
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{said}");
    }
}
