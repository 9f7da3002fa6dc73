//! One connection, and what each of its segments tells.

use std::time::Duration;

use uncork_wire::tcp::Flags;
use uncork_wire::{Endpoint, Segment};

use crate::clock;
use crate::direction::{Acked, Direction};
use crate::exchange::Exchanges;
use crate::flight::Sent;
use crate::stall::{self, WHILE};
use crate::tally::{Cause, Recent, Stall, Tallies, role};
use crate::{Role, Seen, Settings, What};

/// An ACK held longer than this is late: half of the least that Linux delays one (TCP_DELACK_MIN
/// is 40 ms), and more than any network's jitter that is not its own trouble.
pub(crate) const LATE: Duration = Duration::from_millis(20);
/// More segments than this in flight, and a queue or the congestion window may be what made the
/// next ACK late or held the next segment back.
const FEW_SEGMENTS: usize = 3;
/// Octets in flight from which on the path's own queue shows.
const LOADED_BYTES: u32 = 32 * 1024;
/// The same segment seen again this soon was captured twice (`-i any`), not sent twice.
const CAPTURED_TWICE: Duration = Duration::from_millis(1);

mod again;
mod handshake;
mod window;

/// A connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// Its ends; a direction has its sender's index.
    pub(crate) ends: [Endpoint; 2],
    /// Its directions.
    pub(crate) directions: [Direction; 2],
    /// Which end sent the SYN.
    opener: Option<usize>,
    /// When the last SYN was sent that still waits for its answer, and whether it was a retransmission.
    syn_at: Option<Duration>,
    syn_again: bool,
    syn_ack_at: Option<Duration>,
    pub(crate) first_seen: Duration,
    pub(crate) last_seen: Duration,
    pub(crate) exchanges: Exchanges,
    pub(crate) tallies: Tallies,
    recent: Recent,
    /// When the capture was last seen to lack records: what was late before that may have been late
    /// for reasons that were not seen.
    blind_at: Duration,
    /// The moment up to which time has been counted as lost, so that none is counted twice.
    lost_until: Duration,
    /// The first pause of the reply under way, and what was seen around it.
    paused: Option<Box<(usize, Stall, Recent)>>,
    /// Where data is missing.
    hole: Option<Box<again::Hole>>,
}

impl Connection {
    pub(crate) fn new(ends: [Endpoint; 2], at: Duration) -> Self {
        Self {
            ends,
            directions: [Direction::default(), Direction::default()],
            opener: None,
            syn_at: None,
            syn_again: false,
            syn_ack_at: None,
            first_seen: at,
            last_seen: at,
            exchanges: Exchanges::default(),
            tallies: Tallies::default(),
            recent: Recent::default(),
            blind_at: Duration::ZERO,
            lost_until: Duration::ZERO,
            paused: None,
            hole: None,
        }
    }

    /// Returns the index of the end that opened it; of the one with the higher port if none was seen to.
    pub(crate) fn client(&self) -> usize {
        self.opener.unwrap_or_else(|| usize::from(self.ends[1].port > self.ends[0].port))
    }

    /// Returns whether its beginning was seen.
    pub(crate) fn handshake_seen(&self) -> bool {
        self.opener.is_some()
    }

