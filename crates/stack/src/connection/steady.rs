//! A connection is *steady* while everything about it that seldom changes is as a conversation has it, so that its
//! segments, and what its user does, can take short ways (`arrival/predicted.rs`, `send/plain.rs`, and the two
//! here). That is found out once and remembered: whoever looks at a connection otherwise than on those ways ends
//! it (`Slab::get_mut`), as Linux does with its `pred_flags`, and who asks next finds out again.

use super::{Connection, RecvError, State};
use crate::context::Context;
use crate::units::MaybeInstant;

impl Connection {
    /// Whether it is steady.
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

    /// Whether it was found to be steady, and nobody has disturbed it since.
    #[inline]
    pub(crate) fn was_steady(&self) -> bool {
        self.steady
    }

    /// All that the short ways neither look at themselves nor change.
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

    /// Takes what the user gives, if all of it has room and says nothing but itself; whether that was so
    /// ([`Connection::send`]).
    #[inline(always)]
    pub(crate) fn say(&mut self, cx: &mut Context, bytes: &[u8]) -> bool {
        // There is never less room than that.
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

    /// Gives the user all that has come, if it lies in one piece, and says how much that was; or that it is nothing
    /// ([`Connection::recv`]), which who tries again and again must not pay for by disturbing the connection.
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
