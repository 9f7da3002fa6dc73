//! A malicious program that knows the token: it sends whatever it likes, with any descriptors, and
//! overwrites its table. The guardian goes on, and no other process loses or gains anything by it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{LONG, Link, OUR_V6, OURS, THEIR_V6, THEIRS, end, seen};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};
use uncork_driver::af_packet::Port;
use uncork_guardian::{
    Answer, Client, Octets, Place, Question, Reply, Request, VERSION, Word, channel,
};
use uncork_netns::testing::is_skipped;
use uncork_stack::{Snapshot, SnapshotState};

/// Ports: the victim's, the kernel's, and the program's own.
const PORT: u16 = 7300;
const KERNELS: u16 = 7301;
const OWN: u16 = 7302;
const SHORT: Duration = Duration::from_millis(100);
/// Number of messages; the others are checked after every `LOOKS`.
const MESSAGES: usize = 1_500;
const MESSAGES_OF_A_SOAK: usize = 50_000;
const LOOKS: usize = 250;
/// Lets one test run at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// xorshift64*: a seed always gives the same sequence.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn number(&mut self) -> u32 {
        let wild = u32::try_from(self.next() >> 32).unwrap();
        self.of(&[0, 1, 2, 3, 80, 1448, u32::from(u16::MAX), u32::MAX, wild, wild])
    }

    fn end(&mut self) -> SocketAddr {
        let ip = self.of(&[
            OURS,
            OURS,
            OUR_V6,
            THEIRS,
            THEIR_V6,
            "0.0.0.0",
            "::",
            "127.0.0.1",
            "::ffff:10.93.0.1",
            "8.8.8.8",
        ]);
        let wild = u16::try_from(self.next() >> 48).unwrap();
        let port = self.of(&[PORT, PORT, KERNELS, OWN, OWN, 0, wild]);
        SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port)
    }

    fn snapshot(&mut self) -> Snapshot {
        use SnapshotState::{CloseWait, Established, LastAck};
        Snapshot {
            local: self.end(),
            remote: self.end(),
            state: self.of(&[Established, CloseWait, LastAck]),
            fin_sent: self.one_in(2),
            reading_shut: self.one_in(2),
            send_first: self.number(),
            unacknowledged_bytes: self.number(),
            unsent_bytes: self.number(),
            receive_first: self.number(),
            unread_bytes: self.number(),
            window_seq: self.number(),
            send_window_bytes: self.number(),
            largest_send_window_bytes: self.number(),
            acknowledged: self.number(),
            receive_window_bytes: self.number(),
            segment_bytes: u16::try_from(self.number() & 0xffff).unwrap(),
            window_shifts: self
                .one_in(2)
                .then(|| (self.of(&[0, 7, 14, 15, 255]), self.of(&[0, 7, 14, 15, 255]))),
            sack: self.one_in(2),
            timestamp: self.one_in(2).then(|| self.number()),
        }
    }

    fn many_ends(&mut self) -> Vec<(SocketAddr, SocketAddr)> {
        (0..self.below(4)).map(|_| (self.end(), self.end())).collect()
    }

    fn request(&mut self, token: &str, device: i32) -> Request {
        let wild = i32::from_ne_bytes(self.number().to_ne_bytes());
        match self.below(25) {
            22 => Request::FastOpenKeys,
            11 => Request::Serve { version: VERSION, token: token.to_owned() },
            12 | 23 | 24 => {
                let wanted = self.number();
                Request::Attach { wanted: self.one_in(2).then_some(wanted) }
            }
            14 | 18..=21 => {
                let from = if self.one_in(4) { self.end() } else { end(OURS, 0) }.ip();
                let wanted = self.number() as u16;
                let wanted = if self.one_in(2) { wanted } else { wanted % 4 };
                Request::Ports { from, remote: self.end(), wanted }
            }
            15 => Request::Over { closed: self.many_ends(), over: self.many_ends() },
            16 => Request::Others { local: self.end() },
            17 => {
                let segment: Vec<u8> = (0..self.below(100)).map(|_| self.next() as u8).collect();
                let segment = Octets::new(&segment).unwrap();
                Request::Bring { local: self.end(), remote: self.end(), segment }
            }
            13 => Request::Give { program: self.number(), local: self.end(), remote: self.end() },
            0 => Request::Hello { version: self.number() % (VERSION + 1), token: token.to_owned() },
            1 => Request::Look {
                version: VERSION,
                token: token.to_owned(),
                pids: vec![std::process::id(), self.number()],
            },
            2 => Request::Open { device: self.of(&[device, device, wild]) },
            3 | 4 => Request::Own { local: self.end() },
            5 => Request::Disown { local: self.end() },
            6 => Request::OwnConnection { local: self.end(), remote: self.end() },
            7 => Request::DisownConnection { local: self.end(), remote: self.end() },
            8 => Request::PassOn { local: self.end() },
            _ => Request::TakeOver { snapshot: self.snapshot(), inet6: self.one_in(2) },
        }
    }

    /// Returns a message, in most cases a valid one.
    fn words(&mut self, token: &str, device: i32) -> Vec<u8> {
        let id = self.number();
        let question = Question { id, request: self.request(token, device) };
        let mut words = serde_json::to_vec(&question).unwrap();
        match self.below(40) {
            0 => {
                let at = self.below(words.len());
                words[at] ^= 1 << self.below(8);
            }
            1 => words.truncate(self.below(words.len())),
            2 => words = (0..self.below(70_000)).map(|_| self.next() as u8).collect(),
            _ => {}
        }
        words
    }
}