    /// Returns the shortest round-trip time, client to server and back.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        let [one, other] = &self.directions;
        Some(one.reaction_least? + other.reaction_least?)
    }

    /// Returns whether a SYN begins another connection between the same two ends.
    pub(crate) fn begins_anew(&self, segment: &Segment, from: usize) -> bool {
        let direction = &self.directions[from];
        let other_isn = direction.first.is_some_and(|first| first != segment.seq + 1);
        let syn = segment.flags.has(Flags::SYN);
        syn && other_isn && (segment.ack.is_none() || direction.ended)
    }

    /// Returns whether nothing more can come: both ends have sent all, and it has arrived.
    pub(crate) fn is_over(&self) -> bool {
        let arrived = |direction: &Direction| {
            direction.ended && direction.una.is_some_and(|una| !una.before(direction.nxt))
        };
        self.directions.iter().all(arrived)
    }

    /// Takes in a segment from the end with that index.
    pub(crate) fn segment(
        &mut self,
        at: Duration,
        segment: &Segment,
        from: usize,
        settings: &Settings,
    ) {
        self.last_seen = self.last_seen.max(at);
        if self.captured_twice(at, segment, from) {
            return;
        }
        self.directions[from].begin(segment);
        self.handshake(at, segment, from);
        self.window(at, segment, from);
        self.acknowledgment(at, segment, from);
        if segment.payload_bytes > 0 {
            self.data(at, segment, from, settings);
        } else {
            self.control(at, segment, from);
        }
        let direction = &mut self.directions[from];
        direction.ended |= segment.flags.has(Flags::FIN) || segment.flags.has(Flags::RST);
    }

    fn captured_twice(&self, at: Duration, segment: &Segment, from: usize) -> bool {
        let direction = &self.directions[from];
        let soon = |last| at.saturating_sub(last) <= CAPTURED_TWICE;
        segment.payload_bytes > 0
            && segment.seq + segment.payload_bytes == direction.nxt
            && direction.last_data.is_some_and(soon)
            && segment.timestamps.map(|(value, _)| value) == direction.last_timestamp
    }

    /// Takes in what the segment acknowledges of the other end's data.
    fn acknowledgment(&mut self, at: Duration, segment: &Segment, from: usize) {
        let Some(ack) = segment.ack.filter(|_| !segment.flags.has(Flags::RST)) else {
            return;
        };
        let to = 1 - from;
        let sender = &mut self.directions[to];
        if sender.first.is_none() {
            sender.first = Some(ack);
            sender.nxt = ack;
        }
        if !ack.after(*sender.una.get_or_insert(ack - 1)) {
            if segment.payload_bytes == 0 && sender.una == Some(ack) {
                sender.duplicate(at);
            }
            return;
        }
        let few = sender.flight.len() <= FEW_SEGMENTS;
        let small_in_flight = sender.flight.has_small();
        let newest = sender.flight.acknowledge(ack);
        let again = sender.again.take();
        sender.una = Some(ack);
        let unseen = ack.after(sender.nxt);
        if let Some(again) = again.filter(|again| !again::was_needless(again, segment)) {
            self.had_to(to, &again);
        }
        if unseen && self.directions[to].data_segments > 0 {
            self.blind_at = at;
        }
        let sender = &mut self.directions[to];
        let Some(sent) = newest.filter(|sent| !sent.again && !unseen) else {
            return;
        };
        let delay = at.saturating_sub(sent.at);
        if sent.flight_bytes >= LOADED_BYTES {
            sender.loaded.get_or_insert_default().record(delay);
        }
        let receiver = &mut self.directions[from];
        receiver.reacted(delay);
        let least = receiver.reaction_least.unwrap_or_default();
        let held = delay.saturating_sub(least);
        let pure = segment.payload_bytes == 0;
        let late = held >= LATE && few;
        if pure {
            receiver.ack_delay.record(delay);
            // A window update sent when the program read is no delayed ACK.
            if !receiver.room.opened_at(at) {
                receiver.quick.record(late, receiver.data_segments);
            }
        }
        self.directions[to].carried(sent.flight_bytes, delay, least);
        self.directions[to].acked =
            Some(Acked { at, sent_at: sent.at, held, late, few, small_in_flight, pure });
    }

    /// Takes in a segment without data.
    fn control(&mut self, at: Duration, segment: &Segment, from: usize) {
        let direction = &self.directions[from];
        let opened = direction.room.was_shut().is_some_and(|(_, until)| until == at);
        let what = match segment.flags {
            flags if flags.has(Flags::RST) => What::Reset,
            flags if flags.has(Flags::SYN) => What::Syn,
            flags if flags.has(Flags::FIN) => What::Fin,
            _ if direction.room.shut_since() == Some(at) => What::WindowShut,
            _ if opened => What::WindowOpen,
            _ => What::Ack,
        };
        let ack = segment.ack.unwrap_or(segment.seq);
        let offset = self.directions[1 - from].offset(ack);
        self.see(at, from, what, 0, offset);
        let late = self.directions[1 - from].acked;
        let by_reading = self.directions[from].room.opened_at(at);
        if let Some(acked) = late.filter(|acked| acked.at == at && acked.late && !by_reading) {
            let stall = Stall {
                cause: Cause::LateAckSeen,
                since: acked.sent_at,
                until: at,
                lost: Duration::ZERO,
            };
            self.record(1 - from, &stall);
        }
        if segment.flags.has(Flags::FIN) {
            let direction = &mut self.directions[from];
            direction.nxt = direction.nxt.max(segment.seq_end());
        }
    }

    /// Takes in a segment with data.
    fn data(&mut self, at: Duration, segment: &Segment, from: usize, settings: &Settings) {
        let end = segment.seq + segment.payload_bytes;
        let direction = &mut self.directions[from];
        direction.una.get_or_insert(segment.seq);
        let new_bytes = match end - direction.nxt {
            new if new > 0 => new.unsigned_abs().min(segment.payload_bytes),
            _ => return self.again(at, segment, from),
        };
        if segment.seq.after(direction.nxt) {
            let hole = again::Hole::of(from, direction.nxt, segment, at);
            self.hole = Some(Box::new(hole.behind(self.hole.as_deref())));
            self.blind_at = at;
        }
        let offset = self.directions[from].offset(segment.seq);
        self.see(at, from, What::Data, segment.payload_bytes, offset);
        let unread = self.unread(at, from).filter(|unread| unread.since > self.blind_at);
        if let Some(unread) = &unread {
            self.record(1 - from, unread);
        }
        let read_at = unread.map_or(Duration::ZERO, |unread| unread.until);
        let stall = stall::of(self, at, segment, (from, read_at), settings)
            .filter(|stall| stall.since > self.blind_at);
        let cause = stall.map(|stall| stall.cause);
        let by_tcp = cause.is_some_and(|cause| {
            !matches!(cause, Cause::Program | Cause::NearLateAck | Cause::Event)
        });
        let pauses = matches!(cause, Some(Cause::Program | Cause::CorkOrProgram | Cause::Event));
        match &stall {
            Some(stall) if pauses && self.exchanges.has_reply() => self.pause(from, stall),
            Some(stall) if stall.cause != Cause::Event => {
                if let Some(again) = self.directions[from].again.as_mut() {
                    again.waited |= stall.cause == Cause::ReducedWindow;
                }
                if stall.cause == Cause::Window {
                    self.directions[1 - from].room.held_up(stall.lost);
                }
                self.record(from, stall);
            }
            _ => {}
        }
        self.account(at, segment, from, new_bytes, by_tcp);
    }

    /// Accounts for new data on its way.
    fn account(
        &mut self,
        at: Duration,
        segment: &Segment,
        from: usize,
        new_bytes: u32,
        late: bool,
    ) {
        let end = segment.seq + segment.payload_bytes;
        self.turn(at, from, new_bytes);
        let last_reply = self.directions[1 - from].last_data;
        let direction = &mut self.directions[from];
        let pause = at.saturating_sub(direction.last_data.unwrap_or(at));
        if !late && direction.last_data > last_reply {
            direction.unasked += u32::from(pause >= WHILE);
            direction.unhurried += u32::from(pause >= LATE && direction.flight.len() == 0);
        }
        direction.measure(segment.payload_bytes);
        let small = direction.is_small(segment.payload_bytes);
        // Nagle's algorithm lets the segment with the FIN go (Linux, tcp_nagle_test).
        if small && !segment.flags.has(Flags::FIN) && direction.flight.has_small() {
            direction.small_behind_small += 1;
        }
        direction.data_segments += 1;
        direction.payload_bytes += u64::from(new_bytes);
        let full_bytes = direction.full_bytes();
        let pause = at.saturating_sub(direction.last_data.unwrap_or_default());
        direction.messages.data(pause, segment.payload_bytes, full_bytes, late);
        direction.nxt = end + u32::from(segment.flags.has(Flags::FIN));
        let flight_bytes = direction.flight_bytes();
        direction.most_in_flight_bytes = direction.most_in_flight_bytes.max(flight_bytes);
        let timestamp = segment.timestamps.map(|(value, _)| value);
        clock::learn(direction, pause, timestamp);
        direction.last_data = Some(at);
        direction.last_timestamp = timestamp;
        if flight_bytes == 0 {
            // Its ACK was captured first: several receive queues do that.
            return;
        }
        direction.flight.push(Sent { end, at, again: false, flight_bytes, small });
    }

    /// Notes which end's turn it is to talk, and that it says so many new octets.
    fn turn(&mut self, at: Duration, from: usize, new_bytes: u32) {
        let to = 1 - from;
        if self.directions[to].last_data > self.directions[from].last_data {
            let full_bytes = self.directions[to].full_bytes();
            self.directions[to].messages.finish(full_bytes);
            self.directions[from].room.forget_message();
        }
        if from == self.client() {
            self.count_pause();
            let heard = self.directions[to].last_data;
            let prompt_until = heard.map(|heard| heard + self.directions[from].reaction_limit());
            if heard.is_none() && self.handshake_seen() {
                self.exchanges.open(new_bytes);
            }
            self.exchanges.request(at, prompt_until.is_some_and(|until| at <= until));
        } else {
            self.exchanges.reply(at);
        }
    }

    fn see(&mut self, at: Duration, from: usize, what: What, bytes: u32, offset: u32) {
        self.recent.push(Seen {
            at: at.saturating_sub(self.first_seen),
            by: role(from, self.client()),
            what,
            bytes,
            offset,
        });
    }

    fn record(&mut self, by: usize, stall: &Stall) {
        let stall = self.lost_once(stall);
        self.tallies.record(by, &stall, self.first_seen, &self.recent);
    }

    /// Returns the stall, without the time that is counted as lost already.
    fn lost_once(&mut self, stall: &Stall) -> Stall {
        let since = stall.since.max(self.lost_until);
        let lost = stall.lost.min(stall.until.saturating_sub(since));
        if !lost.is_zero() {
            self.lost_until = self.lost_until.max(stall.until);
        }
        Stall { lost, ..*stall }
    }

    /// Notes a pause in the middle of a reply: only what comes after tells what it was.
    fn pause(&mut self, by: usize, stall: &Stall) {
        self.exchanges.pause(stall.until.saturating_sub(stall.since));
        if stall.cause != Cause::Event {
            let stall = self.lost_once(stall);
            self.paused = Some(Box::new((by, stall, self.recent.clone())));
        }
    }

    /// Counts the first pause of a reply that has ended, and so was a reply.
    fn count_pause(&mut self) {
        if let Some(paused) = self.paused.take() {
            let (by, stall, recent) = *paused;
            self.tallies.record(by, &stall, self.first_seen, &recent);
        }
    }

    /// Closes what is open: the messages and exchanges under way.
    pub(crate) fn finish(&mut self) {
        for by in 0..2 {
            let direction = &mut self.directions[by];
            let full_bytes = direction.full_bytes();
            direction.messages.finish(full_bytes);
            if let Some(again) = direction.again.take() {
                self.had_to(by, &again);
            }
        }
        // What paused again and again until the end was a stream of events, not a reply.
        if !self.exchanges.has_paused_again() {
            self.count_pause();
        }
        self.exchanges.finish();
    }

    /// Returns the role of the end with that index.
    pub(crate) fn role(&self, end: usize) -> Role {
        role(end, self.client())
    }
}
