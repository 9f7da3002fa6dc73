//! Bytes arrive, whatever the path does to them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use uncork_packet::{Capabilities, Medium};
use uncork_sim::{Conditions, Pair, Setup};
use uncork_stack::{
    ConnectionError, Event, KeepAlive, Ready, RecvError, SocketId, SocketOption, State,
};

use crate::common::{self, PORT, connected, delayed, transfer};

const MINUTES: Duration = Duration::from_secs(600);

#[test]
fn a_megabyte_over_a_path_that_loses_nothing() {
    let (mut pair, client, server, _) = connected(&delayed(10));
    let took = transfer(&mut pair, (0, client), (1, server), 1 << 20, MINUTES).unwrap();
    // Slow start from ten segments: seven round trips.
    assert!(took < Duration::from_millis(200), "{took:?}");
    assert_eq!(pair.hosts[0].stack.counters().retransmitted, 0);
    let took = transfer(&mut pair, (1, server), (0, client), 1 << 20, MINUTES).unwrap();
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[test]
fn a_megabyte_in_ipv6() {
    let setup = Setup { ipv6: true, ..delayed(10) };
    let (mut pair, client, server, _) = connected(&setup);
    transfer(&mut pair, (0, client), (1, server), 1 << 20, MINUTES).unwrap();
}

#[test]
fn a_megabyte_over_ethernet_after_asking_who_is_there() {
    for ipv6 in [false, true] {
        let mut setup = Setup { ipv6, ..delayed(1) };
        for device in &mut setup.devices {
            device.medium = Medium::Ethernet;
        }
        let (mut pair, client, server, _) = connected(&setup);
        // Two round trips, one of them for address resolution, and no wait for a repeated request.
        assert!(pair.now < uncork_stack::Instant::from_millis(20), "{:?}", pair.now);
        transfer(&mut pair, (0, client), (1, server), 1 << 20, MINUTES).unwrap();
    }
}

#[test]
fn a_megabyte_through_every_kind_of_trouble() {
    let delay = Duration::from_millis(10);
    let calm = Conditions { delay, ..Conditions::default() };
    let jitter = Duration::from_millis(5);
    for (name, conditions) in [
        ("loss", Conditions { loss: 0.02, ..calm }),
        ("much loss", Conditions { loss: 0.1, ..calm }),
        ("reordering", Conditions { reorder: 0.1, jitter, ..calm }),
        ("duplicates", Conditions { duplicate: 0.1, ..calm }),
        ("corruption", Conditions { corrupt: 0.02, ..calm }),
        ("a slow link", Conditions { rate: Some(10_000_000), queue_bytes: Some(30_000), ..calm }),
    ] {
        for seed in 0..3 {
            let setup = Setup { seed, ..Setup::both(conditions) };
            let (mut pair, client, server, _) = connected(&setup);
            let took = transfer(&mut pair, (0, client), (1, server), 1 << 20, MINUTES);
            assert!(took.is_some(), "{name}, seed {seed}");
        }
    }
}

#[test]
fn without_sack_or_timestamps_losses_are_repaired_too() {
    // Our own stack cannot play a peer without extensions; an MTU of 576 and loss of ACKs at least
    // make every segment count.
    let conditions =
        Conditions { delay: Duration::from_millis(5), loss: 0.05, ..Conditions::default() };
    let mut setup = Setup::both(conditions);
    for device in &mut setup.devices {
        (device.mtu, device.max_train_bytes) = (576, 576);
    }
    let (mut pair, client, server, _) = connected(&setup);
    transfer(&mut pair, (0, client), (1, server), 300_000, MINUTES).unwrap();
}

#[test]
fn closing_goes_through_all_states_on_both_sides() {
    let (mut pair, client, server, _) = connected(&delayed(10));
    let now = pair.now;
    pair.hosts[0].stack.close(now, client);
    pair.run_for(Duration::from_millis(25));
    let state = |pair: &mut Pair, host: usize, socket| {
        let now = pair.now;
        pair.hosts[host].stack.info(now, socket).map(|info| info.state)
    };
    assert_eq!(state(&mut pair, 0, client), Some(State::FinWait2));
    assert_eq!(state(&mut pair, 1, server), Some(State::CloseWait));
    let now = pair.now;
    let mut buffer = [0; 10];
    assert_eq!(pair.hosts[1].stack.recv(now, server, &mut buffer), Ok(0));
    pair.hosts[1].stack.close(now, server);
    pair.drive();
    assert_eq!(state(&mut pair, 1, server), Some(State::LastAck));
    pair.run_for(Duration::from_millis(25));
    assert_eq!(state(&mut pair, 0, client), Some(State::TimeWait));
    assert_eq!(state(&mut pair, 1, server), None);
    pair.run_for(Duration::from_secs(61));
    assert_eq!(state(&mut pair, 0, client), None);
    assert_eq!(pair.hosts[0].stack.connection_count(), 0);
}

#[test]
fn nobody_listens() {
    let mut pair = Pair::new(&delayed(10));
    let client = pair.begin_connect(PORT);
    pair.run_for(Duration::from_millis(30));
    assert!(pair.hosts[0].events.iter().any(|event| {
        matches!(event, Event::Socket(socket, ready) if *socket == client && ready.has(Ready::ERROR))
    }));
    let now = pair.now;
    let refused = Err(RecvError::Failed(ConnectionError::Refused));
    assert_eq!(pair.hosts[0].stack.recv(now, client, &mut [0]), refused);
    pair.hosts[0].stack.close(now, client);
    assert_eq!(pair.hosts[0].stack.connection_count(), 0);
}

#[test]
fn nobody_answers() {
    let gone = Conditions { loss: 1.0, ..Conditions::default() };
    let mut pair = Pair::new(&Setup::both(gone));
    let client = pair.begin_connect(PORT);
    // Seven SYNs: after 1, 3, 7, 15, 31, 63 seconds, and given up after 127.
    pair.run_for(Duration::from_secs(126));
    assert_eq!((pair.tally(0).sent, pair.hosts[0].stack.take_error(client)), (7, None));
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.hosts[0].stack.take_error(client), Some(ConnectionError::TimedOut));
}

