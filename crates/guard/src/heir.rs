//! The heir: a process that does what remains to be done when the guardian itself is killed.
//!
//! A program that lives notices its guardian's end and resets its connections. One that is killed together with its
//! guardian, a moment before or after, does not, and its peers would wait for ever. So the guardian has an heir:
//! a process that only waits for the guardian's end, and then makes the peers of all programs say their sequence numbers
//! ([`crate::reset`]). The guardian then answers for nothing (`Owned::answer_for`), so the kernel hears the peers and resets.
//!
//! The heir has each program's table of connections. Of grants it knows only that a place counts if one of the devices has its
//! address; it sends two segments without data for each connection, once, and only then.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use uncork_bpf::owned::Engine;
use uncork_guardian::{channel, table};
use uncork_high::higher;

use crate::instead::PATIENCE;
use crate::reset::{Left, Prober};
use crate::session::Session;

/// An heir that lived at least so long and is gone is replaced at once. One that did not, perhaps because it cannot run here, is
/// replaced after so long, the next after twice as long, and so on.
const TRIAL: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long an heir may take to make room for a message: an incompletely informed heir is useless.
const HEARING: Duration = Duration::from_millis(200);

/// Starts an heir: a process that calls [`inherit`] with this socket.
pub type Begin = Box<dyn Fn(OwnedFd) -> io::Result<Child> + Send>;

/// Messages to an heir.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum News {
    /// The first message: addresses of the devices, with their numbers.
    Devices { addresses: Vec<(IpAddr, u32)> },
    /// A program has come; its table's descriptor comes along.
    Table { engine: u32 },
    /// A program is dead, and its connections were taken care of.
    Over { engine: u32 },
}

/// The heir, as the guardian knows it.
pub(crate) struct Heir {
    begin: Begin,
    addresses: Vec<(IpAddr, u32)>,
    living: Option<Living>,
    /// When another one is to be started, and how long after that the next if it dies.
    again: Option<Instant>,
    pause: Duration,
    /// Dead programs, with their tables, and how long their last peers are waited for at most.
    departed: Vec<(Engine, Option<OwnedFd>, Instant)>,
}

struct Living {
    socket: OwnedFd,
    process: Child,
    since: Instant,
}

impl Drop for Living {
    fn drop(&mut self) {
        // It would end by itself with its socket; but here it is waited for, and that wait must end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Heir {
    pub(crate) fn new(begin: Begin, addresses: Vec<(IpAddr, u32)>) -> Self {
        let departed = Vec::new();
        Self { begin, addresses, living: None, again: None, pause: TRIAL, departed }
    }

    /// Returns a descriptor that becomes readable when the heir is gone: an heir never sends anything.
    pub(crate) fn ends(&self) -> Option<BorrowedFd<'_>> {
        self.living.as_ref().map(|living| living.socket.as_fd())
    }

    /// Starts an heir that knows these sessions. Without an heir everything goes on, except for what an heir is for.
    pub(crate) fn begin(&mut self, all: &[&Session]) {
        self.again = None;
        let departed = std::mem::take(&mut self.departed);
        let begun = self.try_to_begin(&self.all_news(all, &departed));
        self.departed = departed;
        if begun.is_err() {
            self.begin_later();
        }
    }

