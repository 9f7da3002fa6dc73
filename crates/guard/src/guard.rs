//! The guardian itself: one loop over whoever is connected.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::rand::{GetRandomFlags, getrandom};
use uncork_bpf::owned::Engine;
use uncork_driver::af_packet::{Handed, Settings};
use uncork_guardian::{Device, Place, Reply, Request, VERSION, table};
use uncork_handover::{self as handover, Family};
use uncork_stack::Snapshot;

use crate::Error;
use crate::capabilities;
use crate::peer::{Heard, Peer};
use crate::proof;
use crate::reset::Prober;
use crate::session::Session;
use crate::steering::{Steering, plain};
use crate::watch::Watch;

/// Connections that may wait to be taken, and those that have not said who they are.
const STRANGERS: usize = 64;
/// How long somebody may take to say who he is.
const INTRODUCTION: Duration = Duration::from_secs(1);
/// How often it is looked after what only time can change, at the most.
const ROUND: Duration = Duration::from_millis(500);
/// Part of the time that may be spent on that: where the kernel has many sockets, asking takes milliseconds.
const SHARE: u32 = 200;

/// Slots of the rings that each process gets on each device, a half of what a stack has that is alone on a
/// machine: 27 MiB with room for the longest trains.
const RECEIVE_SLOTS: usize = 256;
const TRANSMIT_SLOTS: usize = 128;

/// What a guardian is for.
#[derive(Debug)]
pub struct Plan {
    /// That stacks may use.
    pub devices: Vec<Device>,
    /// Ports that programs may listen on with the stack; any, if there is none.
    pub ports: Vec<u16>,
    /// The first process that is served.
    pub program: u32,
}

