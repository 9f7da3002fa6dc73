//! Lines on standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::error::Error;

/// Writes one line in one call, so that those of several processes do not mix, and flushes it, so
/// that a reader at the other end of a pipe has it at once.
pub(crate) fn say(line: impl Display) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    let text = format!("{line}\n");
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes one JSON object as a line.
pub(crate) fn say_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|cause| Error::Output(cause.into()))?;
    say(text)
}

/// Writes one sentence to standard error; if that is closed too, it is ignored.
pub(crate) fn complain(sentence: &impl Display) {
    let _ = io::stderr().write_all(format!("uncork: {sentence}\n").as_bytes());
}

/// Formats milliseconds with as many decimals as make sense: `0.021`, `1.63`, `40.1`.
pub(crate) fn milliseconds(time: Duration) -> String {
    let time = time.as_secs_f64() * 1e3;
    match time {
        small if small < 0.9995 => format!("{small:.3}"),
        middle if middle < 9.995 => format!("{middle:.2}"),
        large => format!("{large:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_digits() {
        for (us, text) in [
            (21, "0.021"),
            (999, "0.999"),
            (1000, "1.00"),
            (1634, "1.63"),
            (40_123, "40.1"),
            (200_000, "200.0"),
        ] {
            assert_eq!(milliseconds(Duration::from_micros(us)), text);
        }
    }
}
