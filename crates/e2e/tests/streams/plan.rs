//! Random plans, and their lowering to scripts that cannot deadlock by themselves.
//!
//! A plan is a list of steps in one global order. Its lowering keeps account of the bytes in flight
//! on each stream, so that a read waits only for bytes that an earlier step wrote, a write never
//! fills the buffers, and no end closes with bytes unread (a reset would drop bytes, and rightly).

use std::fmt::{self, Write as _};

use proptest::prelude::*;
use uncork_e2e::Mode;
use uncork_posix::config::Hold;

/// The most bytes in flight in one direction: less than the smallest buffers hold.
const UNDER_WAY: u32 = 24_000;

/// A step of one end.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// Writes this many bytes, in one of the actor's ways.
    Write { connection: u8, bytes: u32, way: u8 },
    /// Reads a part (of 255) of the bytes in flight.
    Read { connection: u8, part: u8, way: u8 },
    /// Sleeps, polls or spins.
    Wait { micros: u32, way: u8 },
    /// Continues on another descriptor.
    Copy { connection: u8, way: u8 },
    /// Sets an option that must not change the bytes.
    Option { connection: u8, on: bool, way: u8 },
    /// Shuts down its own direction.
    Shutdown { connection: u8 },
    /// Does some steps in a child.
    Fork { deeds: Vec<Deed>, way: u8 },
}

/// A random test case.
#[derive(Clone)]
pub(crate) struct Plan {
    connections: u8,
    deeds: Vec<(bool, Deed)>,
    /// For each end: whether it closes by shutdown, by close or by its death; and how it dies.
    ends: [(u8, u8); 2],
    choice: u8,
}

/// The two scripts of a case.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// The script of the end that accepts.
    pub listening: String,
    /// The script of the end that connects.
    pub connecting: String,
}

impl fmt::Display for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "actor listen:\n{}actor connect:\n{}", self.listening, self.connecting)
    }
}

/// Prints what repeats the case: its settings and scripts.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.settings(Mode::held(Hold::User)), self.lower())
    }
}

/// Generates all plans.
pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    let deeds = prop::collection::vec((any::<bool>(), deed()), 1..40);
    (1u8..4, deeds, any::<[(u8, u8); 2]>(), any::<u8>())
        .prop_map(|(connections, deeds, ends, choice)| Plan { connections, deeds, ends, choice })
}

fn deed() -> impl Strategy<Value = Deed> {
    let fork = (prop::collection::vec(simple(), 0..4), any::<u8>());
    prop_oneof![
        12 => simple(),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(connection, way)| Deed::Copy { connection, way }),
        1 => (any::<u8>(), any::<bool>(), any::<u8>())
            .prop_map(|(connection, on, way)| Deed::Option { connection, on, way }),
        1 => any::<u8>().prop_map(|connection| Deed::Shutdown { connection }),
        2 => fork.prop_map(|(deeds, way)| Deed::Fork { deeds, way }),
    ]
}

/// Generates writes that are mostly small; some fill a segment, and some many.
fn simple() -> impl Strategy<Value = Deed> {
    let bytes = prop_oneof![6 => 1u32..40, 2 => 40u32..1600, 1 => 1600u32..20_000];
    prop_oneof![
        6 => (any::<u8>(), bytes, any::<u8>())
            .prop_map(|(connection, bytes, way)| Deed::Write { connection, bytes, way }),
        4 => (any::<u8>(), any::<u8>(), any::<u8>())
            .prop_map(|(connection, part, way)| Deed::Read { connection, part, way }),
        1 => (0u32..3000, any::<u8>()).prop_map(|(micros, way)| Deed::Wait { micros, way }),
    ]
}

impl Plan {
    /// Returns the mode with the other settings of this case.
    pub(crate) fn settings(&self, mode: Mode) -> Mode {
        let choice = usize::from(self.choice);
        mode.with("UNCORK_SPIN", ["off", "auto", "200us"][choice % 3])
            .with("UNCORK_BOUND", ["1ms", "100us", "20ms"][choice / 3 % 3])
            .with("UNCORK_SCOPE", ["all", "all", "nodelay"][choice / 9 % 3])
    }

    /// Picks one of two modes.
    pub(crate) fn pick<'a>(&self, one: &'a Mode, other: &'a Mode) -> &'a Mode {
        if (self.choice / 27).is_multiple_of(2) { one } else { other }
    }

    /// Returns the scripts of the two ends.
    pub(crate) fn lower(&self) -> Scripts {
        let count = usize::from(self.connections);
        let mut lowering = Lowering {
            streams: [vec![Stream::default(); count], vec![Stream::default(); count]],
            lines: [String::new(), String::new()],
        };
        for (side, deed) in &self.deeds {
            lowering.deed(usize::from(*side), deed);
        }
        let last: Vec<_> = (0..count)
            .filter_map(|connection| lowering.finish(connection, [self.ends[0].0, self.ends[1].0]))
            .collect();
        // Only here: the death of an end comes after all that it does on other connections.
        for (side, numbers) in last {
            lowering.line(side, 'R', numbers);
        }
        let script =
            |side: usize| format!("{count} {}\n{}", self.ends[side].1 % 4, lowering.lines[side]);
        Scripts { listening: script(0), connecting: script(1) }
    }
}