    fn try_to_begin(&mut self, news: &[Told<'_>]) -> io::Result<()> {
        let kind = SocketType::SEQPACKET;
        let (socket, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        // The heir is to notice the guardian's end before the kernel closes packet sockets, some hundredths of a second each.
        let socket = higher(socket);
        set_socket_timeout(&socket, Timeout::Send, Some(HEARING))?;
        // When it starts, it finds as many messages as there was room for.
        let is_told = |one: &&Told<'_>| one.say(&socket, SendFlags::DONTWAIT).is_ok();
        let told = news.iter().take_while(is_told).count();
        let process = (self.begin)(other)?;
        self.living = Some(Living { socket, process, since: Instant::now() });
        news[told..].iter().for_each(|one| self.tell(one));
        Ok(())
    }

    fn all_news<'a>(
        &self,
        all: &[&'a Session],
        departed: &'a [(Engine, Option<OwnedFd>, Instant)],
    ) -> Vec<Told<'a>> {
        let devices = Told(News::Devices { addresses: self.addresses.clone() }, None);
        let living = all.iter().map(|session| Told::table(session.engine, session.table.as_fd()));
        let dead = departed.iter().filter_map(|(engine, table, _)| {
            table.as_ref().map(|table| Told::table(*engine, table.as_fd()))
        });
        [devices].into_iter().chain(living).chain(dead).collect()
    }

    /// Notes that the heir is gone. When another one is started depends on how long it has lived.
    pub(crate) fn lose(&mut self) {
        let Some(living) = self.living.take() else { return };
        if living.since.elapsed() < TRIAL {
            return self.begin_later();
        }
        (self.pause, self.again) = (TRIAL, Some(Instant::now()));
    }

    fn begin_later(&mut self) {
        self.again = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Returns how long it is until another one is to be started, if one is.
    pub(crate) fn rests(&self) -> Option<Duration> {
        self.again.map(|again| again.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn came(&mut self, session: &Session) {
        self.tell(&Told::table(session.engine, session.table.as_fd()));
    }

    /// Records that a program is dead. The guardian may have to wait this long for its peers: if the guardian ends in between,
    /// they are left to the heir.
    pub(crate) fn went(&mut self, session: &Session, rests: Option<Duration>) {
        // Without a copy of the table, another heir does not know of the program.
        let table = rests.and_then(|_| session.table.try_clone().ok());
        self.departed.push((session.engine, table, Instant::now() + rests.unwrap_or_default()));
    }

    /// Releases the heir from dead programs whose connections were all taken care of.
    pub(crate) fn release(&mut self, prober: &Prober) {
        let now = Instant::now();
        if prober.has_more() {
            self.departed.iter_mut().for_each(|(.., until)| *until = (*until).max(now + PATIENCE));
            return;
        }
        let all_are = prober.hears().is_none();
        let over: Vec<_> =
            self.departed.extract_if(.., |(_, _, until)| all_are || *until <= now).collect();
        for (engine, ..) in over {
            self.tell(&Told(News::Over { engine: engine.0.get() }, None));
        }
    }

    /// Sends a message. An heir that does not take it is useless; the next one may be, too, and it takes time each to find out.
    fn tell(&mut self, told: &Told<'_>) {
        let lost = |living: &Living| told.say(&living.socket, SendFlags::empty()).is_err();
        if self.living.as_ref().is_some_and(lost) {
            self.living = None;
            self.begin_later();
        }
    }
}

/// A message, with the descriptor that goes along.
struct Told<'a>(News, Option<BorrowedFd<'a>>);

impl<'a> Told<'a> {
    fn table(engine: Engine, table: BorrowedFd<'a>) -> Self {
        Self(News::Table { engine: engine.0.get() }, Some(table))
    }

    fn say(&self, to: &OwnedFd, how: SendFlags) -> io::Result<()> {
        channel::send(to.as_fd(), &self.0, self.1, how)
    }
}

/// What an heir knows: addresses of the devices, and programs' tables.
#[derive(Debug, Default)]
struct Estate {
    addresses: HashMap<IpAddr, u32>,
    tables: HashMap<u32, OwnedFd>,
}

/// Runs an heir: waits until the guardian at the other end of this socket is gone, and does what remains.
///
/// # Errors
///
/// If the kernel does not let it do that.
pub fn inherit(socket: OwnedFd) -> io::Result<()> {
    let mut prober = Prober::open()?;
    let mut estate = Estate::default();
    loop {
        match channel::receive(socket.as_fd(), RecvFlags::empty()) {
            Ok(came) if came.bytes.is_empty() => break,
            Ok(came) => estate.hear(serde_json::from_slice(&came.bytes)?, came.descriptor),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    estate.settle(&mut prober)
}

impl Estate {
    fn hear(&mut self, news: News, descriptor: Option<OwnedFd>) {
        match news {
            News::Devices { addresses } => {
                self.addresses = addresses.into_iter().collect();
            }
            News::Table { engine } => {
                self.tables.extend(descriptor.map(|table| (engine, table)));
            }
            News::Over { engine } => drop(self.tables.remove(&engine)),
        }
    }

    fn settle(&self, prober: &mut Prober) -> io::Result<()> {
        // The kernel hears the peers' answers already: once the guardian's end can be noticed, it answers for nothing any more.
        for table in self.tables.values() {
            prober.end(self.connections(table)?);
        }
        prober.settle();
        Ok(())
    }

    /// Returns those entries of a table that may be true: a program can write anything there.
    fn connections(&self, table: &OwnedFd) -> io::Result<Vec<Left>> {
        let found = table::read(table.as_fd())?;
        Ok(Left::all(found, |address| self.addresses.get(&address).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sleeper(socket: OwnedFd) -> io::Result<Child> {
        Command::new("sleep").arg("1000").stdin(socket).stdout(Stdio::null()).spawn()
    }

    #[test]
    fn who_is_there_knows_all_and_who_does_not_listen_is_replaced() {
        let begin = |socket: OwnedFd| {
            let came = channel::receive(socket.as_fd(), RecvFlags::DONTWAIT)?;
            let News::Devices { addresses } = serde_json::from_slice(&came.bytes)? else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            assert_eq!(addresses, [([10, 0, 0, 1].into(), 2)]);
            sleeper(socket)
        };
        let mut heir = Heir::new(Box::new(begin), vec![([10, 0, 0, 1].into(), 2)]);
        heir.begin(&[]);
        assert!(heir.ends().is_some());
        while heir.ends().is_some() {
            heir.tell(&Told(News::Over { engine: 1 }, None));
        }
        // Its loss is recorded only once.
        let again = heir.again;
        heir.lose();
        assert!(again.is_some() && heir.again == again);
    }

    #[test]
    fn who_dies_young_is_replaced_later_and_later() {
        let mut heir = Heir::new(Box::new(sleeper), Vec::new());
        for longest in [TRIAL, TRIAL * 2, TRIAL * 4] {
            heir.begin(&[]);
            assert!(heir.ends().is_some() && heir.rests().is_none());
            heir.living.as_mut().unwrap().since = Instant::now();
            heir.lose();
            assert!(heir.ends().is_none() && heir.rests().unwrap() <= longest);
            assert_eq!(heir.pause, longest * 2);
        }
        // One that lived long enough is replaced at once, and the next pause is short again.
        heir.begin(&[]);
        heir.living.as_mut().unwrap().since -= TRIAL;
        heir.lose();
        assert_eq!(heir.rests(), Some(Duration::ZERO));
        assert_eq!(heir.pause, TRIAL);
    }
}
