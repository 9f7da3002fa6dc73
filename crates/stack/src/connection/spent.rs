//! Accounting of what limits a connection that has something to send (tcpi_busy_time,
//! tcpi_rwnd_limited, tcpi_sndbuf_limited; RFC 4898 calls them SndLimTime).

use std::time::Duration;

use uncork_packet::Instant;

use super::{Blocked, Connection};
use crate::units::Micros;

/// What limits sending; a later variant explains more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum On {
    /// Nothing is queued.
    #[default]
    Nothing,
    /// The path.
    Path,
    /// The peer's window.
    Window,
    /// The send buffer: all of it was sent, and the user has more.
    Buffer,
}

/// Time spent in each state since the connection began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    on: On,
    since: Instant,
    /// In the order of [`On`].
    totals: [Micros; 3],
}

impl Spent {
    #[inline(always)]
    fn turn(&mut self, to: On, now: Instant) {
        if self.on == to {
            return;
        }
        self.count(now);
        (self.on, self.since) = (to, now);
    }

    /// Adds the time since the last change to the current state's total.
    fn count(&mut self, now: Instant) {
        if let Some(total) =
            (self.on as usize).checked_sub(1).and_then(|at| self.totals.get_mut(at))
        {
            *total = total.saturating_add(Micros::between(self.since, now));
        }
    }

    fn totals(mut self, now: Instant) -> [Micros; 3] {
        self.count(now);
        self.totals
    }

    /// Returns the total busy time, and of that the time limited by the peer's window, and by the send buffer.
    pub(crate) fn told(&self, now: Instant) -> [Duration; 3] {
        let [path, window, buffer] = self.totals(now);
        let busy = path.saturating_add(window).saturating_add(buffer);
        [busy, window, buffer].map(Micros::as_duration)
    }
}

impl Connection {
    /// Notes what limits the connection from now on.
    #[inline(always)]
    pub(crate) fn note_spending(&mut self, blocked: Blocked, now: Instant) {
        let on = if self.sender.queued_bytes() == 0 {
            On::Nothing
        } else if blocked == Blocked::Window {
            On::Window
        } else if blocked == Blocked::Application && self.user.wants_room {
            On::Buffer
        } else {
            On::Path
        };
        self.spent.turn(on, now);
    }

    /// Notes that the connection is idle if all was acknowledged, as perhaps no frame is asked for any more.
    #[inline(always)]
    pub(crate) fn note_idleness(&mut self, now: Instant) {
        if self.sender.queued_bytes() == 0 {
            self.spent.turn(On::Nothing, now);
        }
    }
}
