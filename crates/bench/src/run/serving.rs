//! Common parts of the server benchmarks: plain, the server under uncork, both under uncork.

use anyhow::Result;

use super::Bed;
use crate::contest::{Case, interleave};
use crate::launch::Way;
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::stats::median;

/// A program that needs no help keeps this share of its rate.
const KEEPS: Bar = Bar::AtLeast(0.97);

/// Holding in the kernel: what `uncork run` does unless told otherwise.
const KERNEL: Way = Way::Preload(&[("hold", "kernel")]);
/// Holding in the process.
const USER: Way = Way::Preload(&[("hold", "user")]);

/// The servers that run side by side.
const SERVERS: [Way; 4] = [Way::Plain, KERNEL, USER, Way::Plain];

/// Server (index into [`SERVERS`]), client, name.
const PAIRS: [(usize, Way, &str); 5] = [
    (0, Way::Plain, "plain"),
    (1, Way::Plain, "server under uncork"),
    (1, KERNEL, BARRED),
    (2, USER, "both under uncork --hold user"),
    // Plain once more: its deviation from 1 is the machine's.
    (3, Way::Plain, "plain again"),
];

/// What a user runs, both ends with the defaults: the pair with the bar.
const BARRED: &str = "both under uncork";

/// Rounds after which all servers are restarted: one process may be a few percent faster than
/// another of the same program during its whole life, by where its memory happens to be.
const ROUNDS_OF_A_SERVER: usize = 5;

/// Runs a client in a way against a server; returns the requests per second.
pub(crate) type Request<'a, S> = Box<dyn Fn(&Way, &S) -> Result<f64> + 'a>;

/// One load.
pub(crate) struct Load<'a, S> {
    /// Name.
    pub(crate) name: String,
    /// Runs it once.
    pub(crate) run: Request<'a, S>,
}

/// Rates by load, pair and round.
struct Rates(Vec<Vec<Vec<f64>>>);

/// Runs every load in every pairing, interleaved, against servers that `start` starts in a way, and
/// compares the rates with the plain one.
pub(crate) fn compare<S>(
    bed: &Bed<'_>,
    (bench, place): (&'static str, Place),
    start: impl Fn(&Way) -> Result<S>,
    loads: &[Load<'_, S>],
) -> Result<Vec<Row>> {
    // Many short runs rather than few long ones: other load on the machine comes in bursts.
    let rounds = bed.rounds(if place == Place::OneCore { 25 } else { 6 });
    let mut rates = Rates(vec![vec![Vec::new(); PAIRS.len()]; loads.len()]);
    let mut left = rounds;
    while left > 0 {
        let rounds = left.min(ROUNDS_OF_A_SERVER);
        left -= rounds;
        let servers = SERVERS.iter().map(&start).collect::<Result<Vec<S>>>()?;
        for (load, rates) in loads.iter().zip(&mut rates.0) {
            measure(bed, (load, &servers), rounds, rates)?;
        }
    }
    let rows = loads.iter().zip(&rates.0);
    Ok(rows.flat_map(|(load, rates)| rows_of((bench, place), &load.name, rates)).collect())
}

fn measure<S>(
    bed: &Bed<'_>,
    (load, servers): (&Load<'_, S>, &[S]),
    rounds: usize,
    rates: &mut [Vec<f64>],
) -> Result<()> {
    let case = |(server, way, name): &'static (usize, Way, &str)| {
        let server = &servers[*server];
        Case::new(format!("{}, {name}", load.name), || Ok(vec![(load.run)(way, server)?]))
    };
    let mut cases: Vec<Case<'_>> = PAIRS.iter().map(case).collect();
    let samples = interleave(&mut cases, rounds, bed.progress)?;
    for (pair, rates) in rates.iter_mut().enumerate() {
        rates.extend_from_slice(samples.get(pair, 0));
    }
    Ok(())
}

fn rows_of(
    (bench, place): (&'static str, Place),
    load: &str,
    rates: &[Vec<f64>],
) -> impl Iterator<Item = Row> {
    let row = move |((_, _, name), rate): (&(usize, Way, &str), &Vec<f64>)| {
        let what = (bench, format!("{load}: {name}; against plain"));
        let sides = (rate.as_slice(), Compare::Ratio, rates[0].as_slice());
        let row = Row::compare(what, place, Unit::PerSecond, sides);
        if *name == BARRED { row.bar_on_one_core(KEEPS) } else { row }
    };
    PAIRS.iter().zip(rates).skip(1).map(row)
}

/// Returns how many requests take about `seconds`, found with short runs of increasing length.
pub(crate) fn calibrate(seconds: f64, rate: impl Fn(u64) -> Result<f64>) -> Result<u64> {
    let mut requests = 2_000u64;
    let mut rates = Vec::new();
    for _ in 0..3 {
        let rate = rate(requests)?;
        rates.push(rate);
        requests = (rate * seconds / 4.0).clamp(1_000.0, 5e6) as u64;
    }
    Ok((median(&rates) * seconds).clamp(1_000.0, 2e7) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_requests_follows_the_rate() {
        assert_eq!(calibrate(0.5, |_| Ok(100_000.0)).unwrap(), 50_000);
        assert_eq!(calibrate(0.5, |_| Ok(0.1)).unwrap(), 1_000);
    }

    #[test]
    fn only_both_ends_with_the_defaults_have_a_bar_and_only_on_one_core() {
        let rates = vec![vec![100.0], vec![99.0], vec![96.0], vec![90.0], vec![101.0]];
        let passes = |place| -> Vec<Option<bool>> {
            rows_of(("b", place), "load", &rates).map(|row| row.pass).collect()
        };
        assert_eq!(passes(Place::OneCore), [None, Some(false), None, None]);
        assert_eq!(passes(Place::TwoCores), [None; 4]);
    }
}
