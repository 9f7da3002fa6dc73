//! Tests that hold a program to a time. What is late on a machine whose processors were away says nothing of the program, and is
//! tried again; whatever else is wrong fails at once.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

/// Something took longer than it may.
#[derive(Debug)]
struct Late(String);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

/// Fails with what `told` says if something took so long, or longer.
pub fn ensure_soon(took: Duration, limit: Duration, told: impl FnOnce() -> String) -> Result<()> {
    if took < limit { Ok(()) } else { Err(too_late(told())) }
}

/// The failure of a test that has found something late.
#[must_use]
pub fn too_late(told: String) -> anyhow::Error {
    Late(told).into()
}

/// Runs a test, again if it has found something late ([`ensure_soon`]) while a processor was away ([`uncork_calm`]).
pub fn in_time<T>(what: &str, mut test: impl FnMut() -> Result<T>) -> Result<T> {
    uncork_calm::measured(what, || match test() {
        Err(error) if error.downcast_ref::<Late>().is_some() => Err(error),
        outcome => Ok(outcome),
    })?
}
