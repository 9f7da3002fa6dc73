//! F-RTO: detection of spurious timeouts (RFC 5682 §3.1, the SACK-enhanced version, as in tcp_process_loss).
//!
//! After a timeout the first segment is retransmitted. If the ACK for it is not conclusive, new data is sent
//! instead of the rest of what is considered lost, and the next ACK decides. An ACK for something
//! that was sent only once, before the timeout, shows that the rest was late and not lost.

use uncork_wire::SeqNumber;

use super::{Phase, Recovery};

/// What an ACK after a timeout shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// SND.UNA and SND.NXT now.
    pub(crate) una: SeqNumber,
    pub(crate) next: SeqNumber,
    /// SND.UNA has advanced.
    pub(crate) progress: bool,
    /// Something was SACKed, or the ACK is a duplicate.
    pub(crate) out_of_order: bool,
    /// Start of the first delivered segment that was sent only once.
    pub(crate) original: Option<SeqNumber>,
    /// There is new data that the peer's window has room for.
    pub(crate) has_new: bool,
}

/// State of the detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Doubt {
    /// There was no timeout, or it was genuine, or that cannot be determined.
    #[default]
    None,
    /// The first segment was retransmitted (step 1).
    Fired,
    /// New data is sent instead of what is considered lost (step 2.b), until the next ACK.
    TriesNew,
    /// New data was sent, and its ACK is awaited (step 3).
    Waits,
}

impl Recovery {
    /// Processes an ACK; returns whether the timeout was spurious.
    pub(crate) fn judge_timeout(&mut self, evidence: Evidence) -> bool {
        if self.phase != Phase::Loss || self.doubt == Doubt::None {
            return false;
        }
        // Step 3.b: something from before the timeout that was never retransmitted has been delivered.
        if evidence.original.is_some_and(|seq| seq.before(self.point)) {
            self.doubt = Doubt::None;
            return true;
        }
        if evidence.next.after(self.point) {
            self.doubt = if evidence.out_of_order { Doubt::None } else { Doubt::Waits };
        } else if evidence.progress && evidence.una.before(self.point) {
            self.point = evidence.next;
            self.doubt = if evidence.has_new { Doubt::TriesNew } else { Doubt::None };
        }
        false
    }

    /// Returns whether new data goes before what is considered lost; true if alone, as some was sent already.
    pub(crate) fn tries_new(&self, next: SeqNumber) -> Option<bool> {
        (self.doubt == Doubt::TriesNew).then(|| next.after(self.point))
    }
}

#[cfg(test)]
mod tests {
    use uncork_wire::SeqNumber;

    use super::{Doubt, Evidence};
    use crate::connection::recovery::{Phase, Recovery};

    fn evidence(una: u32, next: u32, original: Option<u32>) -> Evidence {
        Evidence {
            una: SeqNumber(una),
            next: SeqNumber(next),
            progress: true,
            out_of_order: false,
            original: original.map(SeqNumber),
            has_new: true,
        }
    }

    fn after_timeout() -> Recovery {
        Recovery {
            phase: Phase::Loss,
            point: SeqNumber(10),
            doubt: Doubt::Fired,
            ..Recovery::default()
        }
    }

    #[test]
    fn an_original_from_before_the_timeout_clears_it_and_a_new_one_does_not() {
        let mut recovery = after_timeout();
        assert!(recovery.judge_timeout(evidence(3, 10, Some(2))));
        let mut recovery = after_timeout();
        assert!(!recovery.judge_timeout(evidence(1, 10, None)));
        assert_eq!(recovery.tries_new(SeqNumber(10)), Some(false));
        assert_eq!(recovery.tries_new(SeqNumber(12)), Some(true));
        // Two new segments were sent, and one of them was SACKed: the others are lost indeed.
        let sacked = Evidence { progress: false, out_of_order: true, ..evidence(1, 12, Some(10)) };
        assert!(!recovery.judge_timeout(sacked));
        assert!(!recovery.judge_timeout(evidence(3, 12, Some(2))));
    }
}