/// Descriptors of all kinds that may be passed.
struct Descriptors(Vec<OwnedFd>);

impl Descriptors {
    fn new(link: &Link) -> Self {
        let made = link.ours.within(|| {
            let listener = TcpListener::bind(end("::", OWN))?;
            let stream = TcpStream::connect(end("127.0.0.1", OWN))?;
            let (accepted, _) = listener.accept()?;
            let (one, other) = UnixStream::pair()?;
            let any = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            Ok(vec![
                OwnedFd::from(listener.try_clone()?),
                listener.into(),
                stream.into(),
                accepted.into(),
                UdpSocket::bind(end(OURS, OWN))?.into(),
                any.into(),
                one.into(),
                other.into(),
                File::open("/dev/null")?.into(),
                File::open("/proc/self/status")?.into(),
                memfd_create("uncork-test", MemfdFlags::CLOEXEC)?,
            ])
        });
        Self(made.unwrap())
    }

    fn any(&self, chance: &mut Chance) -> Option<BorrowedFd<'_>> {
        (!chance.one_in(4)).then(|| self.0[chance.below(self.0.len())].as_fd())
    }
}

/// The malicious program: introduced, unless it has just begun anew.
struct Program {
    socket: OwnedFd,
    table: Option<File>,
}

impl Program {
    fn connect(link: &Link, introduced: bool) -> Self {
        let place: Place = link.place.parse().unwrap();
        let name = place.name().to_owned();
        let socket = link.ours.within(move || {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(LONG))?;
            connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
            Ok(socket)
        });
        let mut program = Self { socket: socket.unwrap(), table: None };
        if introduced {
            let request = Request::Hello { version: VERSION, token: place.token().to_owned() };
            let question = Question { id: 0, request };
            channel::send(program.socket.as_fd(), &question, None, SendFlags::empty()).unwrap();
            let welcome = channel::receive(program.socket.as_fd(), RecvFlags::empty()).unwrap();
            let answer: Answer = serde_json::from_slice(&welcome.bytes).unwrap();
            assert!(matches!(answer.reply, Reply::Welcome { .. }), "{answer:?}");
            program.table = welcome.descriptor.map(File::from);
            set_socket_timeout(&program.socket, Timeout::Recv, Some(SHORT)).unwrap();
        }
        program
    }

    /// Sends a message; returns whether the guardian still receives.
    fn say(&self, words: &[u8], descriptor: Option<BorrowedFd<'_>>) -> bool {
        let passed = descriptor.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(passed)));
        }
        sendmsg(&self.socket, &[IoSlice::new(words)], &mut beside, SendFlags::NOSIGNAL).is_ok()
    }

    /// Reads all answers so far, and counts what they grant. A program that does not read is to be
    /// taken for dead, not waited for.
    fn hear(&self, granted: &mut BTreeMap<&'static str, u32>) {
        let mut flags = RecvFlags::empty();
        while let Ok(came) = channel::receive(self.socket.as_fd(), flags)
            && let Ok(Answer { reply, .. }) = serde_json::from_slice(&came.bytes)
        {
            let what = match reply {
                Reply::Opened { .. } => "opened",
                Reply::Done | Reply::Looked { .. } => "done",
                Reply::Refused { .. } => "refused",
                Reply::Attached { .. } => "attached",
                Reply::Ports { .. } => "ports",
                Reply::Taken => "taken",
                _ => "other",
            };
            *granted.entry(what).or_default() += 1;
            flags = RecvFlags::DONTWAIT;
        }
    }

    fn scribble(&self, chance: &mut Chance) {
        let Some(table) = &self.table else { return };
        let words: Vec<u8> = (0..400).map(|_| chance.next() as u8).collect();
        let at = chance.of(&[0, 0, 1, 40, 4000, 40 << 20]);
        // The table's end is sealed: it cannot be made longer.
        let _ = table.write_at(&words, at);
    }
}

