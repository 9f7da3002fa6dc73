//! listen(2) and accept(2). The kernel listens, too, for connections that do not come by the stack.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use uncork_stack::{ListenError, ListenerId, Listening};

use crate::asked::Asked;
use crate::host::Reason;
use crate::one_each::Side;
use crate::outside::Outside;
use crate::parts::Parts;
use crate::sleepers::For;
use crate::table::{Kind, Listener, Place, Slot, Socket};
use crate::waiting::{Kernel, Wait, stand_back};
use crate::world::World;
use crate::{HANDED_OVER, Sockets, name};

/// How long unknown segments of a port that was taken over are not answered with resets: they may be the kernel's.
const QUIET: Duration = Duration::from_millis(500);

/// The end at which a descriptor listens, as the kernel has bound it.
#[derive(Debug, Clone, Copy)]
pub struct ListeningEnd {
    /// Address and port.
    pub local: SocketAddr,
    /// Whether the socket is of IPv6.
    pub ipv6: bool,
    /// IPV6_V6ONLY: `[::]` does not include 0.0.0.0.
    pub v6_only: bool,
}

/// An accepted connection.
#[derive(Debug)]
pub enum Accepted {
    /// A connection on the stack.
    OnStack {
        /// Its descriptor.
        fd: RawFd,
        /// The other end, as a struct sockaddr.
        peer: Vec<u8>,
    },
    /// A connection of the kernel's listener.
    Kernels {
        /// Its descriptor.
        fd: RawFd,
        /// The other end, as a struct sockaddr.
        peer: Vec<u8>,
    },
    /// A kernel connection that another process was to accept.
    Passed(OwnedFd),
}

