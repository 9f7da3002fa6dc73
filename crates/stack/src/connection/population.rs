//! Connections that are there without a user's doing anything more with them: closed ones that are not over, and TIME-WAIT.
//! Nobody's limit of descriptors bounds them, so the stack does (tcp_max_orphans, tcp_max_tw_buckets).

use std::time::Duration;

use super::timers::Timer;
use super::{Cause, Connection, ConnectionError, Owed, State};
use crate::context::Context;
use crate::memory::LEAST_BYTES;

/// How long one too many stays in TIME-WAIT: its last ACK leaves, and that is all.
const LAST_ACK: Duration = Duration::from_millis(100);

/// How many there are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Population {
    pub(crate) orphans: u32,
    pub(crate) time_waits: u32,
}

/// As what a connection is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Counted {
    #[default]
    No,
    /// Its user has closed it, and its peer is not done.
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

    /// Its user has closed it. If it lives on, it does so by itself; where there are too many such ones, or no memory for what
    /// it has to send, it is reset as Linux does it (tcp_close, tcp_check_oom): the newest, as the others are nearer to
    /// their ends.
    pub(super) fn become_orphan(&mut self, cx: &mut Context) {
        if matches!(self.state, State::Closed | State::TimeWait) {
            return;
        }
        if cx.population.orphans >= cx.config.most_orphans || self.holds_too_much(cx) {
            return self.give_way(cx);
        }
        self.count_as(Counted::Orphan, cx);
    }

    /// Whether it makes room for others: nobody waits for it, and it has what somebody needs (tcp_out_of_resources).
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

    /// All is done; wait until nothing old can still be on its way (RFC 9293 §3.4.2).
    pub(crate) fn enter_time_wait(&mut self, cx: &mut Context) {
        self.timers.stop_all();
        self.sender.release(&mut cx.pool);
        let mut time = cx.config.time_wait;
        let again = self.user.counted == Counted::TimeWait;
        if again || cx.population.time_waits < cx.config.most_time_waits {
            self.count_as(Counted::TimeWait, cx);
        } else {
            // Those before it have waited for a while, and are over before it would be.
            cx.counters.time_wait_overflows += 1;
            self.count_as(Counted::No, cx);
            time = time.min(LAST_ACK);
        }
        self.timers.set(Timer::Idle, cx.now + time);
    }
}
