//! How the two get to know each other: the instance sends three descriptors over the socket that the guardian has
//! given both of them, and then that socket only says whether the other one still lives.

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
const VERSION: u32 = 6;
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
    ProgramsBell,
}

const ALL: [What; 3] = [What::Memory, What::InstancesBell, What::ProgramsBell];

/// The instance's end.
#[derive(Debug)]
pub struct InstanceEnd {
    /// What the program says.
    pub commands: Reader,
    /// What it is told.
    pub news: Writer,
    sleeper: Sleeper,
    waker: Waker,
    control: OwnedFd,
}

/// The program's.
#[derive(Debug)]
pub struct ProgramEnd {
    pub(crate) news: Reader,
    pub(crate) commands: Writer,
    pub(crate) sleeper: Sleeper,
    pub(crate) waker: Waker,
    pub(crate) control: OwnedFd,
}

/// The instance's side: makes memory for a program at the other end of a socket.
///
/// # Errors
///
/// [`Error::Gone`] if nobody is there, else what the kernel says.
pub fn offer(control: OwnedFd) -> Result<InstanceEnd, Error> {
    let file = Memory::create(MEMORY_BYTES)?;
    let memory = Arc::new(Memory::map(file.as_fd(), MEMORY_BYTES)?);
    let (ours, theirs) = (bell::create()?, bell::create()?);
    for (what, descriptor) in ALL.into_iter().zip([&file, &ours, &theirs]) {
        let term = Term { version: VERSION, what };
        let flags = SendFlags::DONTWAIT;
        channel::send(control.as_fd(), &term, Some(descriptor.as_fd()), flags).map_err(lost)?;
    }
    Ok(InstanceEnd {
        commands: Reader::new(Arc::clone(&memory), Way::Commands),
        news: Writer::new(Arc::clone(&memory), Way::News),
        sleeper: Sleeper::new(Arc::clone(&memory), Way::Commands, ours),
        waker: Waker::new(memory, Way::News, theirs),
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
    let [file, theirs, ours] = [
        term(control.as_fd(), ALL[0], until)?,
        term(control.as_fd(), ALL[1], until)?,
        term(control.as_fd(), ALL[2], until)?,
    ];
    let memory = Arc::new(Memory::map(file.as_fd(), MEMORY_BYTES)?);
    Ok(ProgramEnd {
        news: Reader::new(Arc::clone(&memory), Way::News),
        commands: Writer::new(Arc::clone(&memory), Way::Commands),
        sleeper: Sleeper::new(Arc::clone(&memory), Way::News, high(ours)),
        waker: Waker::new(memory, Way::Commands, high(theirs)),
        control: high(control),
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

/// Whether the process at the other end of a socket is gone.
pub(crate) fn is_gone(control: BorrowedFd<'_>) -> bool {
    let mut octet = [0; 1];
    // Nobody says anything there any more: what is there is the end.
    recv(control, &mut octet, RecvFlags::DONTWAIT | RecvFlags::PEEK)
        .map_or_else(|error| error != rustix::io::Errno::AGAIN, |_| true)
}

impl ProgramEnd {
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

    /// Whether it is.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        is_gone(self.control.as_fd())
    }
}
