//! A program that is attached.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde_json as json;
use uncork_attach::record::{Ends, LAST};
use uncork_attach::{Damaged, Error, Header, InstanceEnd, MOST_BYTES, News, offer};
use uncork_closing::{ClosedApart, Closing};
use uncork_stack::{ConnectionError, SocketId, SocketOption, State};

/// Connections that one guest gives to the kernel at once. It asks for what has come meanwhile before it gives another
/// one; those that it does not ask about are more and more.
const GIVEN_AT_ONCE: usize = 16;

/// A connection of a guest's.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Where it is, if it could be opened.
    pub(crate) at: Option<(usize, SocketId)>,
    pub(crate) ends: Ends,
    /// Octets that the guest has given to be sent, and those that it may ever.
    pub(crate) given: u64,
    pub(crate) allowed: u64,
    /// Octets that the guest has, and has not said to have read.
    pub(crate) unread_bytes: u32,
    /// Octets that another guest had and gave back.
    pub(crate) returned: VecDeque<u8>,
    /// Octets that it was told before it has accepted the connection. If it does not, as it leaves or dies, they are for somebody
    /// else. No more than the window, as it may not have read any.
    pub(crate) not_accepted: Vec<u8>,
    /// What it was told.
    pub(crate) told_state: State,
    pub(crate) told_end: bool,
    /// Why it has failed; that the guest's user has heard it, the guest knows alone.
    pub(crate) told_failure: Option<ConnectionError>,
    /// In the queue of those with something to be told.
    pub(crate) queued: bool,
    /// The listener that it came to, until it is accepted.
    pub(crate) listener: Option<u32>,
    /// The guest has closed it, be it that its number is not its own again yet.
    pub(crate) closed: bool,
}

impl Seat {
    pub(crate) fn new(at: Option<(usize, SocketId)>, ends: Ends, state: State) -> Self {
        Self {
            at,
            ends,
            given: 0,
            allowed: 0,
            unread_bytes: 0,
            returned: VecDeque::new(),
            not_accepted: Vec::new(),
            told_state: state,
            told_end: false,
            told_failure: None,
            queued: false,
            listener: None,
            closed: false,
        }
    }
}

/// A listener of a guest's.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) number: u32,
    /// Connections that were told and are not accepted, and how many there may be.
    pub(crate) waiting: u32,
    pub(crate) backlog: u32,
    pub(crate) options: Vec<SocketOption>,
}

/// A program.
#[derive(Debug)]
pub(crate) struct Guest {
    /// As the guardian numbers it.
    pub(crate) program: u32,
    /// Whose it is.
    pub(crate) uid: Option<u32>,
    pub(crate) end: InstanceEnd,
    /// It may have put there what takes long to close. Goes behind `end`, which has the same socket.
    _control: ClosedApart,
    pub(crate) seats: Vec<Option<Seat>>,
    /// Even numbers that nobody has.
    free: Vec<u32>,
    next: u32,
    pub(crate) registrations: Vec<Registration>,
    /// What the guardian has said that it may have; a port as often as it was said.
    pub(crate) ports: Vec<std::net::SocketAddr>,
    /// Connections that it may open.
    pub(crate) connections: HashSet<Ends>,
    /// Those that it has given to the kernel, until it has asked what came for them meanwhile.
    given: VecDeque<Ends>,
    /// Those with something to be told.
    pub(crate) queue: VecDeque<u32>,
    /// What there was no room for.
    pub(crate) late: VecDeque<(Header, Vec<u8>)>,
    /// Something did not fit.
    pub(crate) starves: bool,
    /// Its control socket could be read.
    pub(crate) stirs: bool,
    /// It is gone, and only what it has said is done.
    is_gone: bool,
}

impl Guest {
    pub(crate) fn new(
        (program, uid): (u32, Option<u32>),
        control: OwnedFd,
        closing: &Closing,
    ) -> Result<Self, Error> {
        let control = Arc::new(control);
        let apart = ClosedApart::with(Arc::clone(&control), &closing.of(uid));
        Ok(Self::of((program, uid), offer(control)?, apart))
    }

    fn of((program, uid): (u32, Option<u32>), end: InstanceEnd, control: ClosedApart) -> Self {
        Self {
            program,
            uid,
            end,
            _control: control,
            seats: Vec::new(),
            free: Vec::new(),
            next: 0,
            registrations: Vec::new(),
            ports: Vec::new(),
            connections: HashSet::new(),
            given: VecDeque::new(),
            queue: VecDeque::new(),
            late: VecDeque::new(),
            starves: false,
            // It may have ended before anybody slept.
            stirs: true,
            is_gone: false,
        }
    }

    pub(crate) fn seat(&mut self, number: u32) -> Option<&mut Seat> {
        self.seats.get_mut(number as usize)?.as_mut()
    }

    /// One that the guest may speak of.
    pub(crate) fn open_seat(&mut self, number: u32) -> Result<&mut Seat, Damaged> {
        let seat = self.seat(number).filter(|seat| !seat.closed);
        seat.ok_or(Damaged("a connection that is not there"))
    }

