//! Parting from the privileged half, which is told to end, as a service that is restarted, and says so: what is on the stack
//! becomes the kernel's while it can still be made so. (If it dies instead: [`World::look_at_host`].)

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use uncork_stack::State;

use crate::Sockets;
use crate::link::Link;
use crate::outside::Outside;
use crate::table::{Kind, Socket};
use crate::world::World;

const WHY: &str = "what serves the stack was told to end";
/// How long the kernel may take for connections that the program has closed.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long peers whose handshakes are under way may take to answer, for which the program stands still.
const HANDSHAKES: Duration = Duration::from_millis(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

impl<O: Outside> Sockets<O> {
    /// Leaves a listener to the kernel alone from now on: what waits there is accepted as connections of the kernel's.
    ///
    /// # Errors
    ///
    /// EBADF and its kin if it is none.
    pub fn leave_to_kernel(&self, fd: RawFd, why: &str) -> Result<(), Errno> {
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            let socket = world.table.get(slot).filter(|socket| socket.is_listener());
            socket.ok_or(Errno::EINVAL)?;
            world.bequeath(slot);
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
            self.bequeath(slot);
        }
        self.open_all_deferred();
        self.end_handshakes(outside, Instant::now() + HANDSHAKES);
        for slot in self.table.slots_where(Socket::is_connection) {
            // One that is not connected yet, or that the kernel does not take, ends below.
            if let Ok(handed) = self.hand_over(outside, slot, WHY) {
                outside.settle(&handed);
            }
        }
        self.let_go_all(Instant::now() + PATIENCE);
        self.abandon_links(WHY);
        self.host.quit();
        self.hosts_gone += 1;
    }

    /// Completes handshakes that are under way, as far as their peers answer soon: the kernel cannot go on with one.
    fn end_handshakes(&mut self, outside: &impl Outside, until: Instant) {
        self.turn();
        while self.has_handshakes() && Instant::now() < until {
            let _ = outside.poll(&mut [], Some(BETWEEN_LOOKS));
            self.turn();
        }
    }

    /// Returns whether a peer's SYN was answered here, or a SYN that has waited for data has left.
    fn has_handshakes(&mut self) -> bool {
        let mut early = false;
        for slot in self.table.slots_where(Socket::is_connection) {
            early |= self.is_early(slot);
        }
        let is_answered = |link: &mut Link| {
            let all = link.stack().all();
            all.into_iter().any(|id| link.state(id) == Some(State::SynReceived))
        };
        early || self.links().iter_mut().any(|link| !link.is_attached() && is_answered(link))
    }
}
