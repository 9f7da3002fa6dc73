//! Both halves in one process: a floor, a peer behind a wire in memory, and programs.

mod desks;

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
use std::time::Duration;

use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use uncork_attach::record::{Ends, Place};
use uncork_attach::{Attached, Command, Header, MOST_BYTES, ProgramEnd, accept};
use uncork_driver::{Driver, Offer, memory};
use uncork_engine::{Engine, Events};
use uncork_guardian::{Entry, Word};
use uncork_packet::{Capabilities, Completion, Medium, Received, Transmit};
use uncork_stack::{
    Cidr, Config, ConnectionError, Event, FastOpen, Found, ListenerId, Listening, Mac, RecvError,
    SendError, Shutdown, SocketId, SocketOption, Stack, State,
};

use crate::floor::{Floor, Host};
use crate::link::Link;

const OURS: &str = "10.0.0.1:80";
const MAC: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn cidr(text: &str) -> Cidr {
    Cidr { address: text.parse().unwrap(), prefix: 24 }
}

/// What the guardian would say, and what it was told.
#[derive(Default)]
struct Said {
    words: VecDeque<Word>,
    closed: Vec<Ends>,
    disowned: Vec<Ends>,
    given: Vec<(u32, Ends)>,
    complaints: Vec<String>,
    permits: FastOpen,
    /// Frames that the instance has sent.
    sent: Arc<AtomicUsize>,
    /// How many those were when each connection was entered into the table.
    entered: Vec<usize>,
}

/// A port that counts what leaves by it.
struct Counting(memory::Port, Arc<AtomicUsize>);

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
struct Guardian(Rc<RefCell<Said>>);

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
struct Rig {
    floor: Floor,
    guardian: Guardian,
    peer: Engine<memory::Port>,
    /// The last that the peer has connected from.
    port: u16,
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

impl Rig {
    fn new() -> Self {
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
        // The instance leaves ARP to a kernel that there is none of here.
        let config = Config { shares_addresses: true, ..Config::default() };
        let mut stack = Stack::new(config, capabilities, MAC[1], [2; 32]);
        stack.add_address(cidr("10.0.0.2"));
        let floor = Floor::new(vec![link], Box::new(guardian.clone()));
        Self { floor, guardian, peer: Engine::new(theirs, stack), port: 50_000 }
    }

    fn end(&mut self, program: u32) -> ProgramEnd {
        self.end_of(program, 1000)
    }

    fn end_of(&mut self, program: u32, uid: u32) -> ProgramEnd {
        let (ours, theirs) = pair();
        self.floor.admit(program, Some(uid), ours).unwrap();
        accept(theirs).unwrap()
    }

    fn program(&mut self, program: u32) -> Attached {
        Attached::new(self.end(program))
    }

    /// Another user's.
    fn program_of(&mut self, program: u32, uid: u32) -> Attached {
        Attached::new(self.end_of(program, uid))
    }

    /// Two that may listen at the same place, of these users.
    fn two(&mut self, users: [u32; 2]) -> (Attached, Attached) {
        let [one, two] = users;
        let both = (self.program_of(1, one), self.program_of(2, two));
        self.grant(1, OURS);
        self.grant(2, OURS);
        both
    }

    fn grant(&mut self, program: u32, local: &str) {
        let word = Word::Granted { program, local: address(local) };
        self.guardian.0.borrow_mut().words.push_back(word);
    }

