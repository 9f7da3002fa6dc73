//! Tests with a time limit. A late result on a machine whose processors were away says nothing about the program, and the test
//! is repeated; any other failure counts at once.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

/// An operation took longer than allowed.
#[derive(Debug)]
struct Late(String);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

/// Fails with what `told` returns if the operation took at least the limit.
pub fn ensure_soon(took: Duration, limit: Duration, told: impl FnOnce() -> String) -> Result<()> {
    if took < limit { Ok(()) } else { Err(too_late(told())) }
}

/// Returns the failure of a test that has found something late.
#[must_use]
pub fn too_late(told: String) -> anyhow::Error {
    Late(told).into()
}

/// Runs a test, and repeats it if it has found something late ([`ensure_soon`]) while a processor was away ([`uncork_calm`]).
pub fn in_time<T>(what: &str, mut test: impl FnMut() -> Result<T>) -> Result<T> {
    uncork_calm::measured(what, || match test() {
        Err(error) if error.downcast_ref::<Late>().is_some() => Err(error),
        outcome => Ok(outcome),
    })?
}
