//! Handing connections over to the kernel, and asking for them.
//!
//! What the stack cannot do for a program the kernel can: a connection that is passed on to another process, spliced, taken along
//! by exec, or watched over by an option that only the kernel has. So it becomes the kernel's then (TCP_REPAIR), in a socket that
//! is installed behind its descriptor (dup2(2)), and neither end notices. It is a new socket, which was never the program's
//! before it was connected: a process that has one in repair mode may do what others may not.
//!
//! Fork is the same, but later: parent and child have the descriptor, and which of them goes on with the connection shows only
//! when one closes it or the other uses it. Before fork each connection gets a socket of its own behind its descriptor, and a
//! mailbox, which both have; a parent that closes its descriptor then leaves the connection there, and so does one whose child
//! asks for it. The child puts it behind its descriptor itself.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use uncork_high::high;
use uncork_stack::{Detached, SocketId, State};

use crate::asked::Setting;
use crate::host::Reason;
use crate::link::Pace;
use crate::outside::Outside;
use crate::parts::Parts;
use crate::sleepers::For;
use crate::table::{Kind, Place, Slot, Socket};
use crate::waiting::Wait;
use crate::world::World;
use crate::{Sockets, connection};

/// The error of calls that were made for the stack, and whose connection has become the kernel's by then, perhaps while
/// they waited: they are to be made there. The kernel itself returns it for no call on a socket.
pub const HANDED_OVER: Errno = Errno::ESTALE;

/// The socket by which the process that has a connection is asked for it.
pub(crate) type Owner = Arc<UnixDatagram>;

/// The sockets by which a process hears that its children want a connection.
#[derive(Debug)]
pub(crate) struct Requests {
    ours: UnixDatagram,
    pub(crate) theirs: Owner,
}

/// How long the handshake of a connection that is to be given away is waited for: as long as a child waits for that.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// The length of a request for a connection: its link and its number there.
const REQUEST_BYTES: usize = 16;

/// A connection that has become the kernel's.
#[derive(Debug)]
pub struct HandedOver {
    /// The descriptors that stand for it.
    pub fds: Vec<RawFd>,
    /// Whether O_NONBLOCK is set.
    pub non_blocking: bool,
    /// The options that the program has set.
    pub options: Vec<Setting>,
    /// The epoll sets that it is a member of.
    pub watches: Vec<Watched>,
    /// Why the kernel has it; none if there was no connection yet.
    pub why: Option<Reason>,
    /// The number of the kernel's socket that was there before, if it had one of its own: the program may have been told it.
    pub cookie: Option<u64>,
}

impl HandedOver {
    pub(crate) fn new(fds: Vec<RawFd>, socket: &Socket, why: Option<Reason>) -> Self {
        Self {
            fds,
            non_blocking: socket.non_blocking,
            options: socket.asked.settings().to_vec(),
            watches: socket.watches.iter().map(|watch| watch.told()).collect(),
            why,
            cookie: None,
        }
    }
}

/// A membership in an epoll set.
#[derive(Debug, Clone, Copy)]
pub struct Watched {
    /// The set.
    pub set: RawFd,
    /// The descriptor.
    pub fd: RawFd,
    /// The events, and the data that are told with them.
    pub event: libc::epoll_event,
}

impl Watched {
    /// Returns whether it was told (EPOLLONESHOT) and not armed again since.
    #[must_use]
    pub fn is_disarmed(&self) -> bool {
        self.event.events & !crate::epoll::WAYS == 0
    }
}

impl Requests {
    fn new() -> io::Result<Self> {
        let (ours, theirs) = UnixDatagram::pair()?;
        let [ours, theirs] = [ours, theirs].map(|end| UnixDatagram::from(high(end.into())));
        ours.set_nonblocking(true)?;
        Ok(Self { ours, theirs: Arc::new(theirs) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.ours.as_raw_fd()
    }

    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.ours.as_raw_fd(), self.theirs.as_raw_fd()]
    }

    /// Takes all connections that were asked for by now.
    fn all(&self) -> impl Iterator<Item = Place> {
        std::iter::from_fn(|| self.next())
    }

