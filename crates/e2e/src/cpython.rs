//! CPython's own tests, and the outcome of each.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::{artifact, run};

/// Debian's interpreter, whose tests are in a package of their own.
pub const PYTHON: &str = "/usr/bin/python3";
const LIMIT: Duration = Duration::from_secs(60);

/// Test names, each with `ok`, `failure`, `error` or `skipped`.
pub type Outcomes = BTreeMap<String, String>;

/// Returns whether the tests are installed.
pub fn is_installed() -> bool {
    Path::new(PYTHON).exists()
        && Command::new(PYTHON)
            .args(["-c", "import test.support, test.test_socket"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// Reads what `python3 -m test --junit-xml REPORT` has written.
pub fn outcomes(report: &Path) -> Result<Outcomes> {
    let mut reader = Command::new(PYTHON);
    reader.arg(artifact::source("py/outcomes.py")).arg(report);
    let lines = run(&mut reader, LIMIT)?.successful()?.stdout;
    let outcomes = lines.lines().filter_map(|line| line.split_once('\t'));
    Ok(outcomes.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())).collect())
}
