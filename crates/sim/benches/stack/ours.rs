//! Two of our stacks, back to back over the port in memory.

use std::net::SocketAddr;
use std::time::Instant as Clock;

use uncork_driver::memory::{Port, pair};
use uncork_driver::{Driver, Offer};
use uncork_packet::{Capabilities, Instant, Medium};
use uncork_stack::{Config, Mac, SocketId, Stack};

use crate::{Bed, MESSAGE_BYTES};

const PORT: u16 = 80;
/// Connections to one port, so that the ephemeral ones do not run out.
const TO_ONE_PORT: usize = 20_000;

pub(crate) struct Node {
    pub(crate) stack: Stack,
    port: Port,
}

impl Node {
    fn new(port: Port, index: u8) -> Self {
        let config = Config { kept_storage_bytes: 256 << 20, ..Config::default() };
        let mac = Mac([2, 0, 0, 0, 0, index]);
        let mut stack = Stack::new(config, port.capabilities(), mac, [index; 32]);
        stack.add_address(format!("10.0.0.{index}/16").parse().unwrap());
        Self { stack, port }
    }

    pub(crate) fn turn(&mut self, now: Instant) {
        let Self { stack, port } = self;
        port.receive(64, &mut |frame| stack.handle_frame(now, &frame)).unwrap();
        port.complete(&mut |completion| stack.handle_completion(now, completion)).unwrap();
        if stack.poll_timeout().is_some_and(|due| due <= now) {
            stack.handle_timeout(now);
        }
        while port.offer(&mut |slot| stack.poll_transmit(now, slot)).unwrap() == Offer::Taken {}
        while stack.poll_event().is_some() {}
    }
}

/// The two, and the ends of their connections.
pub(crate) struct Pair {
    pub(crate) nodes: [Node; 2],
    pub(crate) ends: Vec<(SocketId, SocketId)>,
    began: Clock,
}

impl Default for Pair {
    fn default() -> Self {
        Self::over(Capabilities::plain(Medium::Ethernet, 1500))
    }
}

impl Pair {
    pub(crate) fn over(capabilities: Capabilities) -> Self {
        let (one, other) = pair(capabilities, 1024);
        let nodes = [Node::new(one, 1), Node::new(other, 2)];
        Self { nodes, ends: Vec::new(), began: Clock::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        Instant::from_nanos(1_000_000 + nanos)
    }

    pub(crate) fn turn(&mut self) {
        let now = self.now();
        for node in &mut self.nodes {
            node.turn(now);
        }
    }
}

impl Bed for Pair {
    fn connect(&mut self, count: usize) {
        let mut left = count;
        let mut port = PORT;
        while left > 0 {
            let address: SocketAddr = format!("10.0.0.2:{port}").parse().unwrap();
            let listener = self.nodes[1].stack.listen(address, 1024).unwrap();
            for _ in 0..left.min(TO_ONE_PORT) {
                let now = self.now();
                let client = self.nodes[0].stack.connect(now, None, address).unwrap();
                let server = loop {
                    self.turn();
                    if let Some(server) = self.nodes[1].stack.accept(listener) {
                        break server;
                    }
                };
                self.ends.push((client, server));
            }
            left -= left.min(TO_ONE_PORT);
            port += 1;
        }
        for _ in 0..3 {
            self.turn();
        }
    }

    fn exchange(&mut self, connection: usize) {
        let mut buffer = [0u8; 256];
        let (client, server) = self.ends[connection];
        let now = self.now();
        for (from, to, sender, receiver) in [(0, 1, client, server), (1, 0, server, client)] {
            self.nodes[from].stack.send(now, sender, &[1; MESSAGE_BYTES], false).unwrap();
            self.nodes[from].turn(now);
            self.nodes[to].turn(now);
            while self.nodes[to].stack.recv(now, receiver, &mut buffer) != Ok(MESSAGE_BYTES) {
                self.turn();
            }
        }
    }
}
