//! Any interleaving of what two programs do, over a path that does anything to their packets, ends
//! in the same bytes, once and in order, or in a reported failure.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;

use proptest::prelude::*;
use uncork_packet::{Capabilities, Medium};
use uncork_sim::{Conditions, Pair, Setup};
use uncork_stack::{
    Algorithm, Config, Ecn, FastOpen, FastOpenKeys, FastOpenListen, KeepAlive, ListenerId,
    RecvError, SendError, Shutdown, SocketId, SocketOption,
};

use crate::common::{self, PORT};

/// What a program does with its end.
#[derive(Debug, Clone)]
enum Step {
    Send(usize, bool),
    Receive(usize),
    Wait(u64),
    NoDelay(bool),
    Cork(bool),
    QuickAck(bool),
    Hold(bool),
    ShutWrite,
    ShutRead,
    /// After waiting, if SO_LINGER is set.
    Close,
    Linger(Option<u16>),
    KeepAlive(KeepAlive),
    UserTimeout(Option<Duration>),
    Abort,
    Mtu(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1usize..20_000, any::<bool>()).prop_map(|(bytes, more)| Step::Send(bytes, more)),
        6 => (1usize..300).prop_map(|bytes| Step::Send(bytes, false)),
        12 => (1usize..50_000).prop_map(Step::Receive),
        8 => (0u64..400).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::NoDelay),
        1 => any::<bool>().prop_map(Step::Cork),
        1 => any::<bool>().prop_map(Step::QuickAck),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => Just(Step::ShutWrite),
        1 => proptest::option::of(0u16..4).prop_map(Step::Linger),
        1 => (1u64..30, 1u64..5, 1u8..6).prop_map(|(idle, interval, probes)| {
            let (idle, interval) = (Duration::from_secs(idle), Duration::from_secs(interval));
            Step::KeepAlive(KeepAlive { idle, interval, probes })
        }),
        // Long enough that most connections outlive it.
        1 => proptest::option::of(2u64..120)
            .prop_map(|seconds| Step::UserTimeout(seconds.map(Duration::from_secs))),
        // No less than the minimum of IPv6.
        1 => (1280u16..3000).prop_map(Step::Mtu),
    ]
}

/// What one of the two does at any moment, whatever the other is doing.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Abort,
    ShutRead,
    Close,
    /// With SO_LINGER, for this many seconds.
    CloseLingering(u16),
}

fn close() -> impl Strategy<Value = Cut> {
    prop_oneof![
        1 => Just(Cut::ShutRead),
        2 => Just(Cut::Close),
        2 => (0u16..4).prop_map(Cut::CloseLingering),
    ]
}

fn conditions() -> impl Strategy<Value = Conditions> {
    (
        (0u64..60, prop_oneof![Just(None), (1_000_000u64..100_000_000).prop_map(Some)]),
        prop_oneof![2 => Just(0.0), 1 => 0.0..0.25f64],
        prop_oneof![2 => Just(0.0), 1 => 0.0..0.3f64],
        prop_oneof![2 => Just(0.0), 1 => 0.0..0.2f64],
        prop_oneof![2 => Just(0.0), 1 => 0.0..0.1f64],
        any::<bool>(),
    )
        .prop_map(|((delay, rate), loss, reorder, duplicate, corrupt, queue)| Conditions {
            delay: Duration::from_millis(delay),
            rate,
            queue_bytes: queue.then_some(20_000),
            loss,
            reorder,
            jitter: Duration::from_millis(30),
            duplicate,
            corrupt,
            mark_bytes: None,
        })
}

