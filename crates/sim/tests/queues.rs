//! The queue that a bulk sender builds in its own device: the point of small queues.

use std::time::Duration;

use uncork_packet::{Capabilities, Medium};
use uncork_sim::{Conditions, Setup};
use uncork_stack::Config;

use crate::common::{connected, transfer};

const RATE: u64 = 100_000_000;

/// Runs a bulk transfer over a device of 100 Mbit/s, with two milliseconds of round trip; returns
/// the longest time that a frame waited in it, and megabits a second.
fn bulk(config: Config, reports: bool) -> (Duration, f64) {
    let delay = Duration::from_millis(1);
    let device = Capabilities {
        max_train_bytes: 65_000,
        completes_checksums: true,
        reports_completions: reports,
        ..Capabilities::plain(Medium::Ip, 1500)
    };
    let there = Conditions { delay, rate: Some(RATE), ..Conditions::default() };
    let setup = Setup {
        configs: [config.clone(), config],
        devices: [device; 2],
        ways: [there, Conditions { delay, ..Conditions::default() }],
        ..Setup::default()
    };
    let (mut pair, client, server, _) = connected(&setup);
    // The first round trips, before anything is known, are due to the initial window.
    transfer(&mut pair, (0, client), (1, server), 1 << 20, Duration::from_secs(60));
    pair.reset_tally(0);
    let bytes = 20 << 20;
    let took = transfer(&mut pair, (0, client), (1, server), bytes, Duration::from_secs(60));
    let took = took.map_or(f64::INFINITY, |took| took.as_secs_f64());
    (pair.tally(0).longest_wait, bytes as f64 * 8e-6 / took)
}

#[test]
fn a_frame_of_somebody_else_waits_a_millisecond_at_most_and_nothing_is_lost_by_it() {
    let (wait, rate) = bulk(Config::default(), true);
    assert!(wait <= Duration::from_millis(1), "{wait:?}");
    // Headers are 3.5 percent of what the device sends.
    assert!(rate >= 0.99 * 96.0, "{rate} Mbit/s");
}

#[test]
fn without_completions_the_queue_is_as_long_as_slow_start_makes_it() {
    let config = Config { pacing: false, ..Config::default() };
    let (wait, _) = bulk(config, false);
    assert!(wait >= Duration::from_millis(5), "{wait:?}");
}

/// A connection that has sent single segments has had its ACKs late, each by a delayed ACK's 40 ms:
/// that is its smoothed round trip.
#[test]
fn what_follows_late_acks_is_not_paced_as_if_the_path_were_slow() {
    let near = Conditions { delay: Duration::from_micros(25), ..Conditions::default() };
    let device = Capabilities {
        max_train_bytes: 65_000,
        completes_checksums: true,
        reports_completions: true,
        ..Capabilities::plain(Medium::Ip, 1500)
    };
    let setup = Setup { devices: [device; 2], ways: [near; 2], ..Setup::default() };
    let (mut pair, client, server, _) = connected(&setup);
    let patience = Duration::from_secs(1);
    // The server does not read, as that would acknowledge.
    for _ in 0..40 {
        let now = pair.now;
        assert_eq!(pair.hosts[0].stack.send(now, client, &[0; 100], false), Ok(100));
        pair.run_for(Duration::from_millis(60));
    }
    let now = pair.now;
    assert_eq!(pair.hosts[1].stack.recv(now, server, &mut [0; 8192]), Ok(4000));
    let info = pair.hosts[0].stack.info(pair.now, client).unwrap();
    assert!(info.round_trip > Some(Duration::from_millis(30)), "{:?}", info.round_trip);
    let took = transfer(&mut pair, (0, client), (1, server), 300_000, patience).unwrap();
    assert!(took < Duration::from_millis(2), "{took:?}");
}
