//! What is counted of a connection with which something was amiss: most have none of it, and no room for it.

use uncork_packet::Instant;

use super::{Connection, Phase};
use crate::units::MaybeInstant;

/// The counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// Segments sent again, and octets.
    pub(crate) retransmitted: u64,
    /// See above.
    pub(crate) bytes_retransmitted: u64,
    /// Segments that came ahead of their turn.
    pub(crate) out_of_order: u32,
    /// Segments of which the peer says that they came twice.
    pub(crate) duplicates_reported: u32,
    /// Segments that arrived by ACKs which tell of marks (tcpi_delivered_ce).
    pub(crate) marked: u32,
    /// Timeouts, and how often there was a first one.
    pub(crate) timeouts: u16,
    /// See above.
    pub(crate) timeout_recoveries: u16,
    /// Milliseconds that what followed them has taken, and since when it goes on.
    timed_out_millis: u32,
    timed_out_since: MaybeInstant,
}

impl Trouble {
    /// Milliseconds between timeouts and recovery, if that is over or not (tcpi_total_rto_time).
    pub(crate) fn timed_out_millis(&self, now: Instant) -> u32 {
        let goes_on = self.timed_out_since.get().map_or(0, |since| now.since(since).as_millis());
        self.timed_out_millis.saturating_add(u32::try_from(goes_on).unwrap_or(u32::MAX))
    }
}

impl Connection {
    /// A timeout (tcp_update_rto_stats). The time of what follows counts from `since` on, if it is the first.
    pub(super) fn count_timeout(&mut self, since: Instant) {
        let first = self.recovery.timeouts == 0;
        let trouble = self.counts.trouble_mut();
        trouble.timeouts = trouble.timeouts.saturating_add(1);
        if first {
            trouble.timeout_recoveries = trouble.timeout_recoveries.saturating_add(1);
            trouble.timed_out_since.set(since);
        }
    }

    /// What followed a timeout is over, if it is (tcp_update_rto_time).
    #[inline]
    pub(super) fn note_recovery(&mut self, now: Instant) {
        if self.recovery.phase != Phase::Loss
            && let Some(trouble) = &mut self.counts.trouble
        {
            trouble.timed_out_millis = trouble.timed_out_millis(now);
            trouble.timed_out_since.clear();
        }
    }
}