fn setup() -> impl Strategy<Value = Setup> {
    let config = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 4096u32..40_000)
        .prop_map(|(reno, pacing, autocork, ecn, buffer)| Config {
            congestion: if reno { Algorithm::NewReno } else { Algorithm::Cubic },
            pacing,
            autocork,
            ecn: if ecn { Ecn::Asked } else { Ecn::Granted },
            receive_buffer_bytes: (buffer, 1 << 20),
            ..Config::default()
        });
    let device = (any::<bool>(), any::<bool>(), 576u16..1600, any::<bool>()).prop_map(
        |(ethernet, trains, mtu, completions)| Capabilities {
            max_train_bytes: if trains { 65_000 } else { u32::from(mtu) },
            completes_checksums: trains,
            reports_completions: completions,
            ..Capabilities::plain(if ethernet { Medium::Ethernet } else { Medium::Ip }, mtu)
        },
    );
    let (configs, ways) = ([config.clone(), config], [conditions(), conditions()]);
    (configs, device, ways, any::<u64>(), any::<bool>(), 1usize..20).prop_map(
        |(configs, device, ways, seed, ipv6, batch)| {
            let mut device = device;
            // IPv6 has no smaller link (RFC 8200 §5).
            device.mtu = if ipv6 { device.mtu.max(1280) } else { device.mtu };
            device.max_train_bytes = device.max_train_bytes.max(device.mtu.into());
            let mut ways = ways;
            for way in &mut ways {
                // Checksums are not filled in yet: damage would be the device's, not the wire's.
                way.corrupt = if device.completes_checksums { 0.0 } else { way.corrupt };
            }
            Setup { configs, devices: [device; 2], ways, batch, seed, ipv6 }
        },
    )
}

/// One program: what it has sent and received.
struct End {
    host: usize,
    socket: SocketId,
    sent: usize,
    received: usize,
    shut: bool,
    failed: bool,
    finished: bool,
    /// It has shut down reading: an end that it sees need not be the peer's.
    deaf: bool,
    closed: bool,
}

impl End {
    fn new(host: usize, socket: SocketId) -> Self {
        let (sent, received, shut, failed) = (0, 0, false, false);
        let (finished, deaf, closed) = (false, false, false);
        Self { host, socket, sent, received, shut, failed, finished, deaf, closed }
    }

    fn is_over(&self) -> bool {
        self.finished || self.failed || self.closed
    }

    fn send(&mut self, pair: &mut Pair, bytes: usize, more: bool) {
        if self.shut {
            return;
        }
        let chunk = common::bytes(self.sent, bytes);
        let now = pair.now;
        match pair.hosts[self.host].stack.send(now, self.socket, chunk, more) {
            Ok(taken) => self.sent += taken,
            Err(SendError::WouldBlock) => {}
            Err(_) => self.failed = true,
        }
    }

    fn receive(&mut self, pair: &mut Pair, bytes: usize) -> usize {
        if self.closed {
            return 0;
        }
        let mut buffer = vec![0; bytes];
        let now = pair.now;
        match pair.hosts[self.host].stack.recv(now, self.socket, &mut buffer) {
            Ok(0) => {
                self.finished = true;
                0
            }
            Ok(count) => {
                common::check(self.received, &buffer[..count]);
                self.received += count;
                count
            }
            Err(RecvError::WouldBlock) => 0,
            Err(_) => {
                self.failed = true;
                0
            }
        }
    }

    fn set(&self, pair: &mut Pair, option: SocketOption) {
        let now = pair.now;
        pair.hosts[self.host].stack.set_option(now, self.socket, option);
    }

    fn cut(&mut self, pair: &mut Pair, cut: Cut) {
        match cut {
            Cut::Abort => self.act(pair, &Step::Abort),
            Cut::ShutRead => self.act(pair, &Step::ShutRead),
            Cut::Close => self.act(pair, &Step::Close),
            Cut::CloseLingering(seconds) => {
                self.act(pair, &Step::Linger(Some(seconds)));
                self.act(pair, &Step::Close);
            }
        }
    }

    fn close(&mut self, pair: &mut Pair) {
        let (now, socket) = (pair.now, self.socket);
        if let Some(lingers) = pair.hosts[self.host].stack.begin_close(now, socket) {
            pair.run_for(lingers);
        }
        let now = pair.now;
        pair.hosts[self.host].stack.close(now, socket);
        self.closed = true;
    }

