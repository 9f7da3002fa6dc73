//! The timers of a connection: a fixed table of deadlines, the earliest of which is in the wheel.

use uncork_packet::Instant;

use crate::timer::Entry;

/// A timer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Something may be lost: see [`LossTimer`].
    Loss,
    /// Delayed ACK.
    Ack,
    /// Long silence: keepalive, FIN-WAIT-2 of an orphan, TIME-WAIT.
    Idle,
    /// A cork has held data for its longest time.
    Cork,
    /// Pacing: the next segment may leave.
    Pace,
}

const COUNT: usize = 5;

/// What [`Timer::Loss`] is used for. The uses exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LossTimer {
    /// It is not running.
    #[default]
    None,
    /// Retransmission timeout (RFC 6298).
    Retransmit,
    /// Tail loss probe (RFC 8985 §7).
    Probe,
    /// RACK reordering timer: until then, late segments may be reordered rather than lost (RFC 8985 §6.3).
    Reorder,
    /// Persist timer: probe a closed window (RFC 9293 §3.8.6.1).
    Window,
}

/// The deadlines of a connection's timers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timers {
    deadlines: [Instant; COUNT],
    /// The connection's entry in the wheel.
    entry: Entry,
    /// A timer was set to before the entry's deadline.
    early: bool,
    /// What [`Timer::Loss`] is running for.
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

    /// Returns when the wheel has to come back, if that is before it would.
    #[inline]
    pub(crate) fn take_early(&mut self) -> Option<Instant> {
        if self.early { self.earlier() } else { None }
    }

    /// Returns the earliest deadline if it is before the entry's: the timer that was set may have been stopped since.
    fn earlier(&mut self) -> Option<Instant> {
        self.early = false;
        let earliest = self.deadlines.into_iter().min()?;
        (earliest < self.entry.deadline()).then_some(earliest)
    }

    /// Notes that the wheel has come up and has no entry any more: the earliest timer has to be entered again.
    pub(crate) fn come_up(&mut self) {
        self.early = true;
    }

    /// Returns the entry for the wheel.
    pub(crate) fn entry(&mut self) -> &mut Entry {
        &mut self.entry
    }

    /// Stops a timer that is due, and returns which. For [`Timer::Loss`] its use can still
    /// be read.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Timer> {
        let all = [Timer::Loss, Timer::Ack, Timer::Idle, Timer::Cork, Timer::Pace];
        let due = all.into_iter().find(|&timer| self.deadlines[timer as usize] <= now)?;
        self.deadlines[due as usize] = Instant::NEVER;
        Some(due)
    }
}
