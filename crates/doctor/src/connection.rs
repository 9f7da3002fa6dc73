//! One connection: what each segment of it tells.

use std::time::Duration;

use uncork_wire::tcp::Flags;
use uncork_wire::{Endpoint, Segment, SeqNumber};

use crate::clock;
use crate::direction::{Acked, Again, Direction};
use crate::exchange::Exchanges;
use crate::flight::Sent;
use crate::stall;
use crate::tally::{Cause, Recent, Stall, Tallies, role};
use crate::{Role, Seen, Settings, What};

/// An ACK held longer than this is late: half of the least that Linux delays one (TCP_DELACK_MIN
/// is 40 ms), and more than any network's jitter that is not its own trouble.
pub(crate) const LATE: Duration = Duration::from_millis(20);
/// More segments than this in flight, and a queue or the congestion window may be what made the
/// next ACK late or held the next segment back.
pub(crate) const FEW_SEGMENTS: usize = 3;
/// Octets in flight from which on the path's own queue shows.
const LOADED_BYTES: u32 = 32 * 1024;
/// The same segment seen again this soon was captured twice (`-i any`), not sent twice.
const CAPTURED_TWICE: Duration = Duration::from_millis(1);
/// A segment that fills a hole this soon has been overtaken, not lost.
const REORDERED: Duration = Duration::from_millis(3);

/// A connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// Its ends; a direction has its sender's index.
    pub(crate) ends: [Endpoint; 2],
    /// Its directions.
    pub(crate) directions: [Direction; 2],
    /// Which end sent the SYN.
    opener: Option<usize>,
    syn_at: Option<Duration>,
    syn_ack_at: Option<Duration>,
    pub(crate) first_seen: Duration,
    pub(crate) last_seen: Duration,
    pub(crate) exchanges: Exchanges,
    pub(crate) tallies: Tallies,
    recent: Recent,
    /// When it was last seen that the capture lacks something: what was late before that may have
    /// been late for reasons that were not seen.
    blind_at: Duration,
    /// Up to when time has been counted as lost: nobody loses the same moment twice.
    lost_until: Duration,
    /// Where data is missing: from, to, and since when.
    hole: Option<(SeqNumber, SeqNumber, Duration)>,
}

impl Connection {
    pub(crate) fn new(ends: [Endpoint; 2], at: Duration) -> Self {
        Self {
            ends,
            directions: [Direction::default(), Direction::default()],
            opener: None,
            syn_at: None,
            syn_ack_at: None,
            first_seen: at,
            last_seen: at,
            exchanges: Exchanges::default(),
            tallies: Tallies::default(),
            recent: Recent::default(),
            blind_at: Duration::ZERO,
            lost_until: Duration::ZERO,
            hole: None,
        }
    }

    /// Index of the end that opened it; of the one with the higher port if nobody was seen to.
    pub(crate) fn client(&self) -> usize {
        self.opener.unwrap_or_else(|| usize::from(self.ends[1].port > self.ends[0].port))
    }

    /// Whether its beginning was seen.
    pub(crate) fn handshake_seen(&self) -> bool {
        self.opener.is_some()
    }