    /// Everybody has some turns.
    fn go(&mut self, programs: &mut [&mut Attached]) {
        for _ in 0..12 {
            for program in programs.iter_mut() {
                let _ = program.turn();
            }
            self.floor.look_for_the_dead();
            self.floor.turn().unwrap();
            for remote in self.floor.take_asked() {
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

    /// A listener of a program's, and a connection of the peer's to it, accepted.
    fn connection(&mut self, program: &mut Attached) -> (ListenerId, SocketId, SocketId) {
        self.grant(1, OURS);
        let listener = listen(program);
        self.go(&mut [program]);
        let theirs = self.connect();
        self.go(&mut [program]);
        let ours = program.accept(listener).unwrap();
        self.go(&mut [program]);
        (listener, ours, theirs)
    }

    fn connect(&mut self) -> SocketId {
        let now = self.peer.now();
        self.port += 1;
        let from = SocketAddr::new(address("10.0.0.2:0").ip(), self.port);
        self.peer.stack().connect(now, Some(from), address(OURS)).unwrap()
    }

    fn peer_sends(&mut self, id: SocketId, bytes: &[u8]) -> usize {
        let now = self.peer.now();
        self.peer.stack().send(now, id, bytes, false).unwrap_or(0)
    }

    fn peer_gets(&mut self, id: SocketId) -> Result<Vec<u8>, RecvError> {
        let now = self.peer.now();
        let mut bytes = vec![0; 1 << 20];
        let got = self.peer.stack().recv(now, id, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// What a program gets that waits for the answer, for which it has a thread of its own.
    fn while_it_asks<T: Send>(&mut self, ask: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let asking = scope.spawn(ask);
            while !asking.is_finished() {
                self.floor.turn().unwrap();
            }
            asking.join().unwrap()
        })
    }

    fn peer_state(&mut self, id: SocketId) -> Option<State> {
        self.peer.stack().state(id)
    }
}

fn listen(program: &mut Attached) -> ListenerId {
    let how = Listening { backlog: 16, v6_only: false, shares: true };
    program.listen_with(address(OURS), how).unwrap()
}

fn gets(program: &mut Attached, id: SocketId) -> Result<Vec<u8>, RecvError> {
    let mut bytes = vec![0; 1 << 20];
    let got = program.recv(program.now(), id, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn pattern(long: usize) -> Vec<u8> {
    (0..long).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn octets_go_both_ways_and_the_end_is_seen() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    assert_eq!((program.counters().active_opens, program.counters().passive_opens), (0, 1));
    rig.peer_sends(theirs, b"question");
    rig.go(&mut [&mut program]);
    assert_eq!(gets(&mut program, ours).unwrap(), b"question");
    assert_eq!(gets(&mut program, ours), Err(RecvError::WouldBlock));
    let now = program.now();
    assert_eq!(program.send(now, ours, b"answer", false), Ok(6));
    rig.go(&mut [&mut program]);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"answer");
    let now = rig.peer.now();
    rig.peer.stack().shutdown(now, theirs, Shutdown::Write);
    rig.go(&mut [&mut program]);
    assert_eq!(gets(&mut program, ours).unwrap(), b"");
    assert_eq!(program.state(ours), Some(State::CloseWait));
    program.close(program.now(), ours);
    rig.go(&mut [&mut program]);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"");
    assert_eq!(rig.peer_state(theirs), Some(State::TimeWait));
}

#[test]
fn a_connection_is_in_the_guardians_table_before_its_syn_ack_leaves() {
    // A peer who has his SYN-ACK hears of it if the instance dies in that instant.
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    rig.connection(&mut program);
    assert_eq!(rig.guardian.0.borrow().entered, [0]);
    assert!(rig.guardian.0.borrow().sent.load(Relaxed) > 0);
}

#[test]
fn a_reset_behind_the_peers_end_is_seen() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    rig.peer_sends(theirs, b"all");
    let now = rig.peer.now();
    rig.peer.stack().shutdown(now, theirs, Shutdown::Write);
    rig.go(&mut [&mut program]);
    rig.peer.stack().abort(now, theirs);
    rig.go(&mut [&mut program]);
    assert_eq!(gets(&mut program, ours).unwrap(), b"all");
    assert_eq!(gets(&mut program, ours).unwrap(), b"");
    assert_eq!(program.take_error(ours), Some(ConnectionError::Broken));
    assert_eq!(program.state(ours), Some(State::Closed));
}

#[test]
fn what_is_written_in_pieces_leaves_as_one_segment() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    let now = rig.peer.now();
    let before = rig.peer.stack().info(now, theirs).unwrap().data_segments.0;
    for piece in [&b"he"[..], b"ad", b"er", b" and the rest"] {
        assert!(program.send(program.now(), ours, piece, false).is_ok());
    }
    rig.go(&mut [&mut program]);
    let now = rig.peer.now();
    let after = rig.peer.stack().info(now, theirs).unwrap().data_segments.0;
    assert_eq!(
        (rig.peer_gets(theirs).unwrap(), after - before),
        (b"header and the rest".to_vec(), 1)
    );
}

#[test]
fn a_long_stream_waits_for_who_reads_it_each_way() {
    let all = pattern(6 << 20);
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    let (mut sent, mut came) = (0, Vec::new());
    for round in 0.. {
        assert!(round < 20_000, "it goes on: {sent} sent, {} came", came.len());
        sent += rig.peer_sends(theirs, &all[sent..]);
        rig.go(&mut [&mut program]);
        // Nobody reads for a while.
        if round > 40 {
            came.extend(gets(&mut program, ours).unwrap_or_default());
        } else {
            assert!(program.readable_bytes(ours) <= uncork_attach::WINDOW_BYTES);
        }
        if came.len() == all.len() {
            break;
        }
    }
    assert_eq!(came, all);
    let (mut sent, mut came) = (0, Vec::new());
    for round in 0.. {
        assert!(round < 20_000, "it goes on: {sent} sent, {} came", came.len());
        match program.send(program.now(), ours, &all[sent..], false) {
            Ok(taken) => sent += taken,
            Err(error) => assert_eq!(error, SendError::WouldBlock),
        }
        rig.go(&mut [&mut program]);
        if round > 40 {
            came.extend(rig.peer_gets(theirs).unwrap_or_default());
        }
        if came.len() == all.len() {
            break;
        }
    }
    assert_eq!(came, all);
    assert!(rig.guardian.0.borrow().complaints.is_empty());
}

#[test]
fn who_is_about_to_sleep_hears_of_room_that_has_come_before() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, _) = rig.connection(&mut program);
    while program.poll_event().is_some() {}
    // Records of one octet each: the ring is full long before the connection's buffer.
    while program.send(program.now(), ours, b"x", false).is_ok() {}
    program.turn().unwrap();
    while rig.floor.turn().unwrap() {}
    let (_, limit) = program.rest();
    assert_eq!(limit, Some(Duration::ZERO), "the instance is not going to ring");
    program.turn().unwrap();
    assert!(matches!(program.poll_event(), Some(Event::Socket(id, _)) if id == ours));
    assert_eq!(program.send(program.now(), ours, b"x", false), Ok(1));
}

