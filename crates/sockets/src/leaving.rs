//! Listeners that a process closes while others have them, too, as a server's old workers do at a reload, or that it leaves
//! to those for a while (`neglect.rs`). On kernel sockets all of them share one accept queue; on the stack each process has
//! its own. So what is in the queue of a process that leaves becomes the kernel's, and goes to another process by the
//! privileged half. That knows whether there is one, or will be: it is the kernel's listener that others may have.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uncork_stack::{Detached, ListenerId};

use crate::asked::Asked;
use crate::table::{Kind, Listener, Slot, Socket};
use crate::world::World;

/// How long handshakes may still be under way, and data be waited for (TCP_DEFER_ACCEPT): a SYN-ACK is retransmitted after
/// a second.
const HANDSHAKES: Duration = Duration::from_millis(1500);

/// How often it is looked whether any are under way.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A listener on the stack that its program has closed, or left to other processes.
#[derive(Debug)]
pub(crate) struct Leaving {
    on: Vec<(usize, ListenerId)>,
    local: SocketAddr,
    ipv6: bool,
    asked: Arc<Asked>,
    until: Instant,
    looks_at: Instant,
    /// The listener of this process that is the kernel's alone now, if that is the reason: what comes is for it.
    heir: Option<Slot>,
}

impl Leaving {
    fn new(
        on: Vec<(usize, ListenerId)>,
        local: SocketAddr,
        ipv6: bool,
        asked: Arc<Asked>,
        heir: Option<Slot>,
    ) -> Self {
        let now = Instant::now();
        let (until, looks_at) = (now + HANDSHAKES, now + BETWEEN_LOOKS);
        Self { on, local, ipv6, asked, until, looks_at, heir }
    }
}

impl World {
    /// Leaves a listener that the program has closed. If no other process listens there, what waits is reset in the end.
    pub(crate) fn leave(&mut self, listener: Listener, ipv6: bool, asked: Arc<Asked>) {
        let Listener { local, on, passed, is_kernels, .. } = listener;
        if !on.is_empty() || is_kernels {
            // First of all nothing new may come.
            self.host.disown(local);
        }
        for (local, connection) in passed {
            // It is closed if no process takes it.
            let _ = self.host.pass_on(local, connection);
        }
        if on.is_empty() {
            return;
        }
        for &(link, id) in &on {
            if let Some(link) = self.links().get_mut(link) {
                link.unbind_listener(id);
                link.stack().leave_listener(id);
            }
        }
        self.leaving.push(Leaving::new(on, local, ipv6, asked, None));
        self.pass_waiting();
    }

    /// Leaves a listener to the kernel alone, which gets what has come to it, and what is under way.
    pub(crate) fn bequeath(&mut self, heir: Slot) {
        if let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(heir)
            && !listener.on.is_empty()
        {
            let local = listener.local;
            self.host.disown(local);
        }
        self.keep_what_comes(heir);
    }

