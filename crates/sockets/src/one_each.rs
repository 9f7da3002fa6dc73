//! Programs whose threads wait one for each connection (MariaDB, varnish, a blocking Java server). What comes for a socket of
//! the kernel's wakes the thread that waits for it. What comes to the stack wakes a thread that watches the device, which rings
//! for the thread that is meant: two wake-ups where the kernel has one, and two thirds of the answers where so many threads ask
//! all the time that nothing else is done. An event loop takes in what many have sent by one wake-up, and what came for a thread
//! while that was busy needs none. So what was rung for is counted; where that is most of what comes, and often, what such
//! threads wait for becomes the kernel's: listeners with all that come there, and each connection when it is next waited for.

use std::time::Duration;

use nix::errno::Errno;
use uncork_engine::Instant;
use uncork_stack::State;

use crate::Sockets;
use crate::link::Link;
use crate::outside::Outside;
use crate::sleepers::For;
use crate::table::{Kind, Slot, Socket};
use crate::waiting::Wait;
use crate::world::World;

/// Why a port or a connection is the kernel's.
pub(crate) const ONE_EACH: &str = "its threads wait one for each connection: the kernel wakes the right one by itself (--stay keeps them \
     on the stack)";

/// How often the counts are evaluated.
const WINDOW: Duration = Duration::from_millis(500);
/// How many rings in that time make it worth it.
const MANY: u32 = 1000;
/// How many such windows in a row it takes.
const ENOUGH: u8 = 2;

/// How connections have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// They have come to a listener.
    Accepted,
    /// The program has opened them.
    Opened,
}

impl Side {
    pub(crate) fn of(socket: &Socket) -> Self {
        if socket.is_opened { Self::Opened } else { Self::Accepted }
    }
}

/// How threads that wait hear of what comes.
#[derive(Debug, Default)]
pub(crate) struct OneEach {
    since: Instant,
    accepted: Heard,
    opened: Heard,
    /// Whether the kernel has failed to take one: it is asked no more.
    has_failed: bool,
}

/// What is counted of one side.
#[derive(Debug, Default)]
struct Heard {
    /// Connections to which something has come in this window.
    news: u32,
    /// Those of them for which another thread was woken, which waits for one, or for a few.
    rung: u32,
    /// Windows in a row in which those were most of them.
    in_a_row: u8,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Verdict {
    #[default]
    Open,
    Stays,
    Kernels,
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

    /// Counts something that has come to a connection, for which another thread was woken if `is_rung`.
    pub(crate) fn count(&mut self, side: Side, is_rung: bool) {
        let heard = self.heard(side);
        heard.news = heard.news.saturating_add(1);
        heard.rung = heard.rung.saturating_add(is_rung.into());
    }

    /// Evaluates the counts when a window is over. Devices that are opened anew have a time of their own.
    pub(crate) fn reckon(&mut self, now: Instant) {
        let took = now.since(self.since);
        if took < WINDOW && now >= self.since {
            return;
        }
        self.since = now;
        for heard in [&mut self.accepted, &mut self.opened] {
            heard.reckon();
            if took > WINDOW * 2 {
                // It was nearly silent.
                heard.in_a_row = 0;
            }
        }
    }

    fn is_due(&mut self, side: Side) -> bool {
        let heard = self.heard(side);
        heard.verdict == Verdict::Open && heard.in_a_row >= ENOUGH
    }

    /// Returns why what begins on this side from now on is the kernel's, if it is.
    pub(crate) fn reason(&mut self, side: Side) -> Option<&'static str> {
        (self.heard(side).verdict == Verdict::Kernels).then_some(ONE_EACH)
    }
}

impl<O: Outside> Sockets<O> {
    /// Notes that a thread waits, and `begins` to if it did not before.
    pub(crate) fn comes_to_wait(&self, world: &mut World, wait: &Wait<'_>, begins: bool) {
        world.come_back(&wait.waits_for, begins);
        // With several parts, each has slots of its own.
        if !begins || !wait.may_leave || !wait.parts.is_one() {
            return;
        }
        for slot in world.left_to_kernel(&wait.waits_for) {
            match world.hand_over(&self.outside, slot, ONE_EACH) {
                Ok(handed) => self.outside.settle(&handed),
                // It is lost, and so would others be.
                Err(Errno::ECONNABORTED) => world.one_each.has_failed = true,
                // It cannot be given away now, or it was already: the caller names it twice.
                Err(_) => {}
            }
        }
    }
}

