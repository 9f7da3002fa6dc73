//! A process that listens, and to whose stack nobody comes, as all its ports are the kernel's (`neglect.rs`, `--port`), puts its
//! devices away: each process that has them open costs the kernel the memory of its rings, and every frame of the device a
//! look at whose it is. Where a server has dozens of workers that is most of what a request costs. They are opened anew
//! when something is to be on the stack.

use crate::Sockets;
use crate::link::Link;
use crate::outside::Outside;
use crate::parts::Part;
use crate::table::{Kind, Socket};
use crate::world::World;

impl<O: Outside> Sockets<O> {
    /// Puts them away if nothing is on the stack.
    pub(crate) fn put_devices_away(&self, part: Part) {
        if self.with(part, World::put_links_away) == Some(true) {
            self.keeper_sleeps_on_nothing(part);
        }
    }
}

impl World {
    /// Closes the devices if nobody misses them. Once opened again they stay: whoever connects to others now and then is not to
    /// open them each time.
    fn put_links_away(&mut self) -> bool {
        if self.put_away > 0 || !self.is_out_of_use() || !self.host.can_close_devices() {
            return false;
        }
        self.forget_links();
        // It has copies, so that the last of each is closed there, which takes long.
        self.host.has_closed_devices();
        true
    }

    fn is_out_of_use(&mut self) -> bool {
        let is_kernels = |socket: &Socket| match &socket.kind {
            Kind::Listener(listener) => {
                listener.reason.is_some() && listener.on.is_empty() && listener.passed.is_empty()
            }
            Kind::Connection { .. } | Kind::Elsewhere { .. } => false,
        };
        self.leaving.is_empty()
            && self.asked_early.is_empty()
            && self.opened.is_empty()
            && self.requests.is_none()
            && self.lost.is_none()
            && !self.ports.have_something()
            && !self.is_anybody_asleep()
            && self.table.iter().all(|(_, socket)| is_kernels(socket))
            && !self.links().is_empty()
            && self.links().iter_mut().all(Link::is_out_of_use)
    }
}
