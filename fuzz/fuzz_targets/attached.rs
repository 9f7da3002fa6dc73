//! A malicious program, attached to an instance: any records, and any octets anywhere in the memory
//! that it shares with it. The instance must not panic, and another program's connection must go on
//! as it was.
#![no_main]

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

use libfuzzer_sys::fuzz_target;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use uncork_attach::record::Ends;
use uncork_attach::{Attached, RING_BYTES, accept};
use uncork_driver::memory;
use uncork_engine::{Engine, Events};
use uncork_guardian::{Entry, Word, channel};
use uncork_instance::{Floor, Host, Link};
use uncork_packet::{Capabilities, Medium};
use uncork_stack::{Cidr, Config, FastOpen, Found, Listening, Mac, SocketId, Stack};

const MAC: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
const GOOD: u32 = 1;
const BAD: u32 = 2;
/// Offset of the rings, and spacing of the words before them (crate attach, `memory` and `ring`).
const HEAD_BYTES: usize = 4096;
const LINE_BYTES: u64 = 64;

fn ours() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

/// Grants the port to both programs; the bad one may open a connection, too.
struct Guardian(Vec<Word>);

impl Host for Guardian {
    fn fast_open(&mut self) -> FastOpen {
        FastOpen(0x603)
    }

    fn enter(&mut self, _: Ends) -> Option<Entry> {
        None
    }

    fn leave(&mut self, _: Entry) {}

    fn closed(&mut self, _: Ends) {}

    fn disown(&mut self, _: Ends) {}

    fn give(&mut self, _: u32, _: Ends) -> bool {
        true
    }

    fn words(&mut self) -> Vec<Word> {
        std::mem::take(&mut self.0)
    }

    fn say(&mut self, _: &str) {}
}

/// The bad program: the memory as a file, and how far it has written.
struct Bad {
    memory: File,
    written: u64,
    _control: OwnedFd,
}

impl Bad {
    fn attach(floor: &mut Floor) -> Self {
        let control = admit(floor, BAD);
        let term = channel::receive(control.as_fd(), RecvFlags::DONTWAIT).unwrap();
        Self { memory: File::from(term.descriptor.unwrap()), written: 0, _control: control }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    /// Writes and publishes a record that is well-formed.
    fn write(&mut self, header: [u8; 4], number: u32, extra: u32, bytes: &[u8]) {
        let mut record = vec![header[0], header[1], 0, 0];
        record.extend((bytes.len() as u32).to_ne_bytes());
        record.extend(number.to_ne_bytes());
        record.extend(extra.to_ne_bytes());
        record.extend(bytes);
        record.resize(record.len().next_multiple_of(8), 0);
        let at = (self.written % RING_BYTES as u64) as usize;
        let (first, rest) = record.split_at(record.len().min(RING_BYTES - at));
        self.put((HEAD_BYTES + at) as u64, first);
        self.put(HEAD_BYTES as u64, rest);
        self.written += record.len() as u64;
        self.put(0, &self.written.to_ne_bytes());
    }
}

fn admit(floor: &mut Floor, program: u32) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::SEQPACKET;
    let (here, there) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    floor.admit(program, Some(1000), here).unwrap();
    there
}

struct Play {
    floor: Floor,
    peer: Engine<memory::Port>,
    good: Attached,
    bad: Bad,
    port: u16,
}

impl Play {
    fn new() -> Self {
        let capabilities = Capabilities::plain(Medium::Ethernet, 1500);
        let (near, far) = memory::pair(capabilities, 32);
        let cidr = |last| Cidr { address: [10, 0, 0, last].into(), prefix: 24 };
        let link = Link::new(
            ("m".into(), 1),
            Box::new(near),
            MAC[0],
            vec![cidr(1)],
            Link::config(),
            [1; 32],
        );
        let config = Config { shares_addresses: true, ..Config::default() };
        let mut stack = Stack::new(config, capabilities, MAC[1], [2; 32]);
        stack.add_address(cidr(2));
        let (local, remote) = (SocketAddr::from(([10, 0, 0, 1], 40_000)), there(7));
        let words = vec![
            Word::Granted { program: GOOD, local: ours() },
            Word::Granted { program: BAD, local: ours() },
            Word::GrantedConnection { program: BAD, local, remote },
        ];
        let mut floor = Floor::new(vec![link], Box::new(Guardian(words)));
        let good = admit(&mut floor, GOOD);
        let good = Attached::new(accept(good).unwrap());
        let bad = Bad::attach(&mut floor);
        Self { floor, peer: Engine::new(far, stack), good, bad, port: 50_000 }
    }

