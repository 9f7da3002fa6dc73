//! A floor with one device, a guardian that says what it is told to, and a host at the other end of a wire in memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use uncork_attach::record::Ends;
use uncork_attach::{Attached, ProgramEnd, accept};
use uncork_driver::{Driver, Offer, memory};
use uncork_engine::{Engine, Events};
use uncork_guardian::{Entry, Word};
use uncork_packet::{Capabilities, Completion, Medium, Received, Transmit};
use uncork_stack::{
    Cidr, Config, FastOpen, Found, ListenerId, Listening, Mac, RecvError, SocketId, Stack, State,
};

use crate::floor::{Floor, Host};
use crate::link::Link;

pub(super) const OURS: &str = "10.0.0.1:80";
pub(super) const MAC: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(super) fn cidr(text: &str) -> Cidr {
    Cidr { address: text.parse().unwrap(), prefix: 24 }
}

/// What the guardian would say, and what it was told.
#[derive(Default)]
pub(super) struct Said {
    pub(super) words: VecDeque<Word>,
    pub(super) closed: Vec<Ends>,
    pub(super) disowned: Vec<Ends>,
    pub(super) given: Vec<(u32, Ends)>,
    pub(super) complaints: Vec<String>,
    pub(super) permits: FastOpen,
    /// Frames that the instance has sent.
    pub(super) sent: Arc<AtomicUsize>,
    /// How many had been sent when each connection was entered into the table.
    pub(super) entered: Vec<usize>,
}

/// A port that counts what leaves by it.
pub(super) struct Counting(memory::Port, Arc<AtomicUsize>);

impl Driver for Counting {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        self.0.receive(budget, each)
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.0.complete(each)
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        let offer = self.0.offer(fill)?;
        self.1.fetch_add(usize::from(offer == Offer::Taken), Relaxed);
        Ok(offer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        self.0.wakes()
    }
}

#[derive(Clone, Default)]
pub(super) struct Guardian(pub(super) Rc<RefCell<Said>>);

impl Host for Guardian {
    fn enter(&mut self, _: Ends) -> Option<Entry> {
        let mut said = self.0.borrow_mut();
        let sent = said.sent.load(Relaxed);
        said.entered.push(sent);
        None
    }

    fn leave(&mut self, _: Entry) {}

    fn fast_open(&mut self) -> FastOpen {
        self.0.borrow().permits
    }

    fn closed(&mut self, ends: Ends) {
        self.0.borrow_mut().closed.push(ends);
    }

    fn disown(&mut self, ends: Ends) {
        self.0.borrow_mut().disowned.push(ends);
    }

    fn give(&mut self, program: u32, ends: Ends) -> bool {
        self.0.borrow_mut().given.push((program, ends));
        true
    }

    fn words(&mut self) -> Vec<Word> {
        self.0.borrow_mut().words.drain(..).collect()
    }

    fn say(&mut self, what: &str) {
        self.0.borrow_mut().complaints.push(what.to_owned());
    }
}

/// A floor with one device, and a host at the other end of the wire.
pub(super) struct Rig {
    pub(super) floor: Floor,
    pub(super) guardian: Guardian,
    pub(super) peer: Engine<memory::Port>,
    /// The last port that the peer has connected from.
    pub(super) port: u16,
}

pub(super) fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

impl Rig {
    pub(super) fn new() -> Self {
        let capabilities = Capabilities::plain(Medium::Ethernet, 1500);
        let (ours, theirs) = memory::pair(capabilities, 256);
        let guardian = Guardian::default();
        let ours = Counting(ours, Arc::clone(&guardian.0.borrow().sent));
        let link = Link::new(
            ("memory".to_owned(), 1),
            Box::new(ours),
            MAC[0],
            vec![cidr("10.0.0.1")],
            Link::config(),
            [1; 32],
        );
        // The instance leaves ARP to the kernel, and there is none here.
        let config = Config { shares_addresses: true, ..Config::default() };
        let mut stack = Stack::new(config, capabilities, MAC[1], [2; 32]);
        stack.add_address(cidr("10.0.0.2"));
        let floor = Floor::new(vec![link], Box::new(guardian.clone()));
        Self { floor, guardian, peer: Engine::new(theirs, stack), port: 50_000 }
    }

