//! connect(2), getsockname(2), getpeername(2), shutdown(2), and the wait of close(2) (SO_LINGER).

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use nix::errno::Errno;
use uncork_neighbours as neighbours;
use uncork_stack::{Shutdown, State};

use crate::asked::Asked;
use crate::handing::HandedOver;
use crate::host::Reason;
use crate::one_each::Side;
use crate::outside::Outside;
use crate::parts::Parts;
use crate::ports::Way;
use crate::sleepers::For;
use crate::table::{Kind, Place, Slot, Socket};
use crate::waiting::Wait;
use crate::world::World;
use crate::{Sockets, connected, errno, name};

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Ours.
    Local,
    /// The peer's.
    Remote,
}

/// How a connection has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// Its SYN leaves.
    Leaves,
    /// Its SYN waits for the first data, to take it along: to the program it is open.
    Deferred,
}

impl<O: Outside> Sockets<O> {
    /// Returns a local end that nothing else has, to open a connection to `remote` from without binding the kernel's socket `fd`,
    /// which is of the network namespace of this number (SO_NETNS_COOKIE). None: that is to be bound.
    pub fn reserved_end(
        &self,
        (fd, namespace): (RawFd, u64),
        source: IpAddr,
        remote: SocketAddr,
    ) -> Option<SocketAddr> {
        let way = Way { namespace, from: source, remote };
        self.with(self.mine(), |world| world.reserved_end(fd, way)).flatten()
    }

    /// Reports connections of this port that are closed or over, and were not reported: a program that wants to bind to a port
    /// that is taken may have had it itself a moment ago. Returns whether there were some.
    pub fn gives_back(&self, port: u16) -> bool {
        self.with_all(|world| world.gives_back(port)).contains(&true)
    }

    /// Begins a connection, with TCP Fast Open if `fast`, from `local`, which the kernel has bound `fd` to, or which is reserved
    /// ([`Sockets::reserved_end`]). The socket is of IPv6 or not, and has IPV6_V6ONLY or not.
    ///
    /// # Errors
    ///
    /// Why it is to be the kernel's: nothing has happened yet that the kernel could not go on from.
    pub fn begin_connect(
        &self,
        fd: RawFd,
        (local, remote): (SocketAddr, SocketAddr),
        (ipv6, v6_only): (bool, bool),
        (non_blocking, fast): (bool, bool),
        asked: Asked,
    ) -> Result<Begun, Reason> {
        let part = self.mine();
        let begun = self.with(part, |world| {
            let place = world.begin_connect(fd, (local, remote), fast, &asked)?;
            let kind = Kind::Connection { place, connecting: true };
            let mut socket = Socket::new(kind, ipv6, Arc::new(asked));
            socket.non_blocking = non_blocking;
            socket.is_opened = true;
            socket.v6_only = v6_only;
            let slot = world.table.add(socket);
            world.table.bind(fd, slot);
            if let Some(link) = world.links().get_mut(place.link) {
                link.bind(place.id, slot);
            }
            if world.is_deferred(place) {
                return Ok(Begun::Deferred);
            }
            // The SYN leaves.
            world.turn();
            Ok(Begun::Leaves)
        });
        let begun = begun.unwrap_or_else(|| Err(IN_HANDLER.to_owned()))?;
        self.need_keeper(part);
        Ok(begun)
    }

    /// Returns whether a connection from here to there would be refused, as the stack has had one that is not over yet.
    pub fn is_taken(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.with_all(|world| world.opened.contains(&(local, remote))).contains(&true)
    }

    /// Returns whether a socket of this process has these ends: one that has failed or was closed has not, although
    /// [`Sockets::is_taken`] may say so for a while.
    pub fn is_between(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.with_all(|world| {
            if !world.opened.contains(&(local, remote)) {
                return false;
            }
            let places: Vec<Place> =
                world.table.iter().filter_map(|(_, socket)| socket.place()).collect();
            places.into_iter().any(|place| {
                let ends = world.link(place).map(|(link, _)| link.stack().ends(place.id));
                ends == Ok(Some((local, remote)))
            })
        })
        .contains(&true)
    }

    /// Returns whether there are connections that this process has opened, those in TIME-WAIT among them.
    pub fn has_opened(&self) -> bool {
        self.with_all(|world| !world.opened.is_empty()).contains(&true)
    }

