//! Tests that this machine or this user cannot run are named, never skipped silently; in CI they
//! are failures.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};

/// Reports that the running test is skipped, and why. With `CI=true` that is an error.
pub fn skip(why: &str) -> Result<()> {
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    ensure!(!in_ci, "this test may not be skipped in CI, but {why}");
    say("skipped", why);
    Ok(())
}

/// Reports something about the running test that a reader of the log should know.
pub fn note(what: &str) {
    say("note", what);
}

fn say(kind: &str, text: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not by the macros, whose output the harness hides for tests that pass.
    let _ = writeln!(std::io::stderr(), "{kind}: {test}: {text}");
}

/// Finds a program in the directories of users and administrators.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin"])
        .map(|directory| PathBuf::from(directory).join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns whether the tests run as root.
pub fn root() -> bool {
    nix::unistd::geteuid().is_root()
}