/// A guardian.
pub struct Guard {
    plan: Plan,
    place: Place,
    listener: OwnedFd,
    /// The first process, as long as it lives.
    program: Option<OwnedFd>,
    steering: Steering,
    prober: Prober,
    peers: Vec<Peer>,
    engines: NonZeroU32,
    watch: Watch,
    /// When it was last looked after what only time can change, and how long it is until the next time.
    looked: Instant,
    rests: Duration,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Guard {
    /// Attaches the filters to the devices, in the network namespace of this thread, and waits for programs.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn new(plan: Plan) -> Result<Self, Error> {
        let missing = capabilities::missing();
        if !missing.is_empty() {
            return Err(Error::Privilege(missing.join(" and ")));
        }
        let steering = Steering::attach(&plan.devices)?;
        let prober = Prober::open().map_err(Error::system("open a raw socket"))?;
        let place = Place::new(random()?, random()?);
        let listener = listen_at(&place).map_err(Error::system("wait for the program"))?;
        let pid = i32::try_from(plan.program).ok().and_then(Pid::from_raw);
        let program = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self {
            plan,
            place,
            listener,
            program,
            steering,
            prober,
            peers: Vec::new(),
            engines: NonZeroU32::MIN,
            watch: Watch::default(),
            looked: Instant::now(),
            rests: ROUND,
        })
    }

    /// Where it is to be found.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Serves until nobody is left.
    ///
    /// # Errors
    ///
    /// If the kernel does not let it wait.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            self.turn()?;
            if self.looked.elapsed() >= self.rests {
                self.look_after();
            }
            if self.program.is_some() || !self.peers.is_empty() {
                self.watch.see();
            } else if self.watch.is_over(self.place.token()) {
                return Ok(());
            }
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        let Some(Ready { strangers, program_ended, peers }) = self.wait()? else { return Ok(()) };
        if program_ended {
            self.program = None;
        }
        // From behind: who is gone is taken out.
        for (at, ready) in peers.into_iter().enumerate().rev() {
            let is_gone = ready.died || (ready.spoke && self.serve(at).is_err());
            if is_gone {
                self.bury(at);
            }
        }
        if strangers {
            self.take_in();
        }
        Ok(())
    }

    /// Sleeps until there is something to do. None: the time of a round is over.
    fn wait(&self) -> io::Result<Option<Ready>> {
        // With nothing that only time can change, no turn is for nothing.
        let waits = self.program.is_none() || self.steering.is_untidy() || self.has_strangers();
        // Whether anybody is left is looked at in each round.
        let round = if self.program.is_none() { ROUND } else { self.rests };
        let round = Timespec::try_from(round).map_err(io::Error::other)?;
        let mut asked = vec![PollFd::new(&self.listener, PollFlags::IN)];
        asked.extend(self.program.as_ref().map(|program| PollFd::new(program, PollFlags::IN)));
        for peer in &self.peers {
            asked.push(PollFd::new(&peer.socket, PollFlags::IN));
            asked.extend(peer.process.as_ref().map(|process| PollFd::new(process, PollFlags::IN)));
        }
        match poll(&mut asked, waits.then_some(&round)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut told = asked.iter().map(|asked| !asked.revents().is_empty());
        let mut next = || told.next().unwrap_or(false);
        let strangers = next();
        let program_ended = self.program.is_some() && next();
        let peers = self.peers.iter().map(|peer| {
            let spoke = next();
            PeerReady { spoke, died: peer.process.is_some() && next() }
        });
        let peers = peers.collect();
        Ok(Some(Ready { strangers, program_ended, peers }))
    }

    fn has_strangers(&self) -> bool {
        self.peers.iter().any(|peer| peer.session.is_none())
    }

    /// Takes in who has connected.
    fn take_in(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = accept_with(&self.listener, flags) {
            let strangers = self.peers.iter().filter(|peer| peer.session.is_none()).count();
            // Whoever does not know the token shall not keep out who does.
            if strangers >= STRANGERS
                && let Some(first) = self.peers.iter().position(|peer| peer.session.is_none())
            {
                self.peers.remove(first);
            }
            self.peers.push(Peer::new(socket));
        }
    }

    fn look_after(&mut self) {
        let begun = Instant::now();
        self.peers.retain(|peer| peer.session.is_some() || peer.since.elapsed() < INTRODUCTION);
        let sessions: Vec<_> = self.peers.iter().filter_map(|peer| peer.session.as_ref()).collect();
        // What cannot be taken out now can be the next time.
        let _ = self.steering.tidy(&sessions);
        self.looked = Instant::now();
        self.rests = ROUND.max(begun.elapsed() * SHARE);
    }

    /// Answers a question of a peer. An error if he is to be taken for gone.
    fn serve(&mut self, at: usize) -> io::Result<()> {
        let Some(Heard { question, descriptor }) = self.peers[at].hear()? else { return Ok(()) };
        let done = match question.request {
            Request::Hello { version, token } => {
                let done = self.introduce(at, version, &token);
                return self.conclude(at, question.id, done);
            }
            _ if self.peers[at].session.is_none() => Err(UNKNOWN.to_owned()),
            Request::Open { device } => {
                let done = self.open(at, device);
                return self.conclude(at, question.id, done);
            }
            Request::Own { local } => self.own(at, local, descriptor.as_ref()),
            Request::Disown { local } => self.disown(at, plain(local)),
            Request::OwnConnection { local, remote } => {
                self.own_connection(at, (plain(local), plain(remote)), descriptor.as_ref())
            }
            Request::DisownConnection { local, remote } => {
                self.disown_connection(at, (plain(local), plain(remote)))
            }
            Request::Repair { snapshot, inet6 } => {
                self.repair(at, &snapshot, inet6, descriptor.as_ref())
            }
            Request::Release { snapshot } => self.release(at, &snapshot, descriptor.as_ref()),
        };
        self.conclude(at, question.id, done.map(|()| (Reply::Done, None)))
    }

    fn conclude(
        &self,
        at: usize,
        id: u32,
        done: Result<(Reply, Option<OwnedFd>), String>,
    ) -> io::Result<()> {
        let (reply, descriptor) = done.unwrap_or_else(|why| (Reply::Refused { why }, None));
        self.peers[at].answer(id, reply, descriptor.as_ref())
    }

    fn introduce(
        &mut self,
        at: usize,
        version: u32,
        token: &str,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        if !self.place.is_token(token) {
            return Err(UNKNOWN.to_owned());
        }
        if version != VERSION {
            let text = "uncork and libuncork.so are of different versions: install both anew";
            return Err(text.to_owned());
        }
        if self.peers[at].session.is_some() {
            return Err("this connection has been introduced already".to_owned());
        }
        let memory = |error: io::Error| format!("there is no memory for a table: {error}");
        let table = table::create().map_err(memory)?;
        let theirs = table.try_clone().map_err(memory)?;
        let engine = Engine(self.engines);
        self.engines = self.engines.checked_add(1).ok_or("too many processes were served")?;
        self.peers[at].session = Some(Session::new(engine, table));
        Ok((Reply::Welcome { devices: self.plan.devices.clone() }, Some(theirs)))
    }

    fn open(&mut self, at: usize, device: i32) -> Result<(Reply, Option<OwnedFd>), String> {
        let engine = self.session(at)?.engine;
        let device = self.plan.devices.iter().find(|other| other.index == device);
        let device = device.ok_or("the stack may not use a device of that number")?;
        let filter = self.steering.filter(engine).map_err(|error| error.to_string())?;
        let settings = Settings {
            receive_slots: RECEIVE_SLOTS,
            transmit_slots: TRANSMIT_SLOTS,
            ..Settings::new(&device.name)
        };
        let handed = Handed::open(&settings, Some(filter.as_fd()));
        let handed = handed.map_err(|error| error.to_string())?;
        Ok((Reply::Opened { socket: handed.description }, Some(handed.socket)))
    }

    fn own(
        &mut self,
        at: usize,
        local: SocketAddr,
        socket: Option<&OwnedFd>,
    ) -> Result<(), String> {
        let local = plain(local);
        if !self.plan.ports.is_empty() && !self.plan.ports.contains(&local.port()) {
            return Err(format!("port {} is not among those of --port", local.port()));
        }
        let proof = proof::of(socket, self.listener.as_fd(), local, true)?;
        let places = self.steering.places(local, proof.both_versions);
        if places.is_empty() {
            return Err(format!("{} is on none of the stack's devices", local.ip()));
        }
        let session = self.peers[at].session.as_mut().ok_or(UNKNOWN)?;
        let (engine, new) = (session.engine, session.grant(local, places));
        let others = self.peers.iter().filter_map(|peer| peer.session.as_ref());
        let others: Vec<_> = others.collect();
        let done = self.steering.join(engine, &new, &others);
        if done.is_err() {
            let _ = self.disown(at, local);
        }
        done
    }

    fn disown(&mut self, at: usize, local: SocketAddr) -> Result<(), String> {
        let session = self.peers[at].session.as_mut().ok_or(UNKNOWN)?;
        let engine = session.engine;
        let places = session.release(local).ok_or_else(|| format!("{local} was not owned"))?;
        let all: Vec<_> = self.peers.iter().filter_map(|peer| peer.session.as_ref()).collect();
        self.steering.leave(engine, &places, &all)
    }

    fn own_connection(
        &mut self,
        at: usize,
        ends: (SocketAddr, SocketAddr),
        socket: Option<&OwnedFd>,
    ) -> Result<(), String> {
        if self.steering.device_of(ends.0.ip()).is_none() {
            return Err(format!("{} is on none of the stack's devices", ends.0.ip()));
        }
        proof::of(socket, self.listener.as_fd(), ends.0, false)?;
        let session = self.peers[at].session.as_mut().ok_or(UNKNOWN)?;
        self.steering.open(session.engine, ends)?;
        session.add(ends);
        Ok(())
    }

    fn disown_connection(
        &mut self,
        at: usize,
        ends: (SocketAddr, SocketAddr),
    ) -> Result<(), String> {
        let session = self.peers[at].session.as_mut().ok_or(UNKNOWN)?;
        if !session.remove(&ends) {
            return Err(format!("no connection from {} to {} was owned", ends.0, ends.1));
        }
        self.steering.forget(ends)
    }

    /// A connection of this peer's is about to be the kernel's.
    fn repair(
        &self,
        at: usize,
        snapshot: &Snapshot,
        inet6: bool,
        socket: Option<&OwnedFd>,
    ) -> Result<(), String> {
        let socket = self.taker(at, snapshot, socket)?;
        let family = if inet6 { Family::Inet6 } else { Family::OfAddress };
        handover::open_on(socket.as_fd(), snapshot, family).map_err(|error| error.to_string())
    }

    /// Its queues are filled.
    fn release(
        &mut self,
        at: usize,
        snapshot: &Snapshot,
        socket: Option<&OwnedFd>,
    ) -> Result<(), String> {
        let socket = self.taker(at, snapshot, socket)?;
        let ends = (plain(snapshot.local), plain(snapshot.remote));
        self.steering.give_back(ends)?;
        if let Some(session) = &mut self.peers[at].session {
            session.remove(&ends);
        }
        handover::start(socket.as_fd(), snapshot).map_err(|error| error.to_string())
    }

    /// The socket that is to take a connection, if that is one of this peer's.
    fn taker<'a>(
        &self,
        at: usize,
        snapshot: &Snapshot,
        socket: Option<&'a OwnedFd>,
    ) -> Result<&'a OwnedFd, String> {
        let ends = (plain(snapshot.local), plain(snapshot.remote));
        if !self.session(at)?.may_have(&ends) {
            return Err(format!("no connection from {} to {} was owned", ends.0, ends.1));
        }
        proof::that_it_may_take(socket, self.listener.as_fd())
    }

    fn session(&self, at: usize) -> Result<&Session, String> {
        self.peers[at].session.as_ref().ok_or_else(|| UNKNOWN.to_owned())
    }

    /// A process is gone: what it had is taken away from it, and its peers hear of it.
    fn bury(&mut self, at: usize) {
        let Some(session) = self.peers.remove(at).session else { return };
        let left: Vec<_> = self.peers.iter().filter_map(|peer| peer.session.as_ref()).collect();
        let connections = session.connections();
        // What fails here, the kernel has no memory for, say: the rest is done all the same.
        for ends in &connections {
            let _ = self.steering.give_back(*ends);
        }
        let places: Vec<_> = session.held().into_iter().collect();
        let _ = self.steering.leave(session.engine, &places, &left);
        for ends in session.opened().filter(|ends| !connections.contains(ends)) {
            let _ = self.steering.forget(*ends);
        }
        for (local, remote) in connections {
            if let Some(device) = self.steering.device_of(local.ip()) {
                self.prober.probe(local, remote, device);
            }
        }
    }
}

/// What is said to who has not introduced himself.
const UNKNOWN: &str =
    "the guardian serves only programs of its own: the token is not the right one";

/// Who has something to say.
struct Ready {
    strangers: bool,
    program_ended: bool,
    /// One each, in the order of the peers.
    peers: Vec<PeerReady>,
}

struct PeerReady {
    /// Or has closed.
    spoke: bool,
    /// The process has ended.
    died: bool,
}

fn listen_at(place: &Place) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(place.name().as_bytes())?)?;
    listen(&socket, STRANGERS as i32)?;
    Ok(socket)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], Error> {
    let mut octets = [0; BYTES];
    let got = getrandom(&mut octets[..], GetRandomFlags::empty());
    // Requests of up to 256 octets are never answered in part (getrandom(2)).
    got.map_err(Error::system("get random octets")).map(|_| octets)
}
