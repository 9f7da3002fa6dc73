//! The world: all that this process, or one of its threads (`parts`), has on the stack, under one lock: devices,
//! descriptors, epoll sets, sleepers.

mod turning;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use uncork_engine::Instant;
use uncork_neighbours::Neighbours;
use uncork_stack::{ListenerId, Ready, State};

use crate::bell::{self, Bell};
use crate::drafts::Drafts;
use crate::epoll::Sets;
use crate::errno;
use crate::eye::What;
use crate::fast_open;
use crate::given::Given;
use crate::handing::Requests;
use crate::host::{Host, Opened, Reason, Tell};
use crate::leaving::Leaving;
use crate::link::{Link, Told};
use crate::lost::Lost;
use crate::neglect::Shared;
use crate::one_each::{OneEach, Side};
use crate::outside::Outside;
use crate::parts::Part;
use crate::ports::{self, Ports};
use crate::sleepers::{For, Sleepers};
use crate::table::{Kind, Place, Slot, Socket, Table};
use crate::tick::Tick;

/// How long a thread that stands back does not look at the kernel's descriptors that it waits for.
const STAND_BACK: Duration = Duration::from_micros(100);

/// What a thread sleeps on, and for how long.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The number of parts that it sleeps in.
    pub(crate) places: usize,
    /// The program's descriptor that wakes it, if that is a single one, as its eye knows it.
    pub(crate) programs: Option<What>,
    /// Whether it does not look at that for a moment.
    pub(crate) stands_back: bool,
    /// The descriptors of ours that wake it.
    fds: Vec<(RawFd, Wakes)>,
    /// A client that wants to be told what the stack does ([`crate::Outside::start_telling`]).
    pub(crate) asker: Option<OwnedFd>,
    /// How long it may sleep at most.
    pub(crate) limit: Option<Duration>,
}

/// What is to be done when a descriptor has woken a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// A turn of the link of this number, which no other link has had.
    Device(usize),
    /// A turn of the link of this number, as the instance has rung: [`World::was_rung`].
    Instance(usize),
    /// The kernel has news of neighbours: [`World::hear_ways`].
    Ways,
    /// The privileged half is possibly gone: [`World::look_at_host`]. The number is how often it has been.
    Host(u32),
    /// A child asks for a connection: [`crate::Sockets::answer_children`].
    Requests,
}

/// Descriptors that wake a sleeper, and how long it may sleep at most.
type WhatWakes = (Vec<(RawFd, Wakes)>, Option<Duration>);

impl Rest {
    /// Adds these, and their limit.
    pub(crate) fn add(&mut self, (fds, limit): WhatWakes) {
        self.fds.extend(fds);
        self.limit = [self.limit, limit].into_iter().flatten().min();
    }

    /// Leaves out the kernel's descriptors for a moment, if it is to.
    pub(crate) fn stand_back(&mut self, is_to: bool) {
        if is_to {
            (self.stands_back, self.programs) = (true, None);
            self.add((Vec::new(), Some(STAND_BACK)));
        }
    }

    /// Returns all descriptors of ours that wake it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (RawFd, Wakes)> + Clone {
        self.fds.iter().copied()
    }
}