/// Processes that must notice nothing.
struct Others {
    client: Client,
    /// The instance that `client` is attached to.
    instance: Option<Client>,
    port: Port,
    /// The client's listener, the kernel's, and a connection to the kernel's.
    _listener: TcpListener,
    kernels: TcpListener,
    talks: (TcpStream, TcpStream),
}

impl Others {
    fn new(link: &Link) -> Self {
        let bind =
            |port| link.ours.within(move || Ok(TcpListener::bind(end("::", port))?)).unwrap();
        let (listener, kernels) = (bind(PORT), bind(KERNELS));
        let mut client = link.client();
        let mut instance = (!link.tokens.is_empty()).then(|| link.instance(0));
        let index = client.devices()[0].index;
        let opened = instance.as_mut().unwrap_or(&mut client).open(index).unwrap();
        let port = Port::adopt(opened).unwrap();
        if instance.is_some() {
            client.attach(None).unwrap();
        }
        client.own(end("::", PORT), listener.as_fd()).unwrap();
        let to = end(OURS, KERNELS);
        let there = link.theirs.within(move || Ok(TcpStream::connect_timeout(&to, LONG)?)).unwrap();
        let (here, _) = kernels.accept().unwrap();
        Self { client, instance, port, _listener: listener, kernels, talks: (there, here) }
    }

    /// Checks that the client gets what comes to its port, and the kernel its own, new and old.
    fn are_well(&mut self, link: &Link) {
        self.client.check().unwrap();
        // The two are one process here: a question for one may come to the other.
        while self.client.next_asker().is_some() {}
        if let Some(instance) = &mut self.instance {
            instance.check().unwrap();
            while instance.next_asker().is_some() {}
            // As an instance does with what its programs have not opened when they end.
            let mut over = Vec::new();
            while let Some(word) = instance.next_word() {
                if let Word::GrantedConnection { local, remote, .. } = word {
                    over.push((local, remote));
                }
            }
            instance.over(&[], &over).unwrap();
        }
        let _ = seen(std::slice::from_mut(&mut self.port), Duration::ZERO);
        let knock = |port| {
            let to = end(OURS, port);
            let short = TcpStream::connect_timeout;
            link.theirs.within(move || Ok(short(&to, SHORT).is_ok())).unwrap()
        };
        assert!(!knock(PORT), "the kernel has answered at the client's port");
        let came = seen(std::slice::from_mut(&mut self.port), SHORT);
        assert!(!came[0].is_empty(), "nothing has come to the client");
        assert!(knock(KERNELS), "the kernel's port does not answer");
        self.kernels.accept().unwrap();
        let (there, here) = &mut self.talks;
        there.set_read_timeout(Some(LONG)).unwrap();
        here.write_all(b"well").unwrap();
        let mut said = [0; 4];
        there.read_exact(&mut said).unwrap();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: never; {} descriptors", descriptors_held());
        thread::sleep(SHORT);
    }
}

/// Returns the number of this process's descriptors, the guardian's among them.
fn descriptors_held() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of stacks' packet sockets on our host: the guardian's own is no SOCK_RAW.
fn packet_sockets(link: &Link) -> usize {
    let table = || Ok(std::fs::read_to_string("/proc/thread-self/net/packet")?);
    let table = link.ours.within(table).unwrap();
    table.lines().skip(1).filter(|line| line.split_whitespace().nth(2) == Some("3")).count()
}

#[test]
fn a_program_that_means_harm_does_none() {
    if is_skipped("a_program_that_means_harm_does_none") {
        return;
    }
    mean_harm("malice", 0, ["opened", "done", "refused"]);
}

#[test]
fn a_program_that_means_harm_does_none_to_instances() {
    if is_skipped("a_program_that_means_harm_does_none_to_instances") {
        return;
    }
    mean_harm("maliceinst", 1, ["attached", "done", "refused"]);
}