impl<O: Outside> Sockets<O> {
    /// Records that `fd` listens. The stack listens, too, from when this process waits for a connection, so that a process which
    /// only hands the listener to its children needs no device.
    pub fn listen(&self, fd: RawFd, end: ListeningEnd, backlog: u32, asked: Asked) {
        let ListeningEnd { local, ipv6, v6_only } = end;
        let again = self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            if let Kind::Listener(listener) = &mut socket.kind {
                listener.backlog = backlog;
                // After shutdown(2) the kernel may have chosen another port.
                listener.local = local;
                listener.shut = false;
            }
            Ok(())
        });
        if again.is_ok() {
            return;
        }
        self.with(self.mine(), |world| {
            let listener = Kind::Listener(Listener::new(local, v6_only, backlog));
            let slot = world.table.add(Socket::new(listener, ipv6, Arc::new(asked)));
            world.table.bind(fd, slot);
        });
    }

    /// Does accept4(2), from the stack or from the kernel's listener, whichever has a connection.
    ///
    /// # Errors
    ///
    /// As the call has them; [`HANDED_OVER`](crate::HANDED_OVER) where all that come are the kernel's, and so is the call.
    pub fn accept(&self, fd: RawFd, flags: i32) -> Result<Accepted, Errno> {
        let (slot, limit, is_kernels) = self.call(fd, |world| {
            let (slot, socket) = world.table.find(fd)?;
            let limit = socket.asked.receive_timeout;
            world.ensure_listening(slot);
            Ok((slot, limit, world.is_kernels_alone(slot)))
        })?;
        let part = self.at(fd);
        self.need_keeper(part);
        if is_kernels {
            self.put_devices_away(part);
            return Err(HANDED_OVER);
        }
        let attempt = |world: &mut World| self.take(world, slot, flags).transpose();
        if let Some(done) = self.with(part, |world| attempt(world)).flatten() {
            return done;
        }
        if !self.waits(fd, slot)? {
            // A connection that has just come may be ready.
            let done = self.with(part, |world| {
                world.turn();
                attempt(world)
            });
            return done.flatten().unwrap_or_else(|| self.outside.accept(fd, flags));
        }
        let mut kernel = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        let wait = Wait {
            waits_for: For::Socket(slot),
            parts: Parts::of(part),
            may_leave: false,
            limit,
            mask: None,
            kernel: &mut kernel,
            restarts: &Cell::new(true),
        };
        let accepted = self.wait(wait, &mut |world, look| {
            // Another thread has closed it, and its number may be something else's by now.
            if !world.table.is_still(fd, slot) {
                return Some(Err(Errno::EBADF));
            }
            if look.kernel == Kernel::Ask {
                // Possibly no other thread was woken for that connection.
                match self.take_from_kernel(fd, flags) {
                    Ok(None) => {}
                    Err(Errno::EBUSY) => {
                        stand_back();
                        return None;
                    }
                    kernels => return kernels.transpose(),
                }
            }
            attempt(world)
        })?;
        accepted.unwrap_or(Err(Errno::EAGAIN))
    }

    /// Waits until a connection comes, as the kernel's accept(2) has said EAGAIN where a listener is the kernel's alone: another
    /// process may have had O_NONBLOCK there for a moment (`accepting.rs` of the preload library). Returns whether to call again.
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn await_kernels(&self, fd: RawFd, begun: std::time::Instant) -> Result<bool, Errno> {
        let asked = self.call(fd, |world| {
            let (slot, socket) = world.table.find(fd)?;
            let limit = socket.asked.receive_timeout;
            Ok(socket.is_listener().then_some((slot, limit)))
        });
        let Ok(Some((slot, limit))) = asked else { return Ok(false) };
        if !self.waits(fd, slot)? {
            return Ok(false);
        }
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        let mut kernel = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        let wait = Wait {
            waits_for: For::Socket(slot),
            parts: Parts::of(self.at(fd)),
            may_leave: false,
            limit: left,
            mask: None,
            kernel: &mut kernel,
            restarts: &Cell::new(true),
        };
        let found = self.wait(wait, &mut |world, look| {
            if !world.table.is_still(fd, slot) {
                return Some(Err(Errno::EBADF));
            }
            let has_come = look.kernel == Kernel::Ask && self.is_ready(fd, libc::POLLIN);
            has_come.then_some(Ok(()))
        })?;
        found.transpose().map(|found| found.is_some())
    }

    /// Returns whether accept(2) is to wait at a listener. O_NONBLOCK belongs to what is open, which other processes may have, too:
    /// it is the kernel's that counts.
    fn waits(&self, fd: RawFd, slot: Slot) -> Result<bool, Errno> {
        self.call(fd, |world| {
            if !world.table.is_still(fd, slot) {
                return Err(Errno::EBADF);
            }
            Ok(!self.outside.is_non_blocking(fd))
        })
    }

    /// Runs `act`, which concerns the kernel's listener of `fd`, while no thread of this process accepts there; None: it is no
    /// listener. Others wait meanwhile, so it does not sleep.
    pub fn at_listener<T>(&self, fd: RawFd, act: impl FnOnce() -> T) -> Option<T> {
        let acted = self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            if socket.is_listener() { Ok(act()) } else { Err(Errno::EINVAL) }
        });
        acted.ok()
    }

    /// Takes the oldest connection of the kernel's listener, if it has one that no other process gets first; EBUSY while another
    /// one is at it.
    fn take_from_kernel(&self, fd: RawFd, flags: i32) -> Result<Option<Accepted>, Errno> {
        if !self.is_ready(fd, libc::POLLIN) {
            return Ok(None);
        }
        match self.outside.accept_at_once(fd, flags) {
            Err(Errno::EAGAIN) => Ok(None),
            accepted => accepted.map(Some),
        }
    }

    /// Returns how many connections wait to be accepted, beside those of the kernel's listener; none if it is no listener.
    pub fn waiting(&self, fd: RawFd) -> Option<u32> {
        let waiting = self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            let Kind::Listener(listener) = &socket.kind else { return Err(Errno::EINVAL) };
            let (passed, on) = (listener.passed.len(), listener.on.clone());
            // For connections that have come since.
            world.turn_if_due();
            let on_stack = on.into_iter().filter_map(|(link, listener)| {
                Some(world.links().get_mut(link)?.stack().accept_waiting(listener))
            });
            Ok(passed + on_stack.sum::<usize>())
        });
        waiting.ok().map(|waiting| u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    /// Ends listening on the stack, after shutdown(2) of a listener has succeeded on the kernel's, until listen(2) is called
    /// again.
    pub fn shut_listener(&self, fd: RawFd) {
        self.with(self.at(fd), |world| {
            let Ok((slot, socket)) = world.table.find(fd) else { return };
            let Kind::Listener(listener) = &mut socket.kind else { return };
            listener.shut = true;
            let (on, local) = (std::mem::take(&mut listener.on), listener.local);
            let is_kernels = std::mem::take(&mut listener.is_kernels);
            if is_kernels {
                // Where it listens next, it begins anew.
                listener.reason = None;
            }
            if is_kernels || !on.is_empty() {
                // First of all nothing new may come.
                world.host.disown(local);
            }
            world.close_listeners(on);
            // A thread that waits to accept is told by the kernel.
            world.note(slot);
        });
    }

    /// Returns whether the kernel's descriptor is ready now.
    pub(crate) fn is_ready(&self, fd: RawFd, events: i16) -> bool {
        let mut one = [libc::pollfd { fd, events, revents: 0 }];
        matches!(self.outside.poll(&mut one, Some(Duration::ZERO)), Ok(1..))
    }

    /// Accepts the oldest connection of a listener.
    fn take(&self, world: &mut World, slot: Slot, flags: i32) -> Result<Option<Accepted>, Errno> {
        let Some(Socket { kind: Kind::Listener(listener), ipv6, asked, .. }) =
            world.table.get(slot)
        else {
            return Err(Errno::EINVAL);
        };
        let listens = slot;
        if let Some((_, passed)) = listener.passed.pop_front() {
            return Ok(Some(Accepted::Passed(passed)));
        }
        let (on, v6_only) = (listener.on.clone(), listener.v6_only);
        let (ipv6, asked) = (*ipv6, Arc::clone(asked));
        for (at, listener) in on {
            let Some(link) = world.links().get_mut(at) else { continue };
            if link.stack().accept_waiting(listener) == 0 {
                continue;
            }
            // Without a descriptor the connection waits for the next call, as in the kernel.
            let fd = self.outside.stand_in(flags, ipv6)?;
            let Some(id) = link.stack().accept(listener) else { continue };
            let remote = link.stack().ends(id).map(|(_, remote)| remote);
            let place = Place { link: at, id };
            let kind = Kind::Connection { place, connecting: false };
            let mut socket = Socket::new(kind, ipv6, asked);
            socket.stand_in = true;
            socket.v6_only = v6_only;
            socket.non_blocking = flags & libc::SOCK_NONBLOCK != 0;
            let slot = world.table.add(socket);
            world.table.bind(fd, slot);
            if let Some(link) = world.links().get_mut(at) {
                link.bind(id, slot);
            }
            world.has_accepted(listens, slot, flags & libc::SOCK_NONBLOCK == 0);
            let peer = remote.map_or_else(Vec::new, |remote| name::octets(remote, ipv6));
            return Ok(Some(Accepted::OnStack { fd, peer }));
        }
        Ok(None)
    }
}

