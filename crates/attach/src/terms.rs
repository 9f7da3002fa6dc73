//! How the two meet: the instance sends two descriptors over the socket that the guardian has given to both.
//! From then on that socket tells whether the other side still lives, and the instance rings by it ([`crate::bell`]).

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
/// Version of the protocol; changes with the meaning of what is shared.
const VERSION: u32 = 8;
const MEMORY_BYTES: usize = 2 * RING_BYTES;

/// Why an attachment failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call has failed.
    #[error("the memory that is shared with the instance cannot be set up: {0}")]
    System(#[from] io::Error),
    /// The program has ended meanwhile: nobody is left to attach.
    #[error("the program has ended")]
    Gone,
    /// The instance has gone, or does not answer.
    #[error("the instance of the stack does not answer: see what `uncork stack start` says")]
    Silent,
    /// The instance speaks another version of the protocol.
    #[error("uncork and libuncork.so are of different versions: install both anew")]
    Language,
}

/// The message that comes with each descriptor.
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
    /// The program's commands.
    pub commands: Reader,
    /// The news for the program.
    pub news: Writer,
    sleeper: Sleeper,
    waker: Waker,
    control: Arc<OwnedFd>,
}

/// The program's end.
#[derive(Debug)]
pub struct ProgramEnd {
    pub(crate) news: Reader,
    pub(crate) commands: Writer,
    pub(crate) sleeper: Sleeper,
    pub(crate) waker: Waker,
    pub(crate) control: Arc<OwnedFd>,
}

/// Offers memory to a program at the other end of a socket: the instance's side.
///
/// # Errors
///
/// [`Error::Gone`] if no program is there, else what the kernel says.
///
/// Another owner of the socket may close it after the last use of the result.
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

/// Accepts what an instance offers: the program's side.
///
/// # Errors
///
/// [`Error`] says what failed.
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

/// Waits until one of these is readable.
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
    /// Tells whether the instance is gone. It may have rung before.
    pub(crate) fn is_gone(&self) -> bool {
        let mut control = [PollFd::new(&self.control, PollFlags::empty())];
        // poll(2) reports the hangup of the other end whether it is asked to or not.
        poll(&mut control, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
    }

    /// Returns the descriptors that become readable when there is something to hear, once a sleep was announced.
    pub(crate) fn wakes(&self) -> [BorrowedFd<'_>; 2] {
        [self.sleeper.as_fd(), self.control.as_fd()]
    }

    /// Reads one of the instance's records: for tests that play a program which has heard no more than that.
    ///
    /// # Errors
    ///
    /// The instance has written something impossible.
    pub fn read_one(&mut self, into: &mut Vec<u8>) -> Result<Option<Header>, Damaged> {
        self.news.next(into)
    }

    /// Writes any record, and shows it: for tests that play a malicious program.
    pub fn write_anything(&mut self, header: Header, bytes: &[u8]) {
        // If the ring is full the record is lost, like much of what is written here.
        let _ = self.commands.write(header, bytes);
        if self.commands.show() {
            self.waker.wake();
        }
    }

    /// Rings for no reason, even if the instance is awake: for the same tests.
    pub fn ring_for_nothing(&self) {
        self.waker.ring();
    }

    /// Makes the program count as gone from now on: for the same tests.
    pub fn hang_up(&self) {
        // It is connected, so this works.
        let _ = shutdown(&self.control, Shutdown::Both);
    }
}

impl InstanceEnd {
    /// Announces that the instance is going to sleep; after this, look for commands once more.
    pub fn lie_down(&mut self) {
        self.sleeper.lie_down();
    }

    /// Ends the sleep. `rung`: [`InstanceEnd::bell`] was readable.
    pub fn get_up(&mut self, rung: bool) {
        self.sleeper.get_up(rung);
    }

    /// Shows the program what was written, and wakes it if it sleeps.
    pub fn show(&mut self) {
        if self.news.show() {
            self.waker.wake();
        }
    }

    /// Gives back the room of commands that were read, and wakes the program if it waits for it.
    pub fn give_room(&mut self) {
        if self.commands.give_room() {
            self.waker.wake();
        }
    }

    /// Returns a descriptor that is readable when there are commands, if the instance was asleep.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.sleeper.as_fd()
    }

    /// Returns a descriptor that is readable when the program is gone.
    #[must_use]
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Tells the program that it is no longer served.
    pub fn hang_up(&self) {
        // It is connected, or its other end is gone.
        let _ = shutdown(&self.control, Shutdown::Both);
    }

    /// Tells whether the program is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let mut octet = [0; 1];
        // A program sends nothing there: anything that comes is its end, or a reason not to trust it.
        recv(&self.control, &mut octet, RecvFlags::DONTWAIT | RecvFlags::PEEK)
            .map_or_else(|error| error != rustix::io::Errno::AGAIN, |_| true)
    }
}