/// One direction of one connection.
#[derive(Clone, Default)]
struct Stream {
    written: u32,
    read: u32,
    shut: bool,
}

/// The state of a lowering: `streams[side][connection]` is what `side` writes.
struct Lowering {
    streams: [Vec<Stream>; 2],
    lines: [String; 2],
}

impl Lowering {
    fn line(&mut self, side: usize, what: char, numbers: [i64; 4]) {
        let [connection, offset, length, way] = numbers;
        // Writing to a String cannot fail.
        let _ = writeln!(self.lines[side], "{what} {connection} {offset} {length} {way}");
    }

    fn deed(&mut self, side: usize, deed: &Deed) {
        let count = self.streams[side].len();
        let index = |connection: u8| usize::from(connection) % count;
        let number = |connection: u8| index(connection) as i64;
        match deed {
            Deed::Write { connection, bytes, way } => {
                self.write(side, index(*connection), *bytes, *way);
            }
            Deed::Read { connection, part, way } => {
                self.read(side, index(*connection), *part, *way);
            }
            Deed::Wait { micros, way } => {
                self.line(side, 'Z', [0, 0, i64::from(*micros), i64::from(*way)]);
            }
            Deed::Copy { connection, way } => {
                self.line(side, 'D', [number(*connection), 0, 0, i64::from(*way)]);
            }
            Deed::Option { connection, on, way } => {
                self.line(side, 'O', [number(*connection), 0, i64::from(*on), i64::from(*way)]);
            }
            Deed::Shutdown { connection } => self.shut(side, index(*connection)),
            Deed::Fork { deeds, way } => self.fork(side, deeds, *way),
        }
    }

    fn write(&mut self, side: usize, connection: usize, bytes: u32, way: u8) {
        let stream = &mut self.streams[side][connection];
        if stream.shut {
            return;
        }
        // Each piece of the way "in pieces" costs a buffer of its own.
        let bytes = if way % 15 == 8 { bytes.min(60) } else { bytes };
        if stream.written - stream.read + bytes > UNDER_WAY {
            return;
        }
        let offset = stream.written;
        stream.written += bytes;
        let numbers = [connection as i64, i64::from(offset), i64::from(bytes), i64::from(way)];
        self.line(side, 'W', numbers);
    }

    fn read(&mut self, side: usize, connection: usize, part: u8, way: u8) {
        let stream = &mut self.streams[1 - side][connection];
        let under_way = stream.written - stream.read;
        let bytes = (under_way * (u32::from(part) + 1)).div_ceil(256);
        if bytes == 0 {
            return;
        }
        let offset = stream.read;
        stream.read += bytes;
        let numbers = [connection as i64, i64::from(offset), i64::from(bytes), i64::from(way)];
        self.line(side, 'R', numbers);
    }

    fn shut(&mut self, side: usize, connection: usize) {
        let stream = &mut self.streams[side][connection];
        if !stream.shut {
            stream.shut = true;
            self.line(side, 'S', [connection as i64, 0, 0, 0]);
        }
    }

    fn fork(&mut self, side: usize, deeds: &[Deed], way: u8) {
        let before = std::mem::take(&mut self.lines[side]);
        for deed in deeds {
            self.deed(side, deed);
        }
        let inner = std::mem::replace(&mut self.lines[side], before);
        let steps = inner.lines().count() as i64;
        self.line(side, 'F', [0, 0, steps, i64::from(way)]);
        self.lines[side] += &inner;
    }

    /// Ends a connection: both ends read all, and one may close without a shutdown once nothing is
    /// in flight to it. Returns the last read of an end that waits for the other's death.
    fn finish(&mut self, connection: usize, manners: [u8; 2]) -> Option<(usize, [i64; 4])> {
        let first = usize::from(manners[0] & 1);
        let second = 1 - first;
        self.read(first, connection, 255, manners[1]);
        self.shut(second, connection);
        let number = connection as i64;
        let came = |stream: &Stream| i64::from(stream.read);
        // The first end reads to the end before it closes, so that its close resets nothing.
        let offset = came(&self.streams[second][connection]);
        self.line(first, 'R', [number, offset, -1, i64::from(manners[0] >> 2)]);
        let offset = came(&self.streams[first][connection]);
        let last_read = [number, offset, -1, i64::from(manners[1] >> 2)];
        match manners[first] % 3 {
            0 => self.shut(first, connection),
            1 => self.line(first, 'C', [number, 0, 0, 0]),
            _ => return Some((second, last_read)),
        }
        self.line(second, 'R', last_read);
        self.line(second, 'C', [number, 0, 0, 0]);
        None
    }
}
