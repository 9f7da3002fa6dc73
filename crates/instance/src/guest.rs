//! A guest: a program that is attached.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde_json as json;
use uncork_attach::record::{Ends, LAST};
use uncork_attach::{Damaged, Error, Header, InstanceEnd, MOST_BYTES, News, offer};
use uncork_closing::{ClosedApart, Closing};
use uncork_stack::{ConnectionError, SocketId, SocketOption, State};

/// How many connections one guest may give to the kernel at once. It asks for what has come meanwhile before it gives another
/// one; those that it never asks about would accumulate.
const GIVEN_AT_ONCE: usize = 16;

/// A connection of a guest.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Its link and its id there, if it could be opened.
    pub(crate) at: Option<(usize, SocketId)>,
    pub(crate) ends: Ends,
    /// How many octets the guest has given to be sent, and how many it may give in total.
    pub(crate) given: u64,
    pub(crate) allowed: u64,
    /// Octets that the guest has and has not reported as read.
    pub(crate) unread_bytes: u32,
    /// Octets that another guest had and gave back.
    pub(crate) returned: VecDeque<u8>,
    /// Octets that the guest was told of before it has accepted the connection. If it leaves or dies instead, they are for
    /// another guest. No more than the window, as it may not have read any.
    pub(crate) not_accepted: Vec<u8>,
    /// What the guest was told.
    pub(crate) told_state: State,
    pub(crate) told_end: bool,
    /// Why the connection has failed; only the guest knows whether its user has heard of it.
    pub(crate) told_failure: Option<ConnectionError>,
    /// Whether it is in the queue of connections with something to be told.
    pub(crate) queued: bool,
    /// The listener that it came to, until it is accepted.
    pub(crate) listener: Option<u32>,
    /// Whether the guest has closed it, even if its number cannot be used again yet.
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

/// A listener of a guest.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) number: u32,
    /// How many connections were announced and are not accepted, and how many there may be.
    pub(crate) waiting: u32,
    pub(crate) backlog: u32,
    pub(crate) options: Vec<SocketOption>,
}

