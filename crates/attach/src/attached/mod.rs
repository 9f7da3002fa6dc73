//! The program's half of an attachment: what a stack of its own ([`uncork_stack::Stack`]) does for a program, done
//! by an instance. The operations have the same names and mean the same.
//!
//! Nothing here waits, except [`Attached::info`], [`Attached::detach`] and [`Attached::take_caught`]. What is done reaches the
//! instance with the next [`Attached::turn`], in one go; or when the program is dead.

mod asking;
mod mirror;
mod operations;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant as Clock};

use serde::Serialize;
use uncork_stack::{Change, Config, Counters, Event, Instant, Ready, SocketId, State};

use crate::record::{Arrived, Ends, state_of};
use crate::terms::ProgramEnd;
use crate::{Command, Damaged, Header, News};
use asking::Heard;
use mirror::Mirror;

/// How often it is checked that the instance lives.
const LOOKS_AFTER: Duration = Duration::from_millis(1);

/// A connection's number, and the connection that has it.
#[derive(Debug, Default)]
struct Seat {
    /// How often the number was given: an old id must not mean the new connection.
    generation: u32,
    mirror: Option<Mirror>,
    /// Set if the program gave it to a connection of which the instance still has something.
    is_ours: bool,
}

impl Seat {
    fn take(&mut self, mirror: Mirror) {
        self.generation = self.generation.wrapping_add(1);
        self.mirror = Some(mirror);
    }
}

/// A listener.
#[derive(Debug)]
struct Listener {
    number: u32,
    /// Connections that have come.
    waiting: VecDeque<u32>,
}

/// A stack in another process.
#[derive(Debug)]
pub struct Attached {
    end: ProgramEnd,
    seats: Vec<Seat>,
    /// Numbers of the program's that no connection has.
    free: Vec<u32>,
    listeners: Vec<Listener>,
    /// The number of the next listener. None is given twice.
    next_listener: u32,
    /// Listeners that are gone here: the instance may still be sending them connections.
    leaving: Vec<Listener>,
    /// Connections that have come to listeners that are gone.
    unwanted: Vec<u32>,
    /// Commands that there was no room for.
    queue: VecDeque<(Header, Vec<u8>)>,
    events: VecDeque<Event>,
    changes: VecDeque<Change>,
    heard: Heard,
    /// The number of the latest question.
    asked: u32,
    /// Connections that were to be detached, each with the number of the question, while the instance has not said whether they
    /// are. Nothing is said about them before it has: their numbers may be others' by then.
    doubtful: Vec<(u32, u32)>,
    /// Buffer for a record.
    record: Vec<u8>,
    config: Config,
    counters: Counters,
    begun: Clock,
    /// When the last turn ended.
    turned: Instant,
    looked: Instant,
    /// A write was refused as the ring is full.
    starves: bool,
    /// Why no more commands are written.
    failed: Option<Damaged>,
}

impl Attached {
    /// Begins with no connections.
    #[must_use]
    pub fn new(end: ProgramEnd) -> Self {
        Self {
            end,
            seats: Vec::new(),
            free: Vec::new(),
            listeners: Vec::new(),
            next_listener: 0,
            leaving: Vec::new(),
            unwanted: Vec::new(),
            queue: VecDeque::new(),
            events: VecDeque::new(),
            changes: VecDeque::new(),
            heard: Heard::default(),
            asked: 0,
            doubtful: Vec::new(),
            record: Vec::new(),
            config: Config::default(),
            counters: Counters::default(),
            begun: Clock::now(),
            turned: Instant::ZERO,
            looked: Instant::ZERO,
            starves: false,
            failed: None,
        }
    }