impl World {
    /// Returns connections that a thread waits for by itself, alone, and that are to be the kernel's.
    fn left_to_kernel(&mut self, to: &For) -> Vec<Slot> {
        for side in [Side::Accepted, Side::Opened] {
            if self.one_each.is_due(side) {
                self.judge(side);
            }
        }
        let is_kernels = |heard: &Heard| heard.verdict == Verdict::Kernels;
        let OneEach { accepted, opened, has_failed, .. } = &self.one_each;
        if *has_failed || !is_kernels(accepted) && !is_kernels(opened) || !to.are_few() {
            return Vec::new();
        }
        to.sockets().iter().copied().filter(|slot| self.is_left_to_kernel(*slot)).collect()
    }

    fn is_left_to_kernel(&mut self, slot: Slot) -> bool {
        let Some(socket) = self.table.get(slot) else { return false };
        let (side, place) = (Side::of(socket), socket.place());
        let Some(place) = place.filter(|_| self.one_each.reason(side).is_some()) else {
            return false;
        };
        let is_open = self
            .link(place)
            .is_ok_and(|(link, _)| link.state(place.id) == Some(State::Established));
        // Something that another thread does there may be half done.
        is_open && !self.sleepers.is_any(self.table.part(), |waits_for| waits_for.is_of(slot))
    }

    fn judge(&mut self, side: Side) {
        let stays = self.host.stays() || self.links().iter().any(Link::is_attached);
        self.one_each.heard(side).verdict = if stays { Verdict::Stays } else { Verdict::Kernels };
        if !stays && side == Side::Accepted {
            for slot in self.table.slots_where(Socket::is_listener) {
                self.leave_to_kernel(slot);
            }
        }
    }

    /// Leaves what comes to this listener, or to that of other processes that have it, too, to the kernel: they would get all.
    pub(crate) fn leave_to_kernel(&mut self, slot: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) else {
            return;
        };
        if !listener.on.is_empty() {
            let local = listener.local;
            self.host.renounces(local);
            self.hear_of_kernels();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is known after windows of so much news, and so much of it rung for.
    fn in_a_row(windows: &[(u32, u32)]) -> u8 {
        let (mut one_each, mut now) = (OneEach::default(), Instant::ZERO);
        for &(news, rung) in windows {
            // Most of what comes is on the other side.
            (0..2 * news).for_each(|_| one_each.count(Side::Opened, false));
            (0..news).for_each(|at| one_each.count(Side::Accepted, at < rung));
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

    #[test]
    fn two_bursts_with_silence_between_are_not_in_a_row_and_a_new_clock_is_no_silence_for_ever() {
        let burst = |one_each: &mut OneEach, end: Instant| {
            (0..MANY).for_each(|_| one_each.count(Side::Opened, true));
            one_each.reckon(end);
            one_each.opened.in_a_row
        };
        let mut one_each = OneEach::default();
        let hour = Instant::ZERO + Duration::from_secs(3600);
        assert_eq!(burst(&mut one_each, Instant::ZERO + WINDOW), 1);
        assert_eq!(burst(&mut one_each, hour), 0);
        // Devices were put away, and opened anew.
        one_each.reckon(Instant::ZERO);
        assert_eq!(burst(&mut one_each, Instant::ZERO + WINDOW), 1);
        assert!(!one_each.is_due(Side::Opened));
        assert_eq!(burst(&mut one_each, Instant::ZERO + WINDOW * 2), 2);
        assert!(one_each.is_due(Side::Opened) && !one_each.is_due(Side::Accepted));
        one_each.opened.verdict = Verdict::Stays;
        assert!(!one_each.is_due(Side::Opened) && one_each.reason(Side::Opened).is_none());
    }
}
