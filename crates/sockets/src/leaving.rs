//! A process closes a listener that others have, too, as a server's old workers do at a reload. On kernel sockets all of
//! them share one queue of connections that wait to be accepted; on the stack each has its own. So what is in the queue
//! of the one that leaves becomes the kernel's, and goes to another one by the privileged half. That knows whether there
//! is one, or will be: it is the kernel's listener that others may have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uncork_stack::ListenerId;

use crate::asked::Asked;
use crate::host::Waiting;
use crate::table::{Kind, Listener};
use crate::world::World;

/// How long handshakes may still be under way: a SYN-ACK is sent again after a second.
const HANDSHAKES: Duration = Duration::from_millis(1500);

/// A listener of the stack's that its program has closed.
#[derive(Debug)]
pub(crate) struct Leaving {
    on: Vec<(usize, ListenerId)>,
    local: SocketAddr,
    ipv6: bool,
    asked: Arc<Asked>,
    until: Instant,
}

impl World {
    /// The program has closed a listener. If nobody else listens there, what waits is reset in the end.
    pub(crate) fn leave(&mut self, listener: Listener, ipv6: bool, asked: Arc<Asked>) {
        let Listener { local, on, passed, .. } = listener;
        if on.is_empty() {
            return;
        }
        // First of all nothing new may come.
        self.host.disown(local);
        for (local, connection) in passed {
            // It is closed if nobody takes it.
            let _ = self.host.pass_on(local, Waiting::Kernels(connection));
        }
        for &(link, id) in &on {
            if let Some(link) = self.links().get_mut(link) {
                link.unbind_listener(id);
            }
        }
        let until = Instant::now() + HANDSHAKES;
        self.leaving.push(Leaving { on, local, ipv6, asked, until });
        self.pass_waiting();
    }

    /// The process ends: all listeners.
    pub(crate) fn leave_all(&mut self) {
        let mut all = Vec::new();
        for (_, socket) in self.table.iter() {
            if let Kind::Listener(listener) = &mut socket.kind {
                let empty = Listener::new(listener.local, listener.backlog);
                let left = std::mem::replace(listener, empty);
                all.push((left, socket.ipv6, Arc::clone(&socket.asked)));
            }
        }
        for (listener, ipv6, asked) in all {
            self.leave(listener, ipv6, asked);
        }
    }

    /// Passes on what has come to listeners that were closed, and closes those that have had their time.
    pub(crate) fn pass_waiting(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = Instant::now();
        for one in std::mem::take(&mut self.leaving) {
            for &(link, id) in &one.on {
                self.pass_all(link, id, &one);
            }
            if now < one.until {
                self.leaving.push(one);
            } else {
                self.close_listeners(one.on);
            }
        }
    }

    fn pass_all(&mut self, link: usize, listener: ListenerId, one: &Leaving) {
        while let Some(link) = self.links().get_mut(link) {
            let now = link.now();
            let Some(id) = link.stack().accept(listener) else { return };
            let Some(detached) = link.stack().detach(now, id) else {
                // It is over by now, or about to be.
                link.stack().abort(now, id);
                link.stack().close(now, id);
                continue;
            };
            let local = SocketAddr::new(detached.snapshot.local.ip(), one.local.port());
            let waiting = Waiting::Detached {
                detached: &detached,
                inet6: one.ipv6,
                settings: one.asked.settings(),
            };
            // Whoever it was for is gone, too: the kernel's socket is closed.
            let _ = self.host.pass_on(local, waiting);
        }
    }

    /// The program listens at this port again.
    pub(crate) fn end_leaving(&mut self, port: u16) {
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.leaving).into_iter().partition(|one| one.local.port() == port);
        self.leaving = later;
        for one in now {
            self.close_listeners(one.on);
        }
    }

    /// Takes in what other processes have left.
    pub(crate) fn take_passed(&mut self) {
        while let Some((local, connection)) = self.host.next_passed() {
            let is_it = |listener: &Listener| {
                let at = listener.local;
                at.port() == local.port() && (at.ip().is_unspecified() || at.ip() == local.ip())
            };
            let found = self.table.iter().find_map(|(slot, socket)| match &mut socket.kind {
                Kind::Listener(listener) if is_it(listener) => Some((slot, listener)),
                _ => None,
            });
            let Some((slot, listener)) = found else { continue };
            listener.passed.push_back((local, connection));
            self.note(slot);
        }
    }
}