    /// The shortest round trip, client to server and back.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        let [one, other] = &self.directions;
        Some(one.reaction_least? + other.reaction_least?)
    }

    /// Whether a SYN begins another connection between the same two ends.
    pub(crate) fn begins_anew(&self, segment: &Segment, from: usize) -> bool {
        let direction = &self.directions[from];
        let other_isn = direction.first.is_some_and(|first| first != segment.seq + 1);
        let syn = segment.flags.has(Flags::SYN);
        syn && other_isn && (segment.ack.is_none() || direction.ended)
    }

    /// Whether nothing can come any more: both ends have sent all, and it has arrived.
    pub(crate) fn is_over(&self) -> bool {
        let arrived = |direction: &Direction| {
            direction.ended && direction.una.is_some_and(|una| !una.before(direction.nxt))
        };
        self.directions.iter().all(arrived)
    }

    /// A segment from the end with that index.
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
        self.acknowledgment(at, segment, from);
        self.window(at, segment, from);
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

    fn handshake(&mut self, at: Duration, segment: &Segment, from: usize) {
        let to = 1 - from;
        if segment.flags.has(Flags::SYN) {
            self.directions[to].allow(segment);
            match segment.ack {
                None => {
                    self.opener = Some(from);
                    // A SYN that is sent again makes the time to its answer unknown.
                    self.syn_at =
                        if self.syn_at.is_none() { Some(at) } else { Some(Duration::MAX) };
                }
                Some(_) => {
                    self.opener = Some(to);
                    self.syn_ack_at =
                        if self.syn_ack_at.is_none() { Some(at) } else { Some(Duration::MAX) };
                    if let Some(after) = self.syn_at.and_then(|syn| at.checked_sub(syn)) {
                        self.directions[from].reacted(after);
                    }
                }
            }
        } else if self.opener == Some(from)
            && self.directions[to].una.is_none()
            && let Some(after) = self.syn_ack_at.and_then(|syn_ack| at.checked_sub(syn_ack))
        {
            self.directions[from].reacted(after);
        }
    }

    /// What the segment acknowledges of the other end's data.
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
            return;
        }
        let flight_segments = sender.flight.len();
        let small_in_flight = sender.flight.has_small();
        let newest = sender.flight.acknowledge(ack);
        let again = sender.again.take();
        sender.una = Some(ack);
        let unseen = ack.after(sender.nxt);
        if let Some(again) = again.filter(|again| !was_needless(again, segment)) {
            self.record(to, &again.stall);
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
        let held = delay.saturating_sub(receiver.reaction_least.unwrap_or_default());
        let pure = segment.payload_bytes == 0;
        let late = held >= LATE && flight_segments <= FEW_SEGMENTS;
        if pure {
            receiver.ack_delay.record(delay);
            receiver.quick.record(late, receiver.data_segments);
        }
        self.directions[to].acked = Some(Acked {
            at,
            sent_at: sent.at,
            held,
            late,
            flight_segments,
            small_in_flight,
            pure,
        });
    }

    /// What the segment says of its sender's window.
    fn window(&mut self, at: Duration, segment: &Segment, from: usize) {
        if segment.flags.has(Flags::SYN) || segment.flags.has(Flags::RST) {
            return;
        }
        let receiver = &mut self.directions[from];
        match (receiver.window_bytes(segment), receiver.shut_since) {
            (Some(0), None) => receiver.shut_since = Some(at),
            (Some(0), Some(_)) => {}
            (_, Some(since)) => {
                receiver.shut_since = None;
                receiver.was_shut = Some((since, at));
            }
            (_, None) => {}
        }
    }

    /// A segment without data.
    fn control(&mut self, at: Duration, segment: &Segment, from: usize) {
        let direction = &self.directions[from];
        let opened = direction.was_shut.is_some_and(|(_, until)| until == at);
        let what = match segment.flags {
            flags if flags.has(Flags::RST) => What::Reset,
            flags if flags.has(Flags::SYN) => What::Syn,
            flags if flags.has(Flags::FIN) => What::Fin,
            _ if direction.shut_since == Some(at) => What::WindowShut,
            _ if opened => What::WindowOpen,
            _ => What::Ack,
        };
        let ack = segment.ack.unwrap_or(segment.seq);
        let offset = self.directions[1 - from].offset(ack);
        self.see(at, from, what, 0, offset);
        let late = self.directions[1 - from].acked;
        if let Some(acked) = late.filter(|acked| acked.at == at && acked.late) {
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

    /// A segment with data.
    fn data(&mut self, at: Duration, segment: &Segment, from: usize, settings: &Settings) {
        let end = segment.seq + segment.payload_bytes;
        let direction = &mut self.directions[from];
        direction.una.get_or_insert(segment.seq);
        let new_bytes = match end - direction.nxt {
            new if new > 0 => new.unsigned_abs().min(segment.payload_bytes),
            _ => return self.again(at, segment, from),
        };
        if segment.seq.after(direction.nxt) {
            self.hole = Some((direction.nxt, segment.seq, at));
            self.blind_at = at;
        }
        let offset = self.directions[from].offset(segment.seq);
        self.see(at, from, What::Data, segment.payload_bytes, offset);
        let stall = stall::of(self, at, segment, from, settings)
            .filter(|stall| stall.since > self.blind_at);
        if let Some(stall) = &stall {
            self.record(from, stall);
        }
        let cause = stall.map(|stall| stall.cause);
        let by_tcp = cause.is_some_and(|c| !matches!(c, Cause::Program | Cause::NearLateAck));
        if cause == Some(Cause::Program) && self.exchanges.has_reply() {
            self.exchanges.pause();
        }
        self.account(at, segment, from, new_bytes, by_tcp);
    }

    /// New data is on its way: into the books with it.
    fn account(
        &mut self,
        at: Duration,
        segment: &Segment,
        from: usize,
        new_bytes: u32,
        late: bool,
    ) {
        let end = segment.seq + segment.payload_bytes;
        self.turn(at, from);
        let last_reply = self.directions[1 - from].last_data;
        let direction = &mut self.directions[from];
        let paused = direction.last_data.filter(|last| at.saturating_sub(*last) >= LATE);
        if !late && paused > last_reply && direction.flight.len() == 0 {
            direction.unhurried += 1;
        }
        direction.measure(segment.payload_bytes);
        let small = direction.is_small(segment.payload_bytes);
        if small && direction.flight.has_small() {
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

    /// Whose turn it is to talk.
    fn turn(&mut self, at: Duration, from: usize) {
        let to = 1 - from;
        if self.directions[to].last_data > self.directions[from].last_data {
            let full_bytes = self.directions[to].full_bytes();
            self.directions[to].messages.finish(full_bytes);
        }
        if from == self.client() {
            self.exchanges.request(at);
        } else {
            self.exchanges.reply(at);
        }
    }

    /// Data that has been sent before, or that was overtaken on its way here.
    fn again(&mut self, at: Duration, segment: &Segment, from: usize) {
        let end = segment.seq + segment.payload_bytes;
        if let Some((hole, hole_end, since)) = self.hole {
            let fills = !segment.seq.before(hole) && !end.after(hole_end);
            if fills && at.saturating_sub(since) <= REORDERED {
                return;
            }
        }
        let direction = &self.directions[from];
        let acknowledged = direction.una.is_some_and(|una| !end.after(una));
        // A keepalive or a window probe repeats an octet that has long arrived.
        if acknowledged && segment.payload_bytes <= 1 {
            return;
        }
        let offset = direction.offset(segment.seq);
        self.see(at, from, What::Again, segment.payload_bytes, offset);
        let until = self.directions[from].nxt;
        let blind_at = self.blind_at;
        let direction = &mut self.directions[from];
        let reaction = direction.reaction_limit();
        let mut since = at;
        if acknowledged {
            // The ACK was lost on its way from here, or it could not be there yet.
            let seen_well = direction.acked.filter(|acked| acked.sent_at > blind_at);
            let answered = seen_well.filter(|acked| at > acked.at + reaction);
            since = answered.map_or(at, |acked| acked.sent_at);
        } else if let Some(sent) = direction.flight.covering(end) {
            since = sent.at;
            sent.at = at;
            sent.again = true;
        }
        // Segments lost together are one stall, counted by the first that is sent again.
        let same = direction.recovering_until.zip(direction.una);
        let same = same.is_some_and(|(until, una)| until.after(una));
        if same {
            since = since.max(direction.last_again);
        }
        direction.last_again = at;
        let lost = at.saturating_sub(since);
        // Nobody sends again that soon: another capture of the same, or nobody's loss.
        if lost <= CAPTURED_TWICE || (same && lost < LATE) {
            return;
        }
        direction.recovering_until = Some(until);
        let stall = Stall { cause: Cause::Again, since, until: at, lost };
        if acknowledged {
            return self.record(from, &stall);
        }
        let timestamp = segment.timestamps.map(|(value, _)| value);
        let before = direction.again.replace(Box::new(Again { stall, timestamp }));
        if let Some(before) = before {
            self.record(from, &before.stall);
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
        let since = stall.since.max(self.lost_until);
        let mut stall = *stall;
        stall.lost = stall.lost.min(stall.until.saturating_sub(since));
        if !stall.lost.is_zero() {
            self.lost_until = self.lost_until.max(stall.until);
        }
        self.tallies.record(by, &stall, self.first_seen, &self.recent);
    }

    /// Closes what is open: the messages and exchanges under way.
    pub(crate) fn finish(&mut self) {
        for by in 0..2 {
            let direction = &mut self.directions[by];
            let full_bytes = direction.full_bytes();
            direction.messages.finish(full_bytes);
            if let Some(again) = direction.again.take() {
                self.record(by, &again.stall);
            }
        }
        self.exchanges.finish();
    }

    /// The role of the end with that index.
    pub(crate) fn role(&self, end: usize) -> Role {
        role(end, self.client())
    }
}

/// Whether an ACK shows that data was sent again for nothing: it echoes a timestamp older than
/// that of the second time, so it answers the first (the Eifel algorithm, RFC 3522 §3.2).
fn was_needless(again: &Again, ack: &Segment) -> bool {
    let echoed = ack.timestamps.map(|(_, echo)| echo);
    again
        .timestamp
        .zip(echoed)
        .is_some_and(|(sent, echoed)| SeqNumber(echoed).before(SeqNumber(sent)))
}
