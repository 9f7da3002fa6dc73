//! Sums of the stalls of one cause.

use std::time::Duration;

use crate::report::{Example, Finding, Kind, Severity};
use crate::{Histogram, Spread};

/// How many pictures are kept.
const EXAMPLES: usize = 3;

/// All stalls of one cause at one end.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) lost: Duration,
    pub(super) each: Histogram,
    examples: Vec<Example>,
}

impl Sum {
    /// Counts a stall that took so long, all of it lost.
    pub(super) fn record(&mut self, took: Duration, example: impl FnOnce() -> Example) {
        self.count += 1;
        self.lost += took;
        self.each.record(took);
        let least = self.examples.last().map_or(Duration::ZERO, length);
        if self.examples.len() < EXAMPLES || took > least {
            self.examples.truncate(EXAMPLES - 1);
            self.examples.push(example());
            self.examples.sort_by_key(|example| std::cmp::Reverse(length(example)));
        }
    }

    /// Returns the sum of both.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.count += other.count;
        self.lost += other.lost;
        self.each.merge(&other.each);
        self.examples.extend(other.examples.iter().cloned());
        self.examples.sort_by_key(|example| std::cmp::Reverse(length(example)));
        self.examples.truncate(EXAMPLES);
        self
    }

    pub(super) fn copy(&self) -> Self {
        Self::default().with(self)
    }

    pub(super) fn spread(&self) -> Spread {
        self.each.spread()
    }

    /// Returns the finding that these stalls are. Its ends and remedies are filled in later.
    pub(super) fn finding(self, kind: Kind, severity: Severity, evidence: String) -> Finding {
        Finding {
            kind,
            severity,
            count: self.count,
            lost: self.lost,
            each: self.spread(),
            histogram: self.each.buckets(),
            bytes_held_by: None,
            ack_held_by: None,
            evidence,
            remedies: Vec::new(),
            examples: self.examples,
        }
    }
}

fn length(example: &Example) -> Duration {
    example.end.saturating_sub(example.begin)
}
