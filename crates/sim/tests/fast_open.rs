//! TCP Fast Open between two stacks: what it saves, and what it costs when it does not work.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;

use uncork_sim::{Conditions, Pair, Setup};
use uncork_stack::{
    FastConnect, FastOpen, FastOpenFailure, FastOpenKeys, FastOpenListen, ListenerId,
};

use crate::common::{PORT, delayed};

/// Returns a client and a server, ten milliseconds apart, that both have Fast Open on.
fn opened(ipv6: bool) -> (Pair, ListenerId) {
    let mut setup = Setup { ipv6, ..delayed(10) };
    for config in &mut setup.configs {
        config.fast_open = FastOpen::CLIENT.with(FastOpen::SERVER);
    }
    let mut pair = Pair::new(&setup);
    let listener = pair.listen(PORT);
    let listen = FastOpenListen { pending: 16, cookie_not_required: false };
    pair.hosts[1].stack.set_listener_fast_open(listener, listen);
    (pair, listener)
}

/// Asks; returns the time until the answer has come, and whether the SYN carried the question.
fn ask(pair: &mut Pair, listener: ListenerId) -> (Duration, bool) {
    let began = pair.now;
    let begun = pair.begin_connect_fast(PORT);
    let client = begun.socket();
    assert_eq!(pair.hosts[0].stack.send(pair.now, client, b"how much?", false), Ok(9));
    let mut server = None;
    let mut buffer = [0; 100];
    let deadline = pair.now + Duration::from_secs(60);
    let done = pair.run_while(deadline, |pair| {
        let now = pair.now;
        server = server.or_else(|| pair.hosts[1].stack.accept(listener));
        if let Some(server) = server
            && pair.hosts[1].stack.recv(now, server, &mut buffer) == Ok(9)
        {
            assert_eq!(pair.hosts[1].stack.send(now, server, b"this much", false), Ok(9));
        }
        pair.hosts[0].stack.recv(now, client, &mut buffer) != Ok(9)
    });
    assert!(done);
    let took = pair.now.since(began);
    let info = pair.hosts[0].stack.info(pair.now, client).unwrap();
    let deferred = matches!(begun, FastConnect::Deferred(_));
    assert_eq!(deferred, info.fast_open_failure != FastOpenFailure::CookieUnavailable);
    for (host, socket) in [(0, client), (1, server.unwrap())] {
        let now = pair.now;
        pair.hosts[host].stack.close(now, socket);
    }
    pair.run_for(Duration::from_secs(1));
    (took, info.syn_data)
}

const MILLIS: Duration = Duration::from_millis(1);

#[test]
fn the_second_question_is_answered_in_one_round_trip() {
    for ipv6 in [false, true] {
        let (mut pair, listener) = opened(ipv6);
        assert_eq!(ask(&mut pair, listener), (40 * MILLIS, false));
        assert_eq!(ask(&mut pair, listener), (20 * MILLIS, true));
        assert_eq!(ask(&mut pair, listener), (20 * MILLIS, true));
        assert_eq!(pair.hosts[1].stack.counters().fast_open_passive, 2);
    }
}

#[test]
fn a_server_that_has_changed_its_key_costs_the_round_trip_once() {
    let (mut pair, listener) = opened(false);
    ask(&mut pair, listener);
    for keys in [[1; 16], [2; 16]] {
        let keys = FastOpenKeys::new(keys, None);
        pair.hosts[1].stack.set_fast_open_keys(None, keys);
        assert_eq!(ask(&mut pair, listener), (40 * MILLIS, false));
        assert_eq!(ask(&mut pair, listener), (20 * MILLIS, true));
    }
    // With the old key kept for a while, the change goes unnoticed.
    let keys = pair.hosts[1].stack.fast_open_keys(None).rotated([3; 16]);
    pair.hosts[1].stack.set_fast_open_keys(None, keys);
    assert_eq!(ask(&mut pair, listener), (20 * MILLIS, true));
    let keys = pair.hosts[1].stack.fast_open_keys(None).rotated([4; 16]);
    pair.hosts[1].stack.set_fast_open_keys(None, keys);
    assert_eq!(ask(&mut pair, listener), (20 * MILLIS, true));
}

#[test]
fn a_path_that_drops_syns_with_data_costs_a_timeout_and_nothing_else() {
    let (mut pair, listener) = opened(false);
    ask(&mut pair, listener);
    let good = pair.way(0);
    pair.set_way(0, Conditions { loss: 1.0, ..good });
    let began = pair.now;
    let client = pair.begin_connect_fast(PORT).socket();
    pair.hosts[0].stack.send(pair.now, client, b"how much?", false).unwrap();
    pair.run_for(500 * MILLIS);
    pair.set_way(0, good);
    let mut buffer = [0; 100];
    let mut server = None;
    let deadline = pair.now + Duration::from_secs(60);
    pair.run_while(deadline, |pair| {
        server = server.or_else(|| pair.hosts[1].stack.accept(listener));
        let Some(server) = server else { return true };
        pair.hosts[1].stack.recv(pair.now, server, &mut buffer) != Ok(9)
    });
    assert_eq!(pair.now.since(began), 1030 * MILLIS);
    assert!(!pair.hosts[0].stack.info(pair.now, client).unwrap().syn_data);
}