#[test]
fn what_was_given_before_a_buffer_became_smaller_and_its_end_arrive() {
    let all = pattern(60_000);
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    // All in one go: the instance has said before that it would take as much.
    program.set_option(program.now(), ours, SocketOption::SendBuffer(4096));
    assert_eq!(program.send(program.now(), ours, &all, false), Ok(all.len()));
    program.shutdown(program.now(), ours, Shutdown::Write);
    program.close(program.now(), ours);
    let mut came = Vec::new();
    for _ in 0..100 {
        rig.go(&mut [&mut program]);
        match rig.peer_gets(theirs) {
            Ok(bytes) if bytes.is_empty() => break,
            got => came.extend(got.unwrap_or_default()),
        }
    }
    assert_eq!(came.len(), all.len());
    assert_eq!(came, all);
    assert_eq!(rig.peer_state(theirs), Some(State::CloseWait), "a FIN, and behind all of it");
}

#[test]
fn a_program_opens_connections_that_were_granted() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let now = rig.peer.now();
    let there = rig.peer.stack().listen(address("10.0.0.2:7"), 8).unwrap();
    let (local, remote) = (address("10.0.0.1:40000"), address("10.0.0.2:7"));
    let word = Word::GrantedConnection { program: 1, local, remote };
    rig.guardian.0.borrow_mut().words.push_back(word);
    let ours = program.connect(program.now(), Some(local), remote).unwrap();
    assert_eq!(program.state(ours), Some(State::SynSent));
    assert_eq!((program.counters().active_opens, program.counters().passive_opens), (1, 0));
    rig.go(&mut [&mut program]);
    assert_eq!(program.state(ours), Some(State::Established));
    let theirs = rig.peer.stack().accept(there).unwrap();
    program.send(program.now(), ours, b"hello", false).unwrap();
    rig.go(&mut [&mut program]);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"hello");
    rig.peer.stack().close(now, theirs);
    rig.go(&mut [&mut program]);
    program.close(program.now(), ours);
    rig.go(&mut [&mut program]);
    // The peer closed first: nothing is left here.
    assert_eq!(rig.guardian.0.borrow().disowned, [Ends { local, remote }]);
    assert!(std::iter::from_fn(|| program.poll_change()).count() == 2, "come, and gone");
}