    pub(super) fn end(&mut self, program: u32) -> ProgramEnd {
        self.end_of(program, 1000)
    }

    pub(super) fn end_of(&mut self, program: u32, uid: u32) -> ProgramEnd {
        let (ours, theirs) = pair();
        self.floor.admit(program, Some(uid), ours).unwrap();
        accept(theirs).unwrap()
    }

    pub(super) fn program(&mut self, program: u32) -> Attached {
        Attached::new(self.end(program))
    }

    /// Makes a program of this user's.
    pub(super) fn program_of(&mut self, program: u32, uid: u32) -> Attached {
        Attached::new(self.end_of(program, uid))
    }

    /// Makes two programs of these users' that may listen at the same place.
    pub(super) fn two(&mut self, users: [u32; 2]) -> (Attached, Attached) {
        let [one, two] = users;
        let both = (self.program_of(1, one), self.program_of(2, two));
        self.grant(1, OURS);
        self.grant(2, OURS);
        both
    }

    pub(super) fn grant(&mut self, program: u32, local: &str) {
        let word = Word::Granted { program, local: address(local) };
        self.guardian.0.borrow_mut().words.push_back(word);
    }

    /// Gives everybody some turns.
    pub(super) fn go(&mut self, programs: &mut [&mut Attached]) {
        for _ in 0..12 {
            for program in programs.iter_mut() {
                let _ = program.turn();
            }
            self.floor.look_for_the_dead(true);
            self.floor.turn().unwrap();
            for (_, remote) in self.floor.take_asked() {
                let found = Found::At { mac: MAC[1], mtu: None };
                self.floor.set_neighbour(0, remote, found);
            }
            self.peer.turn(&mut Events::default()).unwrap();
            let (now, found) = (self.peer.now(), Found::At { mac: MAC[0], mtu: None });
            self.peer.stack().set_neighbour(now, address(OURS).ip(), found);
        }
        for program in programs.iter_mut() {
            let _ = program.turn();
        }
    }

    /// Makes a listener of a program's, and a connection of the peer's to it, accepted.
    pub(super) fn connection(
        &mut self,
        program: &mut Attached,
    ) -> (ListenerId, SocketId, SocketId) {
        self.grant(1, OURS);
        let listener = listen(program);
        self.go(&mut [program]);
        let theirs = self.connect();
        self.go(&mut [program]);
        let ours = program.accept(listener).unwrap();
        self.go(&mut [program]);
        (listener, ours, theirs)
    }

    pub(super) fn connect(&mut self) -> SocketId {
        let now = self.peer.now();
        self.port += 1;
        let from = SocketAddr::new(address("10.0.0.2:0").ip(), self.port);
        self.peer.stack().connect(now, Some(from), address(OURS)).unwrap()
    }

    pub(super) fn peer_sends(&mut self, id: SocketId, bytes: &[u8]) -> usize {
        let now = self.peer.now();
        self.peer.stack().send(now, id, bytes, false).unwrap_or(0)
    }

    pub(super) fn peer_gets(&mut self, id: SocketId) -> Result<Vec<u8>, RecvError> {
        let now = self.peer.now();
        let mut bytes = vec![0; 1 << 20];
        let got = self.peer.stack().recv(now, id, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Runs the instance while a program waits for its answer, in a thread of its own; returns the answer.
    pub(super) fn while_it_asks<T: Send>(&mut self, ask: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let asking = scope.spawn(ask);
            while !asking.is_finished() {
                self.floor.turn().unwrap();
            }
            asking.join().unwrap()
        })
    }

    pub(super) fn peer_state(&mut self, id: SocketId) -> Option<State> {
        self.peer.stack().state(id)
    }
}

pub(super) fn listen(program: &mut Attached) -> ListenerId {
    let how = Listening { backlog: 16, v6_only: false, shares: true };
    program.listen_with(address(OURS), how).unwrap()
}

pub(super) fn gets(program: &mut Attached, id: SocketId) -> Result<Vec<u8>, RecvError> {
    let mut bytes = vec![0; 1 << 20];
    let got = program.recv(program.now(), id, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

pub(super) fn pattern(long: usize) -> Vec<u8> {
    (0..long).map(|at| (at * 7 + at / 251) as u8).collect()
}
