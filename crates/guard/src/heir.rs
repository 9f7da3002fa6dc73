//! What is left to be done when the guardian itself is killed, and who does it.
//!
//! A program hears of its guardian's end and resets its connections, as long as it lives. One that is killed together
//! with its guardian, a moment before or after, does not, and its peers would wait for ever. So the guardian has an heir:
//! a process that does nothing but wait for its end, and then makes the peers of all programs say their numbers
//! ([`crate::reset`]). The guardian answers for nothing any more (`Owned::answer_for`), so the kernel hears those and resets.
//!
//! The heir has each program's table of connections. That of all the places in there only those with an address of the
//! devices count is all that it knows of grants; it sends two segments without data for each, once, and only then.

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

/// Who has lived so long and is gone is replaced at once. For who has not, and may not be able to do it here, there is another
/// one so much later, then twice as late, and so on.
const TRIAL: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long an heir may take to make room for news: one that does not know all is none.
const HEARING: Duration = Duration::from_millis(200);

/// Starts an heir: a process that calls [`inherit`] with this socket.
pub type Begin = Box<dyn Fn(OwnedFd) -> io::Result<Child> + Send>;

/// What an heir is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum News {
    /// The first: addresses of the devices, with their numbers.
    Devices { addresses: Vec<(IpAddr, u32)> },
    /// A program has come, whose table this is.
    Table { engine: u32 },
    /// It is dead, and was looked after.
    Over { engine: u32 },
}

/// The heir, as the guardian knows it.
pub(crate) struct Heir {
    begin: Begin,
    addresses: Vec<(IpAddr, u32)>,
    living: Option<Living>,
    /// When there is to be another, and how long after that the next, should it not live.
    again: Option<Instant>,
    pause: Duration,
    /// Programs that are dead, with their tables, and until when the last of their peers is waited for at the most.
    departed: Vec<(Engine, Option<OwnedFd>, Instant)>,
}

struct Living {
    socket: OwnedFd,
    process: Child,
    since: Instant,
}

impl Drop for Living {
    fn drop(&mut self) {
        // With its socket it would go by itself; here it is waited for, and must not be waited for in vain.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Heir {
    pub(crate) fn new(begin: Begin, addresses: Vec<(IpAddr, u32)>) -> Self {
        let departed = Vec::new();
        Self { begin, addresses, living: None, again: None, pause: TRIAL, departed }
    }

    /// Readable when it is gone: it never says anything.
    pub(crate) fn ends(&self) -> Option<BorrowedFd<'_>> {
        self.living.as_ref().map(|living| living.socket.as_fd())
    }

    /// Starts one that knows these. Without an heir all goes on, but for what the heir is for.
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
        // The heir is to hear of the guardian's end before the kernel closes packet sockets, some hundredths of a second each.
        let socket = higher(socket);
        set_socket_timeout(&socket, Timeout::Send, Some(HEARING))?;
        // Once it is there it knows all that there is room for.
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

    /// It is gone. When there is to be another one depends on how long it has lived.
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

    /// How long it is until another is to begin, if one is.
    pub(crate) fn rests(&self) -> Option<Duration> {
        self.again.map(|again| again.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn came(&mut self, session: &Session) {
        self.tell(&Told::table(session.engine, session.table.as_fd()));
    }

    /// A program is dead. Its peers may have to say their numbers to the guardian still, which takes this long: should the
    /// guardian end in between, they are the heir's.
    pub(crate) fn went(&mut self, session: &Session, rests: Option<Duration>) {
        // Without a copy another heir does not know it.
        let table = rests.and_then(|_| session.table.try_clone().ok());
        self.departed.push((session.engine, table, Instant::now() + rests.unwrap_or_default()));
    }

    /// Of those who are dead, whose peers all have been looked after are the heir's no more.
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

    /// Who does not listen is no heir. Nor may the next one be, and each takes time to find that out.
    fn tell(&mut self, told: &Told<'_>) {
        let lost = |living: &Living| told.say(&living.socket, SendFlags::empty()).is_err();
        if self.living.as_ref().is_some_and(lost) {
            self.living = None;
            self.begin_later();
        }
    }
}

/// News, with a descriptor that goes along.
struct Told<'a>(News, Option<BorrowedFd<'a>>);

impl<'a> Told<'a> {
    fn table(engine: Engine, table: BorrowedFd<'a>) -> Self {
        Self(News::Table { engine: engine.0.get() }, Some(table))
    }

    fn say(&self, to: &OwnedFd, how: SendFlags) -> io::Result<()> {
        channel::send(to.as_fd(), &self.0, self.1, how)
    }
}

/// What an heir has.
#[derive(Debug, Default)]
struct Estate {
    addresses: HashMap<IpAddr, u32>,
    tables: HashMap<u32, OwnedFd>,
}

/// The life of an heir: until the guardian at the other end of this socket is gone, and what is left is done.
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
        // The kernel hears what peers answer already: the guardian answers for nothing any more when anybody hears of its end.
        for table in self.tables.values() {
            prober.end(self.connections(table)?);
        }
        prober.settle();
        Ok(())
    }

    /// What of a table may be true. A program may write there what it likes.
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
        // Its end is found once only.
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
        // Who has lived is replaced at once, and then the first pause is a short one again.
        heir.begin(&[]);
        heir.living.as_mut().unwrap().since -= TRIAL;
        heir.lose();
        assert_eq!(heir.rests(), Some(Duration::ZERO));
        assert_eq!(heir.pause, TRIAL);
    }
}
