//! The orderly end of a guardian. What programs have on stacks of their own becomes the kernel's while the guardian is still
//! there to make it so: programs are told, and leave.

use std::time::{Duration, Instant};

use uncork_guardian::Reply;

use super::Guard;
use super::passing::UNASKED;
use crate::session::{Role, Session};

/// How long programs may take. Each connection takes the kernel some hundred microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often they are told again: a program that was told in the middle of an answer may be asleep.
pub(super) const ROUND: Duration = Duration::from_millis(50);

/// The refusal for programs that come now.
pub(super) const TOO_LATE: &str = "the guardian of the stack was told to end";

/// An end that is under way: its deadline, and when programs were last told.
#[derive(Debug)]
pub(super) struct Parting {
    until: Instant,
    said: Option<Instant>,
}

impl Parting {
    pub(super) fn now() -> Self {
        Self { until: Instant::now() + PATIENCE, said: None }
    }
}

impl Guard {
    /// Tells whether a guardian that was told to end does: no program is left, or time is up. What instances have ends with them.
    pub(super) fn is_left(&mut self) -> bool {
        let Some(parting) = &mut self.parting else { return false };
        let now = Instant::now();
        let has_stack = |session: &Session| session.role == Role::Program;
        let all = self.peers.iter().filter(|peer| peer.session.as_ref().is_some_and(has_stack));
        let is_over =
            !self.tokens.is_empty() || now >= parting.until || all.clone().next().is_none();
        if !is_over && parting.said.is_none_or(|said| now - said >= ROUND) {
            parting.said = Some(now);
            for peer in all {
                // A program that does not take it does not leave in time.
                let _ = peer.answer(UNASKED, Reply::Leave, None);
            }
        }
        is_over
    }
}