    fn act(&mut self, pair: &mut Pair, step: &Step) {
        if let Step::Wait(millis) = *step {
            return pair.run_for(Duration::from_millis(millis));
        }
        if self.closed {
            return;
        }
        let now = pair.now;
        let socket = self.socket;
        let stack = &mut pair.hosts[self.host].stack;
        match *step {
            Step::Send(bytes, more) => self.send(pair, bytes, more),
            Step::Receive(bytes) => {
                self.receive(pair, bytes);
            }
            Step::Wait(_) => {}
            Step::NoDelay(on) => self.set(pair, SocketOption::NoDelay(on)),
            Step::Cork(on) => self.set(pair, SocketOption::Cork(on)),
            Step::QuickAck(on) => self.set(pair, SocketOption::QuickAck(on)),
            Step::Linger(seconds) => self.set(pair, SocketOption::Linger(seconds)),
            Step::KeepAlive(how) => self.set(pair, SocketOption::KeepAlive(Some(how))),
            Step::UserTimeout(time) => self.set(pair, SocketOption::UserTimeout(time)),
            Step::Hold(true) => stack.hold(now, socket),
            Step::Hold(false) => stack.release(now, socket),
            Step::ShutWrite => {
                stack.shutdown(now, socket, Shutdown::Write);
                self.shut = true;
            }
            Step::ShutRead => {
                stack.shutdown(now, socket, Shutdown::Read);
                self.deaf = true;
            }
            Step::Close => self.close(pair),
            Step::Abort => stack.abort(now, socket),
            Step::Mtu(mtu) => pair.set_mtu(self.host, mtu),
        }
    }
}

/// How a connection is opened with Fast Open.
#[derive(Debug, Clone, Copy)]
struct Dash {
    /// Octets that are written before anything has left.
    bytes: usize,
    /// How often the server's keys have changed since the client got its cookie.
    changes: u8,
    /// Connections that the server allows to be open before their handshake is over.
    pending: u32,
    /// The client has no cookie.
    first_time: bool,
    /// No cookie is needed.
    cookieless: bool,
}

fn dash() -> impl Strategy<Value = Dash> {
    (1usize..5000, 0u8..3, 0u32..3, any::<bool>(), any::<bool>()).prop_map(
        |(bytes, changes, pending, first_time, cookieless)| Dash {
            bytes,
            changes,
            pending,
            first_time,
            cookieless,
        },
    )
}

/// Gets a cookie over a path without faults, and opens a connection over the faulty one; returns it
/// and how much it has taken.
fn open_fast(
    pair: &mut Pair,
    setup: &Setup,
    listener: ListenerId,
    dash: Dash,
) -> (SocketId, usize) {
    let mut switches = FastOpen::CLIENT.with(FastOpen::SERVER);
    let mut keys = FastOpenKeys::new([1; 16], None);
    pair.hosts[1].stack.set_fast_open_keys(None, keys);
    let limit = FastOpenListen { pending: 1, cookie_not_required: false };
    pair.hosts[1].stack.set_listener_fast_open(listener, limit);
    for host in &mut pair.hosts {
        host.stack.set_fast_open(switches);
    }
    if !dash.first_time {
        let begun = pair.begin_connect_fast(PORT).socket();
        pair.run_for(Duration::from_secs(1));
        let server = pair.hosts[1].stack.accept(listener).unwrap();
        for (host, socket) in [(0, begun), (1, server)] {
            let now = pair.now;
            pair.hosts[host].stack.abort(now, socket);
            pair.hosts[host].stack.close(now, socket);
            pair.run_for(Duration::from_secs(1));
        }
    }
    for n in 0..dash.changes {
        keys = keys.rotated([n + 2; 16]);
    }
    if dash.cookieless {
        switches = switches.with(FastOpen::CLIENT_NO_COOKIE);
        switches = switches.with(FastOpen::SERVER_COOKIE_NOT_REQUIRED);
    }
    let limit = FastOpenListen { pending: dash.pending, cookie_not_required: false };
    let server = &mut pair.hosts[1].stack;
    server.set_fast_open_keys(None, keys);
    server.set_listener_fast_open(listener, limit);
    for (host, way) in [0, 1].into_iter().zip(setup.ways) {
        pair.hosts[host].stack.set_fast_open(switches);
        pair.set_way(host, way);
    }
    let socket = pair.begin_connect_fast(PORT).socket();
    let mut sent = 0;
    while sent < dash.bytes {
        let now = pair.now;
        let chunk = common::bytes(sent, dash.bytes - sent);
        match pair.hosts[0].stack.send(now, socket, chunk, false) {
            Ok(taken) => sent += taken,
            Err(_) => break,
        }
    }
    (socket, sent)
}

