//! All that an instance has, and one turn of it.

use std::collections::HashSet;
use std::io;
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant as Clock};

use uncork_attach::record::{Ends, HEADER_BYTES};
use uncork_attach::{Command, Damaged, Error, Header, RING_BYTES};
use uncork_closing::Closing;
use uncork_engine::Instant;
use uncork_guardian::{Entry, Word};
use uncork_stack::{Change, Event, FastOpen, Found, Mac, SocketId};

use crate::desks::{Desk, Kept};
use crate::guest::Guest;
use crate::link::{Link, Listed};
use crate::permitted::Permitted;

/// How much of one guest's work is done before the next guest has its turn.
const WEIGHT_A_TURN: usize = 512;

/// Returns how much work a command is, with a write or an option as one. Those that ask the guardian, or look at all listeners
/// or connections, take some ten to some hundred microseconds.
fn weight(header: Header) -> usize {
    use Command as C;
    match Command::of(header) {
        Some(C::Detach | C::AskCaught | C::Listen | C::LeaveListener) => 64,
        Some(C::ListenerOption | C::ListenerFastOpen) => 64,
        Some(C::AskInfo | C::Connect) => 16,
        _ => 1,
    }
}
/// How many threads, at most, close what guests of one user leave behind.
const CLOSED_AT_ONCE: usize = 8;

/// The privileged half, as an instance knows it.
pub trait Host {
    /// Enters a connection of the stack into the table, for the process that has to end it if this one dies.
    fn enter(&mut self, ends: Ends) -> Option<Entry>;

    /// Removes a connection that the stack no longer has from the table.
    fn leave(&mut self, entry: Entry);

    /// Reports that a connection that was opened from here is in TIME-WAIT.
    fn closed(&mut self, ends: Ends);

    /// Reports that a connection that was opened from here is over.
    fn disown(&mut self, ends: Ends);

    /// Announces that this program hands this connection over to the kernel; tells whether it may.
    fn give(&mut self, program: u32, ends: Ends) -> bool;

    /// Returns what the host's settings permit of TCP Fast Open (net.ipv4.tcp_fastopen), at this moment.
    fn fast_open(&mut self) -> FastOpen;

    /// Returns what the guardian has said about programs since the last call.
    fn words(&mut self) -> Vec<Word>;

    /// Reports something to the operator of the instance.
    fn say(&mut self, what: &str);
}

/// All that an instance has.
pub struct Floor {
    pub(crate) links: Vec<Link>,
    pub(crate) guests: Vec<Option<Guest>>,
    pub(crate) desks: Vec<Desk>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) host: Box<dyn Host>,
    closing: Closing,
    /// Connections that guests have opened, which are owned one by one.
    pub(crate) opened: HashSet<Ends>,
    /// Addresses whose next hop is to be looked up, each with the index of the device.
    asked: Vec<(usize, IpAddr)>,
    pub(crate) permitted: Permitted,
    events: Vec<(usize, Event)>,
    record: Vec<u8>,
    /// Devices that it goes without: the name of each, and the reason.
    pub(crate) without: Vec<String>,
    pub(crate) scratch: Vec<u8>,
}

