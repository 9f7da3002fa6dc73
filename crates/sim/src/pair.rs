//! Two stacks with a network between them.

use std::net::{IpAddr, SocketAddr};

use uncork_packet::{Capabilities, Instant, Medium};
use uncork_stack::{Cidr, Config, Event, FastConnect, ListenerId, Mac, SocketId, Stack};

use crate::way::{Conditions, Tally, Way};

/// Hardware addresses of the two hosts.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Addresses of the two hosts, in IPv4 and IPv6.
pub const ADDRESSES: [[&str; 2]; 2] =
    [["10.0.0.1/24", "fd00::1/64"], ["10.0.0.2/24", "fd00::2/64"]];

/// The largest MTU that a device may change to ([`Pair::set_mtu`]).
const LONGEST_PACKET: u32 = 9000;

/// The initial conditions of a pair.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Settings of the two stacks.
    pub configs: [Config; 2],
    /// Capabilities of their devices.
    pub devices: [Capabilities; 2],
    /// Conditions of the paths: from the first host to the second, and back.
    pub ways: [Conditions; 2],
    /// Frames that a stack receives, if that many have come, before it is asked for frames to send.
    pub batch: usize,
    /// Seed of all randomness.
    pub seed: u64,
    /// Whether the hosts use IPv6.
    pub ipv6: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            configs: [Config::default(), Config::default()],
            devices: [Capabilities::plain(Medium::Ip, 1500); 2],
            ways: [Conditions::default(); 2],
            batch: 1,
            seed: 1,
            ipv6: false,
        }
    }
}

impl Setup {
    /// Returns a setup with the same conditions both ways.
    #[must_use]
    pub fn both(conditions: Conditions) -> Self {
        Self { ways: [conditions; 2], ..Self::default() }
    }
}

/// One of the two hosts.
#[derive(Debug)]
pub struct Host {
    /// The host's stack.
    pub stack: Stack,
    /// The events that it was given, in order.
    pub events: Vec<Event>,
    /// The host's address.
    pub address: IpAddr,
}

/// Two stacks with the network between them.
#[derive(Debug)]
pub struct Pair {
    /// The hosts.
    pub hosts: [Host; 2],
    ways: [Way; 2],
    /// Virtual time.
    pub now: Instant,
    slot: Vec<u8>,
    batch: usize,
    /// Called with each frame that is sent: by which host, and its octets.
    record: Option<Recorder>,
}

/// Callback with the time, the sending host, and the octets.
type Each = dyn FnMut(Instant, usize, &[u8]);