    fn next(&self) -> Option<Place> {
        let mut octets = [0; REQUEST_BYTES];
        let received = self.ours.recv(&mut octets).ok()?;
        let (link, id) = octets.split_at(REQUEST_BYTES / 2);
        let number = |half: &[u8]| half.try_into().map(u64::from_ne_bytes).ok();
        let (link, id) = number(link).zip(number(id)).filter(|_| received == REQUEST_BYTES)?;
        Some(Place { link: usize::try_from(link).ok()?, id: SocketId::from_u64(id) })
    }
}

/// Asks the process that has a connection for it.
pub(crate) fn ask(owner: &Owner, place: Place) -> Result<(), Errno> {
    let link = u64::try_from(place.link).unwrap_or(u64::MAX);
    let octets = [link.to_ne_bytes(), place.id.as_u64().to_ne_bytes()].concat();
    owner.send(&octets).map(drop).map_err(|_| Errno::ECONNABORTED)
}

impl<O: Outside> Sockets<O> {
    /// Puts a kernel socket of its own behind a socket's descriptors, so that it can be told something.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    pub fn give_its_own(&self, fd: RawFd) -> Result<(), Errno> {
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            world.give_its_own(&self.outside, slot)
        })
    }

    /// Notes listeners as shared before a program is started that may inherit them.
    pub fn share_listeners(&self) {
        self.with_all(World::share_listeners);
    }

    /// Prepares for vfork(2): listeners are both's from then on. Each connection gets a kernel socket of its own behind its
    /// descriptors, for the process that may go on with it, and the keeper looks whether the child asks for that
    /// ([`Sockets::ask_keeper`]).
    pub fn before_vfork(&self) {
        self.share_listeners();
        let some = self.with_all(|world| {
            let some = world.give_each_its_own(&self.outside, |_| {});
            if some && world.vfork_mailbox.is_none() {
                world.vfork_mailbox = self.outside.mailbox().ok();
            }
            some
        });
        if some.contains(&true) {
            self.all().for_each(|part| self.keeper_must_expect(part));
        }
    }

    /// In a child of vfork, which runs in its parent's memory and may have closed what a connection needs to change
    /// hands: asks the parent's keeper to make the connection of `fd` the kernel's, if there is one that can. It is
    /// done when [`Sockets::is_asked_for`] returns false.
    ///
    /// # Errors
    ///
    /// EBADF and its kin if it is no connection that could be given away; ECONNABORTED if no thread can.
    pub fn ask_keeper(&self, fd: RawFd, why: &'static str) -> Result<(), Errno> {
        let part = self.at(fd);
        self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            connection(socket)?;
            // Of a connection that has come since, the child has only the shared stand-in.
            if socket.stand_in || !self.keeps(part) {
                return Err(Errno::ECONNABORTED);
            }
            world.asked_by_children.push((fd, why));
            Ok(())
        })?;
        self.keeper_must_look(part);
        Ok(())
    }

    /// Returns whether the keeper has still to do that.
    #[must_use]
    pub fn is_asked_for(&self, fd: RawFd) -> bool {
        let asked = |world: &mut World| world.asked_by_children.iter().any(|&(one, _)| one == fd);
        self.with(self.at(fd), asked) == Some(true)
    }

    /// In a child of vfork: returns the mailbox where the keeper leaves what it has made the kernel's.
    #[must_use]
    pub fn vfork_mailbox(&self, fd: RawFd) -> Option<RawFd> {
        self.with(self.at(fd), |world| world.vfork_mailbox.as_ref().map(|it| it.as_raw_fd()))?
    }

    /// In a child of fork: returns the mailbox where its parent leaves the connection of `fd`.
    #[must_use]
    pub fn mailbox(&self, fd: RawFd) -> Option<RawFd> {
        let found = self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            Ok(socket.mailbox.as_ref().map(|mailbox| mailbox.as_raw_fd()))
        });
        found.ok()?
    }

    /// Withdraws a request, as the child that has made it waits no more.
    pub fn ask_no_more(&self, fd: RawFd) {
        self.with(self.at(fd), |world| world.asked_by_children.retain(|&(one, _)| one != fd));
    }

    /// Makes a connection the kernel's, and records why.
    ///
    /// # Errors
    ///
    /// EINVAL if it is no connection that could be given away, and nothing has changed then; ECONNABORTED if
    /// the kernel does not take it, and it is lost.
    pub fn hand_over(&self, fd: RawFd, why: &str) -> Result<(), Errno> {
        let hand_over = |world: &mut World| {
            let slot = world.table.slot(fd)?;
            // Under the lock, as all of it: a thread that closes a descriptor may get its number again at once.
            self.outside.settle(&world.hand_over(&self.outside, slot, why)?);
            Ok(())
        };
        match self.call(fd, hand_over) {
            Err(Errno::EAGAIN) => {
                self.await_handshake(fd)?;
                self.call(fd, hand_over)
            }
            done => done,
        }
    }

    /// Returns whether the connection of `fd` has become the kernel's, and that is what `fd` stands for.
    #[must_use]
    pub fn is_handed_over(&self, fd: RawFd) -> bool {
        self.with(self.at(fd), |world| world.table.is_handed_over(fd)) == Some(true)
    }

    /// Waits for the handshake of a connection that was the program's before that was over: only then can it be given away.
    fn await_handshake(&self, fd: RawFd) -> Result<(), Errno> {
        let slot = self.call(fd, |world| world.table.slot(fd))?;
        let wait = Wait {
            waits_for: For::Socket(slot),
            parts: Parts::of(self.at(fd)),
            may_leave: false,
            limit: Some(HANDSHAKE),
            mask: None,
            kernel: &mut [],
            restarts: &Cell::new(true),
        };
        self.wait(wait, &mut |world, _| (!world.is_early(slot)).then_some(())).map(drop)
    }

    /// Returns the descriptors whose connections have to be the kernel's when the process becomes another program,
    /// or ends with children that have them, too.
    #[must_use]
    pub fn shared_with_children(&self) -> Vec<RawFd> {
        let shared = self.with_all(|world| {
            let slots = world.table.slots_where(|one| one.forked);
            let fds = slots.into_iter().filter_map(|slot| world.table.descriptor(slot));
            fds.collect::<Vec<_>>()
        });
        shared.concat()
    }

    /// Returns a descriptor of every connection.
    #[must_use]
    pub fn connections(&self) -> Vec<RawFd> {
        self.with_all(World::connected_descriptors).concat()
    }

    /// Returns a descriptor of every listener.
    #[must_use]
    pub fn listeners(&self) -> Vec<RawFd> {
        let all = |world: &mut World| {
            world.table.descriptors_where(|kind| matches!(kind, Kind::Listener(_)))
        };
        self.with_all(all).concat()
    }

    /// Returns whether a child may have this connection, too, and closing `fd` would end this process's part.
    #[must_use]
    pub fn is_last_of_shared(&self, fd: RawFd) -> bool {
        let last = self.call(fd, |world| {
            let (_, socket) = world.table.find(fd)?;
            Ok(socket.forked && socket.descriptors == 1)
        });
        last.unwrap_or(false)
    }

    /// Does what children have asked for, in the process that has the connections.
    pub fn answer_children(&self) {
        self.with_all(|world| {
            while let Some((slot, why, asked_for)) = world.next_request() {
                let handed = world.hand_over(&self.outside, slot, why);
                if let Some((fd, mailbox)) = asked_for.zip(world.vfork_mailbox.as_ref()) {
                    // The child's descriptors are its own.
                    let connection = handed.as_ref().ok().map(|_| fd);
                    self.outside.leave(mailbox.as_fd(), fd, connection);
                }
                if let Ok(handed) = handed {
                    self.outside.settle(&handed);
                }
            }
        });
    }

    /// In a child: asks the process that has the connection of `fd` to make it the kernel's, which the caller
    /// then waits for.
    ///
    /// # Errors
    ///
    /// ECONNABORTED if that process is gone; EBADF if it is no connection of the parent.
    pub fn claim(&self, fd: RawFd) -> Result<(), Errno> {
        self.call(fd, |world| match &world.table.find(fd)?.1.kind {
            Kind::Elsewhere { owner: Some(owner), place } => ask(owner, *place),
            Kind::Elsewhere { owner: None, .. } => Err(Errno::ECONNABORTED),
            _ => Err(Errno::EBADF),
        })
    }

    /// In a child: forgets `fd`, which is the kernel's by now, or lost.
    pub fn forget(&self, fd: RawFd) {
        self.with(self.at(fd), |world| world.table.unbind(fd));
    }

    /// In a child: returns the descriptors that stand for connections of the process that it was forked from.
    #[must_use]
    pub fn of_parent(&self) -> Vec<RawFd> {
        self.with_all(|world| {
            world.table.descriptors_where(|kind| matches!(kind, Kind::Elsewhere { .. }))
        })
        .concat()
    }
}