    pub(crate) fn put(&mut self, number: u32, seat: Seat) {
        let at = number as usize;
        if self.seats.len() <= at {
            self.seats.resize_with(at + 1, || None);
        }
        self.seats[at] = Some(seat);
    }

    /// A number for a connection that comes.
    pub(crate) fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let number = self.next;
            self.next += 2;
            number
        })
    }

    /// Nothing is left of a connection.
    pub(crate) fn vacate(&mut self, number: u32) -> Option<Seat> {
        let seat = self.seats.get_mut(number as usize)?.take()?;
        if number.is_multiple_of(2) {
            self.free.push(number);
        } else {
            self.tell(News::Gone.of_number(number), &[]);
        }
        Some(seat)
    }

    /// A connection of its is the kernel's from now on.
    pub(crate) fn remember_given(&mut self, ends: Ends) {
        if self.given.len() >= GIVEN_AT_ONCE {
            self.given.pop_front();
        }
        self.given.push_back(ends);
    }

    /// It asks for the last time; whether the connection was its.
    pub(crate) fn forget_given(&mut self, ends: Ends) -> bool {
        let at = self.given.iter().position(|given| *given == ends);
        at.and_then(|at| self.given.remove(at)).is_some()
    }

    pub(crate) fn registration(&mut self, number: u32) -> Option<&mut Registration> {
        self.registrations.iter_mut().find(|one| one.number == number)
    }

    /// Whether it will give a connection back, as it has left the listener where that waits: it is to have nothing more of it.
    pub(crate) fn gives_back(&mut self, number: u32) -> bool {
        let listener = self.seat(number).and_then(|seat| seat.listener);
        listener.is_some_and(|listener| self.registration(listener).is_none())
    }

    /// It has something to be told about a connection.
    pub(crate) fn note(&mut self, number: u32) {
        let Some(seat) = self.seat(number) else { return };
        if !std::mem::replace(&mut seat.queued, true) {
            self.queue.push_back(number);
        }
    }

    /// It is gone: what it was to be told, or would be, is for nobody, and what it has said is all there will be, be it
    /// that it had not come to show it.
    pub(crate) fn hears_no_more(&mut self) {
        self.is_gone = true;
        self.late.clear();
        self.end.commands.read_to_the_end();
    }

    /// Tells something, now or when there is room.
    pub(crate) fn tell(&mut self, header: Header, bytes: &[u8]) {
        if self.is_gone {
            return;
        }
        let fits = self.late.is_empty() && matches!(self.end.news.write(header, bytes), Ok(true));
        if !fits {
            // That the guest has damaged the ring is found when it is to catch up.
            self.late.push_back((header, bytes.to_vec()));
            self.starves = true;
        }
    }

    pub(crate) fn tell_of(&mut self, header: Header, what: &impl serde::Serialize) {
        self.tell(header, &json::to_vec(what).unwrap_or_default());
    }

    /// Octets of any number, as several records; the last is [`LAST`].
    pub(crate) fn tell_long(&mut self, header: Header, bytes: &[u8]) {
        let last = bytes.len().div_ceil(MOST_BYTES).max(1) - 1;
        let mut pieces = bytes.chunks(MOST_BYTES);
        for at in 0..=last {
            let piece = pieces.next().unwrap_or_default();
            self.tell(header.flagged(if at == last { LAST } else { 0 }), piece);
        }
    }

    /// Octets that can be told now.
    pub(crate) fn room(&mut self) -> Result<usize, Damaged> {
        if !self.late.is_empty() {
            return Ok(0);
        }
        self.end.news.room()
    }

    /// Tells what there was no room for, as far as there is now.
    pub(crate) fn catch_up(&mut self) -> Result<(), Damaged> {
        while let Some((header, bytes)) = self.late.front() {
            if !self.end.news.write(*header, bytes)? {
                return Ok(());
            }
            self.late.pop_front();
        }
        self.starves = false;
        Ok(())
    }

    /// Whether it has not been told what it was to be told: what it says waits for that, or who asks and never
    /// listens would have the instance keep all answers.
    pub(crate) fn is_behind(&self) -> bool {
        !self.late.is_empty()
    }

    /// Whether it has said something that can be done.
    pub(crate) fn has_said(&mut self) -> bool {
        // Damage is found when it is read.
        !self.is_behind() && self.end.commands.has_some().unwrap_or(true)
    }

    /// Whether it could be told something: room has come, or was there.
    pub(crate) fn has_work(&mut self) -> bool {
        if self.queue.is_empty() && self.late.is_empty() {
            return false;
        }
        if self.starves {
            self.end.news.wait_for_room();
        }
        let wanted = self.late.front().map_or(1, |(_, bytes)| bytes.len().max(1));
        // Damage is work, too: it is found then.
        self.end.news.room().map_or(true, |room| room >= wanted)
    }

    /// It may have this port.
    pub(crate) fn may_listen(&self, local: std::net::SocketAddr) -> bool {
        self.ports.contains(&local)
    }
}
