//! A stack on the address of its namespace's kernel, over a packet socket, and a peer on another
//! kernel over a veth pair.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use uncork_bpf::owned::{self, Owned, Protocol};
use uncork_driver::Driver as _;
use uncork_driver::af_packet::{self, Port};
use uncork_engine::{Engine, Program};
use uncork_neighbours::{self as neighbours, Neighbours, Question};
use uncork_netns::Namespace;
use uncork_stack::{Config, Event, Found, ListenerId, Mac, Snapshot, SocketId, Stack};
use uncork_wire::tcp::Header;

pub(crate) const PORT: u16 = 7000;
/// An address on the link that no host has.
pub(crate) const NOBODY: &str = "10.93.0.77";
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Returns octets that differ wherever one is missing or too many.
pub(crate) fn pattern(bytes: usize, kind: usize) -> Vec<u8> {
    (0..bytes).map(|n| u8::try_from((n * 7 + n / 251 * kind) % 251).unwrap()).collect()
}

/// The part of the filter that all threads use.
pub(crate) struct Filter(Owned);

impl Filter {
    /// Makes the connection's segments the kernel's from now on.
    pub(crate) fn give_back(&self, snapshot: &Snapshot) {
        self.0.keep(Protocol::Tcp, snapshot.local, snapshot.remote).unwrap();
    }

    /// Enters a connection that the stack opens.
    pub(crate) fn own(&self, local: SocketAddr, remote: SocketAddr) {
        self.0.own(owned::Ours::Connection(Protocol::Tcp, local, remote)).unwrap();
    }
}

/// Answers the stack's neighbour questions from what the kernel knows.
struct Asker {
    neighbours: Neighbours,
}

impl Program for Asker {
    fn on_event(&mut self, _: &mut Stack, _: uncork_engine::Instant, event: Event) {
        if let Event::Neighbour(remote) = event {
            self.neighbours.ask(Question::of(remote)).unwrap();
        }
    }

    fn on_turn(&mut self, stack: &mut Stack, now: uncork_engine::Instant) {
        while let Some(answer) = self.neighbours.poll().unwrap() {
            let found = match answer.found {
                neighbours::Found::At { mac, mtu, .. } => Found::At { mac: Mac(mac), mtu },
                neighbours::Found::Elsewhere | neighbours::Found::Unreachable => Found::Unreachable,
                neighbours::Found::Lapsed => Found::Lapsed,
            };
            stack.set_neighbour(now, answer.question.remote, found);
        }
    }

    fn next_deadline(&self) -> Option<uncork_engine::Instant> {
        None
    }

    fn is_over(&self) -> bool {
        false
    }
}

pub(crate) struct Ours {
    pub(crate) engine: Engine<Port>,
    pub(crate) owned: Arc<Filter>,
    pub(crate) peers: Namespace,
    asker: Asker,
    listener: ListenerId,
    local: SocketAddr,
    namespace: Namespace,
}