/// An attached program.
#[derive(Debug)]
pub(crate) struct Guest {
    /// The guardian's number for it.
    pub(crate) program: u32,
    /// Its user.
    pub(crate) uid: Option<u32>,
    pub(crate) end: InstanceEnd,
    /// The guest may have sent something there that takes long to close. Dropped after `end`, which has the same socket.
    _control: ClosedApart,
    pub(crate) seats: Vec<Option<Seat>>,
    /// Even numbers that no connection has.
    free: Vec<u32>,
    next: u32,
    pub(crate) registrations: Vec<Registration>,
    /// Ports that the guardian has granted, each as often as it was granted.
    pub(crate) ports: Vec<std::net::SocketAddr>,
    /// Connections that it may open.
    pub(crate) connections: HashSet<Ends>,
    /// Connections that it has given to the kernel, until it has asked what came for them meanwhile.
    given: VecDeque<Ends>,
    /// Connections with something to be told.
    pub(crate) queue: VecDeque<u32>,
    /// News that there was no room for.
    pub(crate) late: VecDeque<(Header, Vec<u8>)>,
    /// Whether something did not fit.
    pub(crate) starves: bool,
    /// Whether its control socket was readable.
    pub(crate) stirs: bool,
    /// Whether it is gone, and only its commands are still carried out.
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
            // The program may have ended before the instance first slept.
            stirs: true,
            is_gone: false,
        }
    }

    pub(crate) fn seat(&mut self, number: u32) -> Option<&mut Seat> {
        self.seats.get_mut(number as usize)?.as_mut()
    }

    /// Returns a connection that the guest may refer to.
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

    /// Returns a number for a connection that comes.
    pub(crate) fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let number = self.next;
            self.next += 2;
            number
        })
    }

    /// Frees the number of a connection of which nothing is left.
    pub(crate) fn vacate(&mut self, number: u32) -> Option<Seat> {
        let seat = self.seats.get_mut(number as usize)?.take()?;
        if number.is_multiple_of(2) {
            self.free.push(number);
        } else {
            self.tell(News::Gone.of_number(number), &[]);
        }
        Some(seat)
    }

    /// Records that a connection of the guest's is the kernel's from now on.
    pub(crate) fn remember_given(&mut self, ends: Ends) {
        if self.given.len() >= GIVEN_AT_ONCE {
            self.given.pop_front();
        }
        self.given.push_back(ends);
    }

    /// Forgets such a connection, as the guest asks for the last time; tells whether it was the guest's.
    pub(crate) fn forget_given(&mut self, ends: Ends) -> bool {
        let at = self.given.iter().position(|given| *given == ends);
        at.and_then(|at| self.given.remove(at)).is_some()
    }

    pub(crate) fn registration(&mut self, number: u32) -> Option<&mut Registration> {
        self.registrations.iter_mut().find(|one| one.number == number)
    }

    /// Tells whether it will give a connection back, having left the listener at which that waits: it is told no more of it.
    pub(crate) fn gives_back(&mut self, number: u32) -> bool {
        let listener = self.seat(number).and_then(|seat| seat.listener);
        listener.is_some_and(|listener| self.registration(listener).is_none())
    }

    /// Notes that the guest has something to be told about a connection.
    pub(crate) fn note(&mut self, number: u32) {
        let Some(seat) = self.seat(number) else { return };
        if !std::mem::replace(&mut seat.queued, true) {
            self.queue.push_back(number);
        }
    }

    /// Records that the guest is gone: it is told nothing more, and what it has written, shown or not, is all that there will be.
    pub(crate) fn hears_no_more(&mut self) {
        self.is_gone = true;
        self.late.clear();
        self.end.commands.read_to_the_end();
    }

    /// Tells the guest something, now or when there is room.
    pub(crate) fn tell(&mut self, header: Header, bytes: &[u8]) {
        if self.is_gone {
            return;
        }
        let fits = self.late.is_empty() && matches!(self.end.news.write(header, bytes), Ok(true));
        if !fits {
            // That the guest has damaged the ring is found when it catches up.
            self.late.push_back((header, bytes.to_vec()));
            self.starves = true;
        }
    }

    pub(crate) fn tell_of(&mut self, header: Header, what: &impl serde::Serialize) {
        self.tell(header, &json::to_vec(what).unwrap_or_default());
    }

    /// Tells any number of octets, in several records; the last is [`LAST`].
    pub(crate) fn tell_long(&mut self, header: Header, bytes: &[u8]) {
        let last = bytes.len().div_ceil(MOST_BYTES).max(1) - 1;
        let mut pieces = bytes.chunks(MOST_BYTES);
        for at in 0..=last {
            let piece = pieces.next().unwrap_or_default();
            self.tell(header.flagged(if at == last { LAST } else { 0 }), piece);
        }
    }

    /// Returns how many octets can be told now.
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

    /// Tells whether news waits for room. The guest's commands wait for that, too: otherwise one that asks and never
    /// listens would have the instance keep all answers.
    pub(crate) fn is_behind(&self) -> bool {
        !self.late.is_empty()
    }

    /// Tells whether it has written a command that can be carried out.
    pub(crate) fn has_said(&mut self) -> bool {
        // Damage is found when it is read.
        !self.is_behind() && self.end.commands.has_some().unwrap_or(true)
    }

    /// Tells whether it could be told something: room has come, or was there.
    pub(crate) fn has_work(&mut self) -> bool {
        if self.queue.is_empty() && self.late.is_empty() {
            return false;
        }
        if self.starves {
            self.end.news.wait_for_room();
        }
        let wanted = self.late.front().map_or(1, |(_, bytes)| bytes.len().max(1));
        // Damage counts as work, too: it is found then.
        self.end.news.room().map_or(true, |room| room >= wanted)
    }

    /// Tells whether it may have this port.
    pub(crate) fn may_listen(&self, local: std::net::SocketAddr) -> bool {
        self.ports.contains(&local)
    }
}