#[test]
fn a_path_that_becomes_slow_at_once_costs_a_few_segments_and_no_window() {
    // RFC 5682, RFC 3522: the timeouts are spurious, and their effects are undone.
    let mut setup = delayed(10);
    for way in &mut setup.ways {
        way.rate = Some(50_000_000);
    }
    let (mut pair, client, server, _) = connected(&setup);
    transfer(&mut pair, (0, client), (1, server), 2 << 20, Duration::from_secs(60)).unwrap();
    let before = pair.hosts[0].stack.info(pair.now, client).unwrap().window_segments;
    let slow = Conditions { delay: Duration::from_millis(600), ..pair.way(1) };
    pair.set_way(1, slow);
    transfer(&mut pair, (0, client), (1, server), 1 << 20, Duration::from_secs(60)).unwrap();
    let counters = *pair.hosts[0].stack.counters();
    assert!(counters.timeouts > 0 && counters.undone > 0, "{counters:?}");
    assert!(counters.retransmitted <= 4, "{counters:?}");
    let after = pair.hosts[0].stack.info(pair.now, client).unwrap().window_segments;
    assert!(after >= before, "{before} became {after}");
}

/// Tracks the longest packet that the first host sends from now on.
fn watch(pair: &mut Pair) -> Rc<Cell<usize>> {
    let longest = Rc::new(Cell::new(0));
    let seen = Rc::clone(&longest);
    pair.record(move |_, from, frame| {
        if from == 0 {
            seen.set(seen.get().max(frame.len()));
        }
    });
    longest
}

