//! Remarks on polling itself.

use std::time::Duration;

use uncork_doctor::Sampling;

use super::super::pace::Pace;
use super::Watched;
use super::seen::LEAST_HOLD;
use crate::doctor::words;

/// Says what this way of watching shows and what it does not.
pub(super) fn limits(sampling: &Sampling, all: &Sampling) -> [String; 2] {
    let apart = match sampling.looks {
        0 | 1 => String::new(),
        _ => format!(
            " ({} apart typically, {} at most)",
            words::time(sampling.typical),
            words::time(sampling.longest)
        ),
    };
    [
        format!(
            "The sockets were not traced but looked at, {}{apart}: counts and times are at least \
             what is told here.",
            words::counted(sampling.looks, "time", "times"),
        ),
        format!(
            "Not seen that way: bytes that wait for less than {}, ACKs that nobody waits for, \
             requests and how long programs take for them, and connections that come and go \
             between two looks for new ones ({} typically).",
            words::time(LEAST_HOLD.max(sampling.typical)),
            words::time(all.typical.max(Pace::rest(Duration::ZERO))),
        ),
    ]
}

/// Reports connections that were too short-lived: the kernel counted them, or they were gone before
/// their owner was found.
pub(super) fn missed(
    sampling: &Sampling,
    opened: Option<u64>,
    watched: &Watched,
) -> Option<String> {
    let missed = opened.unwrap_or(0).saturating_sub(watched.new) + watched.brief;
    (missed > 0).then(|| {
        let lived = match sampling.looks {
            0 | 1 => String::new(),
            _ => format!(" (they lived for less than {} or so)", words::time(sampling.longest)),
        };
        format!(
            "{} of these or of other processes of this network namespace came and went too fast \
             to be looked at{lived}. Tracing sees them.",
            words::counted(missed, "end of a connection", "ends of connections"),
        )
    })
}