    fn go(&mut self) {
        for _ in 0..4 {
            self.good.turn().unwrap();
            self.floor.turn().unwrap();
            for (device, remote) in self.floor.take_asked() {
                self.floor.set_neighbour(device, remote, Found::At { mac: MAC[1], mtu: None });
            }
            self.peer.turn(&mut Events::default()).unwrap();
            let (now, found) = (self.peer.now(), Found::At { mac: MAC[0], mtu: None });
            self.peer.stack().set_neighbour(now, ours().ip(), found);
        }
        self.good.turn().unwrap();
    }

    fn connect(&mut self) -> Option<SocketId> {
        self.port = self.port.wrapping_add(1).max(1024);
        let now = self.peer.now();
        self.peer.stack().connect(now, Some(there(self.port)), ours()).ok()
    }

    /// Opens the good program's connection.
    fn connection(&mut self) -> (SocketId, SocketId) {
        let how = Listening { backlog: 4, v6_only: false, shares: true };
        let listener = self.good.listen_with(ours(), how).unwrap();
        self.go();
        let far = self.connect().unwrap();
        self.go();
        self.go();
        let near = self.good.accept(listener).expect("nobody else listens there");
        (near, far)
    }

    /// Checks that its requests are still answered.
    fn check(&mut self, near: SocketId, far: SocketId) {
        let now = self.peer.now();
        assert_eq!(self.peer.stack().send(now, far, b"ping", false), Ok(4));
        self.go();
        let mut octets = [0; 8];
        assert_eq!(self.good.recv(self.good.now(), near, &mut octets), Ok(4));
        assert_eq!(self.good.send(self.good.now(), near, b"pong", false), Ok(4));
        self.go();
        let now = self.peer.now();
        assert_eq!(self.peer.stack().recv(now, far, &mut octets), Ok(4));
    }
}

fn there(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], port))
}

/// Texts that commands are made of.
const TEXTS: [&str; 8] = [
    r#"{"local":"10.0.0.1:80","backlog":4,"v6_only":false}"#,
    r#"{"local":"[::]:80","backlog":4294967295,"v6_only":false}"#,
    r#"{"local":"10.0.0.1:40000","remote":"10.0.0.2:7"}"#,
    r#"{"NoDelay":true}"#,
    r#"{"SendBuffer":0}"#,
    r#"{"Linger":0}"#,
    r#"{"MaxSegment":1}"#,
    "",
];

fuzz_target!(|input: &[u8]| {
    let mut play = Play::new();
    let (near, far) = play.connection();
    let mut steps = input.chunks(8);
    while let Some(&[what, kind, flags, number, extra, a, b, c]) =
        steps.next().map(|step| <&[u8; 8]>::try_from(step)).and_then(Result::ok)
    {
        let number =
            if number & 128 == 0 { u32::from(number) } else { u32::MAX - u32::from(number) };
        let extra = u32::from(extra) << (a % 25);
        match what % 6 {
            0 => play.bad.write(
                [kind % 20, flags, 0, 0],
                number,
                extra,
                TEXTS[usize::from(b) % 8].as_bytes(),
            ),
            1 => {
                let long = usize::from(b) << (c % 8);
                play.bad.write(
                    [kind % 20, flags, 0, 0],
                    number,
                    extra,
                    &vec![a; long.min(32 << 10)],
                );
            }
            // In a word of the head.
            2 => {
                let value = u64::from_ne_bytes([kind, flags, a, b, c, 0, 0, 0]) >> (extra % 40);
                play.bad.put(u64::from(what / 6 % 10) * LINE_BYTES, &value.to_ne_bytes());
            }
            // Somewhere in the rings.
            3 => play.bad.put(
                HEAD_BYTES as u64 + (u64::from(a) << 8 | u64::from(b)) * 31,
                &[kind, flags, c],
            ),
            4 => {
                let _ = play.connect();
                play.go();
            }
            _ => play.go(),
        }
    }
    play.go();
    play.check(near, far);
});
