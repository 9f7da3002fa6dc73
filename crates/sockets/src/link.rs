//! A link: one device of the host with an engine on it, or all devices that an instance has; and which of our sockets their
//! events are about.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;

use uncork_attach::Attached;
use uncork_driver::{Driver, Kick, Offer, Redirected};
use uncork_engine::{Engine, Instant, Program};
use uncork_neighbours::Question;
use uncork_packet::{Capabilities, Completion, Medium, Received, Transmit};
use uncork_stack::{Change, Config, Event, ListenerId, SocketId, Stack, State};
use uncork_stat::ByQueue;

use crate::host::{Attachment, Device, Entry, Host, Reason};
use crate::table::Slot;
use crate::tcp::Tcp;

/// Why listeners are the kernel's after that.
pub(crate) const INSTANCE_GONE: &str = "the instance of the stack has ended";

/// A device's engine, or the attachment to an instance, and the sockets of its connections.
pub(crate) struct Link {
    pub(crate) name: String,
    /// Its number ([`Link::number`]), and the kernel's numbers of the devices.
    number: usize,
    devices: Vec<u32>,
    side: Side,
    /// The host's addresses, each with the device that it is on.
    addresses: Vec<(u32, IpAddr)>,
    /// By the low half of a connection's number, which is its place in the stack: its socket.
    of: Vec<Option<Slot>>,
    listeners: Vec<(ListenerId, Slot)>,
    /// Buffers for what a turn tells, and for connections that it brings.
    news: Vec<Event>,
    came: Vec<Told>,
    /// By a connection's place in the stack: its entry in the list of the privileged half.
    entries: Vec<Option<Entry>>,
    /// Why it is out of use, if it is.
    gone: Option<io::Error>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The side that makes segments of what is sent.
enum Side {
    /// This process.
    Own(Box<Engine<Box<dyn Driver + Send>>>),
    /// An instance.
    Attached(Box<Attached>),
}

/// The events of a turn of this process's own engine. Connections are in the list of the privileged half before anything of
/// theirs leaves: a peer that has its SYN-ACK hears of it if this process dies in that instant.
struct News<'a> {
    number: usize,
    events: Vec<Event>,
    changes: Vec<Told>,
    host: &'a mut dyn Host,
}