impl World {
    /// Listens on every device that has the listener's address, if it does not yet.
    pub(crate) fn ensure_listening(&mut self, slot: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), asked, .. }) = self.table.get(slot)
        else {
            return;
        };
        if !listener.on.is_empty() || listener.reason.is_some() || listener.shut {
            return;
        }
        let local = listener.local;
        // The kernel has seen to it that several may listen there.
        let how = Listening { backlog: listener.backlog, v6_only: listener.v6_only, shares: true };
        let options = asked.options().to_vec();
        let Some(fd) = self.table.descriptor(slot) else { return };
        if !self.is_open() && self.host.own_kernels(local, fd) {
            return self.is_told_of_kernels(slot);
        }
        let listening = self.listen_on_links(local, how, fd);
        for &(link, id) in listening.iter().flatten() {
            let Some(link) = self.links().get_mut(link) else { continue };
            link.bind_listener(id, slot);
            for &option in &options {
                link.stack().set_listener_option(id, option);
            }
        }
        let listens = listening.is_ok();
        for fd in self.table.descriptors_of(slot) {
            (self.tell)(fd, listening.as_ref().map(drop).map_err(String::as_str));
        }
        if let Some(Socket { kind: Kind::Listener(listener), .. }) = self.table.get(slot) {
            match listening {
                Ok(on) => listener.on = on,
                Err(reason) => listener.reason = Some(reason),
            }
        }
        if listens {
            self.tell_fast_open(slot);
            if self.one_each.reason(Side::Accepted).is_some() {
                self.leave_to_kernel(slot);
            }
        }
    }

    fn listen_on_links(
        &mut self,
        local: SocketAddr,
        how: Listening,
        fd: RawFd,
    ) -> Result<Vec<(usize, ListenerId)>, Reason> {
        let any = local.ip().is_unspecified();
        let mut on = Vec::new();
        for (at, link) in self.open()?.iter_mut().enumerate() {
            if !any && !link.has(local.ip()) {
                continue;
            }
            if link.is_without_instance() {
                continue;
            }
            if let Some(reason) = link.reason() {
                self.close_listeners(on);
                return Err(reason);
            }
            match link.stack().listen_with(local, how) {
                Ok(id) => on.push((at, id)),
                Err(error) => {
                    let reason = not_listening(error, local, &link.name);
                    self.close_listeners(on);
                    return Err(reason);
                }
            }
            let until = link.now() + QUIET;
            link.stack().quiet_until(local.port(), until);
        }
        if on.is_empty() {
            return Err(format!("{} is an address of none of the devices", local.ip()));
        }
        // Only now may packets come.
        if let Err(reason) = self.host.own(local, fd) {
            self.close_listeners(on);
            return Err(reason);
        }
        Ok(on)
    }
}

fn not_listening(error: ListenError, local: SocketAddr, device: &str) -> Reason {
    match error {
        ListenError::AddressInUse => format!("something else of this process listens at {local}"),
        ListenError::NotOurs => format!("{device} has no address {}", local.ip()),
    }
}
