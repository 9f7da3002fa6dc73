//! The privileged half is told to end, as a service that is started anew, and says so: what is on the stack becomes the
//! kernel's while somebody is there who can make it so. (If it dies instead: [`World::look_at_host`].)

use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::Sockets;
use crate::outside::Outside;
use crate::table::{Kind, Listener, Slot, Socket};
use crate::world::World;

const WHY: &str = "the guardian was told to end";
/// How long the kernel may take for connections that the program has closed.
const PATIENCE: Duration = Duration::from_secs(1);

impl<O: Outside> Sockets<O> {
    /// A listener is the kernel's alone from now on, and who waits there is accepted as one of the kernel's.
    ///
    /// # Errors
    ///
    /// EBADF and its kin if it is none.
    pub fn leave_to_kernel(&self, fd: RawFd, why: &str) -> Result<(), Errno> {
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            let socket = world.table.get(slot).filter(|socket| socket.is_listener());
            socket.ok_or(Errno::EINVAL)?;
            world.give_listener_to_kernel(slot);
            if let Some(Socket { kind: Kind::Listener(listener), .. }) = world.table.get(slot) {
                listener.reason = Some(why.to_owned());
            }
            for fd in world.table.descriptors_of(slot) {
                (world.tell)(fd, Err(why));
            }
            Ok(())
        })
    }
}

impl World {
    /// Parts from the privileged half, which waits for that.
    pub(crate) fn leave_host(&mut self, outside: &impl Outside) {
        // First of all nothing new may come.
        for slot in self.table.slots_where(Socket::is_listener) {
            self.give_listener_to_kernel(slot);
        }
        for slot in self.table.slots_where(Socket::is_connection) {
            // One that is not yet connected, or that the kernel does not take, ends below.
            if let Ok(handed) = self.hand_over(outside, slot, WHY) {
                outside.settle(&handed);
            }
        }
        self.let_go_all(Instant::now() + PATIENCE);
        self.abandon_links(WHY);
        self.host.quit();
    }

    /// The kernel listens there, too. Who waits on the stack is accepted as one of the kernel's.
    fn give_listener_to_kernel(&mut self, slot: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), ipv6, asked, .. }) = self.table.get(slot)
        else {
            return;
        };
        let Listener { local, on, .. } = listener;
        let (local, on, ipv6) = (*local, std::mem::take(on), *ipv6);
        let settings = asked.settings().to_vec();
        if on.is_empty() {
            return;
        }
        self.host.disown(local);
        self.turn();
        let mut passed = Vec::new();
        for &(link, id) in &on {
            while let Some(detached) = self.detach_waiting(link, id) {
                if let Ok(waiting) = self.host.to_kernel(&detached, ipv6, &settings) {
                    self.bring_caught(link, &detached, waiting.as_raw_fd());
                    passed.push((local, waiting));
                }
            }
        }
        self.close_listeners(on);
        if let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) {
            listener.passed.extend(passed);
        }
        self.note(slot);
    }
}
