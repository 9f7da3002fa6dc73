//! Any interleaving of what two programs do, over a path that does anything to their packets, ends in the
//! same bytes, once and in order, or in a failure that says so.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::time::Duration;

use common::PORT;
use proptest::prelude::*;
use uncork_packet::{Capabilities, Medium};
use uncork_sim::{Conditions, Pair, Setup};
use uncork_stack::{
    Algorithm, Config, FastOpen, FastOpenKeys, FastOpenListen, KeepAlive, ListenerId, RecvError,
    SendError, Shutdown, SocketId, SocketOption,
};

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
        // No less than IPv6 has.
        1 => (1280u16..3000).prop_map(Step::Mtu),
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
            ecn,
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
                // What only devices do to a frame whose checksum is not filled in is not the wire's.
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
}

impl End {
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

    fn act(&mut self, pair: &mut Pair, step: &Step) {
        let now = pair.now;
        let socket = self.socket;
        let stack = &mut pair.hosts[self.host].stack;
        match *step {
            Step::Send(bytes, more) => self.send(pair, bytes, more),
            Step::Receive(bytes) => {
                self.receive(pair, bytes);
            }
            Step::Wait(millis) => pair.run_for(Duration::from_millis(millis)),
            Step::NoDelay(on) => {
                stack.set_option(now, socket, SocketOption::NoDelay(on));
            }
            Step::Cork(on) => {
                stack.set_option(now, socket, SocketOption::Cork(on));
            }
            Step::QuickAck(on) => {
                stack.set_option(now, socket, SocketOption::QuickAck(on));
            }
            Step::Hold(true) => stack.hold(now, socket),
            Step::Hold(false) => stack.release(now, socket),
            Step::ShutWrite => {
                stack.shutdown(now, socket, Shutdown::Write);
                self.shut = true;
            }
            Step::Abort => stack.abort(now, socket),
            Step::Mtu(mtu) => pair.set_mtu(self.host, mtu),
        }
    }
}

/// How a connection is opened with Fast Open.
#[derive(Debug, Clone, Copy)]
struct Dash {
    /// Octets that are given to be sent before anything has left.
    bytes: usize,
    /// What has become of the server's keys since the client got its cookie: how often they changed.
    changes: u8,
    /// Connections that the server lets be open before their handshake is over.
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

/// Gets a cookie over a path without faults, and opens a connection over the one that has them; gives it
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

fn play(setup: &Setup, steps: &[(bool, Step)], abort: Option<usize>, dash: Option<Dash>) {
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
        // Who ends a connection before it is open has none (RFC 9293 §3.10.4), and with Fast Open the
        // server's may be open first.
        let open = stack.info(now, client).is_some_and(|info| info.state.is_synchronised());
        (server.is_none() || !open) && stack.take_error(client).is_none()
    });
    // Seven SYNs can all be lost; then there is nothing to see.
    let Some(server) = server else { return };
    let end = |host, socket| End {
        host,
        socket,
        sent: 0,
        received: 0,
        shut: false,
        failed: false,
        finished: false,
    };
    let mut ends = [end(0, client), end(1, server)];
    ends[0].sent = begun;
    // A reset can be lost, and whoever has nothing to send would never know.
    let (idle, interval) = (Duration::from_secs(600), Duration::from_secs(10));
    let keep_alive = KeepAlive { idle, interval, probes: 9 };
    for end in &ends {
        let now = pair.now;
        let option = SocketOption::KeepAlive(Some(keep_alive));
        pair.hosts[end.host].stack.set_option(now, end.socket, option);
    }
    for (index, (which, step)) in steps.iter().enumerate() {
        if abort == Some(index) {
            ends[usize::from(*which)].act(&mut pair, &Step::Abort);
        }
        ends[usize::from(*which)].act(&mut pair, step);
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
        !ends.iter().all(|end| end.finished || end.failed)
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
        if end.finished && !end.failed && abort.is_none() {
            assert_eq!(end.received, other.sent, "the end came before all bytes");
        }
    }
    for end in &ends {
        let now = pair.now;
        pair.hosts[end.host].stack.close(now, end.socket);
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
        play(&setup, &steps, Some(at), None);
    }

    #[test]
    fn data_in_a_syn_arrives_once_and_in_order_too(
        setup in setup(),
        steps in proptest::collection::vec((any::<bool>(), step()), 0..40),
        at in proptest::option::weighted(0.2, 0usize..40),
        dash in dash(),
    ) {
        play(&setup, &steps, at, Some(dash));
    }
}