    /// Returns the time, as connections of this stack are told it.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.begun.elapsed()
    }

    /// Returns when the last turn ended.
    #[must_use]
    pub fn turned(&self) -> Instant {
        self.turned
    }

    /// Takes in the instance's news, and shows it the commands; tells whether anything has happened.
    ///
    /// # Errors
    ///
    /// The instance is gone, or has written something impossible: all connections are over.
    pub fn turn(&mut self) -> io::Result<bool> {
        self.end.sleeper.note_ring();
        let heard = self.hear()?;
        let said = self.say()?;
        self.turned = self.now();
        if self.turned.since(self.looked) >= LOOKS_AFTER {
            self.looked = self.turned;
            if self.end.is_gone() {
                // News from before is not lost.
                self.hear()?;
                return Err(self.lose(io::ErrorKind::ConnectionReset.into()));
            }
        }
        Ok(heard || said)
    }

    /// Tells whether a turn would find nothing to do.
    pub fn is_idle(&mut self) -> bool {
        let unsaid = self.end.commands.has_unshown();
        !unsaid && !self.has_room() && !self.has_news() && self.events.is_empty()
    }

    /// Tells whether there is room again where there was none. Damage is found in the turn.
    fn has_room(&mut self) -> bool {
        let commands = &mut self.end.commands;
        match self.queue.front() {
            Some((_, bytes)) => commands.has_room(bytes.len()).unwrap_or(true),
            None => self.starves && commands.room().map_or(true, |room| room > 0),
        }
    }

    /// Tells whether there is news from the instance.
    pub fn has_news(&mut self) -> bool {
        self.end.news.has_some().unwrap_or(true)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the next change: connections that the program has opened, and that have gone.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Notes that this descriptor was readable, if it is one of [`Attached::rest`]; it stays so until the next turn.
    pub fn was_woken_by(&mut self, descriptor: RawFd) {
        if self.wakes().contains(&descriptor) {
            self.end.sleeper.was_woken();
        }
    }

    fn wakes(&self) -> [RawFd; 2] {
        self.end.wakes().map(|fd| fd.as_raw_fd())
    }

    /// Returns descriptors that are readable when there is something to do for a thread that sleeps from now on, and how long
    /// it may sleep.
    pub fn rest(&mut self) -> ([RawFd; 2], Option<Duration>) {
        let may = self.lie_down();
        (self.wakes(), (!may).then_some(Duration::ZERO))
    }

    /// Makes the instance ring from now on; tells whether nothing has come before.
    fn lie_down(&mut self) -> bool {
        if self.starves || !self.queue.is_empty() {
            // It may have made room after the last turn, when there was nobody to be woken.
            self.end.commands.wait_for_room();
        }
        self.end.sleeper.lie_down();
        self.is_idle()
    }

    /// Makes sure that what comes still wakes threads that sleep while another one has made a turn.
    pub fn watch_on(&mut self) {
        if !self.lie_down() {
            self.end.sleeper.wake_all();
        }
    }

    /// Returns its own descriptors.
    #[must_use]
    pub fn descriptors(&self) -> [RawFd; 3] {
        let [bell, control] = self.wakes();
        [bell, control, self.end.waker.descriptor().as_raw_fd()]
    }

    /// Ends all connections, as the instance is gone or no longer trusted.
    fn lose(&mut self, error: io::Error) -> io::Error {
        self.failed = self.failed.or(Some(Damaged("nothing: it is gone")));
        self.queue.clear();
        for number in (0..).take(self.seats.len()) {
            if let Some(mirror) = self.seats[number as usize].mirror.as_mut() {
                mirror.lose();
                self.note(number);
            }
        }
        error
    }

    fn damaged(&mut self, damaged: Damaged) -> io::Error {
        self.failed = Some(damaged);
        self.lose(io::Error::other(damaged))
    }

    /// Takes in all news; tells whether there was any.
    fn hear(&mut self) -> io::Result<bool> {
        let mut record = std::mem::take(&mut self.record);
        let mut any = false;
        let heard = loop {
            match self.end.news.next(&mut record) {
                Ok(Some(header)) => {
                    any = true;
                    if let Err(damaged) = self.take(header, &record) {
                        break Err(damaged);
                    }
                }
                Ok(None) => break Ok(()),
                Err(damaged) => break Err(damaged),
            }
        };
        self.record = record;
        for number in std::mem::take(&mut self.unwanted) {
            self.give_back(number);
        }
        if any && self.end.news.give_room() {
            self.end.waker.wake();
        }
        heard.map(|()| any).map_err(|damaged| self.damaged(damaged))
    }

    fn take(&mut self, header: Header, bytes: &[u8]) -> Result<(), Damaged> {
        let Header { number, extra, .. } = header;
        let news = News::of(header).ok_or(Damaged("news of no kind"))?;
        match news {
            News::Incoming => return self.come(number, extra, bytes),
            News::Refused => {
                self.listeners.retain(|listener| listener.number != number);
                return Ok(());
            }
            News::Left => {
                if let Some(at) = self.leaving.iter().position(|one| one.number == number) {
                    self.unwanted.extend(self.leaving.swap_remove(at).waiting);
                }
                return Ok(());
            }
            News::Gone => return self.forget(number),
            News::Info | News::Detached | News::Octets | News::Caught => {
                return self.answered(news, header, bytes);
            }
            News::State | News::Room | News::Data | News::End | News::Failed => {}
        }
        // The connection was closed meanwhile.
        let Some(mirror) = self.mirror_at(number) else { return Ok(()) };
        match news {
            News::State => mirror.state = state_of(extra).ok_or(Damaged("no state"))?,
            News::Room => {
                let octets = bytes.try_into().map_err(|_| Damaged("no count"))?;
                mirror.allowed = u64::from_ne_bytes(octets);
                if !std::mem::take(&mut mirror.wants_room) {
                    return Ok(());
                }
            }
            News::Data => mirror.incoming.extend(bytes),
            // It follows a failure that was reported ahead of octets to be read.
            News::End if mirror.error.is_some() => mirror.cut_off = true,
            News::End => mirror.ended = true,
            _ => {
                mirror.error =
                    Some(serde_json::from_slice(bytes).map_err(|_| Damaged("no error"))?);
                mirror.state = State::Closed;
                // The instance may have more octets, for which there was no room.
                mirror.cut_off = extra == 0;
            }
        }
        self.note(number);
        Ok(())
    }

    /// Frees the number of a connection that the program had opened and closed, as nothing is left of it.
    fn forget(&mut self, number: u32) -> Result<(), Damaged> {
        let seat = self.seats.get_mut(number as usize);
        let seat = seat.filter(|seat| seat.is_ours && seat.mirror.is_none());
        seat.ok_or(Damaged("the end of what was none"))?.is_ours = false;
        self.free.push(number);
        self.changes.push_back(Change::Went { place: number });
        Ok(())
    }

    /// Enters a connection that has come to a listener.
    fn come(&mut self, number: u32, listener: u32, bytes: &[u8]) -> Result<(), Damaged> {
        let Arrived { ends: Ends { local, remote }, allowed } =
            serde_json::from_slice(bytes).map_err(|_| Damaged("no ends"))?;
        // Even numbers are the instance's to give, one after the other.
        if number % 2 == 1 || number as usize > self.seats.len() + 2 {
            return Err(Damaged("a number that is not the instance's"));
        }
        let seat = self.seat(number);
        if seat.mirror.is_some() {
            return Err(Damaged("a number that was given already"));
        }
        seat.take(Mirror { allowed, ..Mirror::new(local, remote, false) });
        let is_it = |one: &&mut Listener| one.number == listener;
        if let Some(listener) = self.listeners.iter_mut().find(is_it) {
            self.counters.passive_opens += 1;
            listener.waiting.push_back(number);
            let id = uncork_stack::ListenerId::from_u64(listener.number.into());
            self.events.push_back(Event::Incoming(id));
        } else if let Some(listener) = self.leaving.iter_mut().find(is_it) {
            listener.waiting.push_back(number);
        } else {
            self.unwanted.push(number);
        }
        Ok(())
    }

    /// Returns a connection that is not accepted here: another program may have it. The instance has kept what has come on it.
    fn give_back(&mut self, number: u32) {
        if self.seat(number).mirror.take().is_some() {
            self.command(Command::Return, number, &[]);
        }
    }

    /// Notes that something has happened to a connection.
    fn note(&mut self, number: u32) {
        let id = self.id(number);
        self.events.push_back(Event::Socket(id, Ready::default()));
    }

    fn seat(&mut self, number: u32) -> &mut Seat {
        let at = number as usize;
        if self.seats.len() <= at {
            self.seats.resize_with(at + 1, Seat::default);
        }
        &mut self.seats[at]
    }

    fn mirror_at(&mut self, number: u32) -> Option<&mut Mirror> {
        self.seats.get_mut(number as usize)?.mirror.as_mut()
    }

    fn id(&self, number: u32) -> SocketId {
        let generation = self.seats.get(number as usize).map_or(0, |seat| seat.generation);
        SocketId::from_u64(u64::from(generation) << 32 | u64::from(number))
    }

    /// Returns the number that an id stands for, if it is still valid.
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    fn number(&self, id: SocketId) -> Option<u32> {
        let (generation, number) = ((id.as_u64() >> 32) as u32, id.as_u64() as u32);
        let seat = self.seats.get(number as usize)?;
        (seat.generation == generation && seat.mirror.is_some()).then_some(number)
    }

    fn get(&self, id: SocketId) -> Option<&Mirror> {
        self.seats.get(self.number(id)? as usize)?.mirror.as_ref()
    }

    fn get_mut(&mut self, id: SocketId) -> Option<(u32, &mut Mirror)> {
        let number = self.number(id)?;
        Some((number, self.seats.get_mut(number as usize)?.mirror.as_mut()?))
    }

    fn command(&mut self, command: Command, number: u32, bytes: &[u8]) {
        self.order(command.of_number(number), bytes);
    }

    fn command_of(&mut self, command: Command, number: u32, what: &impl Serialize) {
        // It is made of numbers: it can always be written.
        let bytes = serde_json::to_vec(what).unwrap_or_default();
        self.command(command, number, &bytes);
    }

    /// Writes a command, now or when there is room again.
    fn order(&mut self, header: Header, bytes: &[u8]) {
        let is_doubtful = self.is_doubtful(header.number)
            && Command::of(header).is_some_and(Command::is_of_connection);
        if self.failed.is_some() || is_doubtful {
            return;
        }
        self.catch_up();
        let written = self.queue.is_empty().then(|| self.end.commands.write(header, bytes));
        match written {
            Some(Ok(true)) => {}
            Some(Err(damaged)) => self.failed = Some(damaged),
            _ => self.queue.push_back((header, bytes.to_vec())),
        }
    }

    /// Writes commands that waited for room. The instance finds those in the ring even if the program dies before its next turn;
    /// those that wait here would be lost, so they wait no longer than they have to.
    fn catch_up(&mut self) {
        if !self.queue.is_empty()
            && let Err(damaged) = self.write_queue()
        {
            self.failed = Some(damaged);
        }
    }

    /// Shows the instance the commands; tells whether there were any.
    fn say(&mut self) -> io::Result<bool> {
        if let Some(damaged) = self.failed {
            return Err(self.damaged(damaged));
        }
        let tried = self.write_queue();
        let shown = self.end.commands.show();
        if shown {
            self.end.waker.wake();
        }
        // Commands that wait for room come first.
        let starves = self.starves && tried.is_ok() && self.queue.is_empty();
        if starves && self.end.commands.room().is_ok_and(|room| room > 0) {
            self.starves = false;
            self.feed();
        }
        tried.map(|()| shown).map_err(|damaged| self.damaged(damaged))
    }

    fn write_queue(&mut self) -> Result<(), Damaged> {
        while let Some((header, bytes)) = self.queue.front() {
            if !self.end.commands.write(*header, bytes)? {
                self.end.commands.wait_for_room();
                if !self.end.commands.write(*header, bytes)? {
                    break;
                }
            }
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Lets connections try again whose writes were refused.
    fn feed(&mut self) {
        for number in (0..).take(self.seats.len()) {
            let Some(mirror) = self.seats[number as usize].mirror.as_mut() else { continue };
            if mirror.wants_room && mirror.room() > 0 {
                mirror.wants_room = false;
                self.note(number);
            }
        }
    }
}
