//! How the two get to know each other: the instance sends two descriptors over the socket that the guardian has
//! given both of them. Then that socket says whether the other one still lives, and the instance rings by it ([`crate::bell`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, shutdown};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use uncork_guardian::channel;
use uncork_high::high;

use crate::Damaged;
use crate::bell::{self, Sleeper, Waker};
use crate::memory::Memory;
use crate::record::Header;
use crate::ring::{RING_BYTES, Reader, Way, Writer};

/// How long the other side is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Changes with the meaning of what is shared.
const VERSION: u32 = 8;
const MEMORY_BYTES: usize = 2 * RING_BYTES;

/// Why there is no attachment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel says so.
    #[error("the memory that is shared with the instance cannot be set up: {0}")]
    System(#[from] io::Error),
    /// The program has ended meanwhile: nobody is left who would attach.
    #[error("the program has ended")]
    Gone,
    /// The instance has gone, or does not answer.
    #[error("the instance of the stack does not answer: see what `uncork stack start` says")]
    Silent,
    /// It says something else.
    #[error("uncork and libuncork.so are of different versions: install both anew")]
    Language,
}

/// With each of the descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct Term {
    version: u32,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    Memory,
    InstancesBell,
}

const ALL: [What; 2] = [What::Memory, What::InstancesBell];

/// The instance's end.
#[derive(Debug)]
pub struct InstanceEnd {
    /// What the program says.
    pub commands: Reader,
    /// What it is told.
    pub news: Writer,
    sleeper: Sleeper,
    waker: Waker,
    control: Arc<OwnedFd>,
}

/// The program's.
#[derive(Debug)]
pub struct ProgramEnd {
    pub(crate) news: Reader,
    pub(crate) commands: Writer,
    pub(crate) sleeper: Sleeper,
    pub(crate) waker: Waker,
    pub(crate) control: Arc<OwnedFd>,
}

/// The instance's side: makes memory for a program at the other end of a socket.
///
/// # Errors
///
/// [`Error::Gone`] if nobody is there, else what the kernel says.
///
/// The socket may be closed by somebody else behind the last use of what this gives.
pub fn offer(control: Arc<OwnedFd>) -> Result<InstanceEnd, Error> {
    let file = Memory::create(MEMORY_BYTES)?;
    let memory = Arc::new(Memory::map(file.as_fd(), MEMORY_BYTES)?);
    let bell = bell::create()?;
    for (what, descriptor) in ALL.into_iter().zip([&file, &bell]) {
        let term = Term { version: VERSION, what };
        let flags = SendFlags::DONTWAIT;
        channel::send(control.as_fd(), &term, Some(descriptor.as_fd()), flags).map_err(lost)?;
    }
    Ok(InstanceEnd {
        commands: Reader::new(Arc::clone(&memory), Way::Commands),
        news: Writer::new(Arc::clone(&memory), Way::News),
        sleeper: Sleeper::by_eventfd(Arc::clone(&memory), Way::Commands, bell),
        waker: Waker::by_messages(memory, Way::News, Arc::clone(&control)),
        control,
    })
}

fn lost(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Gone,
        _ => Error::System(error),
    }
}

/// The program's side: takes what it offers.
///
/// # Errors
///
/// [`Error`] says which.
pub fn accept(control: OwnedFd) -> Result<ProgramEnd, Error> {
    let until = Instant::now() + PATIENCE;
    let [file, theirs] =
        [term(control.as_fd(), ALL[0], until)?, term(control.as_fd(), ALL[1], until)?];
    let (ours, control) = (high(bell::create()?), Arc::new(high(control)));
    let memory = Arc::new(Memory::map(file.as_fd(), MEMORY_BYTES)?);
    Ok(ProgramEnd {
        news: Reader::new(Arc::clone(&memory), Way::News),
        commands: Writer::new(Arc::clone(&memory), Way::Commands),
        sleeper: Sleeper::by_messages(Arc::clone(&memory), Way::News, ours, Arc::clone(&control)),
        waker: Waker::by_eventfd(memory, Way::Commands, high(theirs)),
        control,
    })
}

fn term(control: BorrowedFd<'_>, what: What, until: Instant) -> Result<OwnedFd, Error> {
    wait([control], Some(until.saturating_duration_since(Instant::now())))?;
    let came = channel::receive(control, RecvFlags::DONTWAIT).map_err(|_| Error::Silent)?;
    if came.bytes.is_empty() {
        return Err(Error::Silent);
    }
    let term: Term = serde_json::from_slice(&came.bytes).map_err(|_| Error::Language)?;
    if (term.version, term.what) != (VERSION, what) {
        return Err(Error::Language);
    }
    came.descriptor.ok_or(Error::Language)
}

/// Waits until one of them can be read.
pub(crate) fn wait<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    limit: Option<Duration>,
) -> io::Result<()> {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or_default());
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl ProgramEnd {
    /// Whether the instance is gone. It may have rung before.
    pub(crate) fn is_gone(&self) -> bool {
        let mut control = [PollFd::new(&self.control, PollFlags::empty())];
        // The end of the other end is told whether it is asked for or not.
        poll(&mut control, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
    }

    /// Which descriptors can be read when there is something to hear, for who has lain down.
    pub(crate) fn wakes(&self) -> [BorrowedFd<'_>; 2] {
        [self.sleeper.as_fd(), self.control.as_fd()]
    }

    /// Takes a record of the instance's: for who plays a program that has heard no more than that.
    ///
    /// # Errors
    ///
    /// The instance is not to be believed.
    pub fn read_one(&mut self, into: &mut Vec<u8>) -> Result<Option<Header>, Damaged> {
        self.news.next(into)
    }

    /// Writes a record, whatever it says, and shows it: for who plays a program that means harm.
    pub fn write_anything(&mut self, header: Header, bytes: &[u8]) {
        // In a ring that is full it is lost, like much of what is written here.
        let _ = self.commands.write(header, bytes);
        if self.commands.show() {
            self.waker.wake();
        }
    }

    /// Rings, with nothing to say and though the instance may be awake: for the same.
    pub fn ring_for_nothing(&self) {
        self.waker.ring();
    }

    /// Is taken for gone from now on: for the same.
    pub fn hang_up(&self) {
        // It is connected, so that it can be.
        let _ = shutdown(&self.control, Shutdown::Both);
    }
}

impl InstanceEnd {
    /// It is about to sleep; look for commands once more.
    pub fn lie_down(&mut self) {
        self.sleeper.lie_down();
    }

    /// It sleeps no more; whether [`InstanceEnd::bell`] could be read.
    pub fn get_up(&mut self, rung: bool) {
        self.sleeper.get_up(rung);
    }

    /// What was written is for the program to see, and it is woken if it sleeps.
    pub fn show(&mut self) {
        if self.news.show() {
            self.waker.wake();
        }
    }

    /// Commands were read: who waits for room to write some is woken.
    pub fn give_room(&mut self) {
        if self.commands.give_room() {
            self.waker.wake();
        }
    }

    /// Readable when there are commands, if it was asleep.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.sleeper.as_fd()
    }

    /// Readable when the program is gone.
    #[must_use]
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The program is told that nobody serves it any more.
    pub fn hang_up(&self) {
        // It is connected, or its other end has gone.
        let _ = shutdown(&self.control, Shutdown::Both);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let mut octet = [0; 1];
        // A program says nothing there: what is there is its end, or the end of its being believed.
        recv(&self.control, &mut octet, RecvFlags::DONTWAIT | RecvFlags::PEEK)
            .map_or_else(|error| error != rustix::io::Errno::AGAIN, |_| true)
    }
}