#[test]
fn a_device_whose_mtu_becomes_smaller_costs_no_timeout_and_one_that_becomes_larger_is_made_use_of()
{
    let setup = delayed(10);
    let (mut pair, client, server, listener) = connected(&setup);
    transfer(&mut pair, (0, client), (1, server), 1 << 20, MINUTES).unwrap();
    // A flight of the old length that the device refuses, and another connection that is idle.
    let (rests, _) = pair.connect(listener, PORT);
    pair.set_way(0, Conditions { loss: 1.0, ..setup.ways[0] });
    let now = pair.now;
    let sent = pair.hosts[0].stack.send(now, client, common::bytes(0, 30_000), false);
    assert_eq!(sent, Ok(30_000));
    pair.drive();
    assert!(pair.tally(0).lost >= 10, "{:?}", pair.tally(0));
    pair.set_way(0, setup.ways[0]);
    for host in [0, 1] {
        pair.set_mtu(host, 1000);
    }
    let longest = watch(&mut pair);
    pair.run_for(Duration::from_millis(60));
    let now = pair.now;
    let mut buffer = vec![0; 40_000];
    assert_eq!(pair.hosts[1].stack.recv(now, server, &mut buffer), Ok(30_000));
    common::check(0, &buffer[..30_000]);
    assert_eq!((pair.hosts[0].stack.counters().timeouts, longest.get()), (0, 1000));
    let path_mtu = |pair: &mut Pair, socket| {
        let now = pair.now;
        pair.hosts[0].stack.info(now, socket).unwrap().path_mtu
    };
    assert_eq!([client, rests].map(|socket| path_mtu(&mut pair, socket)), [1000; 2]);
    // Larger than ever: up to what the peer announced when its MTU was 1500.
    for host in [0, 1] {
        pair.set_mtu(host, 9000);
    }
    let longest = watch(&mut pair);
    transfer(&mut pair, (0, client), (1, server), 1 << 20, MINUTES).unwrap();
    assert_eq!(longest.get(), 1500);
    let (client, server) = pair.connect(listener, PORT);
    transfer(&mut pair, (0, client), (1, server), 1 << 20, MINUTES).unwrap();
    assert_eq!(longest.get(), 9000);
}

#[test]
fn an_octet_that_has_the_number_of_the_syn() {
    // Four GiB later, with all before that acknowledged; over IPv6, which has no short paths.
    let setup = Setup { ipv6: true, ..Setup::both(Conditions::default()) };
    let (mut pair, client, server, _) = connected(&setup);
    for octets in [usize::try_from(u32::MAX).unwrap(), 1, 1000, 100_000] {
        transfer(&mut pair, (0, client), (1, server), octets, MINUTES).unwrap();
    }
}

#[test]
fn who_has_no_neighbour_any_more_is_given_up_for_that() {
    // The peer's address is not resolved any more, so that what is written does not even leave; the
    // connection is still given up after as many tries. Linux reports EHOSTUNREACH for that
    // (arp_error_report, tcp_write_err), and for probes for which it has asked in vain.
    let sends = |socket: SocketId, pair: &mut Pair| {
        let now = pair.now;
        pair.hosts[0].stack.send(now, socket, &[0; 100], false).unwrap();
    };
    let asks = |socket: SocketId, pair: &mut Pair| {
        let keep_alive = SocketOption::KeepAlive(Some(KeepAlive::default()));
        let now = pair.now;
        pair.hosts[0].stack.set_option(now, socket, keep_alive);
    };
    for (writes, error) in
        [(true, ConnectionError::Unreachable), (false, ConnectionError::TimedOut)]
    {
        let devices = [Capabilities::plain(Medium::Ethernet, 1500); 2];
        let (mut pair, client, _, listener) = connected(&Setup { devices, ..delayed(10) });
        let (other, _) = pair.connect(listener, PORT);
        // By then both neighbour entries are stale.
        pair.run_for(Duration::from_secs(120));
        let gone = Conditions { loss: 1.0, ..Conditions::default() };
        pair.set_way(0, gone);
        pair.set_way(1, gone);
        sends(other, &mut pair);
        pair.run_for(Duration::from_secs(10));
        if writes {
            sends(client, &mut pair);
        } else {
            asks(client, &mut pair);
        }
        pair.run_for(Duration::from_secs(3 * 3600));
        assert_eq!(pair.hosts[0].stack.take_error(client), Some(error));
    }
}
