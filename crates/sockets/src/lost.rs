//! The instance that has a process's stack may die, and another one come in its place: listeners are the kernel's
//! alone until then.

use std::time::{Duration, Instant};

use crate::link::INSTANCE_GONE;
use crate::table::{Kind, Socket};
use crate::world::World;

/// Until when it is tried to listen on another instance's stack, and when next.
#[derive(Debug)]
pub(crate) struct Lost {
    until: Instant,
    next: Instant,
}

impl Lost {
    /// One that has died is started again within milliseconds, or after a second if it had just begun.
    pub(crate) const PERIOD: Duration = Duration::from_millis(20);
    const PATIENCE: Duration = Duration::from_secs(5);

    pub(crate) fn now() -> Self {
        let now = Instant::now();
        Self { until: now + Self::PATIENCE, next: now + Self::PERIOD }
    }
}

impl World {
    /// Listens on the stack of the instance that has come in the place of one that is gone.
    pub(crate) fn listen_again(&mut self) {
        let Some(lost) = &mut self.lost else { return };
        let now = Instant::now();
        if now < lost.next {
            return;
        }
        lost.next = now + Lost::PERIOD;
        if now >= lost.until {
            self.lost = None;
            return;
        }
        if self.open().is_err() {
            return;
        }
        self.lost = None;
        let was_lost = |socket: &Socket| {
            matches!(&socket.kind, Kind::Listener(listener)
                if listener.reason.as_deref() == Some(INSTANCE_GONE))
        };
        for slot in self.table.slots_where(was_lost) {
            if let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) {
                listener.reason = None;
            }
            self.ensure_listening(slot);
        }
    }
}
