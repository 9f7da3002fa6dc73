//! One connection, as seen by its sockets: one of them, or both if both are on this host.

use std::collections::VecDeque;
use std::time::Duration;

use uncork_wire::Endpoint;

use super::sums::Sum;
use super::{AckTimer, Event, Held, Lost, Origin, Release, Socket, Why};
use crate::report::{Example, Process, Role, Seen, What};

/// An ACK that the delayed-ACK timer sends is late by at least this: TCP_DELACK_MIN is 40 ms.
pub(super) const LATE: Duration = Duration::from_millis(20);
/// An ACK and what it released may be reported in either order, and are this close to each other
/// unless the path between them is long.
const CLOSE: Duration = Duration::from_millis(2);
/// How many of each wait for their counterpart.
const RECENT: usize = 8;
/// How many different stacks are remembered.
const STACKS: usize = 8;

/// What was traced of one connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [Endpoint; 2],
    pub(super) sides: [Side; 2],
    first: Duration,
    last: Duration,
}

/// What was traced of one end.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) socket: Option<Socket>,
    pub(super) process: Option<Process>,
    /// Whether TCP_NODELAY was in force, where the socket was polled from outside.
    pub(super) nodelay: Option<bool>,
    /// Holds that wait for the ACK that released them, and ACKs that wait for what they released.
    holds: VecDeque<(Held, Option<AckTimer>)>,
    acks: VecDeque<(AckTimer, bool)>,
    pub(super) nagle_late: Sum,
    pub(super) nagle_round_trip: Sum,
    pub(super) runts: Sum,
    /// Corked bytes, released by the kernel's timer, or by a late ACK.
    pub(super) corks: Sum,
    pub(super) window: Sum,
    /// Segments that a congestion window of one held until a late ACK.
    pub(super) lone: Sum,
    pub(super) again: Sum,
    pub(super) timeouts: u64,
    /// Until when time lost by retransmissions has been counted.
    again_until: Duration,
    /// ACKs that this end sent late, and that released nothing.
    pub(super) idle_acks: Sum,
    /// All ACKs that it sent late.
    pub(super) late_acks: Sum,
    /// The first of the late ACKs.
    pub(super) first_late: Option<AckTimer>,
    /// How often Nagle's algorithm held although TCP_NODELAY had been asked for, or was set then.
    pub(super) cured_late: u64,
    /// Stacks of the writes that were held, with how often each was held.
    pub(super) stacks: Vec<(Vec<String>, u64)>,
    mss: u32,
}

impl Link {
    pub(super) fn new(ends: [Endpoint; 2], at: Duration) -> Self {
        Self { ends, sides: Default::default(), first: at, last: at }
    }

    fn index(&self, end: Endpoint) -> usize {
        usize::from(end != self.ends[0])
    }

