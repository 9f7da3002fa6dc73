//! The published experiment: the cost of small writes, and of the best alternative.

use std::cell::RefCell;

use anyhow::Result;

use super::Bed;
use crate::contest::{Case, Samples, interleave};
use crate::launch::Way;
use crate::nodelay::{Asks, Cut, Pattern, Server};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;

const BENCH: &str = "small-writes";
/// Indices of the figures of one run: microseconds a packet, buffers a packet.
const TIME: usize = 0;
const BUFFERS: usize = 1;

const KERNEL: Way = Way::Run(&[("hold", "kernel")]);
const USER: Way = Way::Run(&[("hold", "user")]);

/// One contestant.
#[derive(Clone, Debug)]
struct Entry {
    name: &'static str,
    pattern: Pattern,
    way: Way,
    /// Logical packets of one run, chosen for runs of a tenth to a fifth of a second.
    packets: u64,
}

fn entry(name: &'static str, (asks, cut, buffers): (Asks, Cut, u32), way: Way) -> Entry {
    let writes = match cut {
        Cut::Buffers if way == USER => 1,
        Cut::Buffers => buffers,
        Cut::HeaderPayload | Cut::HeaderSendfile | Cut::Writev | Cut::Single => 1,
    };
    let packets = match (asks, &way, writes) {
        (_, _, 1) => 30_000,
        (Asks::Nodelay, Way::Plain, _) => 1_500,
        (_, _, ..=15) => 15_000,
        _ => 5_000,
    };
    Entry { name, pattern: Pattern { asks, cut, buffers }, way, packets }
}

// Named constants, because each row looks up its two sides by them.
const SINGLE_15: &str = "--single_request, 15 buffers";
const SINGLE_100: &str = "--single_request, 100 buffers";
const USER_15: &str = "--hold user, 15 buffers";
const USER_100: &str = "--hold user, 100 buffers";
const NODELAY_100: &str = "TCP_NODELAY, 100 buffers";
const CORK_100: &str = "the program's TCP_CORK, 100 buffers";
const CORK_HP: &str = "the program's TCP_CORK, header+payload";
const KERNEL_100: &str = "--hold kernel, 100 buffers";
const KERNEL_HP: &str = "--hold kernel, header+payload";
const MORE_100: &str = "the program's MSG_MORE, 100 buffers";
const MORE_HP: &str = "the program's MSG_MORE, header+payload";
const NOTHING_KERNEL_15: &str = "no option, uncork run, 15 buffers";
const NOTHING_HP: &str = "no option, uncork run, header+payload";
const NOTHING_USER_15: &str = "no option, uncork run --hold user, 15 buffers";
const NOTHING_USER_100: &str = "no option, uncork run --hold user, 100 buffers";
const OLD_100: &str = "library of 2007, 100 buffers";
const OLD_HP: &str = "library of 2007, header+payload";

/// Entries whose logical packets must arrive whole: one read each on the server.
const WHOLE: [&str; 8] = [
    USER_15,
    USER_100,
    KERNEL_100,
    KERNEL_HP,
    NOTHING_KERNEL_15,
    NOTHING_HP,
    NOTHING_USER_15,
    NOTHING_USER_100,
];

fn entries(bed: &Bed<'_>) -> Vec<Entry> {
    use Asks::{Cork, More, Nodelay, Nothing};
    use Cut::{Buffers, HeaderPayload, Single};
    let mut entries = vec![
        entry(SINGLE_15, (Nothing, Single, 15), Way::Plain),
        entry(USER_15, (Nodelay, Buffers, 15), USER),
        entry(NOTHING_USER_15, (Nothing, Buffers, 15), USER),
        entry(NOTHING_KERNEL_15, (Nothing, Buffers, 15), Way::Run(&[])),
        entry(SINGLE_100, (Nothing, Single, 100), Way::Plain),
        entry(USER_100, (Nodelay, Buffers, 100), USER),
        entry(NOTHING_USER_100, (Nothing, Buffers, 100), USER),
        entry(NODELAY_100, (Nodelay, Buffers, 100), Way::Plain),
        entry(KERNEL_100, (Nodelay, Buffers, 100), KERNEL),
        entry(CORK_100, (Cork, Buffers, 100), Way::Plain),
        entry(MORE_100, (More, Buffers, 100), Way::Plain),
    ];
    let old = bed.autocork_2007.as_ref().map(|library| Way::Other {
        library: library.clone(),
        // It keeps statistics in $HOME unless told not to, which costs time.
        env: vec![
            ("AUTOCORK_DUMP_INTERVAL".to_owned(), "0".to_owned()),
            ("HOME".to_owned(), bed.scratch.path().display().to_string()),
        ],
    });
    if let Some(old) = &old {
        entries.push(entry(OLD_100, (Nodelay, Buffers, 100), old.clone()));
    }
    entries.push(entry(KERNEL_HP, (Nodelay, HeaderPayload, 100), KERNEL));
    entries.push(entry(NOTHING_HP, (Nothing, HeaderPayload, 100), Way::Run(&[])));
    entries.push(entry(CORK_HP, (Cork, HeaderPayload, 100), Way::Plain));
    entries.push(entry(MORE_HP, (More, HeaderPayload, 100), Way::Plain));
    if let Some(old) = old {
        entries.push(entry(OLD_HP, (Nodelay, HeaderPayload, 100), old));
    }
    entries
}

