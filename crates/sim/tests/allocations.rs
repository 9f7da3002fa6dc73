//! Nothing is allocated for a packet, as the head of `uncork-stack` promises: two stacks in memory,
//! and an allocator that counts. All is warmed up first: by then each buffer, record and slot has
//! been needed once.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use uncork_driver::{Driver as _, Offer, memory};
use uncork_packet::{Capabilities, Instant, Medium};
use uncork_stack::{Config, ListenerId, Mac, RecvError, SendError, SocketId, Stack};

thread_local! {
    /// Blocks that this thread has allocated or enlarged: the harness has threads, too.
    static BLOCKS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that is about to end counts no more.
    let _ = BLOCKS.try_with(|blocks| blocks.set(blocks.get() + 1));
}

// SAFETY: each call is passed on to the system's allocator unchanged, and so is its result: the
// system's promises hold. Counting does not allocate: the thread's counter is constant-initialised
// and has no destructor, and so has its place from the thread's beginning.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as our caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as our caller promises: the block is the system's, as are all that we return.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Frames that a device has room for.
const SLOTS: usize = 512;
const PORT: u16 = 80;
/// Time that a turn takes.
const TURN: Duration = Duration::from_micros(20);
const MESSAGE: [u8; 64] = [7; 64];

struct Node {
    stack: Stack,
    port: memory::Port,
    /// One frame in this many that arrive is lost; none with zero.
    loses: u64,
    came: u64,
}

impl Node {
    fn new(port: memory::Port, index: u8, loses: u64) -> Self {
        let mac = Mac([2, 0, 0, 0, 0, index]);
        let mut stack = Stack::new(Config::default(), port.capabilities(), mac, [index; 32]);
        stack.add_address(format!("10.0.0.{index}/24").parse().unwrap());
        Self { stack, port, loses, came: 0 }
    }

    /// Does what an engine does in a turn; returns whether anything has happened.
    fn turn(&mut self, now: Instant) -> bool {
        let Self { stack, port, loses, came } = self;
        let took = port.receive(64, &mut |frame| {
            *came += 1;
            if *loses == 0 || !came.is_multiple_of(*loses) {
                stack.handle_frame(now, &frame);
            }
        });
        let mut moved = took.unwrap() > 0;
        port.complete(&mut |completion| stack.handle_completion(now, completion)).unwrap();
        if stack.poll_timeout().is_some_and(|due| due <= now) {
            stack.handle_timeout(now);
            moved = true;
        }
        while stack.poll_event().is_some() {}
        while stack.has_output() {
            match port.offer(&mut |slot| stack.poll_transmit(now, slot)).unwrap() {
                Offer::Taken => moved = true,
                _ => break,
            }
        }
        port.flush().unwrap();
        moved
    }
}

struct Pair {
    nodes: [Node; 2],
    listener: ListenerId,
    now: Instant,
    buffer: Vec<u8>,
}

impl Pair {
    fn new(capabilities: Capabilities, loses: u64) -> Self {
        let (first, second) = memory::pair(capabilities, SLOTS);
        let mut nodes = [Node::new(first, 1, loses), Node::new(second, 2, loses)];
        let listener = nodes[1].stack.listen(Self::server(), 64).unwrap();
        Self { nodes, listener, now: Instant::from_millis(1), buffer: vec![0; 65_536] }
    }

