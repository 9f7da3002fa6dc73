//! Throughput by loss, delay and reordering: a snapshot, so that a change of any of the algorithms shows.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fmt::Write as _;
use std::time::Duration;

use common::{connected, transfer};
use uncork_sim::{Conditions, Setup};
use uncork_stack::{Algorithm, Config};

const BYTES: usize = 4 << 20;

/// Megabits a second of four megabytes, the median of three runs.
fn measure(conditions: Conditions, congestion: Algorithm) -> f64 {
    let mut rates: Vec<f64> = (0..3)
        .map(|seed| {
            let config = Config { congestion, ..Config::default() };
            let setup = Setup {
                seed,
                configs: [config.clone(), config],
                // Losses are those of data; ACKs come through.
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
