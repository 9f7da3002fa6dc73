//! A process that listens, but has nothing on its stack, as all its ports are the kernel's (`neglect.rs`, `--port`), closes its
//! devices: each process that has them open costs the kernel the memory of its rings, and for every frame of the device a
//! look at whose it is. Where a server has dozens of workers that is most of what a request costs. They are opened anew
//! when something is to be on the stack.

use crate::Sockets;
use crate::link::Link;
use crate::outside::Outside;
use crate::parts::Part;
use crate::table::{Kind, Socket};
use crate::world::World;

impl<O: Outside> Sockets<O> {
    /// Closes a part's devices if nothing is on its stack.
    pub(crate) fn put_devices_away(&self, part: Part) {
        if self.with(part, World::put_links_away) == Some(true) {
            self.keeper_sleeps_on_nothing(part);
        }
    }
}

impl World {
    /// Closes the devices if nothing needs them. Once opened again they stay: a program that connects to others now and then is
    /// not to open them each time.
    fn put_links_away(&mut self) -> bool {
        if self.put_away > 0 || !self.is_out_of_use() || !self.host.can_close_devices() {
            return false;
        }
        self.forget_links();
        // The privileged half has copies, so that the last of each is closed there, which takes long.
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use uncork_driver::memory;
    use uncork_packet::{Capabilities, Medium};

    use super::*;
    use crate::asked::Asked;
    use crate::host::Device;
    use crate::lost::Lost;
    use crate::table::Listener;
    use crate::testing::{Mail, Post, device};

    fn new() -> Device {
        device(memory::pair(Capabilities::plain(Medium::Ethernet, 1500), 16).0)
    }

    #[test]
    fn who_listens_for_the_kernel_alone_puts_a_device_away_once_and_another_one_is_another() {
        let mail = Arc::new(Mutex::new(Mail::default()));
        let mut world = World::new(Box::new(Post(Arc::clone(&mail))), || [0; 32], |_, _| ());
        let end = "10.0.0.1:80".parse().unwrap();
        let kind = Kind::Listener(Listener::new(end, false, 16));
        let slot = world.table.add(Socket::new(kind, false, Arc::new(Asked::default())));
        world.table.bind(5, slot);
        mail.lock().unwrap().devices.push(new());
        world.ensure_listening(slot);
        let first = world.links()[0].number();
        assert!(
            !world.is_kernels_alone(slot) && !world.put_links_away(),
            "it listens on the stack"
        );
        // What is said of a port that it does not have is another process's.
        for local in ["10.0.0.1:81", "10.0.0.1:80"] {
            assert!(!world.is_kernels_alone(slot));
            mail.lock().unwrap().kernels.push_back(local.parse().unwrap());
            world.hear_of_kernels();
        }
        assert!(
            !world.is_kernels_alone(slot) && !world.put_links_away(),
            "somebody may be on his way"
        );
        // No connection is, as is seen a tenth of a second later.
        while world.leaves_after().is_some() {
            world.pass_waiting();
        }
        assert!(world.is_kernels_alone(slot));
        world.lost = Some(Lost::now());
        assert!(!world.is_kernels_alone(slot), "it may be another instance's soon");
        world.lost = None;
        assert!(world.put_links_away() && !world.is_open());
        assert!(world.is_kernels_alone(slot));

        mail.lock().unwrap().devices.push(new());
        world.open().unwrap();
        assert_ne!(world.links()[0].number(), first);
        // What is said of a link by its number finds it, though that is not its place.
        let now = world.links()[0].now();
        let ends = ["10.0.0.1:4000", "10.0.0.2:80"].map(|end| end.parse().unwrap());
        world.links()[0].stack().connect(now, Some(ends[0]), ends[1]).unwrap();
        world.turn();
        let listed = world.links()[0].entry(0).map(|entry| (entry.local, entry.remote));
        assert_eq!(listed, Some((ends[0], ends[1])));
        assert!(!world.put_links_away(), "it has needed it again");
    }
}