    /// Returns the address to connect to `remote` from.
    ///
    /// # Errors
    ///
    /// Why it is the kernel's to connect: the way there does not lead over one of the devices, or the socket is
    /// bound to something else.
    pub fn source_for(&self, remote: SocketAddr, bound: SocketAddr) -> Result<IpAddr, Reason> {
        let source = self.with(self.mine(), |world| world.source_for(remote, bound));
        source.unwrap_or_else(|| Err(IN_HANDLER.to_owned()))
    }

    /// Waits for a connection that was begun.
    ///
    /// # Errors
    ///
    /// As connect(2) has them.
    pub fn finish_connect(&self, fd: RawFd) -> Result<(), Errno> {
        let (slot, waits, limit) = self.call(fd, |world| {
            let (slot, socket) = world.table.find(fd)?;
            match &socket.kind {
                Kind::Connection { connecting: true, .. } => {}
                Kind::Connection { .. } => return Err(Errno::EISCONN),
                _ => return Err(Errno::EINVAL),
            }
            Ok((slot, !socket.non_blocking, socket.asked.send_timeout))
        })?;
        let part = self.at(fd);
        let attempt = |world: &mut World| match world.finish_connect(slot) {
            Err(Errno::EAGAIN) => None,
            // Only a connection that is established can have become the kernel's.
            Err(_) if world.table.is_handed_over(fd) => Some(Ok(())),
            done => Some(done),
        };
        if !waits {
            let done = self.with(part, |world| {
                world.turn();
                attempt(world)
            });
            return done.flatten().unwrap_or(Err(Errno::EALREADY));
        }
        let wait = Wait {
            waits_for: For::Socket(slot),
            parts: Parts::of(part),
            may_leave: false,
            limit,
            mask: None,
            kernel: &mut [],
            restarts: &Cell::new(true),
        };
        self.wait(wait, &mut |world, _| attempt(world))?.unwrap_or(Err(Errno::EINPROGRESS))
    }

    /// Gives a socket whose connection could not be made back to the kernel, as if nothing had been tried.
    ///
    /// # Errors
    ///
    /// EBADF if it is not ours.
    pub fn give_back(&self, fd: RawFd) -> Result<HandedOver, Errno> {
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            let fds = world.table.descriptors_of(slot);
            let gone = fds.iter().filter_map(|&fd| world.table.unbind(fd)).last();
            let (_, socket) = gone.ok_or(Errno::EBADF)?;
            let handed_over = HandedOver::new(fds, &socket, None);
            world.close(socket);
            world.turn();
            Ok(handed_over)
        })
    }

    /// Dissolves a connection, as connect(2) to AF_UNSPEC does: it ends with a reset, and the descriptor stands for a
    /// socket of the kernel's that is not connected.
    ///
    /// # Errors
    ///
    /// EINVAL if it is no connection, EBADF if it is not ours; EMFILE and its kin if there can be no socket.
    pub fn disconnect(&self, fd: RawFd) -> Result<(), Errno> {
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            let handed = world.disconnect(&self.outside, slot)?;
            // Under the lock: a thread that closes a descriptor may get its number again at once.
            self.outside.settle(&handed);
            Ok(())
        })
    }

    /// Returns the name of an end as a struct sockaddr, as getsockname(2) and getpeername(2) do.
    ///
    /// # Errors
    ///
    /// As the calls have them; EINVAL for a listener, whose name the kernel knows.
    pub fn name(&self, fd: RawFd, end: End) -> Result<Vec<u8>, Errno> {
        self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            let ipv6 = socket.ipv6;
            let place = socket.place().ok_or(Errno::EINVAL)?;
            let (link, _) = world.link(place)?;
            let state = link.stack().state(place.id).ok_or(Errno::ENOTCONN)?;
            // In TIME-WAIT the kernel's socket is closed already (tcp_time_wait).
            let is_unconnected = matches!(state, State::Closed | State::SynSent | State::TimeWait);
            if end == End::Remote && is_unconnected {
                return Err(Errno::ENOTCONN);
            }
            let (local, remote) = link.stack().ends(place.id).ok_or(Errno::ENOTCONN)?;
            Ok(name::octets(if end == End::Local { local } else { remote }, ipv6))
        })
    }

    /// Does shutdown(2).
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn shutdown(&self, fd: RawFd, how: i32) -> Result<(), Errno> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::EINVAL),
        };
        self.call(fd, |world| {
            let (slot, place) = connected(world, fd)?;
            // Segments that have come since may have ended it.
            world.turn_if_due();
            let (link, now) = world.link(place)?;
            let state = link.stack().state(place.id).ok_or(Errno::ENOTCONN)?;
            if matches!(state, State::Closed | State::TimeWait) {
                return Err(Errno::ENOTCONN);
            }
            link.stack().shutdown(now, place.id, how);
            // Threads that wait to read are told.
            world.note(slot);
            world.turn();
            Ok(())
        })
    }

    /// Waits until what was sent was acknowledged, if `fd` is the last descriptor of a socket with SO_LINGER, and is about
    /// to be closed.
    pub(crate) fn linger(&self, fd: RawFd) {
        let begun = self.call(fd, |world| {
            let (slot, socket) = world.table.find(fd)?;
            let last = socket.descriptors == 1;
            let place = socket.place().filter(|_| last).ok_or(Errno::EINVAL)?;
            let (link, now) = world.link(place)?;
            let limit = link.stack().begin_close(now, place.id).ok_or(Errno::EINVAL)?;
            Ok((slot, place, limit))
        });
        let Ok((slot, place, limit)) = begun else { return };
        let wait = Wait {
            waits_for: For::Socket(slot),
            parts: Parts::of(self.at(fd)),
            may_leave: false,
            limit: Some(limit),
            mask: None,
            kernel: &mut [],
            restarts: &Cell::new(false),
        };
        let _ = self.wait(wait, &mut |world, _| {
            let (link, _) = world.link(place).ok()?;
            let state = link.stack().state(place.id).unwrap_or(State::Closed);
            let over = matches!(state, State::FinWait2 | State::TimeWait | State::Closed);
            over.then_some(())
        });
    }
}