impl World {
    fn connected_descriptors(&mut self) -> Vec<RawFd> {
        self.table.descriptors_where(|kind| matches!(kind, Kind::Connection { .. }))
    }

    /// Takes the next of the connections that children ask for, with the descriptor by which a child of vfork does.
    fn next_request(&mut self) -> Option<(Slot, &'static str, Option<RawFd>)> {
        for at in (0..self.asked_by_children.len()).rev() {
            let (fd, why) = self.asked_by_children[at];
            let slot = self.table.slot(fd);
            if slot.is_ok_and(|slot| self.is_early(slot)) {
                continue;
            }
            self.asked_by_children.remove(at);
            if let Ok(slot) = slot {
                return Some((slot, why, Some(fd)));
            }
        }
        self.asked_early.extend(self.requests.iter().flat_map(Requests::all));
        for at in (0..self.asked_early.len()).rev() {
            let place = self.asked_early[at];
            let slot = self.links().get(place.link).and_then(|link| link.slot(place.id));
            if slot.is_some_and(|slot| self.is_early(slot)) {
                continue;
            }
            self.asked_early.remove(at);
            if let Some(slot) = slot {
                return Some((slot, "a child of fork goes on with it", None));
            }
        }
        None
    }

    /// Returns whether it was the program's before its handshake was over, and that is not over yet (TCP Fast Open): it was
    /// accepted, or connect(2) has succeeded. A SYN that waits for data leaves without, as nothing will be written here.
    pub(crate) fn is_early(&mut self, slot: Slot) -> bool {
        let Some(socket) = self.table.get(slot) else { return false };
        let (may_be_deferred, place) = (socket.asked.connects_fast(), socket.place());
        let Some(place) = place else { return false };
        let Ok((link, now)) = self.link(place) else { return false };
        match link.state(place.id) {
            Some(State::SynReceived) => true,
            Some(State::SynSent) if may_be_deferred => {
                if link.stack().is_deferred(place.id) {
                    link.stack().launch(now, place.id);
                    self.turn();
                }
                true
            }
            _ => false,
        }
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.requests.is_some() || !self.asked_by_children.is_empty()
    }