fn play(setup: &Setup, steps: &[(bool, Step)], cut: Option<(usize, Cut)>, dash: Option<Dash>) {
    let faultless = Setup { ways: [Conditions::default(); 2], ..setup.clone() };
    let mut pair = Pair::new(if dash.is_some() { &faultless } else { setup });
    let listener = pair.listen(PORT);
    let (client, begun) = match dash {
        Some(dash) => open_fast(&mut pair, setup, listener, dash),
        None => (pair.begin_connect(PORT), 0),
    };
    let mut server = None;
    let deadline = pair.now + Duration::from_secs(600);
    pair.run_while(deadline, |pair| {
        server = server.or_else(|| pair.hosts[1].stack.accept(listener));
        let now = pair.now;
        let stack = &mut pair.hosts[0].stack;
        // A connection that ends before it is open ceases to exist (RFC 9293 §3.10.4), and with
        // Fast Open the server's may be open first.
        let open = stack.info(now, client).is_some_and(|info| info.state.is_synchronised());
        (server.is_none() || !open) && stack.take_error(client).is_none()
    });
    // All seven SYNs can be lost; then there is nothing to check.
    let Some(server) = server else { return };
    let mut ends = [End::new(0, client), End::new(1, server)];
    ends[0].sent = begun;
    // A reset can be lost, and an end with nothing to send would never notice.
    let (idle, interval) = (Duration::from_secs(600), Duration::from_secs(10));
    let keep_alive = KeepAlive { idle, interval, probes: 9 };
    ends.iter().for_each(|end| end.set(&mut pair, SocketOption::KeepAlive(Some(keep_alive))));
    for (index, (which, step)) in steps.iter().enumerate() {
        let end = &mut ends[usize::from(*which)];
        if let Some((_, cut)) = cut.filter(|(at, _)| *at == index) {
            end.cut(&mut pair, cut);
        }
        end.act(&mut pair, step);
        pair.drive();
    }
    for end in &mut ends {
        end.act(&mut pair, &Step::Hold(false));
        end.act(&mut pair, &Step::Cork(false));
        end.act(&mut pair, &Step::ShutWrite);
    }
    // Everything must come to its end: all bytes and the end of the stream, or an error.
    let deadline = pair.now + Duration::from_secs(3 * 3600);
    let over = pair.run_while(deadline, |pair| {
        for end in &mut ends {
            while end.receive(pair, 65_536) > 0 {}
        }
        !ends.iter().all(End::is_over)
    });
    let states: Vec<_> = [(0, client), (1, server)]
        .map(|(host, socket)| {
            let now = pair.now;
            pair.hosts[host].stack.info(now, socket)
        })
        .into();
    assert!(over, "stuck at {:?}: {states:#?}", pair.now);
    for (end, other) in [(0, 1), (1, 0)] {
        let (end, other) = (&ends[end], &ends[other]);
        assert!(end.received <= other.sent);
        let is_reset = matches!(cut, Some((_, Cut::Abort)));
        if end.finished && !end.failed && !end.deaf && !is_reset {
            assert_eq!(end.received, other.sent, "the end came before all bytes");
        }
    }
    for end in ends.iter_mut().filter(|end| !end.closed) {
        end.close(&mut pair);
    }
    pair.run_for(Duration::from_secs(3600));
    for host in &pair.hosts {
        assert_eq!(host.stack.connection_count(), 0, "a connection is left over");
    }
}

fn cases() -> u32 {
    std::env::var("UNCORK_SIM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_bytes_arrive_once_and_in_order(
        setup in setup(),
        steps in proptest::collection::vec((any::<bool>(), step()), 1..60),
    ) {
        play(&setup, &steps, None, None);
    }

    #[test]
    fn after_a_reset_nothing_is_left_and_nothing_wrong_was_read(
        setup in setup(),
        steps in proptest::collection::vec((any::<bool>(), step()), 1..40),
        at in 0usize..40,
    ) {
        play(&setup, &steps, Some((at, Cut::Abort)), None);
    }

    #[test]
    fn who_closes_in_the_middle_loses_nothing_without_a_word_and_leaves_nothing(
        setup in setup(),
        steps in proptest::collection::vec((any::<bool>(), step()), 1..40),
        cut in (0usize..40, close()),
    ) {
        play(&setup, &steps, Some(cut), None);
    }

    #[test]
    fn data_in_a_syn_arrives_once_and_in_order_too(
        setup in setup(),
        steps in proptest::collection::vec((any::<bool>(), step()), 0..40),
        cut in proptest::option::weighted(0.3, (0usize..40, prop_oneof![Just(Cut::Abort), close()])),
        dash in dash(),
    ) {
        play(&setup, &steps, cut, Some(dash));
    }
}
