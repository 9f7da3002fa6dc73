//! What a list of ACK delays says about the receiver. Pure: a list goes in, a verdict comes out.
//!
//! Linux acknowledges at once while it has quick-ACK credits, and grants 16 of them with the first data
//! of a connection, or fewer with a small window: rcv_wnd / (2 * rcv_mss), but at least 2
//! (`tcp_incr_quickack`, TCP_MAX_QUICKACKS, net/ipv4/tcp_input.c). After that an ACK waits for a second
//! segment, for the reader, or for a timer of at least 40 ms (TCP_DELACK_MIN, include/net/tcp.h).

mod sentence;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

use crate::kernel::Side;

/// Most quick-ACK credits that are granted at a time (TCP_MAX_QUICKACKS).
pub const MOST_CREDITS: usize = 16;

/// Most ACKs at once that credits explain: 16, and one more each time the window grows
/// (`icsk_ack.quick |= 1` in `tcp_grow_window`), which happens a few times with an ordinary window.
/// Linux 6.18 reaches 17 over loopback and 18 over Ethernet (docs/QUICKACK.md).
const MOST_ON_CREDITS: usize = MOST_CREDITS + 8;

/// With so many quick ACKs and none late, the credits did not make them quick.
const ENOUGH: usize = MOST_ON_CREDITS + 4;

/// A pause after which Linux grants new credits: its retransmission timeout, which is at least this
/// (TCP_RTO_MIN; `tcp_event_data_recv`).
const RENEWAL: Duration = Duration::from_millis(200);

/// Fewest late ACKs in a row from which anything is concluded.
const FEWEST: usize = 3;

/// Share of the ACKs that makes a rule, in percent: a busy machine makes exceptions.
const RULE_PERCENT: usize = 90;

/// Smallest constant segment that the receiver soon takes for the MSS (TCP_MSS_DEFAULT).
const MSS_GUESS_BYTES: u64 = 536;

/// Segments with data that the receiver must have sent before its way of counting is judged: with
/// fewer, a window that grew once or twice would decide.
const TELLING: usize = 5;

/// A timed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time from its departure to its ACK.
    pub delay: Duration,
    /// Whether its ACK was also that of the segment before.
    pub shares_ack: bool,
    /// Segments with data received from the receiver by then.
    pub receiver_segments: u32,
}

/// The conditions of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The shortest round-trip time: that of an ACK sent at once.
    pub round_trip: Duration,
    /// An ACK that takes this much longer is late.
    pub late_after: Duration,
    /// The size of all segments; `None` if they differ.
    pub segment_bytes: Option<u64>,
    /// The sender's pause between two writes.
    pub pause: Duration,
}

/// The ways in which a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There were too few ACKs for any other verdict.
    TooFew,
    /// Each ACK came at once, well beyond the credits.
    QuickThroughout,
    /// Each ACK was late, from the first.
    LateThroughout,
    /// ACKs came at once at first, then late.
    QuickThenLate,
    /// ACKs were late now and then.
    LateNowAndThen,
    /// One ACK covered several segments, and was in time.
    SeveralPerAck,
}

/// The verdict on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// How the receiver acknowledged.
    pub kind: Kind,
    /// Segments that were timed.
    pub segments: usize,
    /// ACKs that they received.
    pub acks: usize,
    /// ACKs at once and for one segment, before the first that was otherwise.
    pub quick_at_first: usize,
    /// ACKs that were late.
    pub late: usize,
    /// ACKs for several segments that were not late.
    pub shared: usize,
    /// Whether the quick-ACK credits of a new connection were spent, and ACKs turned late.
    pub credits_spent: bool,
    /// Whether the pauses are so long that Linux grants new credits after each.
    pub credits_renewed: bool,
    /// Whether the segments have a constant size that the receiver takes for the MSS.
    pub mss_sized: bool,
    /// Median delay of the ACKs that were not late, in microseconds.
    pub quick_median_us: Option<u64>,
    /// Median delay of the late ACKs, in microseconds.
    pub late_median_us: Option<u64>,
    /// Segments with data that the receiver sent.
    pub receiver_segments: u32,
    /// Whether the receiver seems to have commit 059217c18be6.
    pub credit_counting: Side,
    /// Whether the receiver seems to have commit 4720852ed9af.
    pub mss_boundary: Side,
}

/// An ACK.
struct Ack {
    /// Delay of the segment that waited longest for it.
    delay: Duration,
    segments: usize,
    late: bool,
    receiver_segments: u32,
}

impl Ack {
    fn plain_and_quick(&self) -> bool {
        !self.late && self.segments == 1
    }
}

