//! Boundaries in the queued data after which more follows: ends of records, and of the pieces of a long write.

use std::collections::VecDeque;

use uncork_wire::SeqNumber;

/// Most PSH positions that are remembered: with a peer whose window is tiny they must not cost more
/// than the data itself. Positions that are not remembered get no PSH.
const MOST_PUSHES: usize = 1024;

/// Sequence numbers after the last octet of each, in order, until everything before them is acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    records: VecDeque<SeqNumber>,
    pushes: VecDeque<SeqNumber>,
}

impl Ends {
    pub(crate) fn add_record(&mut self, end: SeqNumber) {
        if self.records.back() != Some(&end) {
            self.records.push_back(end);
        }
    }

    pub(crate) fn add_push(&mut self, end: SeqNumber) {
        if self.pushes.len() < MOST_PUSHES {
            self.pushes.push_back(end);
        }
    }

    /// Returns the end of the record that contains `seq`, if it was set.
    pub(crate) fn record_after(&self, seq: SeqNumber) -> Option<SeqNumber> {
        self.records.iter().copied().find(|end| end.after(seq))
    }

    /// Returns whether a segment of these octets has PSH.
    pub(crate) fn pushes(&self, seq: SeqNumber, end: SeqNumber) -> bool {
        let next = self.pushes.partition_point(|push| !push.after(seq));
        self.pushes.get(next).is_some_and(|push| !push.after(end)) || self.records.contains(&end)
    }

    /// Removes everything before `una`, which was acknowledged; returns whether nothing is left.
    pub(crate) fn forget(&mut self, una: SeqNumber) -> bool {
        for ends in [&mut self.records, &mut self.pushes] {
            while ends.front().is_some_and(|end| !end.after(una)) {
                ends.pop_front();
            }
        }
        self.records.is_empty() && self.pushes.is_empty()
    }
}

/// How a write would be sent while it is being queued, in octets. Linux sends meanwhile; this stack does so when the
/// driver polls, so it computes what would have left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    /// Capacity of a buffer (size_goal).
    pub(crate) buffer: u32,
    /// Length of the first frame that may leave, and of all that may leave.
    pub(crate) frame: u32,
    pub(crate) room: u32,
}

/// Finds the PSH positions before the end of a write that begins at `end`, after `unsent` octets that were not
/// sent; returns the latest of them, where `pushed` is the one before.
///
/// Linux's `tcp_sendmsg_locked` looks when a buffer is full. If more than `half` of the largest window was
/// written since the last PSH (`forced_push`), it sets PSH in this buffer and sends what may leave. If
/// not, and nothing precedes this buffer, it sends a frame of it. What has left of a buffer makes
/// room in it, so that its end, where PSH is, moves on.
pub(crate) fn mark_pushes(
    mut end: SeqNumber,
    unsent: u32,
    mut left: u32,
    course: Course,
    half: u32,
    mut pushed: SeqNumber,
    mut mark: impl FnMut(SeqNumber),
) -> SeqNumber {
    let Course { buffer, frame, mut room } = course;
    // How much of the earlier data is in the last buffer, and how much is before that.
    let mut held = unsent % buffer;
    let mut before = unsent - held;
    let mut says = false;
    loop {
        let fill = (buffer - held).min(left);
        end += fill;
        held += fill;
        left -= fill;
        if left == 0 {
            return pushed;
        }
        let leaves = if end.after(pushed + half) {
            says = true;
            pushed = end;
            room
        } else if before == 0 {
            frame.min(room).min(held)
        } else {
            0
        };
        let leaves = leaves.min(before + held);
        room -= leaves;
        let of_before = leaves.min(before);
        before -= of_before;
        held -= leaves - of_before;
        if held == buffer || held == 0 {
            if says {
                mark(end);
            }
            says = false;
            before += held;
            held = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(unsent: u32, left: u32, course: Course) -> Vec<u32> {
        let mut marks = Vec::new();
        let (end, half) = (SeqNumber(u32::MAX), 16_448);
        let pushed = mark_pushes(end, unsent, left, course, half, end, |seq| {
            marks.push((seq - end).unsigned_abs());
        });
        assert!((pushed - end).unsigned_abs() <= left);
        marks
    }

    /// The positions are those of Linux 6.18 (cubic-rto-ss-ca-cwnd-bump.pkt of packetdrill).
    #[test]
    fn what_leaves_of_a_buffer_moves_its_end() {
        let course = Course { buffer: 16_000, frame: 1000, room: 2000 };
        assert_eq!(marks(0, 50_000, course), [18_000, 34_000]);
    }

    #[test]
    fn nothing_moves_behind_what_waits() {
        let course = Course { buffer: 16_000, frame: 0, room: 0 };
        assert_eq!(marks(0, 50_000, course), [32_000]);
        assert_eq!(marks(20_000, 50_000, course), [28_000]);
        assert_eq!(marks(0, 16_000, course), [0; 0]);
    }

    #[test]
    fn a_buffer_that_has_left_is_followed_by_a_new_one() {
        let course = Course { buffer: 16_000, frame: 16_000, room: 40_000 };
        assert_eq!(marks(0, 60_000, course), [32_000, 56_000]);
    }

    #[test]
    fn marks_are_forgotten_with_what_is_acknowledged_and_a_tiny_window_makes_no_more_than_some() {
        let mut ends = Ends::default();
        for end in 1..=2000 {
            ends.add_push(SeqNumber(end * 8));
        }
        assert!(
            ends.pushes(SeqNumber(8), SeqNumber(16)) && !ends.pushes(SeqNumber(8), SeqNumber(15))
        );
        assert!(!ends.forget(SeqNumber(8 * 1023)));
        assert!(!ends.pushes(SeqNumber(8), SeqNumber(16)));
        assert!(ends.forget(SeqNumber(8 * 1024)));
    }
}
