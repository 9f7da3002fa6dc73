//! What tests that make namespaces begin with.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::missing_capabilities;

/// Whether a test has to be left out, because this process may make no namespaces. It says so, past
/// the harness, which shows what a test prints only if it fails; where everything is to be tested
/// (`CI=true`), it fails.
///
/// # Panics
/// With `CI=true`, instead of leaving a test out.
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

/// No other test of this program that asks for it goes on meanwhile. Tests of one program are threads of one process: a
/// process that one of them starts has copies of all that the others have open until it becomes another program, so that a
/// name, a port or a queue that was closed here is taken for a moment yet. Not twice in one test.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
