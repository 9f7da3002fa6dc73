//! Writing to the standard streams without dying of a closed one.

use core::fmt::Display;
use std::borrow::Cow;
use std::io::{self, Write as _};

use nix::sys::signal::{SigSet, Signal};

use crate::failure::Failure;

/// One sentence on standard error. If that is gone there is nobody to tell.
pub(crate) fn complain(sentence: impl Display) {
    let _ = writeln!(io::stderr(), "uncork: {sentence}");
}

/// Writes `text` to standard output; a reader that went away is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    survive_broken_pipes();
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::own(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Keeps SIGPIPE from ending this process, so that a write fails instead. It is blocked
/// rather than ignored: no process is started after this, or with a mask of its own.
pub(crate) fn survive_broken_pipes() {
    let _ = SigSet::from(Signal::SIGPIPE).thread_block();
}

/// `text` from another process, fit to be shown on a terminal.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_says_cannot_drive_the_terminal() {
        assert_eq!(shown("redis\x1b[2J"), "redis\u{fffd}[2J");
        assert_eq!(shown("nginx: worker"), "nginx: worker");
    }
}