#[test]
fn what_a_program_does_not_open_is_given_back_and_what_it_has_opened_stays() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let remote = address("10.0.0.2:7");
    let [used, unused] = ["10.0.0.1:40000", "10.0.0.1:40001"].map(address);
    let say = |rig: &Rig, word| rig.guardian.0.borrow_mut().words.push_back(word);
    for local in [used, unused] {
        say(&rig, Word::GrantedConnection { program: 1, local, remote });
    }
    let ours = program.connect(program.now(), Some(used), remote).unwrap();
    rig.go(&mut [&mut program]);
    for local in [used, unused] {
        say(&rig, Word::RevokedConnection { program: 1, local, remote });
    }
    rig.floor.hear_words();
    assert_eq!(rig.guardian.0.borrow().disowned, [Ends { local: unused, remote }]);
    // It is no more to be opened.
    program.connect(program.now(), Some(unused), remote).unwrap();
    program.close(program.now(), ours);
    rig.go(&mut [&mut program]);
    assert_eq!(rig.floor.guest_count(), 0);
    assert_eq!(rig.guardian.0.borrow().disowned.len(), 2);
    while program.turn().is_ok() {}
}

#[test]
fn a_connection_that_is_opened_right_behind_the_end_of_another_stays() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let there = rig.peer.stack().listen(address("10.0.0.2:7"), 8).unwrap();
    for (port, remote) in [(40_000, "10.0.0.77:7"), (40_001, "10.0.0.2:7")] {
        let (local, remote) = (SocketAddr::new(address(OURS).ip(), port), address(remote));
        let word = Word::GrantedConnection { program: 1, local, remote };
        rig.guardian.0.borrow_mut().words.push_back(word);
    }
    // Nobody answers the first; the instance hears of its end and of the second in one go.
    let first = Some(address("10.0.0.1:40000"));
    let first = program.connect(program.now(), first, address("10.0.0.77:7")).unwrap();
    rig.go(&mut [&mut program]);
    program.close(program.now(), first);
    let second = Some(address("10.0.0.1:40001"));
    let second = program.connect(program.now(), second, address("10.0.0.2:7")).unwrap();
    rig.go(&mut [&mut program]);
    assert_eq!(program.state(second), Some(State::Established));
    assert!(rig.peer.stack().accept(there).is_some());
}

#[test]
fn what_was_not_granted_is_refused_or_ends_the_attachment() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let listener = listen(&mut program);
    rig.go(&mut [&mut program]);
    let theirs = rig.connect();
    rig.go(&mut [&mut program]);
    assert_ne!(rig.peer_state(theirs), Some(State::Established));
    assert_eq!(program.accept_waiting(listener), 0);
    let (local, remote) = (address("10.0.0.1:40000"), address("10.0.0.2:7"));
    program.connect(program.now(), Some(local), remote).unwrap();
    rig.go(&mut [&mut program]);
    assert_eq!(rig.floor.guest_count(), 0);
    while program.turn().is_ok() {}
}