/// The reason given when a signal handler that has interrupted the stack connects.
const IN_HANDLER: &str = "a signal handler has connected it in the middle of another call";

impl World {
    fn source_for(&mut self, remote: SocketAddr, bound: SocketAddr) -> Result<IpAddr, Reason> {
        const NO_ROUTES: &str = "the kernel's routes cannot be read";
        const ANOTHER_WAY: &str = "the way to the other end leads over none of the stack's devices";
        const BY_PORTS: &str =
            "a rule (ip-rule(8)) leads connections with its ports another way than others";
        let from = Some(bound.ip()).filter(|from| !from.is_unspecified());
        let ways = self.ways().ok_or(NO_ROUTES)?;
        let way = ways.way(bound, remote).map_err(|error| format!("{NO_ROUTES}: {error}"))?;
        let way = way.ok_or("the kernel knows no way to the other end")?;
        if way.kind != neighbours::Kind::Link {
            return Err(ANOTHER_WAY.to_owned());
        }
        let source = from.or(way.source).ok_or("the kernel has no address to go there from")?;
        let Some(link) = self.open()?.iter().find(|link| link.has_device(way.device)) else {
            return Err(ANOTHER_WAY.to_owned());
        };
        if !link.has_on(way.device, source) {
            return Err(format!("it is bound to an address that {} does not have", link.name));
        }
        // The stack has one way for all connections to an address.
        if way.by_ports {
            return Err(BY_PORTS.to_owned());
        }
        if let Some(why) = self.one_each.reason(Side::Opened) {
            return Err(why.to_owned());
        }
        Ok(source)
    }

    fn disconnect(&mut self, outside: &impl Outside, slot: Slot) -> Result<HandedOver, Errno> {
        // What was written is on its way, and not taken back by the reset.
        self.turn();
        let fds = self.table.descriptors_of(slot);
        let socket = self.table.get(slot).ok_or(Errno::EBADF)?;
        let (place, ipv6) = (socket.place().ok_or(Errno::EINVAL)?, socket.ipv6);
        if socket.stand_in {
            outside.give_own(&fds, ipv6)?;
            socket.stand_in = false;
        }
        let (link, now) = self.link(place)?;
        link.stack().abort(now, place.id);
        // A thread that waits for it is told by the kernel's socket.
        self.note(slot);
        let mut gone = None;
        for &fd in &fds {
            gone = self.table.unbind(fd).or(gone);
            self.table.hand_over(fd);
        }
        let (_, socket) = gone.ok_or(Errno::EBADF)?;
        let handed = HandedOver::new(fds, &socket, None);
        self.close(socket);
        self.turn();
        Ok(handed)
    }