    pub(crate) fn hand_over(
        &mut self,
        outside: &impl Outside,
        slot: Slot,
        why: &str,
    ) -> Result<HandedOver, Errno> {
        self.turn();
        if self.is_early(slot) {
            return Err(Errno::EAGAIN);
        }
        let fds = self.table.descriptors_of(slot);
        let first = *fds.first().ok_or(Errno::EBADF)?;
        let socket = self.table.get(slot).ok_or(Errno::EBADF)?;
        let (place, ipv6) = (socket.place().ok_or(Errno::EINVAL)?, socket.ipv6);
        let stands = socket.stand_in;
        if stands {
            // Should the kernel not take it, no other connection is meant by what is done with these.
            outside.give_own(&fds, ipv6)?;
            socket.stand_in = false;
        }
        outside.has_room()?;
        let (link, now) = self.link(place)?;
        let detached = link.stack().detach(now, place.id).ok_or(Errno::EINVAL)?;
        outside.begin(first);
        link.unbind(place.id);
        // A thread that waits for it goes on with the kernel's, when this is done.
        self.note(slot);
        // The list of connections is kept by what the stack reports in a turn.
        let taken = self.host.to_kernel(&detached, ipv6, &[]).map_err(|_| Errno::ECONNABORTED);
        if let Some(mailbox) = self.table.get(slot).and_then(|socket| socket.mailbox.as_ref()) {
            let connection = taken.as_ref().ok().map(|connection| connection.as_raw_fd());
            outside.leave(mailbox.as_fd(), first, connection);
        }
        let taken = taken.and_then(|connection| outside.put(&fds, connection, stands));
        if taken.is_err() {
            outside.lose(&fds);
        }
        let mut gone = None;
        for &fd in &fds {
            gone = self.table.unbind(fd).or(gone);
            self.table.hand_over(fd);
        }
        let (_, socket) = gone.ok_or(Errno::EBADF)?;
        self.sets.forget_socket(&socket);
        self.bring_caught(place.link, &detached, first);
        Ok(HandedOver { cookie: taken?, ..HandedOver::new(fds, &socket, Some(why.to_owned())) })
    }

