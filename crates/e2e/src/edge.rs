//! The C programs of `c/`, whose printed facts must not depend on the library.

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::Mode;
use crate::artifact::compiled;
use crate::run::{run, tail};

/// Upper bound for the time of any of them, with a wide margin.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `c/NAME.c` plain and in each mode, and compares its lines and its exit status.
pub fn same_facts(name: &str, arguments: &[&str], modes: &[Mode]) -> Result<()> {
    let plain = facts(name, arguments, &Mode::plain())?;
    ensure!(!plain.0.is_empty(), "{name} printed nothing");
    let mut differences = String::new();
    for mode in modes {
        match facts(name, arguments, mode) {
            Ok(with) if with == plain => {}
            Ok(with) => differences += &format!("{mode}:\n{}", difference(&plain, &with)),
            Err(error) => differences += &format!("{mode}: {error:#}\n"),
        }
    }
    ensure!(differences.is_empty(), "c/{name}.c {}\n{differences}", arguments.join(" "));
    Ok(())
}

/// Compares facts about time: they prove nothing while the machine takes its processors away.
pub fn same_facts_in_time(name: &str, arguments: &[&str], modes: &[Mode]) -> Result<()> {
    let what = [&[name], arguments].concat().join(" ");
    uncork_calm::measured(&what, || same_facts(name, arguments, modes))
}

/// Returns what `c/NAME.c` prints in one mode.
pub fn facts(name: &str, arguments: &[&str], mode: &Mode) -> Result<(String, ExitStatus)> {
    let program = compiled(name)?;
    let finished =
        run(mode.command(program)?.args(arguments), LIMIT).with_context(|| mode.to_string())?;
    no_failure(&finished.stdout).with_context(|| mode.to_string())?;
    Ok((finished.stdout, finished.status))
}

/// Fails if any line reports a failure of the program itself.
pub fn no_failure(stdout: &str) -> Result<()> {
    let lines: Vec<&str> = stdout.lines().filter(|line| line.starts_with("FAIL")).collect();
    if !lines.is_empty() {
        bail!("{}\n{}", lines.join("; "), tail(stdout));
    }
    Ok(())
}

/// Returns the lines in which two runs differ.
pub fn difference(plain: &(String, ExitStatus), with: &(String, ExitStatus)) -> String {
    let mut text = String::new();
    let (mut left, mut right) = (plain.0.lines(), with.0.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => break,
            (one, other) if one == other => {}
            (one, other) => {
                text += &format!(
                    "  plain: {}\n  with:  {}\n",
                    one.unwrap_or("(no line)"),
                    other.unwrap_or("(no line)")
                );
            }
        }
    }
    if plain.1 != with.1 {
        text += &format!("  plain: {}\n  with:  {}\n", plain.1, with.1);
    }
    text
}
