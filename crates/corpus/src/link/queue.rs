//! One direction of a link: what is lost, what waits, and when each frame arrives.
//!
//! Pure: frames and times in, frames out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uncork_wire::{link::LinkType, read_frame};

/// Which frames are lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// Segments with at least `least_bytes` of data, counted from 1: these are lost.
    pub data: Vec<u64>,
    /// See [`data`](Self::data).
    pub least_bytes: u32,
    /// Segments with at most this many octets of data count for [`data`](Self::data).
    pub most_bytes: Option<u32>,
    /// Each frame is lost with this probability.
    pub probability: f64,
    /// Where the dice start.
    pub seed: u64,
}

/// What one direction does to frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// From one end to the other, for the last bit of a frame.
    #[serde(rename = "delay_us", with = "microseconds")]
    pub delay: Duration,
    /// Bits a second; no limit if absent.
    pub rate: Option<u64>,
    /// What may wait for the rate, in octets; a frame that finds it full is lost.
    pub queue_bytes: u64,
    /// Which frames are lost on the way.
    pub loss: Loss,
}

mod microseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

/// One direction, with what is under way in it.
#[derive(Debug)]
pub struct Queue {
    path: Path,
    /// In the order of arrival, which is that of departure: the delay is fixed.
    under_way: VecDeque<(Instant, Vec<u8>)>,
    /// When the last frame that was let in will have left the bottleneck.
    busy_until: Option<Instant>,
    layer: LinkType,
    counted: u64,
    dice: u64,
    lost: u64,
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(path: Path, layer: LinkType) -> Self {
        // A generator of this kind must not start at zero.
        let dice = path.loss.seed.wrapping_mul(2).wrapping_add(1);
        let under_way = VecDeque::new();
        Self { path, under_way, busy_until: None, layer, counted: 0, dice, lost: 0 }
    }

    /// Takes a frame, with `header_bytes` of the TAP's own before it, at the moment it was sent.
    pub fn push(&mut self, now: Instant, frame: Vec<u8>, header_bytes: usize) {
        let on_the_wire = frame.len().saturating_sub(header_bytes);
        if self.is_lost(&frame[header_bytes.min(frame.len())..]) {
            self.lost += 1;
            return;
        }
        let mut leaves = now;
        if let Some(rate) = self.path.rate {
            let begins = self.busy_until.map_or(now, |busy| busy.max(now));
            let waiting = nanos(begins.duration_since(now)) * u128::from(rate) / 8_000_000_000;
            if waiting > u128::from(self.path.queue_bytes) {
                self.lost += 1;
                return;
            }
            let bits = on_the_wire as u128 * 8;
            let takes = bits * 1_000_000_000 / u128::from(rate.max(1));
            leaves = begins + Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
            self.busy_until = Some(leaves);
        }
        self.under_way.push_back((leaves + self.path.delay, frame));
    }

    /// When the next frame arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.under_way.front().map(|(at, _)| *at)
    }

    /// A frame that has arrived by now.
    pub fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next_arrival()? > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, frame)| frame)
    }

    /// How many were lost, on purpose or for want of room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn is_lost(&mut self, frame: &[u8]) -> bool {
        let loss = &self.path.loss;
        if !loss.data.is_empty()
            && let Some(data_bytes) = data_bytes(self.layer, frame)
            && data_bytes >= loss.least_bytes.max(1)
            && loss.most_bytes.is_none_or(|most| data_bytes <= most)
        {
            self.counted += 1;
            if loss.data.contains(&self.counted) {
                return true;
            }
        }
        if loss.probability <= 0.0 {
            return false;
        }
        // xorshift64 (Marsaglia 2003): enough for dice, and the same on every machine.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        #[allow(clippy::cast_precision_loss)] // 53 bits are all that is used
        let thrown = (self.dice >> 11) as f64 / (1_u64 << 53) as f64;
        thrown < loss.probability
    }
}

fn nanos(time: Duration) -> u128 {
    time.as_nanos()
}

/// Octets of TCP data in a frame; none if it is not TCP.
fn data_bytes(layer: LinkType, frame: &[u8]) -> Option<u32> {
    Some(read_frame(layer, frame, frame.len()).ok()?.payload_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn ip_frame(data: usize) -> Vec<u8> {
        let length = 40 + data;
        let mut frame = vec![0; length];
        frame[0] = 0x45;
        frame[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        frame[9] = 6;
        frame[32] = 0x50;
        frame
    }

    fn arrivals(path: Path, frames: &[(Duration, Vec<u8>)]) -> Vec<Duration> {
        let start = Instant::now();
        let mut queue = Queue::new(path, LinkType::Raw);
        for (at, frame) in frames {
            queue.push(start + *at, frame.clone(), 0);
        }
        let mut arrived = Vec::new();
        while let Some(at) = queue.next_arrival() {
            assert!(queue.pop(at - Duration::from_nanos(1)).is_none(), "a frame came early");
            assert!(queue.pop(at).is_some(), "a frame was late");
            arrived.push(at - start);
        }
        arrived
    }

    #[test]
    fn a_delay_moves_every_frame_by_the_same_time() {
        let path = Path { delay: 5 * MILLISECOND, ..Path::default() };
        let frames = [(Duration::ZERO, ip_frame(10)), (3 * MILLISECOND, ip_frame(1400))];
        assert_eq!(arrivals(path, &frames), [5 * MILLISECOND, 8 * MILLISECOND]);
    }

    #[test]
    fn a_rate_spreads_frames_and_a_full_queue_loses_them() {
        // 1000 octets at 8 Mbit/s: a millisecond each.
        let path = Path { rate: Some(8_000_000), queue_bytes: 1500, ..Path::default() };
        let frames = vec![(Duration::ZERO, ip_frame(960)); 5];
        let arrived = arrivals(path, &frames);
        // The third finds 2000 octets before it, which is more than may wait.
        assert_eq!(arrived, [MILLISECOND, 2 * MILLISECOND]);
    }

    #[test]
    fn losses_by_number_count_data_of_that_size_only() {
        let loss = Loss { data: vec![2], least_bytes: 100, ..Loss::default() };
        let mut queue = Queue::new(Path { loss, ..Path::default() }, LinkType::Raw);
        let now = Instant::now();
        for data in [0, 100, 50, 200, 300] {
            queue.push(now, ip_frame(data), 0);
        }
        assert_eq!(queue.lost(), 1);
        let mut lengths = Vec::new();
        while let Some(frame) = queue.pop(now) {
            lengths.push(frame.len() - 40);
        }
        assert_eq!(lengths, [0, 100, 50, 300]);
    }

    #[test]
    fn losses_by_chance_are_about_as_many_and_the_same_each_time() {
        let lost = |seed| {
            let loss = Loss { probability: 0.1, seed, ..Loss::default() };
            let mut queue = Queue::new(Path { loss, ..Path::default() }, LinkType::Raw);
            for _ in 0..10_000 {
                queue.push(Instant::now(), ip_frame(10), 0);
            }
            queue.lost()
        };
        assert!((850..1150).contains(&lost(7)), "{} of 10,000", lost(7));
        assert_eq!(lost(7), lost(7));
        assert_ne!(lost(7), lost(8));
    }
}