    /// Returns since when and until when the connection was seen.
    pub(super) fn span(&self) -> (Duration, Duration) {
        (self.first, self.last)
    }

    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Held(held) => self.held(held),
            Event::AckTimer(timer) => self.ack_timer(timer),
            Event::Lost(lost) => self.lost(&lost),
            Event::Socket(socket) => {
                let at = self.index(socket.ends.local);
                self.first = self.first.min(socket.since);
                self.last = self.last.max(socket.until);
                self.sides[at].socket = Some(*socket);
            }
        }
    }

    /// Returns whether this end's socket has already been reported: later events are of another connection.
    pub(super) fn is_told(&self, end: Endpoint) -> bool {
        self.sides[self.index(end)].socket.is_some()
    }

    pub(super) fn process(&mut self, end: Endpoint, process: Process) {
        let at = self.index(end);
        self.sides[at].process = Some(process);
    }

    pub(super) fn nodelay(&mut self, end: Endpoint, on: bool) {
        let at = self.index(end);
        self.sides[at].nodelay = Some(on);
    }

    /// Returns which end is the client, if the sockets know.
    pub(super) fn client(&self) -> Option<usize> {
        (0..2).find_map(|at| match self.sides[at].socket.as_ref()?.origin {
            Origin::Opened => Some(at),
            Origin::Accepted => Some(1 - at),
            Origin::Found | Origin::Peer => None,
        })
    }

    fn held(&mut self, held: Held) {
        let at = self.index(held.ends.local);
        self.last = self.last.max(held.end);
        self.first = self.first.min(held.message_begin);
        let ack = self.sides[1 - at].acks.iter_mut().find(|(ack, _)| released(ack, &held));
        let ack = ack.map(|(ack, used)| {
            *used = true;
            ack.clone()
        });
        let side = &mut self.sides[at];
        side.mss = held.mss;
        // What was in flight had been lost: that is what took so long.
        if held.why == Why::LoneSegment && side.again_until > held.begin {
            return;
        }
        if side.socket.is_none() && side.process.is_none() && held.writer.pid != 0 {
            side.process = Some(Process {
                pid: held.writer.pid,
                tid: Some(held.writer.tid),
                name: held.writer.name.clone(),
                ..Process::default()
            });
        }
        side.holds.push_back((held, ack));
        while self.sides[at].holds.len() > RECENT {
            self.count_oldest_hold(at);
        }
    }

    fn ack_timer(&mut self, timer: AckTimer) {
        let at = self.index(timer.ends.local);
        self.last = self.last.max(timer.at);
        let other = &mut self.sides[1 - at];
        let waiting =
            other.holds.iter_mut().find(|(held, ack)| ack.is_none() && released(&timer, held));
        let used = waiting.map(|(_, ack)| *ack = Some(timer.clone())).is_some();
        let side = &mut self.sides[at];
        side.first_late.get_or_insert_with(|| timer.clone());
        side.acks.push_back((timer, used));
        while self.sides[at].acks.len() > RECENT {
            self.count_oldest_ack(at);
        }
    }

    fn lost(&mut self, lost: &Lost) {
        let at = self.index(lost.ends.local);
        self.last = self.last.max(lost.at);
        let begin = lost.at.saturating_sub(lost.waited);
        self.first = self.first.min(begin);
        let side = &mut self.sides[at];
        // What was lost together is waited for together.
        let from = begin.max(side.again_until);
        let waited = lost.at.saturating_sub(from);
        side.again_until = side.again_until.max(lost.at);
        if !lost.window_shut {
            side.timeouts += u64::from(lost.timeout);
        }
        let sum = if lost.window_shut { &mut side.window } else { &mut side.again };
        sum.record(waited, || {
            let seen = |time: Duration, what| Told {
                at: time,
                by: at,
                what,
                bytes: lost.bytes,
                offset: 0,
            };
            example((begin, lost.at), &[seen(begin, What::Data), seen(lost.at, What::Again)])
        });
    }

    /// Settles holds and ACKs that still wait for a counterpart: nothing more will come.
    pub(super) fn settle(&mut self) {
        for at in 0..2 {
            while !self.sides[at].holds.is_empty() {
                self.count_oldest_hold(at);
            }
        }
        for at in 0..2 {
            while !self.sides[at].acks.is_empty() {
                self.count_oldest_ack(at);
            }
        }
    }

    fn count_oldest_ack(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let Some((ack, used)) = side.acks.pop_front() else { return };
        if ack.held < LATE {
            return;
        }
        let picture = || {
            let begin = ack.at.saturating_sub(ack.held);
            let offset = low(ack.offset);
            let bytes = ack.bytes;
            let seen = |time, by, what| Told { at: time, by, what, bytes, offset };
            let events = [
                seen(begin, 1 - at, What::Data),
                seen(ack.at, at, What::AckTimer),
                seen(ack.at, at, What::Ack),
            ];
            example((begin, ack.at), &events)
        };
        side.late_acks.record(ack.held, picture);
        if !used {
            side.idle_acks.record(ack.held, picture);
        }
    }

    fn count_oldest_hold(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let Some((held, ack)) = side.holds.pop_front() else { return };
        let took = held.end.saturating_sub(held.begin);
        let late = ack.is_some() || took >= held.min_rtt + LATE;
        let picture = || picture(at, &held, ack.as_ref());
        let sum = match (held.why, held.release) {
            // A program that has more to write releases the bytes when it does.
            (Why::Nagle | Why::Cork | Why::More, Release::Write) => return,
            // Nothing waits for the last bytes before an end.
            (_, Release::End) => return,
            (Why::Nagle, Release::Option) => {
                side.cured_late += 1;
                &mut side.nagle_late
            }
            (Why::Nagle, _) if held.before_bytes >= held.mss.max(1) => &mut side.runts,
            (Why::Nagle, _) if late => &mut side.nagle_late,
            (Why::Nagle, _) => &mut side.nagle_round_trip,
            (Why::Cork | Why::More, Release::Timer) => &mut side.corks,
            (Why::More, Release::Ack) if late => &mut side.corks,
            // The program cleared its cork when it saw fit.
            (Why::Cork | Why::More, _) => return,
            (Why::WindowShut, _) => &mut side.window,
            (Why::LoneSegment, Release::Ack) if late => &mut side.lone,
            // A window of one segment takes a round trip for each in any case, and later grows.
            (Why::LoneSegment, _) => return,
        };
        // A congestion window of one would have taken the path's time in any case.
        let path = if held.why == Why::LoneSegment { held.min_rtt } else { Duration::ZERO };
        sum.record(took.saturating_sub(path), picture);
        if !held.stack.is_empty() {
            remember(&mut side.stacks, held.stack);
        }
    }
}

