//! The same with smoltcp: two of its interfaces, with frames in buffers that are reused.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant as Clock;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use crate::cable::Cable;
use crate::{Bed, MESSAGE_BYTES};

const PORT: u16 = 80;
/// Buffers of a socket, as its documentation sizes them.
const BUFFER_BYTES: usize = 4096;
const FRAME_BYTES: usize = 1514;

/// A cable that stores each frame's length.
type Wire = Cable<usize>;

/// One end: what arrives, and what leaves.
struct End<'a> {
    incoming: &'a mut Wire,
    outgoing: &'a mut Wire,
}

struct Came<'a>(Box<[u8]>, usize, &'a mut Wire);
struct Leaves<'a>(&'a mut Wire);

impl RxToken for Came<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let result = read(&self.0[..self.1]);
        self.2.give(self.0);
        result
    }
}

impl TxToken for Leaves<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        let mut frame = self.0.take();
        let result = fill(&mut frame[..bytes]);
        self.0.send(frame, bytes);
        result
    }
}

impl Device for End<'_> {
    type RxToken<'b>
        = Came<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Leaves<'b>
    where
        Self: 'b;

    fn receive(&mut self, _now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let (frame, bytes) = self.incoming.receive()?;
        Some((Came(frame, bytes, self.incoming), Leaves(self.outgoing)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Self::TxToken<'_>> {
        Some(Leaves(self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_BYTES;
        capabilities
    }
}

struct Node {
    interface: Interface,
    sockets: SocketSet<'static>,
}

/// The two interfaces, and the ends of their connections.
pub(crate) struct Pair {
    nodes: [Node; 2],
    cables: [Wire; 2],
    ends: Vec<(SocketHandle, SocketHandle)>,
    began: Clock,
}

impl Pair {
    pub(crate) fn new(connections: usize) -> Self {
        let mut cables = [Wire::new(FRAME_BYTES), Wire::new(FRAME_BYTES)];
        let [one, other] = &mut cables;
        let nodes = [1u8, 2].map(|index| {
            let address = EthernetAddress([2, 0, 0, 0, 0, index]);
            let mut end = End { incoming: &mut *one, outgoing: &mut *other };
            let config = Config::new(address.into());
            let mut interface = Interface::new(config, &mut end, Instant::ZERO);
            interface.update_ip_addrs(|addresses| {
                addresses.push(IpCidr::new(IpAddress::v4(10, 0, 0, index), 16)).unwrap();
            });
            Node { interface, sockets: SocketSet::new(Vec::with_capacity(connections)) }
        });
        Self { nodes, cables, ends: Vec::new(), began: Clock::now() }
    }

    fn now(&self) -> Instant {
        let elapsed = self.began.elapsed();
        MILLIS.store(u32::try_from(elapsed.as_millis()).unwrap() + 1, Ordering::Relaxed);
        Instant::from_micros(i64::try_from(elapsed.as_micros()).unwrap())
    }

    fn poll(&mut self, index: usize, now: Instant) {
        let [first, second] = &mut self.cables;
        let (incoming, outgoing) = if index == 0 { (first, second) } else { (second, first) };
        let mut end = End { incoming, outgoing };
        let Node { interface, sockets } = &mut self.nodes[index];
        interface.poll(now, &mut end, sockets);
    }
}

/// Clock of the timestamps, which smoltcp wants from a function without arguments.
static MILLIS: AtomicU32 = AtomicU32::new(0);

fn socket() -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    socket.set_tsval_generator(Some(|| MILLIS.load(Ordering::Relaxed)));
    socket
}

impl Bed for Pair {
    fn connect(&mut self, count: usize) {
        for number in 0..count {
            let mut server = socket();
            server.listen(PORT).unwrap();
            let server = self.nodes[1].sockets.add(server);
            let client = self.nodes[0].sockets.add(socket());
            let local = 10_000 + u16::try_from(number).unwrap();
            let Node { interface, sockets } = &mut self.nodes[0];
            let remote = (IpAddress::v4(10, 0, 0, 2), PORT);
            let connecting = sockets.get_mut::<Socket<'_>>(client);
            connecting.connect(interface.context(), remote, local).unwrap();
            while self.nodes[1].sockets.get::<Socket<'_>>(server).state() != State::Established {
                let now = self.now();
                self.poll(0, now);
                self.poll(1, now);
            }
            self.ends.push((client, server));
        }
    }

    fn exchange(&mut self, connection: usize) {
        let mut buffer = [0u8; 256];
        let (client, server) = self.ends[connection];
        let now = self.now();
        for (from, to, sender, receiver) in [(0, 1, client, server), (1, 0, server, client)] {
            let socket = self.nodes[from].sockets.get_mut::<Socket<'_>>(sender);
            assert_eq!(socket.send_slice(&[1; MESSAGE_BYTES]), Ok(MESSAGE_BYTES));
            self.poll(from, now);
            self.poll(to, now);
            loop {
                let socket = self.nodes[to].sockets.get_mut::<Socket<'_>>(receiver);
                if socket.recv_slice(&mut buffer) == Ok(MESSAGE_BYTES) {
                    break;
                }
                self.poll(from, now);
                self.poll(to, now);
            }
        }
    }
}
