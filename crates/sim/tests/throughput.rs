//! Throughput by loss, delay and reordering: a snapshot, so that a change of any of the algorithms
//! shows.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fmt::Write as _;
use std::time::Duration;

use uncork_packet::{Capabilities, Medium};
use uncork_sim::{Conditions, Setup};
use uncork_stack::{Algorithm, Config};

use crate::common::{connected, transfer};

const BYTES: usize = 4 << 20;

/// Returns the megabits a second of four megabytes, the median of three runs.
fn measure(conditions: Conditions, congestion: Algorithm) -> f64 {
    let mut rates: Vec<f64> = (0..3)
        .map(|seed| {
            let config = Config { congestion, ..Config::default() };
            let setup = Setup {
                seed,
                configs: [config.clone(), config],
                // Only data is lost; all ACKs come through.
                ways: [conditions, Conditions { loss: 0.0, reorder: 0.0, ..conditions }],
                ..Setup::default()
            };
            let (mut pair, client, server, _) = connected(&setup);
            let patience = Duration::from_secs(3600);
            let took = transfer(&mut pair, (0, client), (1, server), BYTES, patience).unwrap();
            BYTES as f64 * 8e-6 / took.as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[1]
}

fn table(title: &str, rows: &[(String, Conditions)], congestion: Algorithm) -> String {
    let mut text = format!("{title}\n");
    for (name, conditions) in rows {
        let mut line = format!("{name:>24}");
        for delay in [1, 10, 50] {
            let delay = Duration::from_millis(delay);
            let rate = measure(Conditions { delay, ..*conditions }, congestion);
            write!(line, " {rate:8.2}").unwrap();
        }
        writeln!(text, "{line}").unwrap();
    }
    text
}

#[test]
fn by_loss_and_delay() {
    let calm =
        Conditions { rate: Some(100_000_000), queue_bytes: Some(250_000), ..Conditions::default() };
    let mut rows: Vec<_> = [0.0, 0.001, 0.01, 0.05]
        .map(|loss| (format!("loss {:.1} %", loss * 100.0), Conditions { loss, ..calm }))
        .into();
    let jitter = Duration::from_millis(1);
    rows.push(("reordering by 1 ms, 10 %".into(), Conditions { reorder: 0.1, jitter, ..calm }));
    let mut text = String::from("Mbit/s through 100 Mbit/s and 250 kB of queue\n");
    text += &table("CUBIC       one way, ms:        1       10       50", &rows, Algorithm::Cubic);
    text += &table("NewReno", &rows, Algorithm::NewReno);
    insta::assert_snapshot!(text);
}

/// Returns the megabits a second of sixteen megabytes to a host that only receives, over a path
/// whose one-way delay is `at_first` milliseconds for the handshake, and `later` afterwards.
fn measure_of_receiver(at_first: u64, later: u64, timestamps: bool) -> f64 {
    let way = |millis| Conditions {
        delay: Duration::from_millis(millis),
        rate: Some(100_000_000),
        queue_bytes: Some(4_000_000),
        ..Conditions::default()
    };
    let config = Config { timestamps, ..Config::default() };
    let ways = [way(at_first); 2];
    let setup = Setup { configs: [config.clone(), config], ways, ..Setup::default() };
    let (mut pair, client, server, _) = connected(&setup);
    pair.set_way(0, way(later));
    pair.set_way(1, way(later));
    let patience = Duration::from_secs(3600);
    let took = transfer(&mut pair, (0, client), (1, server), 4 * BYTES, patience).unwrap();
    let known = pair.hosts[1].stack.info(pair.now, server).unwrap().receiver_round_trip;
    // Plus the delay of the queue.
    let round_trips = Duration::from_millis(2 * later)..Duration::from_millis(2 * later + 320);
    assert!(round_trips.contains(&known), "{known:?}");
    4.0 * BYTES as f64 * 8e-6 / took.as_secs_f64()
}

#[test]
fn a_receivers_window_follows_a_path_that_has_become_longer() {
    // A host that only receives measures no round trip but the handshake's: its window stayed at 64
    // KiB, which is 5 Mbit/s in 100 ms. Without timestamps it knows how long a whole window takes
    // (tcp_rcv_rtt_measure).
    for timestamps in [true, false] {
        for later in [50, 100] {
            let as_ever = measure_of_receiver(later, later, timestamps);
            let longer = measure_of_receiver(1, later, timestamps);
            assert!(longer > 0.8 * as_ever, "{timestamps} {later}: {longer} of {as_ever} Mbit/s");
        }
    }
}

/// Returns the milliseconds that 64 MB take at 10 Gbit/s, where the round trip is `at_first` µs for
/// the handshake and the first octet, and `later` µs afterwards.
fn ramp(at_first: u64, later: u64) -> f64 {
    let way = |round_trip, rate| Conditions {
        delay: Duration::from_micros(round_trip / 2),
        rate,
        ..Conditions::default()
    };
    let device = Capabilities {
        max_train_bytes: 65_000,
        completes_checksums: true,
        reports_completions: true,
        ..Capabilities::plain(Medium::Ip, 1500)
    };
    let rate = Some(10_000_000_000);
    let ways = [way(at_first, rate), way(at_first, None)];
    let setup = Setup { devices: [device; 2], ways, ..Setup::default() };
    let (mut pair, client, server, _) = connected(&setup);
    let patience = Duration::from_secs(600);
    transfer(&mut pair, (0, client), (1, server), 1, patience).unwrap();
    pair.set_way(0, way(later, rate));
    pair.set_way(1, way(later, None));
    let took = transfer(&mut pair, (0, client), (1, server), 64 << 20, patience).unwrap();
    took.as_secs_f64() * 1e3
}

#[test]
fn slow_start_goes_on_where_the_round_trip_is_a_little_above_its_shortest() {
    // Slow start ended at a few segments where trains were late by less than four of them take
    // (hystart_ack_delay), and from there on the window grew by a segment per round trip
    // (bictcp_update): 75, 77, 99, 156, 299 and 593 ms. The link takes 54.
    for (shortest, later, most) in [
        (200, 200, 60.0),
        (200, 210, 60.0),
        (200, 300, 65.0),
        (200, 500, 75.0),
        (200, 1000, 120.0),
        (1000, 2500, 250.0),
    ] {
        let took = ramp(shortest, later);
        assert!(took < most, "{shortest} {later}: {took} ms");
    }
}