/// The state of a part.
pub(crate) struct World {
    pub(crate) host: Box<dyn Host>,
    /// The devices, or why there are none; `None` before the first is needed.
    links: Option<Result<Vec<Link>, Reason>>,
    pub(crate) table: Table,
    pub(crate) sets: Sets,
    pub(crate) sleepers: Sleepers,
    /// The kernel's routes and neighbours; opened when they are first asked for.
    pub(crate) ways: Option<Neighbours>,
    /// Connections that this process has opened, and so owns one by one.
    pub(crate) opened: HashSet<(SocketAddr, SocketAddr)>,
    /// Ports that are reserved to open connections from.
    pub(crate) ports: Ports,
    /// Listeners on the stack that the program has closed, or leaves to other processes, until what is under way is over.
    pub(crate) leaving: Vec<Leaving>,
    /// Connections that a child of vfork wants to be the kernel's, and why.
    pub(crate) asked_by_children: Vec<(RawFd, &'static str)>,
    /// Where children of vfork find them.
    pub(crate) vfork_mailbox: Option<OwnedFd>,
    /// Where children of fork ask for connections, once there may be some that want to.
    pub(crate) requests: Option<Requests>,
    /// The connections that they have asked for and whose handshake is not over.
    pub(crate) asked_early: Vec<Place>,
    /// A buffer for what a turn tells.
    told: Vec<Told>,
    /// Turns made so far, for the keeper, which looks whether any thread makes some.
    pub(crate) turns: u64,
    /// When the last turn was made.
    pub(crate) turned: Instant,
    /// Whether the keeper sleeps on the devices, and makes a turn after that.
    pub(crate) keeper_watches: bool,
    /// The keeper's timer, and when it was last moved on.
    pub(crate) tick: Option<Arc<Tick>>,
    moved: Instant,
    /// When that timer was last brought forward.
    brought_forward: Instant,
    /// Calls since the last turn that have asked without waiting.
    asked: u32,
    /// What was given to the stack since the last turn.
    pub(crate) given: Given,
    /// Connections whose last write may be a part of a message only.
    pub(crate) drafts: Drafts,
    /// A buffer for a piece of a file that is being sent.
    pub(crate) piece: Vec<u8>,
    /// Glances of threads that try before they sleep.
    glances: u32,
    /// The data under which the kernel's sets have the bells of sets that are shown; random, so that it is no entry's of the
    /// program. All parts have the same.
    pub(crate) mark: u64,
    /// When this process's stack began.
    pub(crate) begun: std::time::Instant,
    /// How often the privileged half was found gone.
    pub(crate) hosts_gone: u32,
    /// Set while the instance is gone on whose stack listeners were.
    pub(crate) lost: Option<Lost>,
    /// Listeners that other processes have, too.
    pub(crate) shared: Vec<Shared>,
    pub(crate) one_each: OneEach,
    /// The number of devices that were opened and closed again.
    pub(crate) put_away: usize,
    /// What the host permits of TCP Fast Open.
    pub(crate) fast_open: fast_open::Settings,
    seed: fn() -> [u8; 32],
    pub(crate) tell: Tell,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("table", &self.table).finish_non_exhaustive()
    }
}

impl World {
    pub(crate) fn new(host: Box<dyn Host>, seed: fn() -> [u8; 32], tell: Tell) -> Self {
        let mark = seed().first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Self::of(Part::FIRST, host, mark, (seed, tell))
    }

    /// Returns a new world for another thread.
    pub(crate) fn another(&self, part: Part) -> Self {
        Self::of(part, self.host.another(), self.mark, (self.seed, self.tell))
    }

    fn of(
        part: Part,
        host: Box<dyn Host>,
        mark: u64,
        (seed, tell): (fn() -> [u8; 32], Tell),
    ) -> Self {
        Self {
            host,
            links: None,
            table: Table::new(part),
            sets: Sets::default(),
            sleepers: Sleepers::default(),
            ways: None,
            opened: HashSet::new(),
            ports: Ports::default(),
            leaving: Vec::new(),
            asked_by_children: Vec::new(),
            vfork_mailbox: None,
            requests: None,
            asked_early: Vec::new(),
            told: Vec::new(),
            turns: 0,
            turned: Instant::ZERO,
            tick: None,
            moved: Instant::ZERO,
            brought_forward: Instant::ZERO,
            keeper_watches: false,
            given: Given::nothing(),
            drafts: Drafts::default(),
            asked: 0,
            piece: Vec::new(),
            glances: 0,
            mark,
            begun: std::time::Instant::now(),
            hosts_gone: 0,
            lost: None,
            shared: Vec::new(),
            one_each: OneEach::default(),
            put_away: 0,
            fast_open: fast_open::Settings::default(),
            seed,
            tell,
        }
    }

    /// Returns the devices, which are opened when they are first needed.
    pub(crate) fn open(&mut self) -> Result<&mut Vec<Link>, Reason> {
        if self.links.is_none() {
            let seed = self.seed;
            let opened = self.host.open();
            if matches!(opened, Ok(Opened::Own(_))) {
                // From now on a change of the devices' Ethernet addresses is news.
                self.ways();
            }
            let (host, put_away) = (&mut self.host, self.put_away);
            self.links = Some(opened.map(|opened| match opened {
                Opened::Own(devices) => {
                    let (links, config) = (devices.into_iter().enumerate(), host.config());
                    let link =
                        |(at, device)| Link::new(put_away + at, device, config.clone(), seed());
                    links.map(link).collect()
                }
                Opened::Attached(attachment) => vec![Link::attached(0, *attachment)],
            }));
        }
        match &mut self.links {
            Some(Ok(links)) => {
                if links.iter().all(Link::is_without_instance) {
                    // An instance that has died is started again; places of its connections stay as they are.
                    if let Opened::Attached(attachment) = self.host.open()? {
                        links.push(Link::attached(links.len(), *attachment));
                    }
                }
                Ok(links)
            }
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(Reason::from("the devices are not open")),
        }
    }

