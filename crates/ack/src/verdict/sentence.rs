//! The verdict in words.

use core::fmt;
use std::time::Duration;

use super::{ENOUGH, Kind, MOST_CREDITS, Verdict};
use crate::kernel::{Corrections, Side};
use crate::output::milliseconds;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quick = time(self.quick_median_us);
        let late = time(self.late_median_us);
        let (acks, first) = (self.acks, self.quick_at_first);
        match self.kind {
            Kind::TooFew if acks == 0 => write!(f, "no ACK was timed: nothing to tell"),
            Kind::TooFew => write!(
                f,
                "{acks} ACKs, {} of them late: too few to tell, it takes {ENOUGH} to see quick-ACK \
                 credits run out",
                self.late
            ),
            Kind::QuickThroughout if self.credits_renewed => write!(
                f,
                "all {acks} ACKs in {quick} ms: quick throughout, but pauses of 200 ms or more bring \
                 new quick-ACK credits each time"
            ),
            Kind::QuickThroughout => {
                write!(f, "all {acks} ACKs in {quick} ms: quick throughout, beyond any credits")
            }
            Kind::LateThroughout => {
                write!(f, "{} of {acks} ACKs after {late} ms: delayed from the first", self.late)
            }
            Kind::QuickThenLate if self.credits_spent => write!(
                f,
                "{} in {quick} ms, from {} on {late} ms: quick-ACK credits spent",
                range(first),
                first + 1
            ),
            Kind::QuickThenLate => write!(
                f,
                "{} in {quick} ms, from {} on {late} ms: delayed, but not for credits, of which a \
                 new connection has {MOST_CREDITS} and few more; the reader became slow, or it went \
                 over to answering",
                range(first),
                first + 1
            ),
            Kind::LateNowAndThen => {
                write!(f, "{} of {acks} ACKs after {late} ms, the others in {quick} ms", self.late)
            }
            Kind::SeveralPerAck => write!(
                f,
                "{} segments in {acks} ACKs, in {quick} ms: one ACK for several segments",
                self.segments
            ),
        }
    }
}

fn range(last: usize) -> String {
    if last == 1 { "ACK 1".to_owned() } else { format!("ACKs 1 to {last}") }
}

fn time(microseconds: Option<u64>) -> String {
    microseconds.map_or_else(|| "-".to_owned(), |us| milliseconds(Duration::from_micros(us)))
}

impl Verdict {
    /// Returns what the list says about the receiver's kernel, if anything, and what this kernel
    /// should have by its version.
    #[must_use]
    pub fn remarks(&self, local: Corrections) -> Vec<String> {
        let spoken = self.receiver_segments;
        let counting = match self.credit_counting {
            Side::After => Some(format!(
                "the receiver sent {spoken} segments of its own and lost no credit for them: it \
                 counts as Linux does since commit 059217c18be6"
            )),
            Side::Before => Some(format!(
                "the receiver sent {spoken} segments of its own, and lost a credit for each: it \
                 counts as Linux did before commit 059217c18be6"
            )),
            Side::Unknown => None,
        };
        let boundary = match self.mss_boundary {
            Side::After => Some(
                "segments of a constant size are acknowledged as they are read: the receiver seems \
                 to have commit 4720852ed9af, or its route or program asks for quick ACKs",
            ),
            Side::Before | Side::Unknown if self.credits_spent && self.mss_sized => Some(
                "the receiver reads late, or its kernel is older than commit 4720852ed9af, with \
                 which reading a segment of constant size acknowledges it",
            ),
            Side::Before | Side::Unknown if self.credits_spent => {
                Some("the receiver reads late: reading what has come would have acknowledged it")
            }
            Side::Before | Side::Unknown => None,
        };
        let here = format!(
            "this machine's kernel, by its version: 059217c18be6 {}, 4720852ed9af {}",
            has(local.credit_counting),
            has(local.mss_boundary)
        );
        counting.into_iter().chain(boundary.map(str::to_owned)).chain([here]).collect()
    }
}

fn has(side: Side) -> &'static str {
    match side {
        Side::Before => "no",
        Side::After => "yes",
        Side::Unknown => "cannot be told (a distribution's)",
    }
}
