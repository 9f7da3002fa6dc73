//! The guardian itself: one poll(2) loop over its connected peers.

mod burying;
mod devices;
mod instances;
mod opening;
mod parting;
mod passing;
mod queueing;
mod reserving;
mod serve;
mod stale;
mod taking;

use std::collections::HashSet;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::rand::{GetRandomFlags, getrandom};
use uncork_guardian::{Device, Place, Token};

use crate::Error;
use crate::capabilities;
use crate::claims::Claims;
use crate::groups::Groups;
use crate::heir::{Begin, Heir};
use crate::limits::{Given, Limits};
use crate::links::Links;
use crate::peer::Peer;
use crate::queues::{Queues, Share};
use crate::reset::Prober;
use crate::rings::Rings;
use crate::session::{Loading, Session};
use crate::steering::Steering;
use crate::turns::Turns;
use crate::watch::Watch;
use crate::work::Bell;
use uncork_closing::Closing;

/// Backlog of the listener, and the most peers that have not introduced themselves yet (strangers).
const STRANGERS: usize = 64;
/// How long a stranger may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(1);
/// How many threads, at most, close what one user has passed.
const CLOSED_AT_ONCE: usize = 16;
/// How long no connection is accepted after accept(2) has found no free descriptor.
const FULL: Duration = Duration::from_millis(100);
/// Shortest interval between two rounds of housekeeping: of looking at what changes with time alone.
const ROUND: Duration = Duration::from_millis(500);
/// The same while members of a port have just changed.
const SETTLING: Duration = Duration::from_millis(250);
/// Housekeeping takes at most one part in this many of the time: with many sockets, asking the kernel takes milliseconds.
const SHARE: u32 = 200;
/// Longest interval between two rounds, however long the last one took.
const LONGEST_ROUND: Duration = Duration::from_secs(5);

/// How many table slots are read and entered in a turn before other peers are served: some hundredths of a second.
const SLOTS_IN_A_TURN: usize = 1 << 12;
/// How many slots each peer that waits for tables gets at least, whatever others have used.
const SLOTS_AT_LEAST: usize = 1 << 9;

/// Configuration of a guardian.
#[derive(Debug)]
pub struct Plan {
    /// Devices that stacks may use.
    pub devices: Vec<Device>,
    /// Ports that programs may listen on with the stack; empty means any port.
    pub ports: Vec<u16>,
    /// Which stacks get AF_XDP queues of the devices, beside packet sockets. `None` means no AF_XDP.
    pub queues: Option<Share>,
    /// Process id of the first program to be served.
    pub program: u32,
}

