//! Stalls, counted by cause.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ticks::Ticks;
use crate::{Example, Histogram, Role, Seen, What};

/// Events around a stall that are kept for its picture.
const AROUND: usize = 10;
/// Examples of each cause that are kept for a connection.
const EXAMPLES: usize = 2;

/// Why data came late, finer than what is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A small segment, held until a late ACK.
    NagleLateAck,
    /// A small segment, held until an ACK that took no longer than the path.
    NagleRoundTrip,
    /// A small segment after full ones, held until a late ACK.
    RuntLateAck,
    /// A small segment after full ones, held until an ACK that took no longer than the path.
    RuntRoundTrip,
    /// A small segment that came some milliseconds after a late ACK: held by it on a busy host, or
    /// written only then.
    NearLateAck,
    /// Data that Nagle's algorithm cannot have held, released by a late ACK.
    LateAck,
    /// A late ACK, whether or not it held any data.
    LateAckSeen,
    /// A small segment that was sent with MSG_MORE, held until a late ACK.
    MoreLateAck,
    /// A small segment that was sent with MSG_MORE, held until an ACK that took no longer than the
    /// path.
    MoreRoundTrip,
    /// A tail after full segments, which left at the ceiling of a cork.
    Cork,
    /// A message after a time like a cork's ceiling, or its program took that long.
    CorkOrProgram,
    /// The window was shut, or had no room for the segment.
    Window,
    /// The other end's program had yet to read what was in its buffer, which had been full.
    Unread,
    /// Data was retransmitted.
    Again,
    /// The SYN was retransmitted.
    SynAgain,
    /// The congestion window, reduced after a loss, made the rest wait for an ACK.
    ReducedWindow,
    /// The program took its time.
    Program,
    /// Another pause in the middle of a reply; it is not counted.
    Event,
}

/// One stall.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stall {
    /// The cause.
    pub(crate) cause: Cause,
    /// Since when the data could have been on its way.
    pub(crate) since: Duration,
    /// When it was on its way.
    pub(crate) until: Duration,
    /// How much of that time was lost.
    pub(crate) lost: Duration,
}

/// All stalls of one cause in one direction.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// The cause.
    pub(crate) cause: Cause,
    /// Index of the direction whose data it was.
    pub(crate) by: usize,
    /// Number of stalls.
    pub(crate) count: u64,
    /// Time that they cost.
    pub(crate) lost: Duration,
    /// How long each stall took.
    pub(crate) each: Histogram,
    /// Whether those that look like a timer's ended with the ticks of a clock.
    pub(crate) ticks: Ticks,
    /// The worst of them.
    pub(crate) examples: Vec<Example>,
}

/// The tallies of one connection: few causes ever meet in one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tallies {
    list: Vec<Tally>,
}

impl Tallies {
    /// Counts a stall of that direction. `recent` is what was seen, for its picture.
    pub(crate) fn record(&mut self, by: usize, stall: &Stall, epoch: Duration, recent: &Recent) {
        let tally = self.entry(stall.cause, by);
        let length = stall.until.saturating_sub(stall.since);
        tally.count += 1;
        tally.lost += stall.lost;
        tally.each.record(length);
        if matches!(stall.cause, Cause::Cork | Cause::CorkOrProgram) {
            tally.ticks.record(stall.since, stall.until);
        }
        let begin = stall.since.saturating_sub(epoch);
        let end = stall.until.saturating_sub(epoch);
        let examples = &mut tally.examples;
        let least = examples.last().map_or(Duration::ZERO, |e| e.end - e.begin);
        if examples.len() < EXAMPLES || length > least {
            examples.truncate(EXAMPLES - 1);
            examples.reserve_exact(1);
            let mut events = recent.since(begin);
            if stall.cause == Cause::Again {
                add_first_sending(&mut events, begin, end);
            }
            examples.push(Example { begin, end: end.max(begin), events });
            examples.sort_by_key(|e| std::cmp::Reverse(e.end - e.begin));
        }
    }

    fn entry(&mut self, cause: Cause, by: usize) -> &mut Tally {
        let known = self.list.iter().position(|t| t.cause == cause && t.by == by);
        let place = known.unwrap_or_else(|| {
            self.list.reserve_exact(1);
            self.list.push(Tally {
                cause,
                by,
                count: 0,
                lost: Duration::ZERO,
                each: Histogram::default(),
                ticks: Ticks::default(),
                examples: Vec::new(),
            });
            self.list.len() - 1
        });
        &mut self.list[place]
    }

    /// Returns the stalls of that cause and direction.
    pub(crate) fn get(&self, cause: Cause, by: usize) -> Option<&Tally> {
        self.list.iter().find(|t| t.cause == cause && t.by == by)
    }

    /// Returns how many stalls there are of that cause and direction.
    pub(crate) fn count(&self, cause: Cause, by: usize) -> u64 {
        self.get(cause, by).map_or(0, |tally| tally.count)
    }
}

/// A compact [`Seen`]: every connection keeps some.
#[derive(Debug, Clone, Copy)]
struct Glimpse {
    /// Nanoseconds, lower half first: a single `u64` would cost four octets of padding.
    at_ns: [u32; 2],
    bytes: u32,
    offset: u32,
    by: Role,
    what: What,
}

impl Glimpse {
    fn at(self) -> Duration {
        let [low, high] = self.at_ns.map(u64::from);
        Duration::from_nanos(high << 32 | low)
    }

    fn seen(self) -> Seen {
        let Self { bytes, offset, by, what, .. } = self;
        Seen { at: self.at(), by, what, bytes, offset }
    }
}

/// The events seen last, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent {
    seen: VecDeque<Glimpse>,
}

impl Recent {
    /// Adds an event, and forgets the oldest.
    pub(crate) fn push(&mut self, seen: Seen) {
        match self.seen.len() {
            0 => self.seen.reserve_exact(AROUND),
            AROUND => _ = self.seen.pop_front(),
            _ => {}
        }
        let Seen { at, by, what, bytes, offset } = seen;
        let at_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        #[allow(clippy::cast_possible_truncation)] // each half is 32 bits
        let at_ns = [at_ns as u32, (at_ns >> 32) as u32];
        self.seen.push_back(Glimpse { at_ns, bytes, offset, by, what });
    }

    /// Returns what was seen from shortly before `begin` on.
    fn since(&self, begin: Duration) -> Vec<Seen> {
        const BEFORE: usize = 3;
        let first = self.seen.iter().position(|seen| seen.at() >= begin);
        let skip = first.unwrap_or(0).saturating_sub(BEFORE);
        self.seen.iter().skip(skip).map(|glimpse| glimpse.seen()).collect()
    }
}

/// Adds the first sending of what was retransmitted by `end`, made when its stall began: often too
/// long ago to be among the events seen last.
fn add_first_sending(events: &mut Vec<Seen>, begin: Duration, end: Duration) {
    let again = |seen: &&Seen| seen.what == What::Again && seen.at <= end && seen.at > begin;
    let Some(again) = events.iter().rfind(again) else { return };
    // A stall that began when something else was retransmitted, or whose beginning is there.
    let is_there = |seen: &Seen| {
        seen.at == begin
            || (seen.what == What::Data && (seen.offset, seen.by) == (again.offset, again.by))
    };
    if !events.iter().any(is_there) {
        let first = Seen { at: begin, what: What::Data, ..again.clone() };
        let place = events.iter().take_while(|seen| seen.at < begin).count();
        events.insert(place, first);
    }
}

/// Returns the role of an end, given which end is the client.
pub(crate) fn role(end: usize, client: usize) -> Role {
    if end == client { Role::Client } else { Role::Server }
}