    /// Returns whether the devices were opened, or that was tried.
    pub(crate) fn is_open(&self) -> bool {
        self.links.is_some()
    }

    /// Closes the devices, which nothing is on.
    pub(crate) fn forget_links(&mut self) {
        self.put_away += self.links().len();
        self.links = None;
    }

    pub(crate) fn links(&mut self) -> &mut [Link] {
        match &mut self.links {
            Some(Ok(links)) => links,
            _ => &mut [],
        }
    }

    /// Returns the links, and the host, which keeps the list of their connections.
    pub(crate) fn links_and_host(&mut self) -> (&mut [Link], &mut dyn Host) {
        let links = match &mut self.links {
            Some(Ok(links)) => links.as_mut_slice(),
            _ => &mut [],
        };
        (links, self.host.as_mut())
    }

    /// Returns the link of a place. Places name links that exist: no link is removed while a place names it.
    pub(crate) fn link(&mut self, place: Place) -> Result<(&mut Link, Instant), Errno> {
        let link = self.links().get_mut(place.link).ok_or(Errno::ENETDOWN)?;
        let now = link.now();
        Ok((link, now))
    }

    /// Returns the link of a place, for a caller that looks at what the last turn has brought, or takes it, with the time of that
    /// turn. The clock is not read again, which is a part of what a small call costs.
    pub(crate) fn link_as_turned(&mut self, place: Place) -> Result<(&mut Link, Instant), Errno> {
        let link = self.links().get_mut(place.link).ok_or(Errno::ENETDOWN)?;
        let turned = link.turned();
        Ok((link, turned))
    }

    pub(crate) fn now(&mut self) -> Instant {
        self.links().first().map_or(Instant::ZERO, |link| link.now())
    }

    /// Wakes the threads that sleep on a set, to look at it again.
    pub(crate) fn wake_set(&mut self, set: RawFd) {
        self.sleepers.wake_set(set, self.table.part());
    }

    /// Forgets a set that is closed: its number may come again, and mean another one.
    pub(crate) fn forget_set(&mut self, set: RawFd) {
        // A thread that sleeps on it looks again: another kernel set (its eye) may wake it, which a closed set leaves.
        self.wake_set(set);
        let Self { table, sets, .. } = self;
        if sets.forget_set(set) {
            for (_, socket) in table.iter() {
                let gone = socket.watches.extract_if(.., |watch| watch.is_of(set));
                gone.for_each(|watch| sets.dismiss(watch.herald()));
            }
        }
    }

    /// Returns the link that has this address.
    pub(crate) fn link_of(&mut self, local: SocketAddr) -> Option<usize> {
        let links = self.open().ok()?;
        links.iter().position(|link| link.has(local.ip()) && link.reason().is_none())
    }

