//! An end's receive window: the room that it has for the other end's data, and how near that is to
//! being shut.

use std::time::Duration;

use uncork_wire::SeqNumber;

/// The state of an end's receive window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    /// The number after the last octet that the other end may send.
    edge: Option<SeqNumber>,
    /// The window as last advertised, and the largest so far, in octets.
    bytes: u32,
    most_bytes: u32,
    /// Details of a window that has been shut, or nearly so, which few ever are.
    narrow: Option<Box<Narrow>>,
}

/// When a window was shut, and when it opened.
#[derive(Debug, Clone, Default)]
struct Narrow {
    /// Since when it has been shut.
    shut_since: Option<Duration>,
    /// From when to when it was last shut.
    was_shut: Option<(Duration, Duration)>,
    /// When there was last room again for a segment, after there had been none; and the number
    /// after the last octet that there had been room for.
    opened: Option<(Duration, SeqNumber)>,
    /// The longest time that it has held up the message under way.
    longest: Duration,
    /// When the program was last seen to have read, by an ACK of its own, and whether it had read all.
    read_at: Duration,
    read_all: bool,
}

/// What a segment tells of its sender's window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) at: Duration,
    pub(crate) ack: SeqNumber,
    pub(crate) window_bytes: u32,
    /// Whether it has no data: then its sender's TCP sent it for what it tells.
    pub(crate) pure: bool,
}

impl Room {
    /// Notes whether the window is shut. A window of zero is zero at any scale.
    pub(crate) fn tell_shut(&mut self, at: Duration, shut: bool) {
        match (shut, self.shut_since()) {
            (true, None) => self.narrow.get_or_insert_default().shut_since = Some(at),
            (false, Some(since)) => {
                let narrow = self.narrow.get_or_insert_default();
                narrow.shut_since = None;
                narrow.was_shut = Some((since, at));
            }
            _ => {}
        }
    }

    /// Notes a window whose scale is known, given up to where the other end has sent and how long
    /// its full segments are.
    pub(crate) fn tell(&mut self, told: Told, nxt: SeqNumber, full_bytes: u32) {
        let edge = told.ack + told.window_bytes;
        let (bytes_before, most_before) = (self.bytes, self.most_bytes);
        self.bytes = told.window_bytes;
        self.most_bytes = most_before.max(told.window_bytes);
        let Some(edge_before) = self.edge.replace(edge) else { return };
        if !edge.after(edge_before) {
            self.edge = Some(edge_before);
            return;
        }
        if let Some(narrow) = self.narrow.as_mut().filter(|_| told.pure) {
            (narrow.read_at, narrow.read_all) = (told.at, told.window_bytes >= most_before);
        }
        // The window of a reader that keeps up stays as it is, whatever else is slow.
        let behind = bytes_before.min(told.window_bytes) <= most_before / 2;
        let segment_bytes = i64::from(segment_bytes(full_bytes, most_before));
        if behind && i64::from(edge_before - nxt) < segment_bytes {
            self.narrow.get_or_insert_default().opened = Some((told.at, edge_before));
        }
    }

    /// Returns since when the window has been shut.
    pub(crate) fn shut_since(&self) -> Option<Duration> {
        self.narrow.as_ref()?.shut_since
    }

    /// Returns from when to when it was last shut.
    pub(crate) fn was_shut(&self) -> Option<(Duration, Duration)> {
        self.narrow.as_ref()?.was_shut
    }

    /// Returns when there was last room again for this segment, for which there had been none.
    pub(crate) fn opened_for(
        &self,
        seq: SeqNumber,
        bytes: u32,
        full_bytes: u32,
    ) -> Option<Duration> {
        let (at, edge_before) = self.narrow.as_ref()?.opened?;
        let least_bytes = bytes.min(segment_bytes(full_bytes, self.most_bytes));
        (seq + least_bytes).after(edge_before).then_some(at)
    }

    /// Returns whether it was at that moment that there was room again.
    pub(crate) fn opened_at(&self, at: Duration) -> bool {
        let opened = self.narrow.as_ref().and_then(|narrow| narrow.opened);
        opened.is_some_and(|(opened, _)| opened == at)
    }

    /// Notes that the window has held up the message under way for that long.
    pub(crate) fn held_up(&mut self, lost: Duration) {
        let narrow = self.narrow.get_or_insert_default();
        narrow.longest = narrow.longest.max(lost);
    }

    /// Returns the longest time that it has held up the message under way.
    pub(crate) fn longest(&self) -> Duration {
        self.narrow.as_ref().map_or(Duration::ZERO, |narrow| narrow.longest)
    }

    /// Ends the message under way.
    pub(crate) fn forget_message(&mut self) {
        if let Some(narrow) = &mut self.narrow {
            narrow.longest = Duration::ZERO;
        }
    }

    /// Returns when the program had read what had come by `sent`, as far as an ACK has told. If
    /// that was not all, the rest is taken to need no longer than its pace so far.
    pub(crate) fn read_by(&self, sent: Duration) -> Duration {
        let Some(narrow) = &self.narrow else { return sent };
        if narrow.read_at <= sent {
            sent + narrow.longest
        } else if narrow.read_all {
            narrow.read_at
        } else {
            narrow.read_at + narrow.longest
        }
    }
}

/// Returns the longest segment that a window like this lets a sender send: half of the largest
/// (Linux, tcp_bound_to_half_wnd).
fn segment_bytes(full_bytes: u32, most_bytes: u32) -> u32 {
    full_bytes.min(most_bytes / 2)
}