/// The guardian: its listener, its peers, and all that they have.
pub struct Guard {
    plan: Plan,
    place: Place,
    listener: OwnedFd,
    /// Until when nothing is accepted, for want of a descriptor; new peers wait in the backlog.
    full_until: Option<Instant>,
    /// A pidfd of the first program, as long as it lives.
    program: Option<OwnedFd>,
    steering: Steering,
    links: Links,
    claims: Claims,
    turns: Turns,
    queues: Option<Queues>,
    /// Rung when a thread has finished something that the opening of a device waits for.
    bell: Bell,
    rings: Rings,
    /// What each user may have, and which packet sockets its programs were given.
    limits: Limits,
    given: Given,
    groups: Groups,
    opening: Vec<opening::Opening>,
    /// The filter of the next engine, being loaded.
    next_filter: Option<Loading>,
    prober: Prober,
    heir: Option<Heir>,
    /// The token of each instance, in the order of their numbers; empty where programs have stacks of their own.
    tokens: Vec<Token>,
    /// Receives the number of each instance that has come.
    came: Option<Sender<u32>>,
    /// The guardian ends when this becomes readable.
    end: Option<OwnedFd>,
    /// Set once the guardian was told to end.
    parting: Option<parting::Parting>,
    peers: Vec<Peer>,
    /// Threads that close what came with questions, and others that close peers' sockets: no stranger can delay the former.
    passed: Closing,
    hung_up: Closing,
    engines: NonZeroU32,
    watch: Watch,
    /// When housekeeping was last done, and how long it is until the next time.
    looked: Instant,
    rests: Duration,
    /// How many table slots may still be read in this turn.
    slots: usize,
    /// When it is next checked that ports are still their programs'.
    stale_looks: stale::Looks,
    /// Connections to be accepted that no process has come for yet.
    kept: Vec<passing::Kept>,
    /// When owners for them were last looked for.
    kept_looked: Instant,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Checks that this process has the capabilities that a guardian needs.
///
/// # Errors
///
/// [`Error::Privilege`] names the capabilities that are missing.
pub fn permitted() -> Result<(), Error> {
    let missing = capabilities::missing();
    if missing.is_empty() { Ok(()) } else { Err(Error::Privilege(missing.join(" and "))) }
}

impl Guard {
    /// Attaches the filters to the devices, in the network namespace of this thread, and listens for programs.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn new(plan: Plan) -> Result<Self, Error> {
        permitted()?;
        // From here on, changes to devices are noticed.
        let links = Links::listen().map_err(Error::system("hear of what becomes of devices"))?;
        let steering = Steering::attach(&plan.devices)?;
        let queues = plan.queues.map(|share| Queues::attach(&steering, &plan.devices, share));
        let queues = queues.transpose()?;
        let prober = Prober::open().map_err(Error::system("open a raw socket"))?;
        let place = Place::new(random()?, random()?);
        let listener = listen_at(&place).map_err(Error::system("wait for the program"))?;
        let pid = i32::try_from(plan.program).ok().and_then(Pid::from_raw);
        let program = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let bell = Bell::new().map_err(Error::system("make an eventfd"))?;
        Ok(Self {
            plan,
            place,
            listener,
            full_until: None,
            program,
            steering,
            links,
            claims: Claims::default(),
            turns: Turns::default(),
            queues,
            rings: Rings::new(bell.clone()),
            limits: Limits::of_this_host(),
            given: Given::default(),
            bell,
            groups: Groups::new(),
            opening: Vec::new(),
            next_filter: None,
            prober,
            heir: None,
            tokens: Vec::new(),
            came: None,
            end: None,
            parting: None,
            peers: Vec::new(),
            passed: Closing::by(CLOSED_AT_ONCE),
            hung_up: Closing::by(CLOSED_AT_ONCE),
            engines: NonZeroU32::MIN,
            watch: Watch::default(),
            looked: Instant::now(),
            rests: ROUND,
            slots: 0,
            stale_looks: stale::Looks::new(),
            kept: Vec::new(),
            kept_looked: Instant::now(),
        })
    }

    /// Gives the guardian an heir.
    #[must_use]
    pub fn with_heir(mut self, begin: Begin) -> Self {
        self.heir = Some(Heir::new(begin, self.steering.addresses()));
        self
    }

    /// Sets what each user may have.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Makes the guardian end when this descriptor is readable, or its other end is closed.
    #[must_use]
    pub fn until(mut self, end: OwnedFd) -> Self {
        self.end = Some(end);
        self
    }

    /// Returns the name and token by which programs find it.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Serves until nobody is left, or it is told to end.
    ///
    /// # Errors
    ///
    /// If the kernel does not let it wait.
    pub fn run(mut self) -> io::Result<()> {
        // If this process is killed, all packets are the kernel's before any of its programs can hear of it.
        let _answering = self.steering.answer_for()?;
        if let Some(heir) = &mut self.heir {
            heir.begin(&[]);
        }
        self.expect_first();
        let served = self.serve_all();
        self.prober.settle();
        self.relieve_heir();
        served
    }