/// Runs with `instances`; each of `wanted` must be answered, or nothing would be tested.
fn mean_harm(label: &str, instances: u32, wanted: [&str; 3]) {
    // The whole process's descriptors are counted.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let link = &Link::with_instances(label, &[], instances);
    let soak = std::env::var_os("UNCORK_E2E_SOAK").is_some_and(|value| value == "1");
    let seed = std::env::var("UNCORK_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(0x9e37_79b9_7f4a_7c15_u64);
    println!("UNCORK_TEST_SEED={seed}");
    let mut chance = Chance(seed);
    let mut others = Others::new(link);
    let device = others.client.devices()[0].index;
    let place: Place = link.place.parse().unwrap();
    let descriptors = Descriptors::new(link);
    others.are_well(link);
    // Those of the others that share the device, the guardian's instances among them; and where
    // programs have stacks of their own, one for the next program.
    let wanted_sockets = if instances == 0 { 2 } else { 1 };
    wait_until("a packet socket is made ahead", || packet_sockets(link) == wanted_sockets);
    let held = descriptors_held();
    let mut program = Program::connect(link, true);
    let mut granted = BTreeMap::new();
    for message in 1..=if soak { MESSAGES_OF_A_SOAK } else { MESSAGES } {
        let words = chance.words(place.token(), device);
        let said = program.say(&words, descriptors.any(&mut chance));
        // "over" has no answer.
        let is_answered = !words.windows(6).any(|word| word == b"\"over\"");
        if is_answered && !chance.one_in(20) {
            program.hear(&mut granted);
        }
        if chance.one_in(8) {
            program.scribble(&mut chance);
        }
        if !said || chance.one_in(100) {
            let introduced = !chance.one_in(5);
            program = Program::connect(link, introduced);
        }
        if message % LOOKS == 0 {
            others.are_well(link);
        }
    }
    drop(program);
    others.are_well(link);
    // Connections that it has given away are kept for a while for their new owners.
    wait_until("all that the program had is closed", || descriptors_held() <= held);
    others.are_well(link);
    // Not everything was refused.
    let enough = wanted.map(|what| granted.get(what).is_some_and(|n| *n > 10));
    assert_eq!(enough, [true; 3], "{granted:?}");
    assert!(granted.contains_key("ports"), "{granted:?}");
}

/// Makes a connection whose close(2) waits for what its other end does not read.
fn lingering(link: &Link) -> (OwnedFd, TcpStream) {
    let pair = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let one = TcpStream::connect(listener.local_addr()?)?;
        Ok((one, listener.accept()?.0))
    };
    let (mut one, other) = link.ours.within(pair).unwrap();
    one.set_nonblocking(true).unwrap();
    while one.write(&[0; 65536]).is_ok() {}
    one.set_nonblocking(false).unwrap();
    set_socket_linger(&one, Some(Duration::from_secs(600))).unwrap();
    (one.into(), other)
}

#[test]
fn what_takes_long_to_close_holds_up_nobody_whoever_sends_it() {
    if is_skipped("what_takes_long_to_close_holds_up_nobody_whoever_sends_it") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let link = &Link::new("lingers", &[]);
    let place: Place = link.place.parse().unwrap();
    let question = |token: &str| {
        let request = Request::Look { version: VERSION, token: token.to_owned(), pids: vec![1] };
        serde_json::to_vec(&Question { id: 1, request }).unwrap()
    };
    let own = Question { id: 1, request: Request::Own { local: end("::", OWN) } };
    let own = serde_json::to_vec(&own).unwrap();
    // No token, nothing intelligible, a stranger, one with the token, and a program.
    let ways = [
        (false, question("nobody's")),
        (false, b"{".to_vec()),
        (false, own.clone()),
        (false, question(place.token())),
        (true, own),
        (true, b"{".to_vec()),
    ];
    let mut peers = Vec::new();
    for (at, (introduced, words)) in ways.into_iter().enumerate() {
        let program = Program::connect(link, introduced);
        let (one, other) = lingering(link);
        assert!(program.say(&words, Some(one.as_fd())));
        // The guardian may have closed its own by now: then this copy is the last one.
        thread::spawn(move || drop(one));
        peers.push(other);
        // Some of them are gone before they were heard.
        if at % 2 == 0 {
            drop(program);
        }
        let begun = Instant::now();
        let client = link.client();
        assert!(begun.elapsed() < LONG / 2, "way {at}: somebody else waits");
        drop(client);
    }
}
