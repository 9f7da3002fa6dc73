//! Preconditions of tests that create namespaces.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::missing_capabilities;

/// Whether a test has to be skipped, because this process may not create namespaces. It reports that,
/// bypassing the harness, which shows a test's output only if it fails; where everything is to be tested
/// (`CI=true`), it fails.
///
/// # Panics
/// With `CI=true`, instead of skipping a test.
#[must_use]
pub fn is_skipped(test: &str) -> bool {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return false;
    }
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!in_ci, "{test} needs root");
    let missing = missing.join(", ");
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {test}: it needs root to make network namespaces (it lacks {missing})"
    );
    true
}

/// Locks out the other tests of this program that call it. Tests of one program are threads of one process: a
/// process that one of them starts has copies of all descriptors of the others until it executes its program, so that a
/// name, a port or a queue that was closed here stays in use for a moment. Not twice in one test.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
