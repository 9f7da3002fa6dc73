//! Bound on the connections of a listener that are open before their handshake is complete (RFC 7413 §5.1).

use std::collections::VecDeque;

use uncork_packet::Instant;

use super::Listener;
use crate::fast_open::{FastOpen, FastOpenListen};

/// The limit, and what counts towards it.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) listen: FastOpenListen,
    /// Connections whose handshake is not complete.
    pub(crate) pending: u32,
    /// Connections that were reset before their handshake was complete: until when each of them counts.
    reset: VecDeque<Instant>,
}

impl Pending {
    /// Returns whether one more connection may be open before its handshake is over (tcp_fastopen_queue_check).
    pub(crate) fn has_room(&mut self, listen: FastOpenListen, now: Instant) -> bool {
        let counted = |pending: &Self| {
            u32::try_from(pending.reset.len()).unwrap_or(u32::MAX).saturating_add(pending.pending)
        };
        while counted(self) >= listen.pending && self.reset.front().is_some_and(|&end| end <= now) {
            self.reset.pop_front();
        }
        counted(self) < listen.pending
    }

    /// Notes the end of a handshake; if a reset ended it, it counts until the given time.
    pub(crate) fn handshake_over(&mut self, counts_until: Option<Instant>) {
        self.pending = self.pending.saturating_sub(1);
        // Never more than the limit of pending connections: each was one.
        self.reset.extend(counts_until);
    }
}

impl Listener {
    /// Returns its Fast Open settings: those of its user, or the default for all listeners.
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
