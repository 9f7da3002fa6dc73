//! One direction of the network: a device that sends at a rate, a queue before a bottleneck, and
//! what happens to a frame in flight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use uncork_packet::{Checksum, Completion, Instant, Received, Transmit, Trust};

use crate::Dice;

/// The conditions of a direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// Propagation delay of a frame once it has left.
    pub delay: Duration,
    /// Rate in bits a second; without one everything leaves at once.
    pub rate: Option<u64>,
    /// Longest queue before the rate, in bytes; a frame that does not fit is dropped. None if the
    /// rate is the device's own, which takes every frame and reports completions.
    pub queue_bytes: Option<u64>,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame arrives up to `jitter` later than it would, and so after others.
    pub reorder: f64,
    /// Longest additional delay.
    pub jitter: Duration,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a bit of a frame is flipped.
    pub corrupt: f64,
    /// Frames that would wait behind more bytes than this are marked, if they are ECN-capable.
    pub mark_bytes: Option<u64>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            rate: None,
            queue_bytes: None,
            loss: 0.0,
            reorder: 0.0,
            jitter: Duration::ZERO,
            duplicate: 0.0,
            corrupt: 0.0,
            mark_bytes: None,
        }
    }
}

/// Counters of a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames sent.
    pub sent: u64,
    /// Frames lost by chance or because a queue was full.
    pub lost: u64,
    /// Octets sent.
    pub bytes: u64,
    /// Longest time that a frame waited for the rate.
    pub longest_wait: Duration,
}

/// A frame in flight, ordered by its arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at: Instant,
    number: u64,
    frame: Vec<u8>,
    good: bool,
    segment_bytes: Option<u16>,
}

/// One direction of the network.
#[derive(Debug)]
pub(crate) struct Way {
    conditions: Conditions,
    dice: Dice,
    number: u64,
    /// When the last bit of what was sent so far has left.
    free_at: Instant,
    flying: BinaryHeap<Reverse<Flying>>,
    leaving: BinaryHeap<Reverse<(Instant, u64, u64, u32)>>,
    pub(crate) tally: Tally,
}

impl Way {
    pub(crate) fn new(conditions: Conditions, seed: u64) -> Self {
        Self {
            conditions,
            dice: Dice::new(seed),
            number: 0,
            free_at: Instant::ZERO,
            flying: BinaryHeap::new(),
            leaving: BinaryHeap::new(),
            tally: Tally::default(),
        }
    }

    pub(crate) fn set(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    pub(crate) fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// Takes a frame that is handed to the device.
    pub(crate) fn send(&mut self, now: Instant, mut frame: Vec<u8>, transmit: &Transmit) {
        let conditions = self.conditions;
        self.number += 1;
        self.tally.sent += 1;
        self.tally.bytes += frame.len() as u64;
        let begins = self.free_at.max(now);
        let waits = begins.since(now);
        let ahead = conditions.rate.map_or(0, |rate| bytes_in(waits, rate));
        let full = conditions.queue_bytes.is_some_and(|most| ahead + frame.len() as u64 > most);
        if !full {
            self.tally.longest_wait = self.tally.longest_wait.max(waits);
            let takes = conditions.rate.map_or(Duration::ZERO, |rate| time_for(frame.len(), rate));
            self.free_at = begins + takes;
        }
        if let Some(owner) = transmit.owner {
            // A bottleneck after the device does not report: the frame has left when it was handed over.
            let left = if conditions.queue_bytes.is_some() { now } else { self.free_at };
            self.leaving.push(Reverse((left, self.number, owner.0, transmit.frame_bytes)));
        }
        if full || self.dice.hits(conditions.loss) {
            self.tally.lost += 1;
            return;
        }
        if conditions.mark_bytes.is_some_and(|most| ahead > most) {
            mark(&mut frame);
        }
        let mut good = matches!(transmit.checksum, Checksum::Partial { .. });
        if self.dice.hits(conditions.corrupt) {
            let at = self.dice.below(frame.len() as u64);
            let bit = self.dice.below(8);
            if let Ok(at) = usize::try_from(at) {
                frame[at] ^= 1 << bit;
            }
            good = false;
        }
        let copies = if self.dice.hits(conditions.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut at = self.free_at.max(now) + conditions.delay;
            if self.dice.hits(conditions.reorder) {
                let most = u64::try_from(conditions.jitter.as_nanos()).unwrap_or(u64::MAX);
                at += Duration::from_nanos(self.dice.below(most.saturating_add(1)));
            }
            let number = self.number;
            let segment_bytes = transmit.segmentation.map(|how| how.segment_bytes);
            self.flying.push(Reverse(Flying {
                at,
                number,
                frame: frame.clone(),
                good,
                segment_bytes,
            }));
        }
    }

    /// Returns when something arrives or has left next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let arrives = self.flying.peek().map(|Reverse(flying)| flying.at);
        let leaves = self.leaving.peek().map(|Reverse(leaving)| leaving.0);
        [arrives, leaves].into_iter().flatten().min()
    }

    /// Returns a completion of a frame that has left by now.
    pub(crate) fn completion(&mut self, now: Instant) -> Option<Completion> {
        self.leaving.peek().filter(|Reverse(leaving)| leaving.0 <= now)?;
        let Reverse((_, _, owner, bytes)) = self.leaving.pop()?;
        Some(Completion { owner: uncork_packet::Owner(owner), bytes })
    }

    /// Passes on a frame that has arrived by now; returns whether there was one.
    pub(crate) fn arrive(&mut self, now: Instant, take: impl FnOnce(&Received<'_>)) -> bool {
        if self.flying.peek().is_none_or(|Reverse(flying)| flying.at > now) {
            return false;
        }
        let Some(Reverse(flying)) = self.flying.pop() else { return false };
        take(&Received {
            bytes: &flying.frame,
            trust: if flying.good { Trust::Good } else { Trust::Unknown },
            segment_bytes: flying.segment_bytes,
        });
        true
    }
}

fn time_for(bytes: usize, rate: u64) -> Duration {
    Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / rate)
}

fn bytes_in(time: Duration, rate: u64) -> u64 {
    let bits = time.as_nanos() * u128::from(rate) / 1_000_000_000;
    u64::try_from(bits / 8).unwrap_or(u64::MAX)
}

/// Sets CE in an IPv4 packet without a link-layer header if it has ECT, and corrects
/// its checksum (RFC 1624).
fn mark(frame: &mut [u8]) {
    if frame.len() < 20 || frame[0] >> 4 != 4 || frame[1] & 3 == 0 {
        return;
    }
    let before = u16::from_be_bytes([frame[0], frame[1]]);
    frame[1] |= 3;
    let after = u16::from_be_bytes([frame[0], frame[1]]);
    let sum = u16::from_be_bytes([frame[10], frame[11]]);
    let mut new = u32::from(!sum) + u32::from(!before) + u32::from(after);
    new = (new & 0xffff) + (new >> 16);
    new = (new & 0xffff) + (new >> 16);
    let [high, low] = (!u16::try_from(new).unwrap_or(u16::MAX)).to_be_bytes();
    (frame[10], frame[11]) = (high, low);
}