/// Measures all entries and compares those that the bars name.
pub(crate) fn run(bed: &Bed<'_>, place: Place) -> Result<Vec<Row>> {
    let cores = place.cores()?;
    let few = RefCell::new(Server::start(bed.tools, 15, cores)?);
    let many = RefCell::new(Server::start(bed.tools, 100, cores)?);
    let entries = entries(bed);
    let mut cases: Vec<Case<'_>> = entries
        .iter()
        .map(|entry| {
            let server = if entry.pattern.buffers == 15 { &few } else { &many };
            let packets = bed.amount(entry.packets);
            Case::new(entry.name, move || {
                let mut server = server.borrow_mut();
                let run = server.run(bed.tools, (&entry.pattern, &entry.way), packets)?;
                Ok(vec![run.us_per_packet, run.reads_per_packet])
            })
        })
        .collect();
    let rounds = bed.rounds(if place == Place::OneCore { 21 } else { 7 });
    let samples = interleave(&mut cases, rounds, bed.progress)?;
    let found = Found { entries: &entries, samples, place };
    Ok(rows(&found))
}

/// Samples by name.
struct Found<'a> {
    entries: &'a [Entry],
    samples: Samples,
    place: Place,
}

impl Found<'_> {
    fn get(&self, name: &str, figure: usize) -> Option<&[f64]> {
        let index = self.entries.iter().position(|entry| entry.name == name)?;
        Some(self.samples.get(index, figure))
    }

    fn row(&self, a: &str, compare: Compare, b: &str) -> Option<Row> {
        let verb = if compare == Compare::Faster { "faster than" } else { "against" };
        let sides = (self.get(a, TIME)?, compare, self.get(b, TIME)?);
        let what = (BENCH, format!("{a}; {verb} {b}"));
        Some(Row::compare(what, self.place, Unit::Microseconds, sides))
    }
}

fn rows(found: &Found<'_>) -> Vec<Row> {
    use Bar::{AtLeast, AtMost};
    use Compare::{Faster, Ratio};
    let times = [
        (USER_15, Ratio, SINGLE_15, Some(AtMost(1.25))),
        (USER_100, Ratio, SINGLE_100, Some(AtMost(1.35))),
        (USER_100, Faster, NODELAY_100, Some(AtLeast(15.0))),
        (KERNEL_100, Ratio, CORK_100, Some(AtMost(1.05))),
        (KERNEL_HP, Ratio, CORK_HP, Some(AtMost(0.95))),
        // A program that makes one system call a write cannot do better than this: the floor.
        (MORE_100, Ratio, CORK_100, None),
        (MORE_HP, Ratio, CORK_HP, None),
        (KERNEL_HP, Ratio, MORE_HP, None),
        (KERNEL_100, Ratio, OLD_100, Some(AtMost(1.0))),
        (KERNEL_HP, Ratio, OLD_HP, Some(AtMost(0.9))),
        (NOTHING_USER_15, Ratio, SINGLE_15, Some(AtMost(1.35))),
        (NOTHING_USER_100, Ratio, SINGLE_100, Some(AtMost(1.35))),
        (NOTHING_HP, Ratio, SINGLE_100, Some(AtMost(1.35))),
        // One system call a write, by construction, as with the program's own TCP_CORK: this bar is
        // missed by the default, and met by --hold user.
        (NOTHING_KERNEL_15, Ratio, SINGLE_15, Some(AtMost(1.35))),
    ];
    let times = times.into_iter().filter_map(|(a, compare, b, bar)| {
        let row = found.row(a, compare, b)?;
        Some(match bar {
            Some(bar) => row.bar_on_one_core(bar),
            None => row,
        })
    });
    let counts = WHOLE.into_iter().filter_map(|name| {
        let what = (BENCH, format!("server's buffers a packet: {name}"));
        let row = Row::absolute(what, found.place, Unit::PerPacket, found.get(name, BUFFERS)?);
        Some(row.bar_on_one_core(Bar::Exactly(1.0)))
    });
    times.chain(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_neither_too_short_nor_too_long() {
        let packets = |shape, way| entry("x", shape, way).packets;
        assert_eq!(packets((Asks::Nodelay, Cut::Buffers, 100), Way::Plain), 1_500);
        assert_eq!(packets((Asks::Nodelay, Cut::Buffers, 100), USER), 30_000);
        assert_eq!(packets((Asks::Nodelay, Cut::Buffers, 100), KERNEL), 5_000);
        assert_eq!(packets((Asks::Nothing, Cut::Buffers, 15), Way::Run(&[])), 15_000);
        assert_eq!(packets((Asks::Nothing, Cut::Single, 15), Way::Plain), 30_000);
    }
}
