//! The end of the process: what it has sent is on its way when it is gone.

use std::cell::Cell;
use std::time::{Duration, Instant};

use uncork_stack::State;

use crate::Sockets;
use crate::link::Link;
use crate::outside::Outside;
use crate::parts::Parts;
use crate::sleepers::For;
use crate::table::{Kind, Place};
use crate::waiting::Wait;
use crate::world::World;

/// How long a process that ends goes on with its connections itself. Most peers have acknowledged everything by then;
/// the kernel goes on with the others.
const BEFORE_KERNEL: Duration = Duration::from_millis(100);
/// How long, if the kernel does not take them. A peer that has not acknowledged everything by then gets a reset.
const PATIENCE: Duration = Duration::from_secs(1);

impl<O: Outside> Sockets<O> {
    /// Closes the connections of a process that ends, or becomes another program: what was sent arrives, however slow a
    /// peer is.
    pub fn end(&self) {
        let begun = Instant::now();
        let quiet = self.with_all(|world| {
            world.leave_all();
            // What was written leaves, before a close that may be a reset.
            world.turn();
            world.close_all();
            world.turn();
            world.is_quiet()
        });
        if !quiet.contains(&false) || self.becomes_quiet(BEFORE_KERNEL) {
            return;
        }
        self.with_all(|world| world.let_go_all(begun + PATIENCE));
        if !self.becomes_quiet(PATIENCE.saturating_sub(begun.elapsed())) {
            self.with_all(|world| {
                for link in world.links() {
                    let now = link.now();
                    link.stack().abort_all(now);
                }
                world.turn();
            });
        }
    }

    /// Waits until all of this process's stacks are quiet, for no longer than this; returns whether they are.
    fn becomes_quiet(&self, limit: Duration) -> bool {
        let wait = Wait {
            waits_for: For::Sockets(Vec::new()),
            parts: self.all().map(Parts::of).fold(Parts::NONE, Parts::or),
            may_leave: false,
            limit: Some(limit),
            mask: None,
            kernel: &mut [],
            restarts: &Cell::new(true),
        };
        let mut all_quiet = true;
        let quiet = self.wait(wait, &mut |world, look| {
            all_quiet = (all_quiet || look.is_first) && world.is_quiet();
            (all_quiet && look.is_last).then_some(())
        });
        matches!(quiet, Ok(Some(())))
    }
}

impl World {
    /// Closes every connection; the descriptors stay.
    fn close_all(&mut self) {
        let places: Vec<_> = self
            .table
            .iter()
            .filter_map(|(_, socket)| {
                let place = socket.place()?;
                socket.kind = Kind::Elsewhere { place, owner: None };
                Some(place)
            })
            .collect();
        for place in places {
            if let Ok((link, now)) = self.link(place) {
                link.unbind(place.id);
                link.stack().close(now, place.id);
            }
        }
    }

    /// Gives what is left of closed connections to the kernel, as far as it takes them and there is time.
    pub(crate) fn let_go_all(&mut self, until: Instant) {
        let ids = |(link, stack): (usize, &mut Link)| {
            stack.stack().all().into_iter().map(move |id| Place { link, id })
        };
        // An instance goes on sending what it has by itself.
        let own = self.links().iter_mut().enumerate().filter(|(_, link)| !link.is_attached());
        let mut all: Vec<_> = own.flat_map(ids).collect();
        // Peers that have everything, and only have not ended, come last: there may be thousands of them.
        all.sort_by_key(|place| {
            let link = self.links().get(place.link);
            link.is_some_and(|link| link.state(place.id) == Some(State::FinWait2))
        });
        for place in all {
            if Instant::now() >= until {
                break;
            }
            let Ok((link, now)) = self.link(place) else { continue };
            let Some(detached) = link.stack().detach(now, place.id) else { continue };
            if self.host.let_go(&detached).is_err() {
                // The guardian has gone, or there is no room: the others have some time yet.
                break;
            }
        }
        self.turn();
    }

    /// Returns whether no connection has anything left to send, or to hear.
    fn is_quiet(&mut self) -> bool {
        self.links().iter_mut().all(|link| link.stack().is_quiet())
    }
}
