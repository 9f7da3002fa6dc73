//! The stack in memory against smoltcp, in one run on one core, and how it scales:
//! `make bench-stack`. Figures are medians of several rounds in which the two take turns; time is
//! this thread's CPU time, so that other load on the machine does not count.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

mod bulk;
mod cable;
mod idle;
mod ours;
mod smol;

use std::time::Instant as Clock;

/// Rounds, of which the median counts.
const ROUNDS: usize = 5;
/// Data of a request and of its response, in octets.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// Returns the CPU time of this thread, in seconds.
pub(crate) fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints one line of the table: what was measured, against what bar.
pub(crate) fn tell(what: &str, figure: &str, bar: &str, met: bool) {
    println!("{} {what}: {figure} (bar: {bar})", if met { "ok  " } else { "MISS" });
}

/// A stack pair that can answer a request on one of many connections.
pub(crate) trait Bed {
    /// Makes `count` connections.
    fn connect(&mut self, count: usize);
    /// Sends a request on one of them, and its response back.
    fn exchange(&mut self, connection: usize);
}

/// Returns the CPU nanoseconds for each of `rounds` exchanges, on connections in an order that no
/// cache could predict.
pub(crate) fn nanos_each(bed: &mut dyn Bed, connections: usize, rounds: usize) -> f64 {
    let mut place = 0;
    let began = on_cpu();
    for round in 0..rounds {
        place = (place + 7919 * (round | 1)) % connections;
        bed.exchange(place);
    }
    (on_cpu() - began) * 1e9 / rounds as f64
}

/// Runs both stacks with as many connections, in turns; returns the medians.
fn contest(connections: usize, ours_rounds: usize, smol_rounds: usize) -> [f64; 2] {
    let mut ours = ours::Pair::default();
    let mut smol = smol::Pair::new(connections);
    ours.connect(connections);
    smol.connect(connections);
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        figures[0].push(nanos_each(&mut ours, connections, ours_rounds));
        figures[1].push(nanos_each(&mut smol, connections, smol_rounds));
    }
    figures.map(median)
}

fn request_response() {
    for (connections, rounds, bar) in
        [(1, [200_000, 200_000], 2.0), (10_000, [200_000, 200], 100.0)]
    {
        let [ours, smol] = contest(connections, rounds[0], rounds[1]);
        let ratio = smol / ours;
        tell(
            &format!("request/response of {MESSAGE_BYTES} B, {connections} connection(s)"),
            &format!("{ours:.0} ns, smoltcp {smol:.0} ns: {ratio:.1}×"),
            &format!("≥ {bar}×"),
            ratio >= bar,
        );
    }
}

fn numbers_of(words: &[String]) -> Vec<usize> {
    words.iter().filter_map(|word| word.parse().ok()).collect()
}

fn main() {
    // Without the options that cargo bench adds.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    let began = Clock::now();
    if wants("request") {
        request_response();
    }
    if wants("bulk") {
        bulk::run();
    }
    if wants("idle") {
        idle::run();
    }
    // One of the two alone, for a number of rounds, on one connection or several, to see where its
    // time goes.
    if let [name, numbers @ ..] = wanted.as_slice()
        && let [rounds, connections @ ..] = numbers_of(numbers).as_slice()
    {
        let connections = connections.first().copied().unwrap_or(1);
        let mut ours = ours::Pair::default();
        let mut smol = smol::Pair::new(connections);
        let bed: &mut dyn Bed = if name == "ours" { &mut ours } else { &mut smol };
        bed.connect(connections);
        println!("{:.0} ns", nanos_each(bed, connections, *rounds));
    }
    println!("in {:.0} s", began.elapsed().as_secs_f64());
}