#[test]
fn who_dies_has_his_connections_closed_as_by_the_kernel() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (listener, ours, theirs) = rig.connection(&mut program);
    let others = [rig.connect(), rig.connect()];
    rig.go(&mut [&mut program]);
    let unread = program.accept(listener).unwrap();
    rig.go(&mut [&mut program]);
    let (_, remote) = program.ends(unread).unwrap();
    let is_it = |rig: &mut Rig, id| rig.peer.stack().ends(id).unwrap().0 == remote;
    let (unread, waiting) =
        if is_it(&mut rig, others[0]) { (others[0], others[1]) } else { (others[1], others[0]) };
    rig.peer_sends(unread, b"nobody reads this");
    program.send(program.now(), ours, b"last words", false).unwrap();
    rig.go(&mut [&mut program]);
    drop(program);
    rig.go(&mut []);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"last words");
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"", "a FIN");
    assert_eq!(rig.peer_gets(unread), Err(RecvError::Failed(ConnectionError::Reset)));
    assert_eq!(rig.peer_gets(waiting), Err(RecvError::Failed(ConnectionError::Reset)));
    assert_eq!(rig.floor.guest_count(), 0);
}

#[test]
fn who_ends_before_he_is_admitted_is_no_complaint() {
    let mut rig = Rig::new();
    let (ours, theirs) = pair();
    drop(theirs);
    let word = Word::Guest { program: 1, pid: None, uid: None, socket: ours };
    rig.guardian.0.borrow_mut().words.push_back(word);
    rig.floor.hear_words();
    assert_eq!(rig.guardian.0.borrow().complaints, Vec::<String>::new());
    // The next one is.
    let mut program = rig.program(2);
    rig.grant(2, OURS);
    rig.connection(&mut program);
}

#[test]
fn an_instance_that_ends_is_a_reset_of_all() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, _) = rig.connection(&mut program);
    drop(rig);
    while program.turn().is_ok() {}
    assert_eq!(program.state(ours), Some(State::Closed));
    assert_eq!(gets(&mut program, ours), Err(RecvError::Failed(ConnectionError::Reset)));
    assert_eq!(gets(&mut program, ours).unwrap(), b"");
}

/// Two threads: who gives a connection away waits for the answer.
#[test]
fn a_connection_is_given_away_with_all_its_octets() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    let all = pattern(400_000);
    let mut sent = 0;
    for _ in 0..200 {
        sent += rig.peer_sends(theirs, &all[sent..]);
        rig.go(&mut [&mut program]);
    }
    let read = program.recv(program.now(), ours, &mut [0; 1000]).unwrap();
    program.send(program.now(), ours, b"not sent yet", false).unwrap();
    let detached = rig.while_it_asks(|| program.detach(program.now(), ours)).unwrap();
    assert_eq!(read + detached.unread().len(), 1000 + detached.snapshot.unread_bytes as usize);
    assert_eq!(detached.unread(), &all[1000..1000 + detached.unread().len()]);
    assert!(detached.unread().len() > uncork_attach::WINDOW_BYTES as usize, "both kept some");
    let left = [detached.unacknowledged(), detached.unsent()].concat();
    assert_eq!(left, b"not sent yet");
    assert_eq!(rig.guardian.0.borrow().given.len(), 1);
}

#[test]
fn what_comes_for_a_connection_that_was_given_away_is_told_to_who_gave_it_and_nobody_else() {
    let mut rig = Rig::new();
    let (mut program, mut other) = rig.two([7, 7]);
    let (_, ours, theirs) = rig.connection(&mut program);
    let (local, remote) = program.ends(ours).unwrap();
    assert!(rig.while_it_asks(|| program.detach(program.now(), ours)).is_some());
    // The second of two that nobody acknowledges leaves, too.
    let now = rig.peer.now();
    rig.peer.stack().set_option(now, theirs, SocketOption::NoDelay(true));
    rig.peer_sends(theirs, b"too early");
    rig.go(&mut []);
    assert!(rig.while_it_asks(|| other.take_caught(local, remote)).is_empty());
    // Still on the wire when it is asked for.
    rig.peer_sends(theirs, b", and just before");
    rig.peer.turn(&mut Events::default()).unwrap();
    let caught = rig.while_it_asks(|| program.take_caught(local, remote));
    assert_eq!(caught.len(), 2);
    assert!(caught[0].ends_with(b"too early") && caught[1].ends_with(b", and just before"));
    assert!(rig.while_it_asks(|| program.take_caught(local, remote)).is_empty());
    assert_eq!(rig.guardian.0.borrow().complaints, [""; 0]);
}