    fn serve_all(&mut self) -> io::Result<()> {
        loop {
            self.turn()?;
            if self.is_left() {
                return Ok(());
            }
            if self.steering.is_settling() {
                self.steering.settle(&sessions(&self.peers), &mut self.slots);
            }
            if self.queueing_again().is_some_and(|after| after.is_zero()) {
                self.hand_out_again();
            }
            self.settle_turns();
            if !self.kept.is_empty() && self.kept_looked.elapsed() >= passing::ROUND {
                self.look_after_kept();
            }
            if self.looks_after().is_some_and(|after| after.is_zero()) {
                self.look_for_stale();
            }
            if self.looked.elapsed() >= self.rests {
                self.look_after();
            }
            if self.program.is_some() || !self.peers.is_empty() {
                self.watch.see();
                continue;
            }
            let is_over = self.watch.is_over(self.place.token(), &self.bell);
            if self.watch.is_alone() {
                // A program that still comes gets what is free then.
                self.queues.iter_mut().for_each(Queues::let_go);
            }
            if is_over {
                return Ok(());
            }
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        self.slots = SLOTS_IN_A_TURN;
        self.full_until = self.full_until.filter(|until| Instant::now() < *until);
        self.prober.go_on();
        self.relieve_heir();
        let is_time = self.heir_rests().is_some_and(|rests| rests.is_zero());
        if is_time && let Some(heir) = &mut self.heir {
            heir.begin(&all_sessions(&self.peers));
        }
        let Some(ready) = ready else {
            self.bury_lost();
            return Ok(());
        };
        let Ready { is_rung, has_news, told_to_end, strangers, program_ended, .. } = ready;
        let Ready { heir_ended, peers, .. } = ready;
        if has_news {
            self.look_at_devices();
        }
        if told_to_end {
            self.parting = Some(parting::Parting::now());
        }
        if program_ended {
            self.program = None;
        }
        // Backwards, because peers that are gone are removed.
        for (at, ready) in peers.into_iter().enumerate().rev() {
            let is_gone = self.peers[at].is_lost
                || ready.died
                || (ready.takes && self.peers[at].catch_up().is_err())
                || (ready.spoke && self.serve(at).is_err());
            if is_gone {
                self.peers[at].is_lost = true;
                self.bury(at);
            }
        }
        if is_rung {
            self.go_on_opening();
        }
        if strangers {
            self.take_in();
        }
        if heir_ended && let Some(heir) = &mut self.heir {
            heir.lose();
        }
        Ok(())
    }

    /// Returns how long until something is due that no descriptor announces. `None` if nothing is pending that only time can
    /// change, so that the loop never wakes in vain.
    fn rests(&self) -> Option<Duration> {
        let settling = self.steering.is_settling();
        let waits = self.program.is_none()
            || self.steering.is_untidy()
            || self.has_strangers()
            || settling
            || self.parting.is_some()
            || !self.kept.is_empty()
            || !self.rings.is_empty();
        // Each round checks whether anybody is left.
        let round = match &self.program {
            _ if self.parting.is_some() => parting::ROUND,
            _ if settling => SETTLING,
            _ if !self.kept.is_empty() => passing::ROUND,
            None => ROUND,
            Some(_) => self.rests,
        };
        let sooner = [
            self.queueing_again(),
            self.prober.rests(),
            self.heir_rests(),
            self.turns.settles_after(),
            self.peers.iter().any(|peer| peer.is_lost).then_some(Duration::ZERO),
            self.full_until.map(|until| until.saturating_duration_since(Instant::now())),
            self.looks_after(),
        ];
        let sooner = sooner.into_iter().flatten().min();
        // If anything is due, the loop wakes after a round at the latest.
        sooner.map(|sooner| sooner.min(round)).or(waits.then_some(round))
    }

    /// Sleeps until there is something to do. None: a round is over.
    fn wait(&self) -> io::Result<Option<Ready>> {
        let rests = self.rests().map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let strangers = if self.full_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut asked = vec![PollFd::new(&self.listener, strangers)];
        asked.extend(self.program.as_ref().map(|program| PollFd::new(program, PollFlags::IN)));
        for peer in &self.peers {
            let takes = if peer.is_behind() { PollFlags::OUT } else { PollFlags::empty() };
            asked.push(PollFd::new(&peer.socket, PollFlags::IN | takes));
            asked.extend(peer.process.as_ref().map(|process| PollFd::new(process, PollFlags::IN)));
        }
        let heir = self.heir.as_ref().and_then(Heir::ends);
        asked.extend(heir.map(|heir| PollFd::from_borrowed_fd(heir, PollFlags::IN)));
        // Being told once is enough.
        let end = self.end.as_ref().filter(|_| self.parting.is_none());
        asked.extend(end.map(|end| PollFd::new(end, PollFlags::IN)));
        asked.push(PollFd::new(&self.bell, PollFlags::IN));
        asked.push(PollFd::new(&self.links, PollFlags::IN));
        let hears = self.prober.hears();
        asked.extend(hears.map(|hears| PollFd::from_borrowed_fd(hears, PollFlags::IN)));
        match poll(&mut asked, rests.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut told = asked.iter().map(PollFd::revents);
        let mut next = || told.next().unwrap_or(PollFlags::empty());
        let strangers = !next().is_empty();
        let program_ended = self.program.is_some() && !next().is_empty();
        let peers = self.peers.iter().map(|peer| {
            let socket = next();
            PeerReady {
                spoke: !(socket - PollFlags::OUT).is_empty(),
                takes: socket.contains(PollFlags::OUT),
                died: peer.process.is_some() && !next().is_empty(),
            }
        });
        let peers = peers.collect();
        let heir_ended = heir.is_some() && !next().is_empty();
        let told_to_end = end.is_some() && !next().is_empty();
        let (is_rung, has_news) = (!next().is_empty(), !next().is_empty());
        Ok(Some(Ready {
            is_rung,
            has_news,
            told_to_end,
            strangers,
            program_ended,
            heir_ended,
            peers,
        }))
    }

    fn has_strangers(&self) -> bool {
        self.peers.iter().any(|peer| peer.session.is_none())
    }

    /// Accepts pending connections.
    fn take_in(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..STRANGERS {
            let strangers = self.peers.iter().filter(|peer| peer.session.is_none()).count();
            // Peers without the token must not keep out those that have it. One that has sent something stays, and is heard next.
            let is_mute = |peer: &Peer| peer.session.is_none() && !peer.has_spoken();
            let is_full = strangers >= STRANGERS;
            let first = is_full.then(|| self.peers.iter().position(is_mute));
            if first == Some(None) {
                return;
            }
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // The connection stays in the backlog, and would wake the loop all the time.
                    self.full_until = Some(Instant::now() + FULL);
                    return;
                }
                Err(_) => return,
            };
            if let Some(first) = first.flatten() {
                self.peers.remove(first);
            }
            self.peers.push(Peer::new(socket, &self.hung_up));
        }
    }

