//! Peers that are connected when something is killed, and how and when they hear of it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use uncork_e2e::Hosts;
use uncork_e2e::http::{Answer, Connection};

use super::NEVER;

/// How often the watch checks whether it is to stop, in milliseconds.
const LOOKS: u8 = 20;
/// What a talking peer requests, in turns, so that a kill hits it in the middle of either.
const TALKED_OF: [&str; 3] = ["small", "small", "big"];

/// What a peer does when something is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// Sends requests and reads answers, again and again.
    Talks,
    /// Has requested much, and reads none of it: the window is shut.
    Downloads,
    /// Has had an answer, and sends nothing more.
    Rests,
    /// Has connected, and sent nothing.
    Listens,
}

pub(super) const ALL: [Does; 4] = [Does::Talks, Does::Downloads, Does::Rests, Does::Listens];

/// The content that is served, by name.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) files: Vec<(&'static str, Vec<u8>)>,
}

impl Wanted {
    fn bytes(&self, name: &str) -> Result<&[u8]> {
        let found = self.files.iter().find(|(other, _)| *other == name);
        Ok(&found.context("no such file")?.1)
    }
}

/// A conversation, by HTTP or in redis's protocol.
#[derive(Debug)]
pub(super) enum Talk {
    Http(Connection),
    Redis(BufReader<TcpStream>),
}

impl Talk {
    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            Self::Http(connection) => connection.stream(),
            Self::Redis(reader) => reader.get_ref(),
        }
    }

    pub(super) fn ask(&mut self, name: &str) -> Result<()> {
        match self {
            Self::Http(connection) => connection.request(&format!("/{name}"), ""),
            Self::Redis(reader) => Ok(write!(reader.get_mut(), "get {name}\r\n")?),
        }
    }

    /// Waits until data has come, and leaves it unread.
    pub(super) fn wait(&self) -> Result<()> {
        loop {
            match self.stream().peek(&mut [0]) {
                // On a machine that was suspended for a while.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                came => return Ok(came.map(drop)?),
            }
        }
    }

    fn hear(&mut self, name: &str, wanted: &Wanted) -> Result<()> {
        let bytes = wanted.bytes(name)?;
        let is_it = match self {
            Self::Http(connection) => connection.answer()? == Answer::of(200, bytes),
            Self::Redis(reader) => {
                let mut head = String::new();
                reader.read_line(&mut head)?;
                let mut got = vec![0; bytes.len() + 2];
                reader.read_exact(&mut got)?;
                head == format!("${}\r\n", bytes.len()) && got.strip_suffix(b"\r\n") == Some(bytes)
            }
        };
        ensure!(is_it, "another answer than {name}");
        Ok(())
    }

    pub(super) fn get(&mut self, name: &str, wanted: &Wanted) -> Result<()> {
        self.ask(name)?;
        self.hear(name, wanted)
    }
}

/// A connected peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) does: Does,
    /// The process that has its connection, if that is known.
    pub(super) owner: Option<u32>,
    pub(super) talk: Talk,
}

impl Peer {
    /// Goes on with its activity until the end, or until it is to stop.
    pub(super) fn go_on(&mut self, wanted: &Wanted, stop: &AtomicBool) -> Result<()> {
        if self.does == Does::Talks {
            let mut names = TALKED_OF.iter().cycle().take_while(|_| !stop.load(Relaxed));
            names.try_for_each(|name| self.talk.get(name, wanted))?;
        }
        Ok(())
    }

    /// Reads what is still in flight; fails unless the end comes after it.
    pub(super) fn hears_of_the_end(&self) -> Result<()> {
        let mut stream = self.talk.stream();
        stream.set_read_timeout(Some(NEVER))?;
        let mut bytes = vec![0; 1 << 16];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => drop(read?),
            }
        }
    }

    /// Fails unless it is served as if nothing had been killed.
    pub(super) fn is_served(&mut self, wanted: &Wanted) -> Result<()> {
        if self.does == Does::Downloads {
            self.talk.hear("huge", wanted)?;
            self.does = Does::Rests;
        }
        self.talk.get("small", wanted)
    }
}

/// How and when a connection has ended at the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) at: Instant,
    pub(super) is_reset: bool,
}

/// Records the end of each connection.
#[derive(Debug)]
pub(super) struct Watch {
    set: Epoll,
    /// Kept open: otherwise the set would forget a connection together with the peer's descriptor.
    _streams: Vec<TcpStream>,
    ends: Mutex<Vec<Option<End>>>,
}

impl Watch {
    pub(super) fn of(peers: &[Peer]) -> Result<Self> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let streams = peers.iter().map(|peer| peer.talk.stream().try_clone());
        let streams: Vec<_> = streams.collect::<io::Result<_>>()?;
        // Reports FINs and errors, each once; unread data hides neither.
        let told = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLONESHOT;
        for (at, stream) in (0..).zip(&streams) {
            set.add(stream, EpollEvent::new(told, at))?;
        }
        Ok(Self { set, _streams: streams, ends: Mutex::new(vec![None; peers.len()]) })
    }

    pub(super) fn ends(&self) -> Vec<Option<End>> {
        self.ends.lock().map(|ends| ends.clone()).unwrap_or_default()
    }

    /// Watches until it is to stop.
    pub(super) fn look(&self, stop: &AtomicBool) -> Result<()> {
        let mut told = [EpollEvent::empty(); 64];
        while !stop.load(Relaxed) {
            let count = match self.set.wait(&mut told, LOOKS) {
                // On a machine that was suspended for a while.
                Err(Errno::EINTR) => continue,
                waited => waited?,
            };
            let at = Instant::now();
            let mut ends = self.ends.lock().map_err(|_| anyhow!("a thread panicked"))?;
            for told in &told[..count] {
                let is_reset = told.events().contains(EpollFlags::EPOLLERR);
                ends[usize::try_from(told.data())?] = Some(End { at, is_reset });
            }
        }
        Ok(())
    }

    /// Waits until these have ended, up to a limit.
    pub(super) fn wait(&self, which: &[usize], limit: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            let ends = self.ends();
            if which.iter().all(|at| ends[*at].is_some()) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Connects and closes, again and again, so that kills hit a connection in the making. To be
/// neither served nor refused in time is an error; returns how often it was not served.
pub(super) fn come_and_go(hosts: &Hosts, to: SocketAddr, stop: &AtomicBool) -> Result<usize> {
    let once = move || {
        let mut stream = TcpStream::connect_timeout(&to, NEVER)?;
        stream.set_read_timeout(Some(NEVER))?;
        // Any of the servers answers this.
        stream.write_all(b"GET /small HTTP/1.0\r\n\r\n")?;
        stream.read_exact(&mut [0])
    };
    let mut failures = 0;
    while !stop.load(Relaxed) {
        match hosts.theirs.within(move || Ok(once()))? {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                return Err(anyhow!(error).context("one who comes hears nothing"));
            }
            Err(_) => {
                failures += 1;
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
    Ok(failures)
}