impl Ours {
    pub(crate) fn new(label: &str, v6: bool) -> Self {
        let namespace = Namespace::new(&format!("{label}-o")).unwrap();
        let peers = Namespace::new(&format!("{label}-p")).unwrap();
        let pair = format!("link add eth0 type veth peer name eth0 netns {}", peers.name());
        namespace.ip(&pair).unwrap();
        for (one, number) in [(&namespace, 1), (&peers, 2)] {
            one.ip(&format!("address add 10.93.0.{number}/24 dev eth0")).unwrap();
            one.ip(&format!("address add fd93::{number}/64 dev eth0 nodad")).unwrap();
            one.ip("link set eth0 up").unwrap();
        }
        let ours: IpAddr = if v6 { "fd93::1" } else { "10.93.0.1" }.parse().unwrap();
        let local = SocketAddr::new(ours, PORT);
        let opened = namespace.within(move || {
            let mut owned = Owned::load(owned::Settings { ethernet: true, neighbours: false })?;
            let filter = Some(owned.for_packet_socket());
            let port = Port::open(&af_packet::Settings::new("eth0"), filter)?;
            owned.attach(port.index())?;
            owned.own(owned::Ours::Port(Protocol::Tcp, local))?;
            Ok((owned, port, Neighbours::open()?))
        });
        let (owned, port, neighbours) = opened.unwrap();
        let config = Config { shares_addresses: true, ..Config::default() };
        let capabilities = port.capabilities();
        let mac = Mac(port.mac().unwrap());
        let mut stack = Stack::new(config, capabilities, mac, [7; 32]);
        let prefix = if v6 { 64 } else { 24 };
        stack.add_address(format!("{ours}/{prefix}").parse().unwrap());
        let listener = stack.listen(local, 16).unwrap();
        let engine = Engine::new(port, stack);
        let owned = Arc::new(Filter(owned));
        Self { engine, owned, peers, asker: Asker { neighbours }, listener, local, namespace }
    }

    pub(crate) fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> T {
        self.namespace.within(work).unwrap()
    }

    /// Returns where the stack listens.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Opens a view of what our kernel sends to [`NOBODY`].
    pub(crate) fn listens_in(&self) -> Listening {
        let port = self.peers.within(|| Ok(Port::open(&af_packet::Settings::new("eth0"), None)?));
        let port = port.unwrap();
        let mac = Mac(port.mac().unwrap());
        let neighbour = format!("neighbour add {NOBODY} lladdr {mac} dev eth0");
        self.namespace.ip(&neighbour).unwrap();
        Listening { port }
    }

    pub(crate) fn turn(&mut self) {
        self.engine.turn(&mut self.asker).unwrap();
    }

    pub(crate) fn turn_until(
        &mut self,
        mut holds: impl FnMut(&mut Stack, uncork_engine::Instant) -> bool,
    ) {
        let end = Instant::now() + LONG;
        loop {
            self.turn();
            let now = self.engine.now();
            if holds(self.engine.stack(), now) {
                return;
            }
            assert!(Instant::now() < end, "it takes too long");
            std::thread::yield_now();
        }
    }

    /// Accepts a connection that the peer opens.
    pub(crate) fn accepted(&mut self) -> (SocketId, TcpStream) {
        let (local, listener) = (self.local, self.listener);
        let peers = self.peers.name().to_owned();
        let connects = std::thread::spawn(move || connect(&peers, local));
        let mut socket = None;
        self.turn_until(|stack, _| {
            socket = stack.accept(listener);
            socket.is_some()
        });
        let stream = connects.join().unwrap();
        (socket.unwrap(), stream)
    }
}

/// The other end of the link, which does not answer.
pub(crate) struct Listening {
    port: Port,
}

impl Listening {
    /// Returns the window field of the next segment to this port, unscaled.
    pub(crate) fn window_to(&mut self, port: u16) -> u16 {
        let end = Instant::now() + LONG;
        let mut window = None;
        while window.is_none() {
            assert!(Instant::now() < end, "nothing was sent");
            let taken = self.port.receive(9, &mut |frame| {
                // After the headers of Ethernet and of IPv4 without options.
                let Some(tcp) = frame.bytes.get(34..) else { return };
                if let Ok(header) = Header::read(tcp, tcp.len())
                    && header.destination_port() == port
                {
                    window = Some(header.window());
                }
            });
            taken.unwrap();
        }
        window.unwrap()
    }
}

/// Moves this thread into that namespace.
pub(crate) fn enter(namespace: &str) {
    let path = std::path::Path::new("/run/netns").join(namespace);
    let place = std::fs::File::open(path).unwrap();
    nix::sched::setns(place, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
}

fn connect(namespace: &str, to: SocketAddr) -> TcpStream {
    enter(namespace);
    TcpStream::connect_timeout(&to, LONG).unwrap()
}
