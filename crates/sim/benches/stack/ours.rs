//! Two of our stacks, back to back.

use std::net::SocketAddr;
use std::time::Instant as Clock;

use uncork_packet::{
    Capabilities, Checksum, Completion, Instant, Medium, Received, Transmit, Trust,
};
use uncork_stack::{Config, Mac, SocketId, Stack};

use crate::cable::Cable;
use crate::{Bed, MESSAGE_BYTES};

const PORT: u16 = 80;
/// Connections to one port, so that the ephemeral ports do not run out.
const TO_ONE_PORT: usize = 20_000;

/// Frames that a device has room for.
const SLOTS: usize = 1024;
const LINK_BYTES: u32 = 14;

pub(crate) type Wire = Cable<Transmit>;

pub(crate) struct Node {
    pub(crate) stack: Stack,
    /// Frames that have left towards the peer, to be reported to the stack in its next turn.
    completed: Vec<Completion>,
}

impl Node {
    fn new(capabilities: Capabilities, index: u8) -> Self {
        let config = Config { kept_storage_bytes: 256 << 20, ..Config::default() };
        let mac = Mac([2, 0, 0, 0, 0, index]);
        let mut stack = Stack::new(config, capabilities, mac, [index; 32]);
        stack.add_address(format!("10.0.0.{index}/16").parse().unwrap());
        Self { stack, completed: Vec::new() }
    }

    /// Does what an engine does in a turn, except for the program.
    fn turn(
        &mut self,
        now: Instant,
        incoming: &mut Wire,
        outgoing: &mut Wire,
        gone: &mut Vec<Completion>,
    ) {
        let stack = &mut self.stack;
        for _ in 0..64 {
            let Some((frame, transmit)) = incoming.receive() else { break };
            stack.handle_frame(now, &received(&frame, &transmit));
            incoming.give(frame);
            if let Some(owner) = transmit.owner {
                gone.push(Completion { owner, bytes: transmit.frame_bytes });
            }
        }
        for completion in self.completed.drain(..) {
            stack.handle_completion(now, completion);
        }
        if stack.poll_timeout().is_some_and(|due| due <= now) {
            stack.handle_timeout(now);
        }
        while stack.has_output() && outgoing.queued() < SLOTS {
            let mut frame = outgoing.take();
            let Some(transmit) = stack.poll_transmit(now, &mut frame) else {
                outgoing.give(frame);
                break;
            };
            outgoing.send(frame, transmit);
        }
        while stack.poll_event().is_some() {}
    }
}

/// Receives as over a virtual link: what was left to the device was never on a wire.
fn received<'a>(frame: &'a [u8], transmit: &Transmit) -> Received<'a> {
    Received {
        bytes: &frame[..transmit.frame_bytes as usize],
        trust: match transmit.checksum {
            Checksum::Partial { .. } => Trust::Good,
            Checksum::Complete => Trust::Unknown,
        },
        segment_bytes: transmit.segmentation.map(|how| how.segment_bytes),
    }
}

/// The two stacks, and the ends of their connections.
pub(crate) struct Pair {
    pub(crate) nodes: [Node; 2],
    cables: [Wire; 2],
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
        let frame_bytes = (LINK_BYTES + capabilities.max_train_bytes) as usize;
        let cables = [Wire::new(frame_bytes), Wire::new(frame_bytes)];
        let nodes = [1, 2].map(|index| Node::new(capabilities, index));
        Self { nodes, cables, ends: Vec::new(), began: Clock::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        Instant::from_nanos(1_000_000 + nanos)
    }

    /// Makes a turn of one of them.
    pub(crate) fn turn_of(&mut self, index: usize, now: Instant) {
        let [there, back] = &mut self.cables;
        let [first, second] = &mut self.nodes;
        if index == 0 {
            first.turn(now, back, there, &mut second.completed);
        } else {
            second.turn(now, there, back, &mut first.completed);
        }
    }

    pub(crate) fn turn(&mut self) {
        let now = self.now();
        self.turn_of(0, now);
        self.turn_of(1, now);
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
            self.turn_of(from, now);
            self.turn_of(to, now);
            while self.nodes[to].stack.recv(now, receiver, &mut buffer) != Ok(MESSAGE_BYTES) {
                self.turn();
            }
        }
    }
}
