//! Counters of irregularities in a connection: most have none, and no room for them.

use uncork_packet::Instant;

use super::{Connection, Phase};
use crate::units::MaybeInstant;

/// The counters of irregularities.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// Segments retransmitted.
    pub(crate) retransmitted: u64,
    /// Octets retransmitted.
    pub(crate) bytes_retransmitted: u64,
    /// Segments that were received out of order.
    pub(crate) out_of_order: u32,
    /// Segments that the peer reported as duplicates.
    pub(crate) duplicates_reported: u32,
    /// Delivered segments that ACKs with ECE reported (tcpi_delivered_ce).
    pub(crate) marked: u32,
    /// Retransmission timeouts.
    pub(crate) timeouts: u16,
    /// Series of timeouts.
    pub(crate) timeout_recoveries: u16,
    /// Milliseconds of completed recoveries from timeouts, and the start of one that is under way.
    timed_out_millis: u32,
    timed_out_since: MaybeInstant,
}

impl Trouble {
    /// Returns the milliseconds between timeouts and recovery, a current one included (tcpi_total_rto_time).
    pub(crate) fn timed_out_millis(&self, now: Instant) -> u32 {
        let goes_on = self.timed_out_since.get().map_or(0, |since| now.since(since).as_millis());
        self.timed_out_millis.saturating_add(u32::try_from(goes_on).unwrap_or(u32::MAX))
    }
}

impl Connection {
    /// Counts a timeout (tcp_update_rto_stats). If it is the first of a series, its time counts from `since` on.
    pub(super) fn count_timeout(&mut self, since: Instant) {
        let first = self.recovery.timeouts == 0;
        let trouble = self.counts.trouble_mut();
        trouble.timeouts = trouble.timeouts.saturating_add(1);
        if first {
            trouble.timeout_recoveries = trouble.timeout_recoveries.saturating_add(1);
            trouble.timed_out_since.set(since);
        }
    }

    /// Notes the end of the recovery from a timeout, if it is over (tcp_update_rto_time).
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
