//! Lines on standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use crate::error::Error;

/// Writes one line and flushes it, so that a reader at the other end of a pipe has it at once.
pub(crate) fn say(line: impl Display) -> Result<(), Error> {
    // One write for line and newline: stdout's own line buffer ensures that.
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes one JSON object as a line.
pub(crate) fn say_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|cause| Error::Output(cause.into()))?;
    say(text)
}

/// Writes one sentence to standard error; if that is closed too, it is ignored.
pub(crate) fn complain(program: &str, sentence: &impl Display) {
    let _ = writeln!(io::stderr(), "{program}: {sentence}");
}
