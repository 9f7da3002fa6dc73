//! Two stacks in one thread, back to back over the port in memory, against the real clock, in CPU
//! time: `cargo run --release -p uncork-sim --example memory`.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::net::SocketAddr;
use std::time::Instant as Clock;

use uncork_driver::memory::{Port, pair};
use uncork_driver::{Driver, Offer};
use uncork_packet::{Capabilities, Instant, Medium};
use uncork_stack::{Config, Mac, SocketId, SocketOption, Stack};

const PORT: u16 = 80;

struct Node {
    stack: Stack,
    port: Port,
}

impl Node {
    fn new(port: Port, index: u8) -> Self {
        let join_segments = std::env::args().nth(2).is_none_or(|how| how != "apart");
        let config = Config { kept_storage_bytes: 256 << 20, join_segments, ..Config::default() };
        let mac = Mac([2, 0, 0, 0, 0, index]);
        let mut stack = Stack::new(config, port.capabilities(), mac, [index; 32]);
        stack.add_address(format!("10.0.0.{index}/16").parse().unwrap());
        Self { stack, port }
    }

    fn turn(&mut self, now: Instant) -> bool {
        let Self { stack, port } = self;
        let mut moved = port.receive(64, &mut |frame| stack.handle_frame(now, &frame)).unwrap() > 0;
        port.complete(&mut |completion| stack.handle_completion(now, completion)).unwrap();
        if stack.poll_timeout().is_some_and(|due| due <= now) {
            stack.handle_timeout(now);
        }
        while port.offer(&mut |slot| stack.poll_transmit(now, slot)).unwrap() == Offer::Taken {
            moved = true;
        }
        while stack.poll_event().is_some() {}
        moved
    }
}

struct Bed {
    nodes: [Node; 2],
    epoch: Clock,
}

impl Bed {
    fn new(capabilities: Capabilities) -> Self {
        let (a, b) = pair(capabilities, 1024);
        Self { nodes: [Node::new(a, 1), Node::new(b, 2)], epoch: Clock::now() }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000 + u64::try_from(self.epoch.elapsed().as_nanos()).unwrap())
    }

    fn turn(&mut self) {
        let now = self.now();
        self.nodes[0].turn(now);
        self.nodes[1].turn(now);
    }

    fn connect(&mut self, count: usize) -> Vec<(SocketId, SocketId)> {
        let address: SocketAddr = format!("10.0.0.2:{PORT}").parse().unwrap();
        let mut pairs = Vec::with_capacity(count);
        let ports = (count / 20_000 + 1) as u16;
        for extra in 0..ports {
            let address = SocketAddr::new(address.ip(), PORT + extra);
            let listener = self.nodes[1].stack.listen(address, 1024).unwrap();
            let share = count / usize::from(ports);
            for _ in 0..share {
                let now = self.now();
                let client = self.nodes[0].stack.connect(now, None, address).unwrap();
                let server = loop {
                    self.turn();
                    if let Some(server) = self.nodes[1].stack.accept(listener) {
                        break server;
                    }
                };
                pairs.push((client, server));
            }
        }
        for _ in 0..3 {
            self.turn();
        }
        pairs
    }
}

fn request_response(connections: usize, rounds: usize) {
    let mut bed = Bed::new(Capabilities::plain(Medium::Ethernet, 1500));
    let pairs = bed.connect(connections);
    let mut buffer = [0u8; 256];
    let mut place = 0;
    let began = on_cpu();
    for round in 0..rounds {
        // A random one, so that nothing is in the cache by accident.
        place = if connections == 1 { 0 } else { (place + 7919 * (round | 1)) % pairs.len() };
        let (client, server) = pairs[place];
        let now = bed.now();
        bed.nodes[0].stack.send(now, client, &[1; 64], false).unwrap();
        bed.nodes[0].turn(now);
        bed.nodes[1].turn(now);
        while bed.nodes[1].stack.recv(now, server, &mut buffer) != Ok(64) {
            bed.turn();
        }
        bed.nodes[1].stack.send(now, server, &[2; 64], false).unwrap();
        bed.nodes[1].turn(now);
        bed.nodes[0].turn(now);
        while bed.nodes[0].stack.recv(now, client, &mut buffer) != Ok(64) {
            bed.turn();
        }
    }
    let each = (on_cpu() - began) * 1e9 / rounds as f64;
    println!("request/response of 64 B, {:>7} connections: {each:.0} ns each", pairs.len());
}

fn bulk(name: &str, capabilities: Capabilities, total: usize) {
    let mut bed = Bed::new(capabilities);
    let (client, server) = bed.connect(1)[0];
    let chunk = vec![7u8; 256 << 10];
    let mut buffer = vec![0u8; 256 << 10];
    let (mut sent, mut read) = (0, 0);
    let began = on_cpu();
    while read < total {
        let now = bed.now();
        while sent < total {
            let most = chunk.len().min(total - sent);
            match bed.nodes[0].stack.send(now, client, &chunk[..most], false) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        bed.nodes[0].turn(now);
        bed.nodes[1].turn(now);
        while let Ok(count) = bed.nodes[1].stack.recv(now, server, &mut buffer) {
            read += count;
        }
        bed.nodes[1].turn(now);
    }
    let took = on_cpu() - began;
    let info = bed.nodes[0].stack.info(bed.now(), client).unwrap();
    println!(
        "bulk, {name}: {:.1} Gbit/s (sent again: {})",
        total as f64 * 8e-9 / took,
        info.all_retransmitted_segments
    );
    let counters = bed.nodes[1].stack.counters();
    println!(
        "  segments in {}, of which joined {}; segments out {}",
        counters.segments_in, counters.joined, counters.segments_out
    );
}

fn idle(count: usize) {
    let before = resident_bytes();
    let mut bed = Bed::new(Capabilities::plain(Medium::Ip, 1500));
    let pairs = bed.connect(count);
    let ends = 2 * pairs.len();
    let each = (resident_bytes() - before) / ends as f64;
    println!("idle connections: {ends} ends, {each:.0} B each");
    let option = SocketOption::NoDelay(true);
    let now = bed.now();
    bed.nodes[0].stack.set_option(now, pairs[0].0, option);
}

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

/// Returns this process's CPU time in seconds: other load on the machine does not count.
fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9
}

fn main() {
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    let trains = Capabilities { max_train_bytes: 65_000, completes_checksums: true, ..plain };
    if std::env::args().nth(1).is_some_and(|what| what == "request") {
        return request_response(1, 10_000_000);
    }
    if std::env::args().nth(1).is_some_and(|what| what == "bulk") {
        return bulk("MTU 1500 with checksums", plain, 8 << 30);
    }
    idle(250_000);
    for connections in [1, 1_000, 10_000, 250_000] {
        request_response(connections, 1_000_000);
    }
    for _ in 0..2 {
        bulk("MTU 1500 with checksums", plain, 4 << 30);
        bulk("64 KiB trains", trains, 16 << 30);
    }
}
