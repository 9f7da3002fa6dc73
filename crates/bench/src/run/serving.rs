//! What the server benchmarks have in common: plain, the server under uncork, both under uncork.

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

/// The servers that a benchmark starts: one for each way.
pub(crate) const SERVERS: [Way; 3] = [Way::Plain, KERNEL, USER];

/// Server (index into [`SERVERS`]), client, name.
const PAIRS: [(usize, Way, &str); 5] = [
    (0, Way::Plain, "plain"),
    (1, Way::Plain, "server under uncork"),
    (1, KERNEL, BARRED),
    (2, USER, "both under uncork --hold user"),
    // The same once more: what this row strays from 1 is the machine's doing.
    (0, Way::Plain, "plain again"),
];

/// What a user runs, both ends with the defaults: the pair that has the bar.
const BARRED: &str = "both under uncork";

/// Runs a client in a way against a server (index into [`SERVERS`]); gives requests a second.
pub(crate) type Request<'a> = Box<dyn Fn(&Way, usize) -> Result<f64> + 'a>;

/// One load.
pub(crate) struct Load<'a> {
    /// Name.
    pub(crate) name: String,
    /// Runs it once.
    pub(crate) run: Request<'a>,
}

/// Runs every load in every pairing, interleaved, and compares the rates with the plain one.
pub(crate) fn compare(
    bed: &Bed<'_>,
    (bench, place): (&'static str, Place),
    loads: &[Load<'_>],
) -> Result<Vec<Row>> {
    // Many short runs rather than few long ones: what else happens on the machine comes in bursts.
    let rounds = bed.rounds(if place == Place::OneCore { 25 } else { 7 });
    let mut rows = Vec::new();
    for load in loads {
        let case = |(server, way, name): &'static (usize, Way, &str)| {
            Case::new(format!("{}, {name}", load.name), || Ok(vec![(load.run)(way, *server)?]))
        };
        let mut cases: Vec<Case<'_>> = PAIRS.iter().map(case).collect();
        let samples = interleave(&mut cases, rounds, bed.progress)?;
        for (index, (_, _, name)) in PAIRS.iter().enumerate().skip(1) {
            let what = (bench, format!("{}: {name}; against plain", load.name));
            let sides = (samples.get(index, 0), Compare::Ratio, samples.get(0, 0));
            let row = Row::compare(what, place, Unit::PerSecond, sides);
            rows.push(if *name == BARRED { row.bar_on_one_core(KEEPS) } else { row });
        }
    }
    Ok(rows)
}

/// How many requests take about `seconds`, found with short runs of growing length.
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
}