    fn server() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], PORT))
    }

    /// Makes a turn of both; where nothing has happened, advances time to the next timer.
    fn turn(&mut self) {
        self.now += TURN;
        let now = self.now;
        let moved = [0, 1].map(|index| self.nodes[index].turn(now));
        if moved == [false; 2] {
            let next = self.nodes.iter().filter_map(|node| node.stack.poll_timeout()).min();
            self.now = self.now.max(next.unwrap_or(now));
        }
    }

    fn connect(&mut self) -> [SocketId; 2] {
        let now = self.now;
        let client = self.nodes[0].stack.connect(now, None, Self::server()).unwrap();
        loop {
            self.turn();
            if let Some(server) = self.nodes[1].stack.accept(self.listener) {
                return [client, server];
            }
        }
    }

    fn send(&mut self, node: usize, socket: SocketId, bytes: &[u8]) -> usize {
        let now = self.now;
        match self.nodes[node].stack.send(now, socket, bytes, false) {
            Ok(sent) => sent,
            Err(SendError::WouldBlock) => 0,
            Err(error) => unreachable!("{error}"),
        }
    }

    fn receive(&mut self, node: usize, socket: SocketId) -> usize {
        let now = self.now;
        match self.nodes[node].stack.recv(now, socket, &mut self.buffer) {
            Ok(got) => got,
            Err(RecvError::WouldBlock) => 0,
            Err(error) => unreachable!("{error}"),
        }
    }

    /// Transfers `bytes` octets from one to the other.
    fn transfer(&mut self, (from, sender): (usize, SocketId), to: SocketId, bytes: usize) {
        static OCTETS: [u8; 65_536] = [1; 65_536];
        let (mut sent, mut got) = (0, 0);
        while got < bytes {
            if sent < bytes {
                sent += self.send(from, sender, &OCTETS[..OCTETS.len().min(bytes - sent)]);
            }
            self.turn();
            got += self.receive(1 - from, to);
        }
    }

    /// Plays a request and its answer on each connection, and sends octets in both directions.
    fn work(&mut self, ends: &[[SocketId; 2]], requests: usize, bytes: usize) {
        for _ in 0..requests {
            for [client, server] in ends {
                self.transfer((0, *client), *server, MESSAGE.len());
                self.transfer((1, *server), *client, MESSAGE.len());
            }
        }
        for [client, server] in ends {
            self.transfer((0, *client), *server, bytes);
            self.transfer((1, *server), *client, bytes);
        }
    }
}

/// A slot of the timer wheel allocates when a timer stands in it for the first time. All slots that
/// a connection reaches have had one within this time; others are for timers further away.
const ROUND: Duration = Duration::from_secs(75);
/// Pause between two requests, so that no slot is left out.
const PAUSE: Duration = Duration::from_micros(900);

/// Returns how many blocks a pair allocates once it has done the same before and time has gone
/// round the wheel, and for how many packets.
fn blocks(capabilities: Capabilities, loses: u64, connections: usize) -> (u64, u64) {
    let mut pair = Pair::new(capabilities, loses);
    let ends: Vec<_> = (0..connections).map(|_| pair.connect()).collect();
    let (requests, bytes) = (2000 / connections, (4 << 20) / connections);
    pair.work(&ends, requests, bytes);
    while pair.now < Instant::ZERO + ROUND {
        pair.work(&ends, 1, 0);
        pair.now += PAUSE;
    }
    pair.work(&ends, requests, bytes);
    let came = |pair: &Pair| pair.nodes.iter().map(|node| node.came).sum::<u64>();
    let before = (BLOCKS.get(), came(&pair));
    pair.work(&ends, requests, bytes);
    (BLOCKS.get() - before.0, came(&pair) - before.1)
}

fn kinds() -> [(&'static str, Capabilities); 2] {
    let trains = Capabilities {
        max_train_bytes: 65_000,
        completes_checksums: true,
        reports_completions: true,
        ..Capabilities::plain(Medium::Ethernet, 1500)
    };
    [("single segments", Capabilities::plain(Medium::Ip, 1500)), ("trains", trains)]
}

#[test]
fn what_is_allocated_is_counted() {
    let before = BLOCKS.get();
    let mut block = std::hint::black_box(Vec::<u8>::with_capacity(1));
    block.reserve(10_000);
    assert_eq!(BLOCKS.get() - before, 2);
}

#[test]
fn a_packet_costs_an_allocation() {
    for (what, capabilities) in kinds() {
        let (blocks, packets) = blocks(capabilities, 0, 1);
        assert!(blocks == 0 && packets > 4000, "{what}: {blocks} for {packets} packets");
    }
}

/// Where many have timers, more of them than ever before may fall into one slot of the wheel.
#[test]
fn a_packet_of_one_of_many_connections_costs_an_allocation() {
    for (what, capabilities) in kinds() {
        let (blocks, packets) = blocks(capabilities, 0, 50);
        assert!(blocks * 1000 < packets, "{what}: {blocks} for {packets} packets");
    }
}

#[test]
fn what_is_lost_and_sent_again_costs_an_allocation() {
    for (what, capabilities) in kinds() {
        let (blocks, packets) = blocks(capabilities, 101, 1);
        assert!(blocks == 0 && packets > 4000, "{what}: {blocks} for {packets} packets");
    }
}
