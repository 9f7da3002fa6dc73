//! Workers that serve one connection after the other, each of a few exchanges, as php-fpm's, apache2's prefork and gunicorn's
//! sync: between accept(2) and close(2) they do not look at their listener, which they have from before fork(2). The kernel's
//! one queue gives a new connection to a worker that is free. Queues by a hash do not, and dozens of stacks beside one another
//! cost more for each frame than they save. So the port becomes the kernel's as soon as a process is known to work so. Where a
//! connection is kept for many requests the stack is worth it all the same.

use crate::link::Link;
use crate::neglect::Shared;
use crate::sleepers::For;
use crate::table::{Kind, Slot, Socket};
use crate::world::World;

/// A connection of so many exchanges is worth it.
const MANY_WAITS: u32 = 5;
/// After so many short ones in a row such a process is known.
const ENOUGH: u32 = 16;

/// How a process serves the connections of a listener that others have, too.
#[derive(Debug)]
pub(crate) struct Served {
    last: Option<Last>,
    /// Short connections in a row, each over before the next was accepted.
    in_turn: u32,
    /// After so many the privileged half is told, and the next time after twice as many: no other process may have been there.
    tells_at: u32,
}

/// The connection that was accepted last.
#[derive(Debug)]
struct Last {
    slot: Slot,
    /// Whether its descriptor is a blocking one.
    blocks: bool,
    /// How often something other than the listener was waited for.
    waits: u32,
    /// Whether a thread has waited at the listener meanwhile.
    overlaps: bool,
}

impl Default for Served {
    fn default() -> Self {
        Self { last: None, in_turn: 0, tells_at: ENOUGH }
    }
}

impl Served {
    /// Counts the last connection when another one is accepted. `is_over`: the last one is closed.
    fn count(&mut self, is_over: bool) {
        match &self.last {
            None => {}
            Some(last) if !is_over || last.overlaps || last.waits >= MANY_WAITS => self.in_turn = 0,
            // An event loop would have looked at the listener in between, unless it had found all that it wanted at once.
            Some(last) if !last.blocks && last.waits == 0 => {}
            Some(_) => self.in_turn += 1,
        }
    }

    /// Returns whether the privileged half is to be told now.
    fn is_to_be_told(&mut self) -> bool {
        let is_due = self.in_turn >= self.tells_at;
        if is_due {
            self.tells_at = self.tells_at.saturating_mul(2);
        }
        is_due
    }
}

impl World {
    /// Notes that this connection was accepted from a listener, by a call that may wait if it `blocks`.
    pub(crate) fn has_accepted(&mut self, listener: Slot, accepted: Slot, blocks: bool) {
        let Self { shared, table, .. } = self;
        let Some(Shared { served, .. }) = shared.iter_mut().find(|one| one.is_of(listener)) else {
            return;
        };
        let is_over = served.last.as_ref().is_some_and(|last| table.get(last.slot).is_none());
        served.count(is_over);
        served.last = Some(Last { slot: accepted, blocks, waits: 0, overlaps: false });
        if served.is_to_be_told()
            && !self.host.stays()
            && !self.links().iter().any(Link::is_attached)
        {
            self.tell_of_turns(listener);
        }
    }

    fn tell_of_turns(&mut self, listener: Slot) {
        if let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(listener) {
            self.host.takes_turns(listener.local);
            self.hear_of_kernels();
        }
    }

    /// Notes that a thread begins to wait.
    pub(crate) fn begins_to_wait(&mut self, to: &For) {
        if self.shared.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.shared);
        for one in &mut all {
            let Some(last) = &mut one.served.last else { continue };
            if last.overlaps || last.waits >= MANY_WAITS || self.table.get(last.slot).is_none() {
                continue;
            }
            if self.is_for(to, one.slot) {
                last.overlaps = true;
            } else {
                last.waits += 1;
            }
        }
        self.shared = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays connections one after the other: whether each is over when the next is accepted, whether it blocks, how often it is
    /// waited for, and whether a thread waits at the listener meanwhile. Returns those of which the privileged half is told.
    fn told(all: impl Iterator<Item = (bool, bool, u32, bool)>) -> Vec<usize> {
        let (mut served, mut table) =
            (Served::default(), crate::table::Table::new(Default::default()));
        let slot = table.add(Socket::new(
            Kind::Listener(crate::table::Listener::new("10.0.0.1:80".parse().unwrap(), false, 1)),
            false,
            Default::default(),
        ));
        let tells = |(at, (is_over, blocks, waits, overlaps))| {
            served.last = Some(Last { slot, blocks, waits, overlaps });
            served.count(is_over);
            served.is_to_be_told().then_some(at)
        };
        (1..).zip(all).filter_map(tells).collect()
    }

    #[test]
    fn who_serves_one_short_connection_after_the_other_is_known_and_told_of_ever_more_rarely() {
        let (short, polled) = ((true, true, 0, false), (true, false, 1, false));
        assert_eq!(told([short; 100].into_iter()), [16, 32, 64]);
        assert_eq!(told([short, polled].into_iter().cycle().take(40)), [16, 32]);
    }

    #[test]
    fn who_serves_several_at_a_time_or_each_for_long_is_not() {
        let several = (false, true, 1, false);
        let looks_at_the_listener = (true, false, 1, true);
        let is_kept = (true, true, MANY_WAITS, false);
        let had_all = (true, false, 0, false);
        for other in [several, looks_at_the_listener, is_kept, had_all] {
            assert_eq!(told([other; 100].into_iter()), [0; 0], "{other:?}");
        }
        // Fifteen, and one of another kind.
        let fifteen = [(true, true, 1, false); 15];
        for other in [several, looks_at_the_listener, is_kept] {
            let all = fifteen.into_iter().chain([other]).cycle().take(100);
            assert_eq!(told(all), [0; 0], "{other:?}");
        }
        let all = fifteen.into_iter().chain([had_all; 10]).chain(fifteen);
        assert_eq!(told(all), [26], "it tells nothing of either");
    }
}