    /// Leaves a listener to the kernel that gets nothing new on the stack, and what this process has left of it for a while.
    pub(crate) fn keep_what_comes(&mut self, heir: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), ipv6, asked, .. }) = self.table.get(heir)
        else {
            return;
        };
        let (on, local) = (std::mem::take(&mut listener.on), listener.local);
        let (ipv6, asked) = (*ipv6, Arc::clone(asked));
        for one in self.leaving.iter_mut().filter(|one| one.local == local) {
            one.heir.get_or_insert(heir);
        }
        if on.is_empty() {
            return;
        }
        self.turn();
        for &(link, id) in &on {
            let Some(link) = self.links().get_mut(link) else { continue };
            // What waits at an instance's is this listener's only as long as the instance has it as one of its own.
            if !link.is_attached() {
                let now = link.now();
                link.unbind_listener(id);
                link.stack().leave_listener(id);
                link.stack().open_deferred(now, id);
            }
        }
        self.leaving.push(Leaving::new(on, local, ipv6, asked, Some(heir)));
        self.pass_waiting();
        self.note(heir);
    }

    /// Leaves all listeners, as the process ends.
    pub(crate) fn leave_all(&mut self) {
        let mut all = Vec::new();
        for (_, socket) in self.table.iter() {
            if let Kind::Listener(listener) = &mut socket.kind {
                let empty = Listener::new(listener.local, listener.v6_only, listener.backlog);
                let left = std::mem::replace(listener, empty);
                all.push((left, socket.ipv6, Arc::clone(&socket.asked)));
            }
        }
        for (listener, ipv6, asked) in all {
            self.leave(listener, ipv6, asked);
        }
        self.open_all_deferred();
    }

    /// Gives connections that wait at listeners that were left to other processes at once, with data or without.
    pub(crate) fn open_all_deferred(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        leaving.iter().for_each(|one| self.open_deferred(&one.on));
        self.leaving = leaving;
        self.pass_waiting();
    }

    /// Returns when something is to be done about listeners that were left.
    pub(crate) fn leaves_after(&self) -> Option<Duration> {
        let until = self.leaving.iter().map(|one| one.until.min(one.looks_at)).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Lets connections whose data these listeners have waited for be accepted without.
    fn open_deferred(&mut self, on: &[(usize, ListenerId)]) {
        for &(link, id) in on {
            if let Some(link) = self.links().get_mut(link) {
                let now = link.now();
                link.stack().open_deferred(now, id);
            }
        }
    }

    /// Passes on what has come to listeners that were left, and closes those whose time is over.
    pub(crate) fn pass_waiting(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut all = std::mem::take(&mut self.leaving);
        all.retain_mut(|one| {
            let is_over = one.until <= now || one.looks_at <= now && !self.has_under_way(&one.on);
            if one.looks_at <= now {
                one.looks_at = now + BETWEEN_LOOKS;
            }
            if is_over {
                // Others may take them. Until then they wait for data: a silent peer does not hear of a listener that is closed.
                self.open_deferred(&one.on);
            }
            for &(link, id) in &one.on {
                self.pass_all(link, id, one);
            }
            if is_over {
                self.close_listeners(std::mem::take(&mut one.on));
            }
            !is_over
        });
        all.append(&mut self.leaving);
        self.leaving = all;
    }

    /// Returns whether a connection may still come to one of these. No new one begins; a turn has seen all that has come.
    fn has_under_way(&mut self, on: &[(usize, ListenerId)]) -> bool {
        on.iter().any(|&(link, id)| {
            self.links().get_mut(link).is_some_and(|link| {
                let now = link.now();
                link.stack().has_under_way(now, id)
            })
        })
    }

    fn pass_all(&mut self, link: usize, listener: ListenerId, one: &Leaving) {
        while let Some(detached) = self.detach_waiting(link, listener) {
            let local = SocketAddr::new(detached.snapshot.local.ip(), one.local.port());
            // What cannot be passed on is closed.
            if let Ok(waiting) = self.host.to_kernel(&detached, one.ipv6, one.asked.settings()) {
                self.bring_caught(link, &detached, waiting.as_raw_fd());
                self.pass_to(one.heir, local, waiting);
            }
        }
    }

    /// Returns whether something may be under way for a listener that is the kernel's.
    pub(crate) fn is_to_inherit(&self, slot: Slot) -> bool {
        self.leaving.iter().any(|one| one.heir == Some(slot))
    }

    fn pass_to(&mut self, heir: Option<Slot>, local: SocketAddr, waiting: OwnedFd) {
        let found = heir.and_then(|slot| Some((slot, self.table.get(slot)?)));
        if let Some((slot, Socket { kind: Kind::Listener(listener), .. })) = found {
            listener.passed.push_back((local, waiting));
            self.note(slot);
        } else {
            let _ = self.host.pass_on(local, waiting);
        }
    }

    /// Takes the next connection that waits to be accepted from the stack.
    pub(crate) fn detach_waiting(&mut self, link: usize, listener: ListenerId) -> Option<Detached> {
        let link = self.links().get_mut(link)?;
        let now = link.now();
        loop {
            let id = link.stack().accept(listener)?;
            let detached = link.stack().detach(now, id);
            if detached.is_some() {
                return detached;
            }
            // It is over by now, or about to be.
            link.stack().abort(now, id);
            link.stack().close(now, id);
        }
    }

    /// Takes in connections that other processes have left.
    pub(crate) fn take_passed(&mut self) {
        self.hear_of_kernels();
        while let Some((local, connection)) = self.host.next_passed() {
            let found = self.table.iter().find_map(|(slot, socket)| match &mut socket.kind {
                Kind::Listener(listener) if listener.is_claimed() && listener.takes(local) => {
                    Some((slot, listener))
                }
                _ => None,
            });
            let Some((slot, listener)) = found else {
                // It came while this process was about to leave the listener, too.
                let _ = self.host.pass_on(local, connection);
                continue;
            };
            listener.passed.push_back((local, connection));
            self.note(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    use uncork_driver::{Driver as _, memory};
    use uncork_packet::{Capabilities, Medium};
    use uncork_stack::{Config, Mac, Stack};

    use super::*;
    use crate::testing::{Mail, Post, device};

    #[test]
    fn a_listener_that_was_left_stays_for_who_shakes_hands() {
        let capabilities = Capabilities::plain(Medium::Ip, 1500);
        let (ours, mut theirs) = memory::pair(capabilities, 16);
        let mail = Arc::new(Mutex::new(Mail { devices: vec![device(ours)], ..Mail::default() }));
        let mut world = World::new(Box::new(Post(mail)), || [0; 32], |_, _| ());
        let local = "10.0.0.1:80".parse().unwrap();
        let kind = Kind::Listener(Listener::new(local, false, 16));
        let slot = world.table.add(Socket::new(kind, false, Arc::new(Asked::default())));
        world.table.bind(5, slot);
        world.ensure_listening(slot);
        let mut peer = Stack::new(Config::default(), capabilities, Mac::default(), [1; 32]);
        peer.add_address("10.0.0.2/24".parse().unwrap());
        let now = uncork_stack::Instant::from_millis(1);
        peer.connect(now, None, local).unwrap();
        theirs.offer(&mut |frame| peer.poll_transmit(now, frame)).unwrap();
        theirs.flush().unwrap();
        world.turn();
        assert_eq!(world.links()[0].stack().all().len(), 1);

        let begun = Instant::now();
        let (_, socket) = world.table.unbind(5).unwrap();
        world.close(socket);
        while begun.elapsed() < 3 * BETWEEN_LOOKS {
            assert!(world.leaves_after().is_some(), "after {:?}", begun.elapsed());
            std::thread::sleep(BETWEEN_LOOKS / 4);
            world.pass_waiting();
        }
    }

    #[test]
    fn what_comes_to_who_listens_no_more_goes_on() {
        let mail = Arc::new(Mutex::new(Mail::default()));
        let mut world = World::new(Box::new(Post(Arc::clone(&mail))), || [0; 32], |_, _| ());
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (here, elsewhere) = (end("10.0.0.1:80"), end("10.0.0.1:81"));
        let mut listener = Listener::new(end("0.0.0.0:80"), false, 16);
        let device = Capabilities::plain(Medium::Ethernet, 1500);
        let mut stack = Stack::new(Config::default(), device, Mac([2; 6]), [0; 32]);
        listener.on.push((0, stack.listen(listener.local, 16).unwrap()));
        let closed = Listener::new(elsewhere, false, 16);
        let slots = [listener, closed].map(|one| {
            world.table.add(Socket::new(Kind::Listener(one), false, Arc::new(Asked::default())))
        });
        let mut numbers = Vec::new();
        for local in [here, elsewhere] {
            let connection = OwnedFd::from(UnixStream::pair().unwrap().0);
            numbers.push(connection.as_raw_fd());
            mail.lock().unwrap().comes.push_back((local, connection));
        }
        world.take_passed();
        let passed = slots.map(|slot| match &world.table.get(slot).unwrap().kind {
            Kind::Listener(listener) => listener.passed.len(),
            _ => 0,
        });
        assert_eq!(passed, [1, 0]);
        assert_eq!(mail.lock().unwrap().goes, [(elsewhere, numbers[1])]);
    }
}
