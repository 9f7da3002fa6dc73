//! F-RTO: was a timeout right? (RFC 5682 §3.1, the SACK-enhanced version, as tcp_process_loss has it)
//!
//! After a timeout the first segment goes out again. If the ACK for it does not tell, new data is sent
//! rather than the rest of what is thought lost: what the next ACK is for then does. An ACK for something
//! that was sent once only, before the timeout, says that the rest was late and not lost.

use uncork_wire::SeqNumber;

use super::{Phase, Recovery};

/// What an ACK says that came after a timeout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// SND.UNA and SND.NXT now.
    pub(crate) una: SeqNumber,
    pub(crate) next: SeqNumber,
    /// SND.UNA has moved.
    pub(crate) progress: bool,
    /// Something was SACKed, or the ACK says nothing new.
    pub(crate) out_of_order: bool,
    /// Where the first begins of what has arrived and was sent once only.
    pub(crate) original: Option<SeqNumber>,
    /// There is something new that the peer's window has room for.
    pub(crate) has_new: bool,
}

/// What is known of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Doubt {
    /// There was none, or it was right, or nobody can tell.
    #[default]
    None,
    /// The first segment was sent again (step 1).
    Fired,
    /// New data goes out in place of what is thought lost (step 2.b), until the next ACK.
    TriesNew,
    /// It has gone out, and the ACK for it is awaited (step 3).
    Waits,
}

impl Recovery {
    /// Whether the timeout was wrong.
    pub(crate) fn judge_timeout(&mut self, evidence: Evidence) -> bool {
        if self.phase != Phase::Loss || self.doubt == Doubt::None {
            return false;
        }
        // Step 3.b: never sent again, from before the timeout, and it has arrived.
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

    /// Whether what is new goes before what is thought lost; if some of it has gone, alone.
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
        // Two new ones were sent, and one of them was SACKed: the others are lost indeed.
        let sacked = Evidence { progress: false, out_of_order: true, ..evidence(1, 12, Some(10)) };
        assert!(!recovery.judge_timeout(sacked));
        assert!(!recovery.judge_timeout(evidence(3, 12, Some(2))));
    }
}