impl Side {
    /// Returns the largest segment that it may send, in octets, if known.
    pub(super) fn mss(&self) -> Option<u32> {
        let told = self.socket.as_ref().map_or(self.mss, |socket| socket.mss);
        (told > 0).then_some(told)
    }
}

fn remember(stacks: &mut Vec<(Vec<String>, u64)>, stack: Vec<String>) {
    if let Some((_, times)) = stacks.iter_mut().find(|(known, _)| *known == stack) {
        *times += 1;
    } else if stacks.len() < STACKS {
        stacks.push((stack, 1));
    }
}

/// Returns whether this ACK is the one that these bytes waited for.
fn released(ack: &AckTimer, held: &Held) -> bool {
    held.release == Release::Ack
        && ack.at >= held.begin
        && ack.at <= held.end + CLOSE
        && held.end <= ack.at + held.min_rtt + CLOSE
}

/// One event in a picture, by the number of its end.
struct Told {
    at: Duration,
    by: usize,
    what: What,
    bytes: u32,
    offset: u32,
}

/// Returns the picture of a hold: the first write, the one that waits, the ACK, the bytes.
fn picture(at: usize, held: &Held, ack: Option<&AckTimer>) -> Example {
    let offset = low(held.offset);
    let mine = |time, what, bytes, offset| Told { at: time, by: at, what, bytes, offset };
    let mut told = Vec::new();
    if held.before_bytes > 0 {
        let before = offset.wrapping_sub(held.before_bytes);
        told.push(mine(held.message_begin, What::Write, held.before_bytes, before));
        if held.outstanding_bytes > 0 {
            told.push(mine(held.message_begin, What::Data, held.before_bytes, before));
        }
    }
    told.push(mine(held.begin, What::Write, held.bytes, offset));
    if let Some(ack) = ack {
        let yours = |what| Told {
            at: ack.at.min(held.end),
            by: 1 - at,
            what,
            bytes: 0,
            offset: low(ack.offset),
        };
        told.extend([yours(What::AckTimer), yours(What::Ack)]);
    } else if held.release == Release::Ack {
        told.push(Told { at: held.end, by: 1 - at, what: What::Ack, bytes: 0, offset });
    }
    told.push(mine(held.end, What::Data, held.bytes, offset));
    example((held.begin, held.end), &told)
}

/// Returns an example whose roles and time origin are filled in when the whole connection is known.
fn example(span: (Duration, Duration), told: &[Told]) -> Example {
    let events = told.iter().map(|told| Seen {
        at: told.at,
        by: PLACE[told.by],
        what: told.what,
        bytes: told.bytes,
        offset: told.offset,
    });
    Example { begin: span.0, end: span.1, events: events.collect() }
}

/// Roles that stand for the numbers of the ends until their roles are known: 0 and 1 in this order.
const PLACE: [Role; 2] = [Role::Client, Role::Server];

/// Fills in the roles, and counts the times from the connection's first moment.
pub(super) fn finished(mut example: Example, first: Duration, client: usize) -> Example {
    example.begin = example.begin.saturating_sub(first);
    example.end = example.end.saturating_sub(first);
    for seen in &mut example.events {
        seen.at = seen.at.saturating_sub(first);
        seen.by = super::role(usize::from(seen.by != PLACE[0]), client);
    }
    example
}

#[allow(clippy::cast_possible_truncation)] // sequence numbers wrap as well
fn low(offset: u64) -> u32 {
    offset as u32
}