impl Program for News<'_> {
    fn on_event(&mut self, _: &mut Stack, _: Instant, event: Event) {
        self.events.push(event);
    }

    fn on_turn(&mut self, stack: &mut Stack, _: Instant) {
        while let Some(change) = stack.poll_change() {
            self.changes.push(match change {
                Change::Came { place, local, remote } => {
                    let at = self.host.enter(local, remote);
                    Told::Came(self.number, place, Entry { local, remote, at })
                }
                change => Told::Change(self.number, change),
            });
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// The driver in the place of a device that was left.
struct Nothing;

impl Driver for Nothing {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ethernet, 1500)
    }

    fn receive(&mut self, _: usize, _: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn complete(&mut self, _: &mut dyn FnMut(Completion)) -> io::Result<()> {
        Ok(())
    }

    fn offer(&mut self, _: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        Ok(Offer::Full)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// How much of what has come a turn takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// All of it.
    Whole,
    /// It may wait for more, if the thread sleeps when there is nothing ([`Engine::moderate`]).
    Moderated,
}

/// What a turn tells.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told {
    /// Something has happened to a socket.
    Socket(Slot),
    /// The stack asks where packets to this address go.
    Neighbour(usize, IpAddr),
    /// A connection has come into being, or is gone.
    Change(usize, Change),
    /// A connection that is in the list already has come into being at this place.
    Came(usize, u32, Entry),
    /// The instance has ended, and with it all that this process had there.
    InstanceGone,
}

impl Link {
    pub(crate) fn new(number: usize, device: Device, config: Config, seed: [u8; 32]) -> Self {
        let Device { name, index, driver, mac, addresses, moderation } = device;
        let mut stack = Stack::new(config, driver.capabilities(), mac, seed);
        for &address in &addresses {
            stack.add_address(address);
        }
        let addresses = addresses.iter().map(|address| (index, address.address));
        let mut engine = Box::new(Engine::new(driver, stack));
        engine.moderate(moderation);
        Self {
            name,
            number,
            devices: vec![index],
            side: Side::Own(engine),
            addresses: addresses.collect(),
            of: Vec::new(),
            listeners: Vec::new(),
            news: Vec::new(),
            came: Vec::new(),
            entries: Vec::new(),
            gone: None,
        }
    }

    /// Returns the link of all devices that an instance has.
    pub(crate) fn attached(number: usize, attachment: Attachment) -> Self {
        let Attachment { devices, addresses, end } = attachment;
        let (devices, names): (Vec<_>, Vec<_>) = devices.into_iter().unzip();
        Self {
            name: names.join(", "),
            number,
            devices,
            side: Side::Attached(Box::new(Attached::new(end))),
            addresses,
            of: Vec::new(),
            listeners: Vec::new(),
            news: Vec::new(),
            came: Vec::new(),
            entries: Vec::new(),
            gone: None,
        }
    }

    /// Returns its number, which no other link of the process has, those included that were put away; it is not its index.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Returns whether an instance has its connections, and sees to what becomes of them when this process dies.
    pub(crate) fn is_attached(&self) -> bool {
        matches!(self.side, Side::Attached(_))
    }

    /// Returns why it is out of use, if it is.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let error = self.gone.as_ref()?;
        Some(if self.is_attached() {
            INSTANCE_GONE.to_owned()
        } else {
            format!("{} is out of use: {error}", self.name)
        })
    }

    /// Returns the device's name, and why it is out of use, if it is.
    pub(crate) fn lost_device(&self) -> Option<String> {
        let error = self.gone.as_ref().filter(|_| !self.is_attached())?;
        Some(format!("{}: {error}", self.name))
    }

    /// Returns whether it was an instance's that is gone.
    pub(crate) fn is_without_instance(&self) -> bool {
        self.is_attached() && self.gone.is_some()
    }

    pub(crate) fn has_device(&self, device: u32) -> bool {
        self.devices.contains(&device)
    }

    pub(crate) fn now(&self) -> Instant {
        match &self.side {
            Side::Own(engine) => engine.now(),
            Side::Attached(attached) => attached.now(),
        }
    }

    /// Returns when its last turn began ([`Engine::turned`]).
    pub(crate) fn turned(&self) -> Instant {
        match &self.side {
            Side::Own(engine) => engine.turned(),
            Side::Attached(attached) => attached.turned(),
        }
    }

    pub(crate) fn stack(&mut self) -> &mut dyn Tcp {
        match &mut self.side {
            Side::Own(engine) => engine.stack(),
            Side::Attached(attached) => attached.as_mut(),
        }
    }

    fn stack_ref(&self) -> &dyn Tcp {
        match &self.side {
            Side::Own(engine) => engine.stack_ref(),
            Side::Attached(attached) => attached.as_ref(),
        }
    }

    pub(crate) fn state(&self, id: SocketId) -> Option<State> {
        self.stack_ref().state(id)
    }

    pub(crate) fn close_resets(&self, id: SocketId) -> bool {
        self.stack_ref().close_resets(id)
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(_, ours)| *ours == address)
    }

    /// Returns what is to be asked of the way to this address, for a process with a stack of its own on a device.
    pub(crate) fn question(&self, remote: IpAddr) -> Option<Question> {
        let device = *self.devices.first().filter(|_| !self.is_attached())?;
        Some(Question::by(device, self.addresses.iter().map(|(_, address)| *address), remote))
    }

    /// Returns whether an address is on this device.
    pub(crate) fn has_on(&self, device: u32, address: IpAddr) -> bool {
        self.addresses.contains(&(device, address))
    }

    /// Records that a socket of ours is this connection.
    pub(crate) fn bind(&mut self, id: SocketId, slot: Slot) {
        let at = place(id);
        if self.of.len() <= at {
            self.of.resize((at + 1).next_power_of_two(), None);
        }
        self.of[at] = Some(slot);
    }

    /// Returns the socket of ours that is this connection.
    pub(crate) fn slot(&self, id: SocketId) -> Option<Slot> {
        let is_there = self.stack_ref().state(id).is_some();
        self.of.get(place(id)).copied().flatten().filter(|_| is_there)
    }

    pub(crate) fn unbind(&mut self, id: SocketId) {
        if let Some(slot) = self.of.get_mut(place(id)) {
            *slot = None;
        }
    }

    pub(crate) fn bind_listener(&mut self, id: ListenerId, slot: Slot) {
        self.listeners.push((id, slot));
    }

    pub(crate) fn unbind_listener(&mut self, id: ListenerId) {
        self.listeners.retain(|(other, _)| *other != id);
    }

    /// Enters the connection that stands at this place from now on in the list of the privileged half, or none; returns what
    /// stood there before.
    pub(crate) fn enter(&mut self, place: u32, entry: Option<Entry>) -> Option<Entry> {
        let at = usize::try_from(place).unwrap_or(usize::MAX);
        if self.entries.len() <= at {
            self.entries.resize_with((at + 1).next_power_of_two(), || None);
        }
        std::mem::replace(&mut self.entries[at], entry)
    }

    /// Returns a connection's entry in that list.
    pub(crate) fn entry(&mut self, place: u32) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(place).ok()?)?.as_mut()
    }

    /// Takes in what has come, sends what may leave, and tells which sockets have changed; returns whether
    /// anything has happened.
    pub(crate) fn turn(&mut self, pace: Pace, host: &mut dyn Host, told: &mut Vec<Told>) -> bool {
        if self.gone.is_some() {
            return false;
        }
        let (events, changes) = (std::mem::take(&mut self.news), std::mem::take(&mut self.came));
        let mut news = News { number: self.number, events, changes, host };
        let turned = match &mut self.side {
            Side::Own(engine) if pace == Pace::Moderated => engine.turn_moderated(&mut news),
            Side::Own(engine) => engine.turn(&mut news),
            Side::Attached(attached) => attached.turn(),
        };
        let News { mut events, changes, .. } = news;
        self.came = changes;
        let happened = match turned {
            Ok(happened) => happened,
            Err(error) => {
                self.lose(error, &mut events, told);
                true
            }
        };
        if let Side::Attached(attached) = &mut self.side {
            events.extend(std::iter::from_fn(|| attached.poll_event()));
        }
        self.tell(events, told);
        happened
    }

    /// Sets whether the system call that ends a turn is put off ([`Engine::put_off`]); instances make their own.
    pub(crate) fn put_off(&mut self, puts_off: bool) {
        if let Side::Own(engine) = &mut self.side {
            engine.put_off(puts_off);
        }
    }

    /// Takes the call that was put off, to be made when others may have the lock.
    pub(crate) fn take_kick(&mut self) -> Option<Kick> {
        match &mut self.side {
            Side::Own(engine) => engine.take_kick(),
            Side::Attached(_) => None,
        }
    }

    /// Waits until no such call is about to be made ([`Engine::settle`]).
    pub(crate) fn settle(&self) {
        if let Side::Own(engine) = &self.side {
            engine.settle();
        }
    }

    /// Flushes, as the kernel has not taken all when the call was made ([`Engine::flush`]).
    pub(crate) fn flush(&mut self) {
        if let Side::Own(engine) = &mut self.side
            && self.gone.is_none()
        {
            // The next turn notices that a device is gone.
            let _ = engine.flush();
        }
    }

    /// Sends what was given to it before anything else is done ([`Engine::send_ahead`]).
    pub(crate) fn send_ahead(&mut self) {
        if let Side::Own(engine) = &mut self.side
            && self.gone.is_none()
        {
            // The next turn notices that a device is gone.
            let _ = engine.send_ahead();
        }
    }

    /// Takes in what has come before there is no room for more ([`Engine::relieve`]); an instance does that for its devices.
    #[inline]
    pub(crate) fn relieve(&mut self) {
        if let Side::Own(engine) = &mut self.side
            && self.gone.is_none()
        {
            // The next turn notices that a device is gone.
            let _ = engine.relieve();
        }
    }

    /// Tells which sockets have changed.
    fn tell(&mut self, mut news: Vec<Event>, told: &mut Vec<Told>) {
        for event in news.drain(..) {
            told.extend(match event {
                Event::Socket(id, _) => self.of.get(place(id)).copied().flatten().map(Told::Socket),
                Event::Incoming(listener) => {
                    let found = self.listeners.iter().find(|(id, _)| *id == listener);
                    found.map(|(_, slot)| Told::Socket(*slot))
                }
                Event::Neighbour(remote) => Some(Told::Neighbour(self.number, remote)),
                Event::Udp(..) => None,
            });
        }
        self.news = news;
        told.append(&mut self.came);
        let number = self.number;
        while let Some(change) = self.next_change() {
            told.push(Told::Change(number, change));
        }
    }

    fn next_change(&mut self) -> Option<Change> {
        match &mut self.side {
            Side::Own(engine) => engine.stack().poll_change(),
            Side::Attached(attached) => attached.poll_change(),
        }
    }

    /// Returns whether a turn would find nothing to do ([`Engine::is_idle`]).
    pub(crate) fn is_idle(&mut self) -> bool {
        self.gone.is_some()
            || match &mut self.side {
                Side::Own(engine) => engine.is_idle(),
                Side::Attached(attached) => attached.is_idle(),
            }
    }

    /// Returns whether nothing is on it, and nothing comes.
    pub(crate) fn is_out_of_use(&mut self) -> bool {
        !self.is_attached() && self.is_idle() && self.stack().all().is_empty()
    }

    /// Returns whether the stack has something to send, such as the news of a window that has opened.
    pub(crate) fn has_output(&self) -> bool {
        self.gone.is_none() && matches!(&self.side, Side::Own(engine) if engine.has_output())
    }

    /// Returns whether something has come: the part of [`Link::is_idle`] that others change at any moment.
    pub(crate) fn has_come(&mut self) -> bool {
        self.gone.is_none()
            && match &mut self.side {
                Side::Own(engine) => engine.has_frames(),
                Side::Attached(attached) => attached.has_news(),
            }
    }

    /// Resets all connections, and leaves the device to the kernel, which answers what has come since: nothing
    /// more is taken in.
    pub(crate) fn leave(&mut self, host: &mut dyn Host, told: &mut Vec<Told>) {
        if self.gone.is_some() {
            return;
        }
        let now = self.now();
        self.stack().abort_all(now);
        if let Side::Own(engine) = &mut self.side {
            // A device that is gone takes nothing.
            let _ = engine.send_last();
            *engine.driver() = Box::new(Nothing);
            let mut news = std::mem::take(&mut self.news);
            news.extend(std::iter::from_fn(|| engine.stack().poll_event()));
            self.tell(news, told);
        } else {
            self.turn(Pace::Whole, host, told);
        }
        self.listeners.clear();
        self.gone = Some(io::ErrorKind::NotConnected.into());
    }

    /// Aborts all connections, as the device or the instance is gone.
    fn lose(&mut self, error: io::Error, news: &mut Vec<Event>, told: &mut Vec<Told>) {
        self.gone = Some(error);
        let Side::Own(engine) = &mut self.side else {
            self.listeners.clear();
            told.push(Told::InstanceGone);
            return;
        };
        let now = engine.now();
        let stack = engine.stack();
        let all: Vec<_> = stack.sockets().collect();
        for id in all {
            stack.abort(now, id);
        }
        while let Some(event) = stack.poll_event() {
            news.push(event);
        }
    }

    /// Returns what wakes a thread that sleeps on it, and how long that may sleep at most.
    pub(crate) fn wakes(&mut self) -> ([Option<RawFd>; 2], Option<Duration>) {
        if self.gone.is_some() {
            return ([None; 2], None);
        }
        match &mut self.side {
            Side::Own(engine) => {
                let (fd, due) = engine.rest();
                ([fd.map(|fd| fd.as_raw_fd()), None], due)
            }
            Side::Attached(attached) => {
                let (fds, due) = attached.rest();
                (fds.map(Some), due)
            }
        }
    }

    /// Notes that this descriptor of [`Link::wakes`] could be read; the next turn silences it, if an instance rings by it.
    pub(crate) fn was_rung(&mut self, bell: RawFd) {
        if let Side::Attached(attached) = &mut self.side {
            attached.was_woken_by(bell);
        }
    }

    /// Returns whether what comes waits for more at present ([`Engine::is_moderating`]).
    pub(crate) fn is_moderating(&self) -> bool {
        matches!(&self.side, Side::Own(engine) if engine.is_moderating())
    }

    /// Returns what a descriptor of [`Link::wakes`] counts as when what sleepers watch is compared ([`Engine::stands_for`]).
    pub(crate) fn stands_for(&self, fd: RawFd) -> RawFd {
        match &self.side {
            Side::Own(engine) => engine.stands_for(fd),
            Side::Attached(_) => fd,
        }
    }

    /// Notes that a thread has made a turn while others sleep on it.
    pub(crate) fn watch_on(&mut self) {
        if let Side::Attached(attached) = &mut self.side
            && self.gone.is_none()
        {
            attached.watch_on();
        }
    }

    /// Returns its own descriptors, which the program does not know of.
    pub(crate) fn descriptors(&mut self) -> Vec<RawFd> {
        match &mut self.side {
            Side::Own(engine) => engine.descriptors(),
            Side::Attached(attached) => attached.descriptors().to_vec(),
        }
    }

    /// Returns how many frames came and found no room; for an instance's, that knows.
    pub(crate) fn lost(&mut self) -> Option<u64> {
        let Side::Own(engine) = &mut self.side else { return None };
        engine.driver().lost()
    }

    /// Returns what came by queues of its own (AF_XDP).
    pub(crate) fn by_queue(&mut self) -> Option<ByQueue> {
        let Side::Own(engine) = &mut self.side else { return None };
        let Redirected { queues, frames } = engine.driver().redirected()?;
        Some(ByQueue::new(&self.name, &queues, frames))
    }
}