struct Recorder(Box<Each>);

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Pair {
    /// Makes two hosts that know nothing of each other yet.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let host = |index: usize| {
            let mut seed = [7; 32];
            seed[..8].copy_from_slice(&setup.seed.to_le_bytes());
            seed[8] = u8::from(index == 1);
            let config = setup.configs[index].clone();
            let mac = Mac(MACS[index]);
            let mut stack = Stack::new(config, setup.devices[index], mac, seed);
            let text = ADDRESSES[index][usize::from(setup.ipv6)];
            let mut address = IpAddr::from([0, 0, 0, 0]);
            if let Ok(cidr) = text.parse::<Cidr>() {
                address = cidr.address;
                stack.add_address(cidr);
            }
            Host { stack, events: Vec::new(), address }
        };
        let longest = setup.devices.iter().map(|device| device.max_train_bytes).max().unwrap_or(0);
        let way =
            |index: usize| Way::new(setup.ways[index], setup.seed.wrapping_mul(2) + index as u64);
        Self {
            hosts: [host(0), host(1)],
            ways: [way(0), way(1)],
            now: Instant::from_millis(1),
            batch: setup.batch.max(1),
            slot: vec![0; longest.max(LONGEST_PACKET) as usize + 100],
            record: None,
        }
    }

    /// Passes each frame that is sent from now on to `each`: time, sending host, and octets.
    pub fn record(&mut self, each: impl FnMut(Instant, usize, &[u8]) + 'static) {
        self.record = Some(Recorder(Box::new(each)));
    }

    /// Changes the conditions of a direction from now on.
    pub fn set_way(&mut self, from: usize, conditions: Conditions) {
        self.ways[from].set(conditions);
    }

    /// Changes the MTU of a host's device, to at most 9000.
    pub fn set_mtu(&mut self, host: usize, mtu: u16) {
        let stack = &mut self.hosts[host].stack;
        let before = stack.device();
        let trains = before.max_train_bytes > u32::from(before.mtu);
        let max_train_bytes = if trains { before.max_train_bytes } else { u32::from(mtu) };
        stack.set_device(self.now, Capabilities { mtu, max_train_bytes, ..before });
    }

    /// Returns the conditions of a direction.
    #[must_use]
    pub fn way(&self, from: usize) -> Conditions {
        self.ways[from].conditions()
    }

    /// Returns the counters of a direction.
    #[must_use]
    pub fn tally(&self, from: usize) -> Tally {
        self.ways[from].tally
    }

    /// Resets the counters of a direction.
    pub fn reset_tally(&mut self, from: usize) {
        self.ways[from].tally = Tally::default();
    }

    /// Lets both hosts send all they can now, and receive what has arrived by now, until nothing moves.
    pub fn drive(&mut self) {
        loop {
            let mut moved = false;
            for index in [0, 1] {
                moved |= self.drive_host(index);
            }
            if !moved {
                return;
            }
        }
    }

    fn drive_host(&mut self, index: usize) -> bool {
        let mut moved = false;
        let now = self.now;
        let host = &mut self.hosts[index];
        while let Some(completion) = self.ways[index].completion(now) {
            host.stack.handle_completion(now, completion);
            moved = true;
        }
        let incoming = &mut self.ways[1 - index];
        // One frame at a time by default, so that its consequences are sent before the next one is processed.
        for _ in 0..self.batch {
            if !incoming.arrive(now, |frame| host.stack.handle_frame(now, frame)) {
                break;
            }
            moved = true;
        }
        if host.stack.poll_timeout().is_some_and(|due| due <= now) {
            host.stack.handle_timeout(now);
            moved = true;
        }
        moved |= Self::flush(
            &mut self.ways[index],
            host,
            &mut self.slot,
            now,
            (&mut self.record, index),
        );
        while let Some(event) = host.stack.poll_event() {
            host.events.push(event);
        }
        moved
    }

    fn flush(
        way: &mut Way,
        host: &mut Host,
        slot: &mut [u8],
        now: Instant,
        (record, index): (&mut Option<Recorder>, usize),
    ) -> bool {
        let mut sent = false;
        while let Some(transmit) = host.stack.poll_transmit(now, slot) {
            let frame = &slot[..transmit.frame_bytes as usize];
            if let Some(Recorder(record)) = record {
                record(now, index, frame);
            }
            way.send(now, frame.to_vec(), &transmit);
            sent = true;
        }
        sent
    }

    /// Returns when something happens next.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let ways = self.ways.iter().filter_map(Way::next);
        let stacks = self.hosts.iter().filter_map(|host| host.stack.poll_timeout());
        ways.chain(stacks).min()
    }

    /// Advances to the next moment at which something happens; returns whether there is one.
    pub fn step(&mut self) -> bool {
        self.drive();
        let Some(next) = self.next() else { return false };
        self.now = self.now.max(next);
        self.drive();
        true
    }

    /// Advances to `deadline`.
    pub fn run_until(&mut self, deadline: Instant) {
        self.drive();
        while self.next().is_some_and(|next| next <= deadline) {
            self.step();
        }
        self.now = self.now.max(deadline);
        self.drive();
    }

    /// Advances by this duration.
    pub fn run_for(&mut self, duration: std::time::Duration) {
        self.run_until(self.now + duration);
    }

    /// Advances while `more` returns true; returns false if `deadline` passes or nothing moves any more before that ends.
    pub fn run_while(
        &mut self,
        deadline: Instant,
        mut more: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        self.drive();
        while more(self) {
            if self.now > deadline || !self.step() {
                return false;
            }
        }
        true
    }

    /// Has the second host listen at this port.
    ///
    /// # Panics
    ///
    /// If it listens there already.
    #[must_use]
    pub fn listen(&mut self, port: u16) -> ListenerId {
        let address = SocketAddr::new(self.hosts[1].address, port);
        match self.hosts[1].stack.listen(address, 128) {
            Ok(listener) => listener,
            Err(error) => unreachable_setup(&error),
        }
    }

    /// Begins a connection from the first host to this port.
    ///
    /// # Panics
    ///
    /// If there is no route.
    pub fn begin_connect(&mut self, port: u16) -> SocketId {
        let remote = SocketAddr::new(self.hosts[1].address, port);
        let now = self.now;
        match self.hosts[0].stack.connect(now, None, remote) {
            Ok(socket) => socket,
            Err(error) => unreachable_setup(&error),
        }
    }

    /// Begins a connection with Fast Open: its SYN may carry data.
    ///
    /// # Panics
    ///
    /// If there is no route, or Fast Open is off.
    pub fn begin_connect_fast(&mut self, port: u16) -> FastConnect {
        let remote = SocketAddr::new(self.hosts[1].address, port);
        let now = self.now;
        match self.hosts[0].stack.connect_fast(now, None, remote, false) {
            Ok(begun) => begun,
            Err(error) => unreachable_setup(&error),
        }
    }

    /// Opens a connection from the first host to the second, established at both ends.
    ///
    /// # Panics
    ///
    /// If that does not succeed in a minute.
    pub fn connect(&mut self, listener: ListenerId, port: u16) -> (SocketId, SocketId) {
        let client = self.begin_connect(port);
        let deadline = self.now + std::time::Duration::from_secs(60);
        let mut server = None;
        self.run_while(deadline, |pair| {
            server = server.or_else(|| pair.hosts[1].stack.accept(listener));
            server.is_none()
        });
        match server {
            Some(server) => (client, server),
            None => unreachable_setup(&"no connection in a minute"),
        }
    }
}

/// Ends the test of a scenario that is built wrongly.
#[expect(clippy::panic, reason = "only tests and measurements are built of this")]
fn unreachable_setup(error: &dyn std::fmt::Display) -> ! {
    panic!("the scenario cannot begin: {error}")
}