    /// Brings the kernel what was in the device's ring when it got the rest: else the peer would wait for its timer.
    pub(crate) fn bring_caught(&mut self, link: usize, detached: &Detached, fd: RawFd) {
        // No other connection may change hands meanwhile.
        self.turn_links(Pace::Whole);
        let Some(link) = self.links().get_mut(link) else { return };
        let (local, remote) = (detached.snapshot.local, detached.snapshot.remote);
        for segment in link.stack().take_caught(local, remote) {
            self.host.bring((local, remote), fd, &segment);
        }
    }

    /// Puts a socket that it has alone behind the descriptors of a connection.
    pub(crate) fn give_its_own(&mut self, outside: &impl Outside, slot: Slot) -> Result<(), Errno> {
        let fds = self.table.descriptors_of(slot);
        let socket = self.table.get(slot).ok_or(Errno::EBADF)?;
        if socket.stand_in {
            outside.give_own(&fds, socket.ipv6)?;
            socket.stand_in = false;
        }
        Ok(())
    }

    /// Prepares for fork(2): each connection gets a socket of its own behind its descriptors, and a mailbox, for the process that
    /// will go on with it. A connection that gets none the child will not have.
    pub(crate) fn share_with_child(&mut self, outside: &impl Outside) {
        self.share_listeners();
        let has_some = self.give_each_its_own(outside, |socket| {
            if socket.mailbox.is_none() {
                socket.mailbox = outside.mailbox().ok();
            }
            socket.forked |= socket.mailbox.is_some();
        });
        if has_some && self.requests.is_none() {
            self.requests = Requests::new().ok();
            self.requests.iter().flat_map(Requests::descriptors).for_each(|fd| outside.protect(fd));
        }
    }

    /// Gives each connection a socket of its own; `given` is told of each that has one. Returns whether there are connections.
    fn give_each_its_own(&mut self, outside: &impl Outside, given: impl Fn(&mut Socket)) -> bool {
        let slots = self.table.slots_where(Socket::is_connection);
        for &slot in &slots {
            let fds = self.table.descriptors_of(slot);
            let Some(socket) = self.table.get(slot) else { continue };
            if socket.stand_in && outside.give_own(&fds, socket.ipv6).is_err() {
                // The child will not have it.
                continue;
            }
            socket.stand_in = false;
            given(socket);
        }
        !slots.is_empty()
    }

    /// Marks what was the parent's as elsewhere, in a child of fork.
    pub(crate) fn disinherit(&mut self) {
        let owner = self.requests.take().map(|requests| requests.theirs);
        let Self { table, sets, .. } = self;
        for (slot, socket) in table.iter() {
            if let Kind::Listener(_) = socket.kind {
                // The child, which has the sets as well, listens there, too.
                sets.inherit(slot, socket);
            } else {
                socket.watches.clear();
            }
            let forked = std::mem::take(&mut socket.forked);
            if !forked && socket.is_connection() {
                socket.mailbox = None;
            }
            match &mut socket.kind {
                Kind::Listener(listener) => {
                    listener.on.clear();
                    listener.reason = None;
                    listener.is_kernels = false;
                    // They are the parent's, which has them open, too.
                    listener.passed.clear();
                }
                Kind::Connection { place, .. } => {
                    let owner = owner.clone().filter(|_| forked);
                    socket.kind = Kind::Elsewhere { place: *place, owner };
                }
                Kind::Elsewhere { .. } => {}
            }
        }
    }
}
