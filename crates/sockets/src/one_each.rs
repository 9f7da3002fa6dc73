//! Programs whose threads wait one for each connection (MariaDB, varnish, a blocking Java server). What comes for a socket of the
//! kernel's wakes the thread that waits for it. What comes to the stack wakes one that watches the device, and that one rings for
//! the thread that is meant: two wakes where the kernel has one, and with as many threads that ask all the time as that there is
//! nothing else, two thirds of the answers. An event loop takes in what many have sent by one wake, and what a thread waits for
//! that came while it was busy needs none. So it is counted what was rung for; where that is most of what comes, and often, what
//! such threads wait for becomes the kernel's: listeners at once, and each connection when it is waited for next.

use std::time::Duration;

use uncork_engine::Instant;

use crate::Sockets;
use crate::link::Link;
use crate::outside::Outside;
use crate::sleepers::For;
use crate::table::{Kind, Slot, Socket};
use crate::world::World;

/// Why a port or a connection is the kernel's.
pub(crate) const ONE_EACH: &str = "its threads wait one for each connection: the kernel wakes the right one by itself (--stay keeps them \
     on the stack)";

/// It is reckoned so often.
const WINDOW: Duration = Duration::from_millis(500);
/// So many rings in that are worth it.
const MANY: u32 = 1000;
/// And so many such windows in a row.
const ENOUGH: u8 = 2;

/// Whose connections they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Of those who have come to a listener.
    Accepted,
    /// That the program has opened.
    Opened,
}

impl Side {
    pub(crate) fn of(socket: &Socket) -> Self {
        if socket.is_opened { Self::Opened } else { Self::Accepted }
    }
}

/// How who waits hears of what comes.
#[derive(Debug, Default)]
pub(crate) struct OneEach {
    since: Instant,
    accepted: Heard,
    opened: Heard,
}

/// Of one side.
#[derive(Debug, Default)]
struct Heard {
    /// Sockets to which something has come, since then.
    news: u32,
    /// Threads that another one has woken for a socket, or for a few.
    rung: u32,
    /// Windows in a row in which that was most of it.
    in_a_row: u8,
    /// What such threads wait for is the kernel's.
    is_kernels: bool,
}

impl Heard {
    fn reckon(&mut self) {
        let (news, rung) = (std::mem::take(&mut self.news), std::mem::take(&mut self.rung));
        let is_so = rung >= MANY && rung >= news / 2;
        self.in_a_row = if is_so { self.in_a_row.saturating_add(1) } else { 0 };
    }
}

impl OneEach {
    fn heard(&mut self, side: Side) -> &mut Heard {
        match side {
            Side::Accepted => &mut self.accepted,
            Side::Opened => &mut self.opened,
        }
    }

    /// Something has come to a socket, for which so many threads were woken that do not wait for a set.
    pub(crate) fn count(&mut self, side: Side, rung: u32) {
        let heard = self.heard(side);
        heard.news += 1;
        heard.rung += rung;
    }

    /// Time passes.
    pub(crate) fn reckon(&mut self, now: Instant) {
        if now.since(self.since) >= WINDOW {
            self.since = now;
            self.accepted.reckon();
            self.opened.reckon();
        }
    }

    fn is_due(&mut self, side: Side) -> bool {
        let heard = self.heard(side);
        !heard.is_kernels && heard.in_a_row >= ENOUGH
    }

    /// Why what begins on this side from now on is the kernel's, if it is.
    pub(crate) fn reason(&mut self, side: Side) -> Option<&'static str> {
        self.heard(side).is_kernels.then_some(ONE_EACH)
    }
}

impl<O: Outside> Sockets<O> {
    /// A thread waits for this, and begins to if it did not before.
    pub(crate) fn comes_to_wait(&self, world: &mut World, to: &For, begins: bool) {
        world.come_back(to, begins);
        if !begins {
            return;
        }
        for slot in world.left_to_kernel(to) {
            // One whose handshake is not over is the stack's until it is waited for again.
            if let Ok(handed) = world.hand_over(&self.outside, slot, ONE_EACH) {
                self.outside.settle(&handed);
            }
        }
    }
}

impl World {
    /// Connections that a thread waits for by itself, and that are to be the kernel's.
    fn left_to_kernel(&mut self, to: &For) -> Vec<Slot> {
        for side in [Side::Accepted, Side::Opened] {
            if self.one_each.is_due(side) {
                self.leave_side(side);
            }
        }
        if !self.one_each.accepted.is_kernels && !self.one_each.opened.is_kernels {
            return Vec::new();
        }
        let all = match to {
            For::Set(_) => &[],
            For::Socket(one) => std::slice::from_ref(one),
            For::Sockets(all) => all.as_slice(),
        };
        let is_left = |slot: &Slot| {
            let Self { table, one_each, .. } = self;
            table.get(*slot).is_some_and(|socket| {
                socket.is_connection() && one_each.reason(Side::of(socket)).is_some()
            })
        };
        all.iter().copied().filter(is_left).collect()
    }

    fn leave_side(&mut self, side: Side) {
        if self.host.stays() || self.links().iter().any(Link::is_attached) {
            return;
        }
        self.one_each.heard(side).is_kernels = true;
        if side == Side::Accepted {
            for slot in self.table.slots_where(Socket::is_listener) {
                self.leave_to_kernel(slot);
            }
        }
    }

    /// Who comes to this listener is the kernel's. Where other processes have it, too, these would get all of them: they are
    /// asked.
    fn leave_to_kernel(&mut self, slot: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) else {
            return;
        };
        let local = listener.local;
        if listener.on.is_empty() {
            return;
        }
        if self.host.has_others(local) {
            self.tell_of_turns(slot);
            return;
        }
        self.bequeath(slot);
        self.is_one_each_s(slot);
    }

    /// Nobody comes to this listener on the stack.
    pub(crate) fn is_one_each_s(&mut self, slot: Slot) {
        if let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) {
            listener.reason = Some(ONE_EACH.to_owned());
        }
        for fd in self.table.descriptors_of(slot) {
            (self.tell)(fd, Err(ONE_EACH));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known behind windows of so much news, and so much of it rung for.
    fn in_a_row(windows: &[(u32, u32)]) -> u8 {
        let (mut one_each, mut now) = (OneEach::default(), Instant::ZERO);
        for &(news, rung) in windows {
            // Most of what comes is on the other side.
            (0..2 * news).for_each(|_| one_each.count(Side::Opened, 0));
            (0..news).for_each(|at| one_each.count(Side::Accepted, u32::from(at < rung)));
            one_each.reckon(now + WINDOW / 2);
            now += WINDOW;
            one_each.reckon(now);
        }
        assert_eq!(one_each.opened.in_a_row, 0);
        one_each.accepted.in_a_row
    }

    #[test]
    fn threads_are_known_that_are_rung_for_most_of_what_comes_for_a_while() {
        assert_eq!(in_a_row(&[(2 * MANY, MANY); 2]), ENOUGH);
        assert_eq!(in_a_row(&[(MANY, MANY); 300]), u8::MAX);
    }

    #[test]
    fn a_moment_of_it_or_little_or_among_much_else_is_nothing() {
        let (is_so, few, among) = ((MANY, MANY), (MANY - 1, MANY - 1), (2 * MANY + 2, MANY));
        for other in [few, among, (0, 0)] {
            assert_eq!(in_a_row(&[is_so, other]), 0, "{other:?}");
        }
        assert!(in_a_row(&[is_so, few, is_so, among, is_so]) < ENOUGH);
    }
}
