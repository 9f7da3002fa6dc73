//! The handshake that begins a connection.

use std::time::Duration;

use uncork_wire::Segment;
use uncork_wire::tcp::Flags;

use super::{CAPTURED_TWICE, Connection};
use crate::tally::{Cause, Stall};

impl Connection {
    /// Takes in what a segment tells of the handshake, if it is part of it.
    pub(super) fn handshake(&mut self, at: Duration, segment: &Segment, from: usize) {
        let to = 1 - from;
        if segment.flags.has(Flags::SYN) {
            self.directions[to].allow(segment);
            match segment.ack {
                None => {
                    self.opener = Some(from);
                    self.syn_again = self.syn_at.is_some();
                    self.syn_at = Some(at);
                }
                Some(_) => {
                    self.opener = Some(to);
                    self.syn_ack_at =
                        if self.syn_ack_at.is_none() { Some(at) } else { Some(Duration::MAX) };
                    // Which of several SYNs it answers is not known, and so neither is how fast.
                    match self.syn_at.and_then(|syn| at.checked_sub(syn)) {
                        Some(after) if !self.syn_again => self.directions[from].reacted(after),
                        Some(_) => self.opened_late(to),
                        None => {}
                    }
                }
            }
        } else if self.opener == Some(from)
            && self.directions[to].una.is_none()
            && let Some(after) = self.syn_ack_at.and_then(|syn_ack| at.checked_sub(syn_ack))
        {
            self.directions[from].reacted(after);
        }
    }

    /// Counts the delay of a connection whose SYN was answered after it had been retransmitted.
    fn opened_late(&mut self, opener: usize) {
        let (since, until) = (self.first_seen, self.syn_at.take().unwrap_or(self.first_seen));
        let lost = until.saturating_sub(since);
        if lost > CAPTURED_TWICE {
            self.record(opener, &Stall { cause: Cause::SynAgain, since, until, lost });
        }
    }
}
