//! Common parts of the tests in `tests/`: the library under test, the ways to run a program under it, and the rule for
//! tests that this machine cannot run.
//!
//! Every test runs a real program at least twice: plain, and under the library in each mode. What a user could see of
//! it (bytes, exit status, times within reason) must be the same.
#![forbid(unsafe_code)]

pub mod artifact;
pub mod cpython;
pub mod daemon;
pub mod edge;
pub mod hosts;
pub mod http;
pub mod instance;
pub mod late;
pub mod mode;
pub mod run;
pub mod skip;
pub mod turns;

use std::fmt::Debug;

use anyhow::{Context, Result, ensure};

pub use daemon::Daemon;
pub use hosts::Hosts;
pub use instance::Instances;
pub use mode::Mode;
pub use run::{Finished, run};
pub use skip::skip;
pub use turns::{Alone, Beside, alone, beside_others};

/// Runs `facts` plain and in each of `modes`; the results must be equal.
pub fn same_as_plain<T: PartialEq + Debug>(
    modes: &[Mode],
    facts: impl Fn(&Mode) -> Result<T>,
) -> Result<()> {
    let plain = facts(&Mode::plain()).context("without the library")?;
    for mode in modes {
        let with = facts(mode).with_context(|| mode.to_string())?;
        ensure!(with == plain, "{mode}: {with:?}\nwithout the library: {plain:?}");
    }
    Ok(())
}

/// Returns whether the long versions are requested (`make soak`).
pub fn soak() -> bool {
    std::env::var_os("UNCORK_E2E_SOAK").is_some_and(|value| value == "1")
}
