//! The end of the instance that has a process's stack, and another one in its place: listeners are the kernel's
//! alone until then.

use std::time::{Duration, Instant};

use crate::link::INSTANCE_GONE;
use crate::table::{Kind, Socket};
use crate::world::World;

/// When listening on another instance's stack is tried.
#[derive(Debug)]
pub(crate) struct Lost {
    since: Instant,
    next: Instant,
}

impl Lost {
    /// An instance that has died is started again within milliseconds, or after a second if it had just begun.
    const PERIOD: Duration = Duration::from_millis(20);
    /// If it takes longer, the next try comes after the time that has passed divided by this, and no later than `LONGEST`.
    const PART: u32 = 8;
    const LONGEST: Duration = Duration::from_secs(5);

    pub(crate) fn now() -> Self {
        let now = Instant::now();
        Self { since: now, next: now + Self::PERIOD }
    }

    /// Returns how long it is until the next try.
    pub(crate) fn rest(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn tries(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let passed = now.saturating_duration_since(self.since);
        self.next = now + (passed / Self::PART).clamp(Self::PERIOD, Self::LONGEST);
        true
    }
}

impl World {
    /// Listens on the stack of the instance that has replaced one that is gone.
    pub(crate) fn listen_again(&mut self) {
        let Some(lost) = &mut self.lost else { return };
        if !lost.tries(Instant::now()) || self.open().is_err() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_instance_is_looked_for_as_long_as_there_is_none() {
        let mut lost = Lost::now();
        let (begun, mut tries) = (lost.since, Vec::new());
        for ms in 0..600_000 {
            if lost.tries(begun + Duration::from_millis(ms)) {
                tries.push(ms);
            }
        }
        assert_eq!(tries[..4], [20, 40, 60, 80]);
        let gaps: Vec<_> = tries.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(gaps.is_sorted() && *gaps.last().unwrap() == 5000, "{gaps:?}");
        assert!(tries.len() < 300, "{}", tries.len());
    }
}
