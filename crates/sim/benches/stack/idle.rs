//! A million idle connections: the memory that they hold, and what a request costs among them.

use crate::ours::Pair;
use crate::{Bed as _, ROUNDS, median, nanos_each, tell};

/// Connections of this process, both ends counted.
const MILLION: usize = 1_000_000;
const FEW: usize = 1_000;
const EXCHANGES: usize = 200_000;

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

/// Returns the nanoseconds of a request on a random connection.
fn cost(pair: &mut Pair, connections: usize) -> f64 {
    median((0..ROUNDS).map(|_| nanos_each(pair, connections, EXCHANGES)).collect())
}

pub(crate) fn run() {
    let mut few = Pair::default();
    few.connect(FEW / 2);
    let few_nanos = cost(&mut few, FEW / 2);
    let before = resident_bytes();
    let mut many = Pair::default();
    many.connect(MILLION / 2);
    let each = (resident_bytes() - before) / MILLION as f64;
    tell("a million idle connections", &format!("{each:.0} B each"), "≤ 1024 B", each <= 1024.0);
    let many_nanos = cost(&mut many, MILLION / 2);
    let ratio = many_nanos / few_nanos;
    tell(
        "a request on a random one of a million",
        &format!("{many_nanos:.0} ns, of a thousand {few_nanos:.0} ns: {ratio:.1}×"),
        "≤ 4×",
        ratio <= 4.0,
    );
}
