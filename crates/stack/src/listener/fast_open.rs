//! How many connections of a listener may be open before their handshake is over (RFC 7413 §5.1).

use std::collections::VecDeque;

use uncork_packet::Instant;

use super::Listener;
use crate::fast_open::{FastOpen, FastOpenListen};

/// The limit, and what counts against it.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) listen: FastOpenListen,
    /// Connections whose handshake is not over.
    pub(crate) pending: u32,
    /// Until when those count that were reset before it was.
    reset: VecDeque<Instant>,
}

impl Pending {
    /// Whether one more may be open at once (tcp_fastopen_queue_check).
    pub(crate) fn has_room(&mut self, listen: FastOpenListen, now: Instant) -> bool {
        let counted = |pending: &Self| {
            u32::try_from(pending.reset.len()).unwrap_or(u32::MAX).saturating_add(pending.pending)
        };
        while counted(self) >= listen.pending && self.reset.front().is_some_and(|&end| end <= now) {
            self.reset.pop_front();
        }
        counted(self) < listen.pending
    }

    /// A handshake is over; it counts until then if a reset has ended it.
    pub(crate) fn handshake_over(&mut self, counts_until: Option<Instant>) {
        self.pending = self.pending.saturating_sub(1);
        // As many as pending ever may be at most: each was pending.
        self.reset.extend(counts_until);
    }
}

impl Listener {
    /// What it does with Fast Open: what its user has said, or what holds for all.
    pub(crate) fn fast_open_listen(&self, switches: FastOpen) -> FastOpenListen {
        let mut listen = self.fast_open.listen;
        if listen.pending == 0 && switches.has(FastOpen::EVERY_LISTENER) {
            listen.pending = self.backlog;
        }
        listen
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;

    use super::{FastOpenListen, Pending};

    #[test]
    fn resets_count_for_a_minute() {
        // RFC 7413 §5.1.
        let listen = FastOpenListen { pending: 2, cookie_not_required: false };
        let mut pending = Pending { listen, ..Pending::default() };
        let at = Instant::from_millis;
        for second in [60, 61] {
            assert!(pending.has_room(listen, at(0)));
            pending.pending += 1;
            pending.handshake_over(Some(at(second * 1000)));
        }
        assert!(!pending.has_room(listen, at(59_999)));
        assert!(pending.has_room(listen, at(60_000)));
        pending.pending += 1;
        assert!(!pending.has_room(listen, at(60_500)));
        pending.handshake_over(None);
        assert!(pending.has_room(listen, at(60_500)));
    }
}