    pub(crate) fn own_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        bound: RawFd,
    ) -> Result<(), Reason> {
        // Its ends may be those of a connection that is over, which was not reported yet.
        self.say_over();
        self.host.own_connection(local, remote, bound)?;
        self.opened.insert((local, remote));
        Ok(())
    }

    /// Tells the privileged half of connections from reserved ports what it was not told yet.
    pub(crate) fn say_over(&mut self) {
        if let Some(past) = self.ports.say() {
            self.ports.unsaid = !self.host.are_past(past);
        }
    }

    /// Disowns a connection that is over, or was never begun. Those that came to a listener are owned with its port.
    pub(crate) fn disown_connection(&mut self, local: SocketAddr, remote: SocketAddr) {
        let ends = (local, remote);
        if !self.opened.remove(&ends) {
            return;
        }
        if !self.ports.is_over(ends) {
            self.host.disown_connection(local, remote);
        } else if self.ports.has_much_to_say() {
            self.say_over();
        }
    }

    /// Notes that something has happened to a socket, and wakes the threads that wait for it.
    pub(crate) fn note(&mut self, slot: Slot) {
        let Self { sleepers, table, sets, one_each, .. } = self;
        let part = table.part();
        let Some(socket) = table.get(slot) else { return };
        sets.note(slot, socket, |set| sleepers.wake_set(set, part));
        let rung = sleepers.wake(slot, part);
        if socket.is_connection() {
            one_each.count(Side::of(socket), rung);
        }
    }

    /// Wakes the threads that sleep on a socket, to look at it again.
    pub(crate) fn wake(&mut self, slot: Slot) {
        self.sleepers.wake(slot, self.table.part());
    }

    /// Enters a thread that is about to sleep; `once_more` if it was woken and has found nothing.
    pub(crate) fn rest(&mut self, bell: &Bell, waits_for: For, once_more: bool, rest: &mut Rest) {
        // A signal handler that has jumped out of an earlier sleep has left its entry there.
        self.woken(bell);
        let part = self.table.part();
        rest.places += 1;
        rest.programs = self.seen_as(&waits_for);
        self.sleepers.add(bell, waits_for, part);
        // What these find rings the bell, if it is for the thread that is about to sleep.
        self.leave_neglected();
        self.take_passed();
        // A client may have come in the middle of an answer of the host, and was read with that.
        rest.asker = rest.asker.take().or_else(|| self.host.next_asker());
        if self.sleepers.are_enough(part, once_more) {
            return self.watch_on();
        }
        let (fds, limit) = self.what_wakes();
        let until = limit.map(|limit| self.now() + limit);
        let watched = self.watched(&fds);
        self.sleepers.watch(watched, until);
        rest.add((fds, limit));
    }

    /// Returns what an eye takes the program's descriptor for that wakes a thread that waits so.
    fn seen_as(&mut self, waits_for: &For) -> Option<What> {
        match waits_for {
            // Others see through a set that is shown already: the kernel bounds how deep that goes.
            For::Set(set) => {
                self.sets.serial(*set).filter(|_| !self.sets.is_shown(*set)).map(What::Set)
            }
            For::Socket(slot) => {
                self.table.get(*slot).filter(|it| it.is_listener()).map(|_| What::Listener(*slot))
            }
            For::Sockets(_) => None,
        }
    }

    /// Rings a watcher if something may be waited for that was not before, as after a turn: it is to wake for that, too.
    pub(crate) fn watch_on(&mut self) {
        let is_anybody_asleep = self.is_anybody_asleep();
        if is_anybody_asleep || self.keeper_watches {
            self.links().iter_mut().for_each(Link::watch_on);
        }
        if !is_anybody_asleep {
            return;
        }
        let (fds, limit) = self.what_wakes();
        let due = limit.map(|limit| self.now() + limit);
        let fds = self.watched(&fds);
        self.sleepers.watch_on(self.table.part(), &fds, due);
    }

    /// Returns what a thread that sleeps on these watches.
    fn watched(&mut self, fds: &[(RawFd, Wakes)]) -> Vec<RawFd> {
        let links = self.links();
        let general = |fd| links.iter().fold(fd, |fd, link| link.stands_for(fd));
        fds.iter().map(|(fd, _)| general(*fd)).collect()
    }

    /// Removes a thread that goes on with something else from the sleepers, and passes its watch on.
    pub(crate) fn goes_on(&mut self, bell: &Bell) {
        self.woken(bell);
        self.pass_watch();
    }

    /// Makes a sleeper watch the devices from now on, if none does.
    pub(crate) fn pass_watch(&mut self) {
        self.sleepers.pass_watch(self.table.part());
    }

    /// Wakes one of the watchers, to look at the devices.
    pub(crate) fn wake_watcher(&mut self) {
        self.sleepers.wake_watcher(self.table.part());
    }

    /// Returns what wakes a thread that sleeps on the devices, and how long it may sleep at most.
    pub(crate) fn what_wakes(&mut self) -> WhatWakes {
        let (mut fds, mut due) = (Vec::new(), None);
        for link in self.links() {
            let (more, limit) = link.wakes();
            let number = link.number();
            let rings = if link.is_attached() { Wakes::Instance } else { Wakes::Device };
            // An instance rings by either of its descriptors.
            let both = more.into_iter().zip([rings(number); 2]);
            fds.extend(both.filter_map(|(fd, wakes)| Some((fd?, wakes))));
            due = [due, limit].into_iter().flatten().min();
        }
        let limits = [
            due,
            self.neglects_after(),
            self.leaves_after(),
            self.ports.have_something().then_some(ports::IDLE),
            self.lost.as_ref().map(Lost::rest),
            self.ways.as_ref().is_some_and(Neighbours::has_more).then_some(Duration::ZERO),
        ];
        let others = [
            (self.requests.as_ref().map(Requests::fd), Wakes::Requests),
            (self.ways.as_ref().map(|ways| ways.as_fd().as_raw_fd()), Wakes::Ways),
            (self.host.wakes(), Wakes::Host(self.hosts_gone)),
        ];
        fds.extend(others.into_iter().filter_map(|(fd, wakes)| Some((fd?, wakes))));
        (fds, limits.into_iter().flatten().min())
    }

    /// Tells the links that this descriptor, by which an instance may ring, could be read.
    pub(crate) fn was_rung(&mut self, bell: RawFd) {
        self.links().iter_mut().for_each(|link| link.was_rung(bell));
    }

    /// Returns the library's own descriptors, which the program does not know of.
    pub(crate) fn own_descriptors(&mut self) -> Vec<RawFd> {
        let mut all = self.host.descriptors();
        all.extend(bell::descriptors());
        all.extend(self.sets.bells());
        all.extend(self.ways.iter().flat_map(Neighbours::descriptors));
        all.extend(self.requests.iter().flat_map(Requests::descriptors));
        all.extend(self.tick.as_ref().map(|tick| tick.fd()));
        all.extend(self.vfork_mailbox.as_ref().map(|mailbox| mailbox.as_raw_fd()));
        for (_, socket) in self.table.iter() {
            all.extend(socket.mailbox.as_ref().map(|mailbox| mailbox.as_raw_fd()));
            if let Kind::Listener(listener) = &socket.kind {
                all.extend(listener.passed.iter().map(|(_, connection)| connection.as_raw_fd()));
            }
        }
        for link in self.links() {
            all.extend(link.descriptors());
        }
        all
    }

    /// Removes a thread that sleeps no more from the sleepers.
    pub(crate) fn woken(&mut self, bell: &Bell) {
        self.sleepers.remove(bell, self.table.part());
    }

    /// Returns whether a sleeper makes turns when something comes. One that a signal handler has interrupted may never come back.
    pub(crate) fn is_anybody_asleep(&self) -> bool {
        self.sleepers.is_anybody_asleep(self.table.part())
    }

    /// Closes a socket for good.
    pub(crate) fn close(&mut self, socket: Socket) {
        self.sets.forget_socket(&socket);
        match socket.kind {
            Kind::Connection { place, .. } => {
                let id = place.id;
                let resets = self.links().get(place.link).is_some_and(|link| link.close_resets(id));
                if resets && !self.given.is_nothing() {
                    // On kernel sockets what was written is on its way by now, and the reset does not take it back.
                    self.turn();
                }
                if let Ok((link, now)) = self.link(place) {
                    link.unbind(id);
                    link.stack().close(now, id);
                }
                if resets {
                    // A program that learns of the close by other means may look for its effect at once.
                    self.turn();
                }
            }
            Kind::Listener(listener) => self.leave(listener, socket.ipv6, socket.asked),
            Kind::Elsewhere { .. } => {}
        }
    }

    /// Looks whether the privileged half is gone. Without it nothing keeps the kernel from what is the stack's: connections
    /// end now that they still can with a reset, and listeners are the kernel's alone.
    pub(crate) fn look_at_host(&mut self, outside: &impl Outside) {
        if self.host.is_gone() {
            self.hosts_gone += 1;
            self.ports = Ports::default();
            self.abandon_links("what served the stack has ended");
        } else if self.host.is_to_be_left() {
            self.leave_host(outside);
        }
        // The host's descriptor was read, and wakes no thread for these any more.
        self.take_passed();
    }

    /// Ends what is still on the stack.
    pub(crate) fn abandon_links(&mut self, why: &str) {
        let mut told = Vec::new();
        let (links, host) = self.links_and_host();
        for link in links {
            link.leave(host, &mut told);
        }
        self.deal_with(&mut told);
        self.leave_listeners_to_kernel(why);
    }

    /// Leaves listeners to the kernel, which listens there, too, and gets all connections from now on.
    fn leave_listeners_to_kernel(&mut self, why: &str) {
        for (_, socket) in self.table.iter() {
            if let Kind::Listener(listener) = &mut socket.kind {
                listener.on.clear();
                listener.is_kernels = false;
                listener.reason = Some(Reason::from(why));
            }
        }
        for fd in self.table.descriptors_where(|kind| matches!(kind, Kind::Listener(_))) {
            (self.tell)(fd, Err(why));
        }
    }

    /// Makes this the world of a child of fork: connections and devices are the parent's, listeners are both's.
    pub(crate) fn become_child(&mut self, host: Box<dyn Host>) {
        self.host = host;
        // Nothing of the parent's is undone by this: its descriptors here are copies.
        self.links = None;
        self.put_away = 0;
        self.begun = std::time::Instant::now();
        self.ways = None;
        self.opened.clear();
        self.drafts = Drafts::default();
        self.ports = Ports::default();
        self.leaving.clear();
        self.asked_early.clear();
        self.lost = None;
        self.fast_open = fast_open::Settings::default();
        self.keeper_watches = false;
        self.tick = None;
        self.sleepers = Sleepers::default();
        self.one_each = OneEach::default();
        self.sets = Sets::default();
        self.disinherit();
    }

    /// Closes listeners on the stack: connections that wait to be accepted are reset.
    pub(crate) fn close_listeners(&mut self, on: Vec<(usize, ListenerId)>) {
        for (link, id) in on {
            if let Some(link) = self.links().get_mut(link) {
                let now = link.now();
                link.unbind_listener(id);
                link.stack().close_listener(now, id);
            }
        }
    }

    /// Returns a socket's readiness, as EPOLLIN and its kin, which are POLLIN's (tcp_poll).
    pub(crate) fn readiness(&mut self, slot: Slot) -> u32 {
        let Some(socket) = self.table.get(slot) else { return 0 };
        let place = match &socket.kind {
            Kind::Listener(_) => return if self.somebody_waits(slot) { READABLE } else { 0 },
            Kind::Elsewhere { .. } => return 0,
            Kind::Connection { place, .. } => *place,
        };
        let low_water = socket.asked.low_water();
        let Ok((link, turned)) = self.link_as_turned(place) else { return FAILED };
        let ready = link.stack().readiness(turned, place.id);
        let bits = [
            (Ready::READABLE, READABLE),
            (Ready::WRITABLE, WRITABLE),
            (Ready::PEER_CLOSED, libc::EPOLLRDHUP as u32),
            (Ready::CLOSED, libc::EPOLLHUP as u32),
            (Ready::ERROR, libc::EPOLLERR as u32),
        ];
        // More would never come where the window is shut (tcp_epollin_ready).
        let too_few = low_water > 1
            && !ready.has(Ready::STOPPED)
            && !ready.has(Ready::PEER_CLOSED)
            && !ready.has(Ready::CLOSED)
            && link.stack().readable_bytes(place.id) < low_water;
        let bits = bits.map(|(what, bits)| (what, if too_few { bits & !READABLE } else { bits }));
        bits.into_iter().filter(|(what, _)| ready.has(*what)).fold(0, |all, (_, bits)| all | bits)
    }

    /// Returns whether a listener has a connection that was not accepted yet.
    pub(crate) fn somebody_waits(&mut self, slot: Slot) -> bool {
        let Self { table, links, .. } = self;
        let Some(Socket { kind: Kind::Listener(listener), .. }) = table.get(slot) else {
            return false;
        };
        let Some(Ok(links)) = links else { return !listener.passed.is_empty() };
        let mut on = listener.on.iter();
        !listener.passed.is_empty()
            || on.any(|&(link, id)| {
                links.get_mut(link).is_some_and(|link| link.stack().accept_waiting(id) > 0)
            })
    }

    /// Returns how a connection that was begun has gone; `EAGAIN` if that is open.
    pub(crate) fn finish_connect(&mut self, slot: Slot) -> Result<(), Errno> {
        let Some(Socket { kind: Kind::Connection { place, connecting }, .. }) =
            self.table.get(slot)
        else {
            return Err(Errno::ENOTCONN);
        };
        if !*connecting {
            return Ok(());
        }
        let place = *place;
        let (link, _) = self.link(place)?;
        let state = link.stack().state(place.id).unwrap_or(State::Closed);
        match state {
            // To the program it is connected (__inet_stream_connect).
            State::SynSent if link.stack().is_deferred(place.id) => Err(Errno::EISCONN),
            State::SynSent | State::SynReceived => Err(Errno::EAGAIN),
            State::Closed => {
                let error = link.stack().take_error(place.id);
                Err(error.map_or(Errno::ECONNABORTED, errno::of_connection))
            }
            _ => {
                if let Some(Socket { kind: Kind::Connection { connecting, .. }, .. }) =
                    self.table.get(slot)
                {
                    *connecting = false;
                }
                Ok(())
            }
        }
    }
}

/// What poll(2) and epoll(7) call the same: data, or a connection to accept.
pub(crate) const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const FAILED: u32 = READABLE | WRITABLE | (libc::EPOLLERR | libc::EPOLLHUP) as u32;