/// Judges a list in the order in which the segments were sent.
#[must_use]
pub fn judge(samples: &[Sample], setting: &Setting) -> Verdict {
    let acks = acks(samples, setting);
    let late = acks.iter().filter(|ack| ack.late).count();
    let shared = acks.iter().filter(|ack| !ack.late && ack.segments > 1).count();
    let quick_at_first = acks.iter().take_while(|ack| ack.plain_and_quick()).count();
    let kind = kind(&acks, quick_at_first, late, shared);
    let median = |wanted: bool| {
        median_us(acks.iter().filter(|ack| ack.late == wanted).map(|ack| ack.delay).collect())
    };
    let credits_spent = kind == Kind::QuickThenLate && quick_at_first <= MOST_ON_CREDITS;
    let before_the_turn = acks.get(quick_at_first.wrapping_sub(1));
    let spoken = before_the_turn.map_or(0, |ack| ack.receiver_segments) as usize;
    Verdict {
        kind,
        segments: samples.len(),
        acks: acks.len(),
        quick_at_first,
        late,
        shared,
        credits_spent,
        credits_renewed: setting.pause >= RENEWAL,
        mss_sized: mss_sized(setting),
        quick_median_us: median(false),
        late_median_us: median(true),
        receiver_segments: samples.last().map_or(0, |sample| sample.receiver_segments),
        credit_counting: if credits_spent {
            credit_counting(quick_at_first, spoken)
        } else {
            Side::Unknown
        },
        mss_boundary: mss_boundary(kind, setting),
    }
}

/// Returns the ACKs, each with the segments that share it.
fn acks(samples: &[Sample], setting: &Setting) -> Vec<Ack> {
    let mut acks: Vec<Ack> = Vec::new();
    let late_from = setting.round_trip.saturating_add(setting.late_after);
    for sample in samples {
        match acks.last_mut().filter(|_| sample.shares_ack) {
            Some(ack) => {
                ack.segments += 1;
                ack.delay = ack.delay.max(sample.delay);
                ack.late = ack.delay >= late_from;
            }
            None => acks.push(Ack {
                delay: sample.delay,
                segments: 1,
                late: sample.delay >= late_from,
                receiver_segments: sample.receiver_segments,
            }),
        }
    }
    acks
}

fn kind(acks: &[Ack], quick_at_first: usize, late: usize, shared: usize) -> Kind {
    let rule = |part: usize, of: usize| of >= FEWEST && part * 100 >= of * RULE_PERCENT;
    let tail = acks.get(quick_at_first..).unwrap_or_default();
    let late_in_tail = tail.iter().filter(|ack| ack.late).count();
    if quick_at_first > 0 && rule(late_in_tail, tail.len()) {
        Kind::QuickThenLate
    } else if rule(late, acks.len()) {
        Kind::LateThroughout
    } else if rule(late + shared, tail.len()) && shared > late {
        Kind::SeveralPerAck
    } else if acks.len() < ENOUGH {
        Kind::TooFew
    } else if late > 0 {
        Kind::LateNowAndThen
    } else if shared * 2 > acks.len() {
        Kind::SeveralPerAck
    } else {
        Kind::QuickThroughout
    }
}

/// Returns how the receiver counts, if its credits lasted for `quick` ACKs and it had sent `spoken`
/// segments of its own by then: before the correction each of these cost a credit.
fn credit_counting(quick: usize, spoken: usize) -> Side {
    let remaining = MOST_CREDITS.saturating_sub(spoken).max(1);
    if spoken < TELLING {
        Side::Unknown
    } else if quick + 1 >= MOST_CREDITS {
        Side::After
    } else if (remaining.saturating_sub(1)..=remaining + 2).contains(&quick) {
        Side::Before
    } else {
        Side::Unknown
    }
}

/// Returns whether the receiver has the correction: without it, a constant size that it takes for the MSS
/// is acknowledged late once the credits are spent, even if it is read at once. The reverse tells nothing:
/// with it, ACKs are late for a slow reader. With new credits for each segment, neither tells anything.
fn mss_boundary(kind: Kind, setting: &Setting) -> Side {
    let telling = mss_sized(setting) && setting.pause < RENEWAL;
    if kind == Kind::QuickThroughout && telling { Side::After } else { Side::Unknown }
}

fn mss_sized(setting: &Setting) -> bool {
    setting.segment_bytes.is_some_and(|bytes| bytes >= MSS_GUESS_BYTES)
}

fn median_us(mut delays: Vec<Duration>) -> Option<u64> {
    let middle = delays.len() / 2;
    if delays.is_empty() {
        return None;
    }
    let (_, median, _) = delays.select_nth_unstable(middle);
    u64::try_from(median.as_micros()).ok()
}