    fn look_after(&mut self) {
        let begun = Instant::now();
        // A stranger that has sent something, and was not heard yet on a busy machine, is heard next.
        self.peers.retain(|peer| {
            peer.session.is_some() || peer.since.elapsed() < INTRODUCTION || peer.has_spoken()
        });
        // An entry that cannot be removed now may be next time.
        let _ = self.steering.tidy(&sessions(&self.peers));
        self.tidy_claims();
        self.rings.tidy();
        self.looked = Instant::now();
        self.rests = (begun.elapsed() * SHARE).clamp(ROUND, LONGEST_ROUND);
    }

    fn heir_rests(&self) -> Option<Duration> {
        self.heir.as_ref().and_then(Heir::rests)
    }

    /// Releases the heir from those dead programs whose peers have all been told.
    fn relieve_heir(&mut self) {
        if let Some(heir) = &mut self.heir {
            heir.release(&self.prober);
        }
    }

    /// Drops claims to places where no program listens or has a connection any more, so that other guardians may have them.
    fn tidy_claims(&mut self) {
        let all = all_sessions(&self.peers);
        let opened = all.iter().flat_map(|session| session.opened());
        let mut held: HashSet<_> = opened.map(|(local, _)| *local).collect();
        held.extend(self.steering.places_with_connections());
        held.extend(all.into_iter().flat_map(Session::held));
        self.claims.keep_only(&held);
        self.turns.keep_only(&held);
    }
}

/// Returns the sessions of all programs that are being served.
fn sessions(peers: &[Peer]) -> Vec<&Session> {
    let living = peers.iter().filter(|peer| !peer.is_lost);
    living.filter_map(|peer| peer.session.as_ref()).collect()
}

/// Returns those and the sessions of programs that are about to be buried.
fn all_sessions(peers: &[Peer]) -> Vec<&Session> {
    peers.iter().filter_map(|peer| peer.session.as_ref()).collect()
}

/// What poll(2) has found ready.
struct Ready {
    is_rung: bool,
    /// Something has become of a device.
    has_news: bool,
    told_to_end: bool,
    strangers: bool,
    program_ended: bool,
    heir_ended: bool,
    /// One for each peer, in the same order.
    peers: Vec<PeerReady>,
}

struct PeerReady {
    /// It has sent something, or has closed.
    spoke: bool,
    /// It has room for the messages that wait for it.
    takes: bool,
    /// Its process has ended.
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
