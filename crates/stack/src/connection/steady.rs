//! A connection is *steady* while all of its seldom changing state is that of an ordinary conversation, so that its
//! segments, and its user's calls, can take fast paths (`arrival/predicted.rs`, `send/plain.rs`, and the two
//! here). That is determined once and remembered: any access to the connection outside those paths ends
//! it (`Slab::get_mut`), as Linux does with its `pred_flags`, and the next check determines it again.

use super::{Connection, RecvError, State};
use crate::context::Context;
use crate::units::MaybeInstant;

impl Connection {
    /// Returns whether the connection is steady.
    #[inline(always)]
    pub(crate) fn is_steady(&mut self, cx: &Context) -> bool {
        debug_assert!(
            !self.steady || self.reckon_steady(cx),
            "somebody has disturbed it unnoticed"
        );
        if !self.steady {
            self.steady = self.reckon_steady(cx);
        }
        self.steady
    }

    /// Returns whether it was found to be steady and not disturbed since.
    #[inline]
    pub(crate) fn was_steady(&self) -> bool {
        self.steady
    }

    /// Checks everything that the fast paths neither check themselves nor change.
    #[inline(never)]
    fn reckon_steady(&self, cx: &Context) -> bool {
        let Self { sender, receiver, peer, user, options, recovery, .. } = self;
        let open = self.state == State::Established && self.listener.is_none();
        let user_waits = user.held || user.wants_room || user.error().is_some();
        let is_doubtful = self.path.soft_error.is_some() || self.path.is_cut;
        let says_more = sender.more || sender.fin_queued || sender.has_ends();
        let bounded = options.send_buffer_bytes.is_some() || options.not_sent_low_water.is_some();
        let tries_again = recovery.timeouts > 0 || self.rtt.backoff > 0;
        cx.config.short_ways
            && open
            && user.attached
            && !user_waits
            && !is_doubtful
            && !says_more
            && !bounded
            && !options.cork
            && self.owed.is_empty()
            && recovery.is_quiet()
            && recovery.stuck_since == MaybeInstant::default()
            && !tries_again
            && receiver.is_plain()
            && sender.flight.lost_segments() == 0
            && peer.stamps
            && peer.sacks
            && !peer.echoes_congestion
            && !peer.owes_cwr
            && !self.tuple.is_ipv6()
    }

    /// Queues the user's data, if all of it has room and it needs no special treatment; returns whether that was so
    /// ([`Connection::send`]).
    #[inline(always)]
    pub(crate) fn say(&mut self, cx: &mut Context, bytes: &[u8]) -> bool {
        // The send buffer never has less room than that.
        let room =
            cx.config.send_buffer_bytes.0.saturating_sub(self.sender.queued_bytes()) as usize;
        if bytes.is_empty() || bytes.len() > room || cx.pool.is_full() || !self.is_steady(cx) {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "there is room for them")]
        if self.sender.is_long(bytes.len() as u32) {
            return false;
        }
        self.note_limit();
        self.sender.push(bytes, false, &mut cx.pool);
        true
    }

    /// Copies all received data to the user, if it lies in one piece, and returns its length; or that there is none
    /// ([`Connection::recv`]), so that a user that polls does not disturb the connection.
    #[inline(always)]
    pub(crate) fn hear(
        &mut self,
        cx: &mut Context,
        into: &mut [u8],
    ) -> Option<Result<usize, RecvError>> {
        if !self.is_steady(cx) {
            return None;
        }
        let Some(bytes) = self.receiver.readable_piece() else {
            let waits = self.receiver.readable_bytes() == 0 && !self.user.closed_reading;
            return waits.then_some(Err(RecvError::WouldBlock));
        };
        into.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let count = bytes.len();
        self.receiver.consume_all(&mut cx.pool);
        self.after_read(cx);
        Some(Ok(count))
    }
}
