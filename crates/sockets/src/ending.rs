//! The end of the process: what it has sent is on its way when it has gone.

use std::time::Duration;

use crate::Sockets;
use crate::outside::Outside;
use crate::parts::Parts;
use crate::table::Kind;
use crate::waiting::Wait;
use crate::world::{For, World};

/// How long a process that ends waits for its peers to acknowledge what it has sent. Whoever has not by then
/// gets a reset.
const PATIENCE: Duration = Duration::from_secs(1);

impl<O: Outside> Sockets<O> {
    /// The process ends, or becomes another program: its connections are closed, as the kernel would, and
    /// what was sent arrives, unless a peer is too slow.
    pub fn end(&self) {
        let quiet = self.with_all(|world| {
            world.leave_all();
            // What was written leaves, before a close that may be a reset.
            world.turn();
            world.close_all();
            world.turn();
            world.is_quiet()
        });
        if !quiet.contains(&false) {
            return;
        }
        let wait = Wait {
            waits_for: For::Sockets(Vec::new()),
            parts: self.all().map(Parts::of).fold(Parts::NONE, Parts::or),
            limit: Some(PATIENCE),
            mask: None,
            kernel: &mut [],
            restarts: true,
        };
        let mut all_quiet = true;
        let quiet = self.wait(wait, &mut |world, look| {
            all_quiet = (all_quiet || look.is_first) && world.is_quiet();
            (all_quiet && look.is_last).then_some(())
        });
        if !matches!(quiet, Ok(Some(()))) {
            self.with_all(|world| {
                for link in world.links() {
                    let now = link.now();
                    link.stack().abort_all(now);
                }
                world.turn();
            });
        }
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

    /// Whether nobody has anything left to send, or to hear.
    fn is_quiet(&mut self) -> bool {
        self.links().iter_mut().all(|link| link.stack().is_quiet())
    }
}