/// A program that writes records itself, with a connection that has come to it and that it has not accepted.
fn rude(rig: &mut Rig) -> (ProgramEnd, SocketId) {
    let mut bad = rig.end(1);
    rig.grant(1, OURS);
    let place = Place { local: address(OURS), backlog: 4, v6_only: false };
    bad.write_anything(Command::Listen.of_number(0), &serde_json::to_vec(&place).unwrap());
    rig.go(&mut []);
    let theirs = rig.connect();
    rig.go(&mut []);
    assert_eq!(rig.peer_state(theirs), Some(State::Established));
    (bad, theirs)
}

#[test]
fn who_sends_more_than_there_is_room_for_is_served_no_longer() {
    let mut rig = Rig::new();
    let (mut bad, theirs) = rude(&mut rig);
    for _ in 0..4 {
        bad.write_anything(Command::Send.of_number(0), &[7; MOST_BYTES]);
    }
    rig.go(&mut []);
    assert_eq!(rig.floor.guest_count(), 0);
    assert!(rig.guardian.0.borrow().complaints[0].contains("room"));
    // Not even what came first is to be believed.
    assert_eq!(rig.peer_gets(theirs), Err(RecvError::Failed(ConnectionError::Reset)));
}

#[test]
fn who_asks_and_never_listens_costs_no_memory() {
    let mut rig = Rig::new();
    let (mut bad, _) = rude(&mut rig);
    for _ in 0..200 {
        for _ in 0..100 {
            bad.write_anything(Command::AskInfo.of_number(0), &[]);
        }
        rig.go(&mut []);
    }
    assert_eq!(rig.floor.guest_count(), 1, "it has done nothing that it may not");
    let kept = rig.floor.guest(0).unwrap().late.len();
    assert!((1..=4).contains(&kept), "{kept} answers are kept");
    assert!(rig.floor.lie_down(), "and nobody works on it");
}

/// What a program that means harm may write.
fn garbage() -> impl Strategy<Value = (u8, u8, u32, u32, Vec<u8>)> {
    let number = prop_oneof![0_u32..6, any::<u32>()];
    let extra = prop_oneof![0_u32..300, any::<u32>()];
    let texts = prop::sample::select(vec![
        r#"{"local":"10.0.0.1:80","backlog":4,"v6_only":false}"#,
        r#"{"local":"[::]:80","backlog":4294967295,"v6_only":false}"#,
        r#"{"local":"10.0.0.1:40000","remote":"10.0.0.2:7"}"#,
        r#"{"NoDelay":true}"#,
        r#"{"SendBuffer":0}"#,
        r#"{"Linger":0}"#,
        "",
    ]);
    let bytes = prop_oneof![
        texts.prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..2000),
    ];
    (0_u8..18, any::<u8>(), number, extra, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever one program writes, the instance goes on, and another one's connection is as it was.
    #[test]
    fn one_program_cannot_harm_another(records in prop::collection::vec(garbage(), 1..60)) {
        let mut rig = Rig::new();
        let mut good = rig.program(1);
        let (_, ours, theirs) = rig.connection(&mut good);
        let mut bad = rig.end(2);
        rig.grant(2, OURS);
        let others: Vec<_> = (0..2).map(|_| rig.connect()).collect();
        for (kind, flags, number, extra, bytes) in records {
            let header = Header::of_number(kind, number).flagged(flags).and(extra);
            let bytes = &bytes[..bytes.len().min(MOST_BYTES)];
            bad.write_anything(header, bytes);
            rig.go(&mut [&mut good]);
            rig.peer_sends(theirs, b"ping");
            rig.go(&mut [&mut good]);
            prop_assert_eq!(gets(&mut good, ours).unwrap(), b"ping");
            good.send(good.now(), ours, b"pong", false).unwrap();
            rig.go(&mut [&mut good]);
            prop_assert_eq!(rig.peer_gets(theirs).unwrap(), b"pong");
        }
        drop(bad);
        rig.go(&mut [&mut good]);
        prop_assert_eq!(rig.floor.guest_count(), 1);
        drop(others);
    }
}
