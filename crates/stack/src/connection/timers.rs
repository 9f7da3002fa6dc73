//! The timers of a connection: a fixed table of deadlines, of which the wheel has the earliest.

use uncork_packet::Instant;

use crate::timer::Entry;

/// A timer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Something may be lost: see [`LossTimer`].
    Loss,
    /// The peer has waited long enough for an ACK.
    Ack,
    /// Nothing has come for long: keepalive, FIN-WAIT-2 of a connection without a user, TIME-WAIT.
    Idle,
    /// Bytes were held back by a cork for as long as one may.
    Cork,
    /// The next segment may leave.
    Pace,
}

const COUNT: usize = 5;

/// What [`Timer::Loss`] stands for. They exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LossTimer {
    /// It is not running.
    #[default]
    None,
    /// Retransmission timeout (RFC 6298).
    Retransmit,
    /// Probe for a lost tail (RFC 8985 §7).
    Probe,
    /// What is late may be reordered until then (RFC 8985 §6.3).
    Reorder,
    /// The window is shut: ask whether it still is (RFC 9293 §3.8.6.1).
    Window,
}

/// Deadlines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timers {
    deadlines: [Instant; COUNT],
    /// In the wheel.
    entry: Entry,
    /// A timer was set to before that.
    early: bool,
    /// What the first of them is for.
    pub(crate) loss: LossTimer,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            deadlines: [Instant::NEVER; COUNT],
            entry: Entry::default(),
            early: false,
            loss: LossTimer::None,
        }
    }
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, deadline: Instant) {
        self.deadlines[timer as usize] = deadline;
        self.early |= deadline < self.entry.deadline();
    }

    pub(crate) fn set_loss(&mut self, kind: LossTimer, deadline: Instant) {
        self.loss = kind;
        self.set(Timer::Loss, deadline);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = Instant::NEVER;
        if timer == Timer::Loss {
            self.loss = LossTimer::None;
        }
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Self { entry: self.entry, ..Self::default() };
    }

    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        Some(self.deadlines[timer as usize]).filter(|deadline| *deadline != Instant::NEVER)
    }

    pub(crate) fn is_running(&self, timer: Timer) -> bool {
        self.deadline(timer).is_some()
    }

    /// When the wheel has to come back, if that is before it would.
    #[inline]
    pub(crate) fn take_early(&mut self) -> Option<Instant> {
        if self.early { self.earlier() } else { None }
    }

    /// What was set may have been stopped since.
    fn earlier(&mut self) -> Option<Instant> {
        self.early = false;
        let earliest = self.deadlines.into_iter().min()?;
        (earliest < self.entry.deadline()).then_some(earliest)
    }

    /// The wheel has come up, and has no entry any more: whatever runs is to be entered.
    pub(crate) fn come_up(&mut self) {
        self.early = true;
    }

    /// Where the wheel keeps its entry.
    pub(crate) fn entry(&mut self) -> &mut Entry {
        &mut self.entry
    }

    /// Stops a timer that is due, and says which it was. For [`Timer::Loss`] what it was for is left
    /// to be read.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Timer> {
        let all = [Timer::Loss, Timer::Ack, Timer::Idle, Timer::Cork, Timer::Pace];
        let due = all.into_iter().find(|&timer| self.deadlines[timer as usize] <= now)?;
        self.deadlines[due as usize] = Instant::NEVER;
        Some(due)
    }
}