    fn reserved_end(&mut self, fd: RawFd, way: Way) -> Option<SocketAddr> {
        // A process that has left the privileged half asks it for nothing.
        self.link_of(SocketAddr::new(way.from, 0))?;
        let local = match self.ports.take(way) {
            Some(local) => local,
            None => {
                self.reserve_more(fd, way);
                self.ports.take(way)?
            }
        };
        let now = self.now();
        if let Some(wanted) = self.ports.wanted_ahead(way, now) {
            // Ports of those that are over may be among the ones that come.
            self.say_over();
            if let Ok(number) = self.host.reserve(way.from, way.remote, wanted, fd) {
                self.ports.are_coming(way, wanted, number);
            }
        }
        Some(local)
    }

    fn gives_back(&mut self, port: u16) -> bool {
        self.turn();
        let keeps = self.ports.may_keep(port);
        if keeps {
            self.say_over();
            self.host.settle();
        }
        keeps
    }

    /// Gives idle ports back, and reports connections that are closed or over.
    pub(crate) fn tidy_ports(&mut self) {
        let now = self.now();
        for number in self.ports.give_back_idle(now) {
            self.host.forsake(number);
        }
        self.say_over();
    }

    /// Forgets reserved ports, as the instance that had them for this process is gone.
    pub(crate) fn lose_ports(&mut self) {
        for number in self.ports.are_lost() {
            self.host.forsake(number);
        }
    }

    fn reserve_more(&mut self, fd: RawFd, way: Way) {
        let now = self.now();
        let (wanted, asked) = match self.ports.come(way) {
            Some((wanted, number)) => (wanted, Ok(number)),
            None => {
                let wanted = self.ports.wanted(way, now);
                if wanted == 0 {
                    return;
                }
                // The ports of those that are over may be the ones that are missing.
                self.say_over();
                (wanted, self.host.reserve(way.from, way.remote, wanted, fd))
            }
        };
        let ports = asked.and_then(|number| self.host.reserved(number));
        // A thread that has waited for them in vain does not ask again at once.
        let now = self.now();
        self.ports.add(way, wanted, ports.unwrap_or_default(), now);
    }

    fn begin_connect(
        &mut self,
        fd: RawFd,
        ends: (SocketAddr, SocketAddr),
        fast: bool,
        asked: &Asked,
    ) -> Result<Place, Reason> {
        if self.opened.contains(&ends) {
            // The ends are owned already, and are not to be disowned for this.
            return Err("a connection of the same ends is not over yet".to_owned());
        }
        let begun = self.begin_between(fd, ends, fast, asked);
        if begun.is_err() {
            // A port that was reserved for it alone.
            self.ports.is_unused(ends);
        }
        begun
    }

    fn begin_between(
        &mut self,
        fd: RawFd,
        (local, remote): (SocketAddr, SocketAddr),
        fast: bool,
        asked: &Asked,
    ) -> Result<Place, Reason> {
        let at = self.link_of(local).ok_or("its device is out of use")?;
        let is_reserved = self.ports.has(&(local, remote));
        if is_reserved {
            self.opened.insert((local, remote));
        } else {
            self.own_connection(local, remote, fd)?;
        }
        let begun = match fast {
            true => self.connect_fast(at, (local, remote), &asked.fast_open),
            false => self.links().get_mut(at).ok_or(Errno::ENETDOWN).and_then(|link| {
                let now = link.now();
                link.stack().connect(now, Some(local), remote).map_err(errno::of_connect)
            }),
        };
        let begun = begun.map(|id| Place { link: at, id });
        if let Ok(place) = begun
            && let Ok((link, now)) = self.link(place)
        {
            for &option in asked.options() {
                link.stack().set_option(now, place.id, option);
            }
        }
        begun.map_err(|error| {
            if is_reserved {
                self.opened.remove(&(local, remote));
            } else {
                self.disown_connection(local, remote);
            }
            format!("the stack has refused it: {}", error.desc())
        })
    }
}
