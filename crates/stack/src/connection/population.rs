//! Counts of connections that live on without their user: orphans, which are closed but not over, and TIME-WAIT.
//! No descriptor limit bounds them, so the stack does (tcp_max_orphans, tcp_max_tw_buckets).

use std::time::Duration;

use super::timers::Timer;
use super::{Cause, Connection, ConnectionError, Owed, State};
use crate::context::Context;
use crate::memory::LEAST_BYTES;

/// How long an excess connection stays in TIME-WAIT: long enough for its last ACK to leave.
const LAST_ACK: Duration = Duration::from_millis(100);

/// Numbers of orphans and of connections in TIME-WAIT.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Population {
    pub(crate) orphans: u32,
    pub(crate) time_waits: u32,
}

/// How a connection is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Counted {
    #[default]
    No,
    /// Its user has closed it, and its peer has not finished.
    Orphan,
    TimeWait,
}

impl Population {
    fn count(&mut self, counted: Counted) -> Option<&mut u32> {
        match counted {
            Counted::No => None,
            Counted::Orphan => Some(&mut self.orphans),
            Counted::TimeWait => Some(&mut self.time_waits),
        }
    }
}

impl Connection {
    pub(super) fn count_as(&mut self, counted: Counted, cx: &mut Context) {
        let before = std::mem::replace(&mut self.user.counted, counted);
        if let Some(count) = cx.population.count(before) {
            debug_assert!(*count > 0, "it was not counted");
            *count = count.saturating_sub(1);
        }
        if let Some(count) = cx.population.count(counted) {
            *count += 1;
        }
    }

    /// Makes a connection that its user has closed an orphan, if it lives on. If there are too many orphans, or no memory for
    /// what it has to send, it is reset, as in Linux (tcp_close, tcp_check_oom): the newest one, as the others are nearer to
    /// their end.
    pub(super) fn become_orphan(&mut self, cx: &mut Context) {
        if matches!(self.state, State::Closed | State::TimeWait) {
            return;
        }
        if cx.population.orphans >= cx.config.most_orphans || self.holds_too_much(cx) {
            return self.give_way(cx);
        }
        self.count_as(Counted::Orphan, cx);
    }

    /// Returns whether an orphan has to free its memory for others (tcp_out_of_resources).
    pub(super) fn is_to_give_way(&self, cx: &Context) -> bool {
        self.user.counted == Counted::Orphan && self.holds_too_much(cx)
    }

    fn holds_too_much(&self, cx: &Context) -> bool {
        cx.pool.is_full() && self.sender.queued_bytes() > LEAST_BYTES
    }

    pub(super) fn give_way(&mut self, cx: &mut Context) {
        cx.counters.orphans_reset += 1;
        self.owed.add(Owed::RESET);
        self.finish(Cause::Abort, Some(ConnectionError::Aborted), cx);
    }

    /// Enters TIME-WAIT, until no old segment can still be in the network (RFC 9293 §3.4.2).
    pub(crate) fn enter_time_wait(&mut self, cx: &mut Context) {
        self.timers.stop_all();
        self.sender.release(&mut cx.pool);
        let mut time = cx.config.time_wait;
        let again = self.user.counted == Counted::TimeWait;
        if again || cx.population.time_waits < cx.config.most_time_waits {
            self.count_as(Counted::TimeWait, cx);
        } else {
            // Those that were there first have waited for a while, and are over before it would be.
            cx.counters.time_wait_overflows += 1;
            self.count_as(Counted::No, cx);
            time = time.min(LAST_ACK);
        }
        self.timers.set(Timer::Idle, cx.now + time);
    }
}