impl std::fmt::Debug for Floor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Floor").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Floor {
    /// Begins with no guests.
    #[must_use]
    pub fn new(links: Vec<Link>, host: Box<dyn Host>) -> Self {
        Self {
            links,
            guests: Vec::new(),
            desks: Vec::new(),
            kept: Vec::new(),
            host,
            closing: Closing::by(CLOSED_AT_ONCE),
            opened: HashSet::new(),
            asked: Vec::new(),
            permitted: Permitted::default(),
            events: Vec::new(),
            record: Vec::new(),
            without: Vec::new(),
            scratch: vec![0; uncork_attach::MOST_BYTES],
        }
    }

    /// Sets the devices that it could have had and goes without: the name of each, and the reason.
    #[must_use]
    pub fn without(mut self, devices: Vec<String>) -> Self {
        self.without = devices;
        self
    }

    /// Returns its devices.
    pub fn links(&mut self) -> &mut [Link] {
        &mut self.links
    }

    /// Makes one turn of everything; tells whether anything has happened.
    ///
    /// # Errors
    ///
    /// The last device is gone.
    pub fn turn(&mut self) -> io::Result<bool> {
        if self.next_close().is_some_and(|due| due <= Clock::now()) {
            self.close_kept();
        }
        let mut happened = self.obey_all();
        self.look_at_permitted();
        happened |= self.turn_links(true)?;
        happened |= self.tell_all();
        Ok(happened)
    }

    /// Makes a turn of each device, moderated or not.
    pub(crate) fn turn_links(&mut self, moderated: bool) -> io::Result<bool> {
        let mut happened = false;
        let mut events = Vec::new();
        for at in 0..self.links.len() {
            let turned = self.links[at].turn(self.host.as_mut(), &mut events, moderated);
            happened |= match turned {
                Ok(happened) => happened,
                Err(error) => self.lose(at, error)?,
            };
            self.events.extend(events.drain(..).map(|event| (at, event)));
            self.keep_lists(at);
        }
        let mut events = std::mem::take(&mut self.events);
        for (at, event) in events.drain(..) {
            match event {
                Event::Socket(id, _) => self.note(at, id),
                Event::Incoming(listener) => self.serve_desk_of(at, listener),
                Event::Neighbour(remote) => self.asked.push((at, remote)),
                Event::Udp(..) => {}
            }
        }
        self.events = events;
        Ok(happened)
    }

    /// Gives up a device that is gone: its connections are over, and everything else goes on.
    fn lose(&mut self, at: usize, error: io::Error) -> io::Result<bool> {
        self.links[at].lose();
        if self.links.iter().all(Link::is_gone) {
            return Err(error);
        }
        let name = self.links[at].name();
        self.without.push(format!("{name}: {error}"));
        self.host.say(&format!("{name} is out of use, and connections there are over: {error}"));
        Ok(true)
    }

    /// Takes the addresses whose next hop is to be looked up, each with the index of the device in [`Floor::links`].
    pub fn take_asked(&mut self) -> Vec<(usize, IpAddr)> {
        std::mem::take(&mut self.asked)
    }

    /// Sets where packets to an address go, out of the device at this index in [`Floor::links`].
    pub fn set_neighbour(&mut self, device: usize, remote: IpAddr, found: Found) {
        let link = &mut self.links[device];
        let now = link.now();
        link.stack().set_neighbour(now, remote, found);
    }

    /// Sets the Ethernet address of a device.
    pub fn set_mac(&mut self, device: u32, mac: Mac) {
        for link in self.links.iter_mut().filter(|link| link.device == device) {
            link.stack().set_mac(mac);
        }
    }

    /// Notes that something has happened to a connection: its guest is told of it.
    fn note(&mut self, link: usize, id: SocketId) {
        let Some(owner) = self.links[link].owner(id) else { return };
        if let Some(guest) = self.guest(owner.guest) {
            guest.note(owner.number);
        }
    }

    /// Records connections that have come and gone; also before one is opened, which may get the place of one that has just gone.
    pub(crate) fn keep_lists(&mut self, at: usize) {
        while let Some((change, listed)) = self.links[at].next_change() {
            self.keep_list(at, change, listed);
        }
    }

    fn keep_list(&mut self, at: usize, change: Change, listed: Option<Listed>) {
        let (place, listed) = match change {
            Change::Came { place, local, remote } => {
                let ends = Ends { local, remote };
                let enter = || Listed { ends, entry: self.host.enter(ends) };
                (place, Some(listed.unwrap_or_else(enter)))
            }
            Change::Over { place } => {
                let Some(Listed { ends, entry }) = self.links[at].listed(place) else { return };
                let (ends, entry) = (*ends, entry.take());
                // If this process dies, nobody has to be told of that any more.
                if let Some(entry) = entry {
                    self.host.leave(entry);
                }
                if self.opened.contains(&ends) {
                    self.host.closed(ends);
                }
                return;
            }
            Change::Went { place } => (place, None),
            Change::Left { place } => {
                // The guest may use the number again now.
                if let Some(owner) = self.links[at].owner_at(place)
                    && let Some(guest) = self.guest(owner.guest)
                {
                    guest.vacate(owner.number);
                }
                return;
            }
        };
        let Some(Listed { ends, entry }) = self.links[at].list(place, listed) else { return };
        if let Some(entry) = entry {
            self.host.leave(entry);
        }
        // Connections that came to a listener are owned with its port.
        if self.opened.remove(&ends) {
            self.host.disown(ends);
        }
    }

    pub(crate) fn guest(&mut self, at: usize) -> Option<&mut Guest> {
        self.guests.get_mut(at)?.as_mut()
    }

    /// Returns a link, and the time there.
    pub(crate) fn link(&mut self, at: usize) -> (&mut Link, Instant) {
        let link = &mut self.links[at];
        let now = link.now();
        (link, now)
    }

    pub(crate) fn link_of(&self, local: SocketAddr) -> Option<usize> {
        self.links.iter().position(|link| link.has(local.ip()) && !link.is_gone())
    }

    /// Admits a program of this user's that attaches: the other end of `control` is its.
    ///
    /// # Errors
    ///
    /// There is no memory for it, or the program is gone.
    pub fn admit(&mut self, program: u32, uid: Option<u32>, control: OwnedFd) -> Result<(), Error> {
        let guest = Guest::new((program, uid), control, &self.closing)?;
        match self.guests.iter_mut().find(|guest| guest.is_none()) {
            Some(empty) => *empty = Some(guest),
            None => self.guests.push(Some(guest)),
        }
        Ok(())
    }

    /// Handles what the guardian has said.
    pub(crate) fn hear_words(&mut self) {
        for word in self.host.words() {
            match word {
                Word::Guest { program, uid, socket, .. } => {
                    match self.admit(program, uid, socket) {
                        // The program had ended as soon as it had begun.
                        Ok(()) | Err(Error::Gone) => {}
                        Err(error) => {
                            self.host.say(&format!("a program could not attach: {error}"));
                        }
                    }
                }
                Word::Granted { program, local } => {
                    if let Some(guest) = self.guest_of(program) {
                        guest.ports.push(local);
                    }
                }
                Word::Revoked { program, local } => {
                    if let Some(guest) = self.guest_of(program)
                        && let Some(at) = guest.ports.iter().position(|port| *port == local)
                    {
                        guest.ports.swap_remove(at);
                    }
                }
                Word::GrantedConnection { program, local, remote } => {
                    let ends = Ends { local, remote };
                    match self.guest_of(program) {
                        Some(guest) => drop(guest.connections.insert(ends)),
                        None => self.host.disown(ends),
                    }
                }
                Word::RevokedConnection { program, local, remote } => {
                    let ends = Ends { local, remote };
                    let guest = self.guest_of(program);
                    // A connection that it has opened is disowned once it is over.
                    if guest.is_some_and(|guest| guest.connections.remove(&ends)) {
                        self.host.disown(ends);
                    }
                }
            }
        }
    }

    fn guest_of(&mut self, program: u32) -> Option<&mut Guest> {
        self.guests.iter_mut().flatten().find(|guest| guest.program == program)
    }

    /// Carries out guests' commands; tells whether there were any.
    fn obey_all(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.guests.len() {
            match self.obey(at) {
                Ok(count) => any |= count > 0,
                Err(damaged) => self.expel(at, damaged),
            }
        }
        any
    }

    /// Carries out some of a guest's commands; returns how many.
    fn obey(&mut self, at: usize) -> Result<usize, Damaged> {
        let mut record = std::mem::take(&mut self.record);
        let (mut count, mut done) = (0, 0);
        let obeyed = loop {
            let Some(guest) = self.guest(at).filter(|guest| !guest.is_behind()) else {
                break Ok(());
            };
            match guest.end.commands.next(&mut record) {
                Ok(Some(header)) => {
                    count += 1;
                    done += weight(header);
                    if let Err(damaged) = self.command(at, header, &record) {
                        break Err(damaged);
                    }
                }
                Ok(None) => break Ok(()),
                Err(damaged) => break Err(damaged),
            }
            if done >= WEIGHT_A_TURN {
                break Ok(());
            }
        };
        self.record = record;
        if count > 0
            && let Some(guest) = self.guest(at)
        {
            guest.end.give_room();
        }
        obeyed.map(|()| count)
    }

    /// Expels a guest that has broken the rules.
    pub(crate) fn expel(&mut self, at: usize, damaged: Damaged) {
        if let Some(program) = self.guest(at).map(|guest| guest.program) {
            self.host.say(&format!("program {program} is no longer served: {damaged}"));
        }
        self.bid_farewell(at, true);
    }

    /// Finds programs that are gone: any of them, or only among those that gave a sign while the instance slept.
    pub fn look_for_the_dead(&mut self, all: bool) {
        for at in 0..self.guests.len() {
            let Some(guest) = self.guest(at) else { continue };
            if (std::mem::take(&mut guest.stirs) || all) && guest.end.is_gone() {
                self.obey_to_the_end(at);
                self.bid_farewell(at, false);
            }
        }
    }

    /// Carries out the commands that a guest wrote before it went: above all, to send. A guest that has only hung up, and goes on
    /// writing, is heard for a ring's worth of commands, and no longer.
    fn obey_to_the_end(&mut self, at: usize) {
        if let Some(guest) = self.guest(at) {
            guest.hears_no_more();
        }
        let mut count = 0;
        while count <= RING_BYTES / HEADER_BYTES {
            match self.obey(at) {
                Ok(more) if more > 0 => count += more,
                _ => return,
            }
        }
    }

    /// Removes a guest that is gone: its connections are closed, as the kernel would do it, or reset.
    fn bid_farewell(&mut self, at: usize, resets: bool) {
        let Some(mut guest) = self.guests.get_mut(at).and_then(Option::take) else { return };
        guest.end.hang_up();
        self.leave_desks(at, !resets);
        for ends in guest.connections.drain() {
            self.host.disown(ends);
        }
        for seat in guest.seats.into_iter().flatten() {
            if seat.listener.is_some() && !resets {
                self.pass_on(seat, guest.uid);
                continue;
            }
            let Some((link, id)) = seat.at else { continue };
            let unread = seat.unread_bytes > 0 || !seat.returned.is_empty();
            let (link, now) = self.link(link);
            link.unbind(id);
            if resets || unread && !seat.closed {
                link.stack().abort(now, id);
            }
            link.stack().close(now, id);
        }
    }

    /// Resets the connections of all guests.
    pub(crate) fn abort_all(&mut self) {
        for at in 0..self.links.len() {
            self.links[at].abort_all();
            self.keep_lists(at);
        }
        self.guests.clear();
    }

    /// Returns how many programs are attached.
    #[must_use]
    pub fn guest_count(&self) -> usize {
        self.guests.iter().flatten().count()
    }

    /// Announces that the instance is going to sleep; tells whether it may, as there is nothing to do.
    pub(crate) fn lie_down(&mut self) -> bool {
        let mut busy = false;
        for guest in self.guests.iter_mut().flatten() {
            guest.end.lie_down();
            busy |= guest.has_said() || guest.has_work();
        }
        !busy
    }

    /// Returns what wakes it, and how long it may sleep at most.
    pub(crate) fn rest(&mut self) -> (Vec<BorrowedFd<'_>>, Option<Duration>) {
        let closes = self.next_close();
        let guests = self.guests.iter().flatten();
        let mut fds: Vec<_> =
            guests.flat_map(|guest| [guest.end.bell(), guest.end.control()]).collect();
        let mut limit = closes.map(|due| due.saturating_duration_since(Clock::now()));
        for link in &mut self.links {
            let (fd, due) = link.rest();
            fds.extend(fd);
            limit = [limit, due].into_iter().flatten().min();
        }
        (fds, limit)
    }

    /// Ends the sleep. `readable` says of each descriptor of [`Self::rest`], in that order, whether it was readable.
    pub(crate) fn get_up(&mut self, readable: &[bool]) {
        // Each guest has a bell and a control socket.
        let of_guests = readable.chunks_exact(2).map(|of_guest| (of_guest[0], of_guest[1]));
        let of_guests = of_guests.chain(iter::repeat((false, false)));
        for (guest, (rung, stirs)) in self.guests.iter_mut().flatten().zip(of_guests) {
            guest.end.get_up(rung);
            guest.stirs |= stirs;
        }
    }
}