fn place(id: SocketId) -> usize {
    usize::try_from(id.as_u64() & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use uncork_driver::memory;
    use uncork_stack::{Cidr, Listening, Mac};

    use super::*;
    use crate::testing::{Mail, Post};
    use crate::world::{Wakes, World};

    #[test]
    fn a_connection_is_in_the_list_before_its_syn_ack_leaves() {
        // A peer that has its SYN-ACK hears of it if this process dies in that instant.
        let capabilities = Capabilities::plain(Medium::Ip, 1500);
        let (ours, mut theirs) = memory::pair(capabilities, 16);
        let cidr = |text: &str| -> Cidr { text.parse().unwrap() };
        let mut peer = Stack::new(Config::default(), capabilities, Mac::default(), [1; 32]);
        peer.add_address(cidr("10.0.0.2/24"));
        let (now, local) = (Instant::from_millis(1), "10.0.0.1:80".parse().unwrap());
        peer.connect(now, None, local).unwrap();
        let taken = theirs.offer(&mut |slot| peer.poll_transmit(now, slot)).unwrap();
        assert_eq!((taken, theirs.flush().is_ok()), (Offer::Taken, true));
        let mail = Arc::new(Mutex::new(Mail { far: Some(theirs), ..Mail::default() }));
        let device = Device {
            name: "memory".to_owned(),
            index: 1,
            driver: Box::new(ours),
            mac: Mac::default(),
            addresses: vec![cidr("10.0.0.1/24")],
            moderation: Duration::ZERO,
        };
        let mut link = Link::new(0, device, Config::of_programs(), [2; 32]);
        let how = Listening { backlog: 16, v6_only: false, shares: false };
        link.stack().listen_with(local, how).unwrap();
        let mut told = Vec::new();
        assert!(link.turn(Pace::Whole, &mut Post(Arc::clone(&mail)), &mut told));
        let mut mail = mail.lock().unwrap();
        assert_eq!(mail.entered, [0]);
        let answers = mail.far.as_mut().unwrap().receive(10, &mut |_| ()).unwrap();
        assert_eq!(answers, 1, "the SYN-ACK has left in the same turn");
    }

    #[test]
    fn whatever_an_instance_rings_by_is_known_as_that() {
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
        let instance = uncork_attach::offer(Arc::new(ours)).unwrap();
        let end = uncork_attach::accept(theirs).unwrap();
        let devices = vec![(1, "eth0".to_owned())];
        let attachment = Some(Attachment { devices, addresses: Vec::new(), end });
        let post = Post(Arc::new(Mutex::new(Mail { attachment, ..Mail::default() })));
        let mut world = World::new(Box::new(post), || [0; 32], |_, _| ());
        world.open().unwrap();
        // The instance's messages come by one, the program's own wake-ups by another. One that is not silenced keeps all awake.
        let (fds, _) = world.what_wakes();
        let rings = fds.iter().filter(|(_, wakes)| matches!(wakes, Wakes::Instance(0)));
        assert_eq!(rings.count(), 2);
        drop(instance);
    }
}
