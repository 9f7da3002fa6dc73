//! One direction of a link: loss, queueing, and the arrival time of each frame.
//!
//! Pure: frames and times in, frames out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::{link::LinkType, read_frame};

use crate::dice::Dice;
use crate::path::Path;

/// Octets of an Ethernet header: a flipped bit after it reaches the other end, one within may not.
const ETHERNET_HEADER_BYTES: usize = 14;

/// Counters of frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came in.
    pub taken: u64,
    /// Frames lost on purpose.
    pub lost: u64,
    /// Frames lost for want of room in the queue.
    pub dropped: u64,
    /// Frames delayed, so that others overtake them.
    pub reordered: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
}

/// A frame in flight.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    arrives: Instant,
    /// Frames that arrive at the same moment keep their order.
    number: u64,
    frame: Vec<u8>,
    corrupted: bool,
}

/// A frame that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// Its octets, including the header before it that it came with.
    pub frame: Vec<u8>,
    /// Whether a bit of it was flipped.
    pub corrupted: bool,
}

/// One direction, with its frames in flight.
#[derive(Debug)]
pub struct Queue {
    path: Path,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    /// When the last accepted frame will have passed the bottleneck.
    busy_until: Option<Instant>,
    layer: LinkType,
    /// Number of segments counted for [`crate::Loss::data`].
    data_seen: u64,
    dice: Dice,
    counts: Counts,
}

impl Queue {
    /// Makes an empty queue.
    #[must_use]
    pub fn new(path: Path, layer: LinkType) -> Self {
        Self {
            dice: Dice::new(path.loss.seed),
            path,
            under_way: BinaryHeap::new(),
            busy_until: None,
            layer,
            data_seen: 0,
            counts: Counts::default(),
        }
    }

    /// Takes a frame, with `header_bytes` of the TAP's own before it, at the moment it was sent.
    /// Returns the moment when the sender is rid of it: when its last bit has passed the bottleneck,
    /// or at once if it is lost.
    pub fn push(&mut self, now: Instant, mut frame: Vec<u8>, header_bytes: usize) -> Instant {
        self.counts.taken += 1;
        let header_bytes = header_bytes.min(frame.len());
        if self.is_lost(&frame[header_bytes..]) {
            self.counts.lost += 1;
            return now;
        }
        let Some(leaves) = self.pass_bottleneck(now, frame.len() - header_bytes) else {
            self.counts.dropped += 1;
            return now;
        };
        let mut arrives = leaves + self.path.delay;
        let faults = &self.path.faults;
        if self.dice.happens(faults.reorder.probability) {
            self.counts.reordered += 1;
            arrives += faults.reorder.late_by;
        }
        let corrupted = self.dice.happens(faults.corrupt);
        if corrupted {
            self.counts.corrupted += 1;
            self.turn_a_bit(&mut frame, header_bytes);
        }
        if self.dice.happens(self.path.faults.duplicate) {
            self.counts.duplicated += 1;
            self.send(arrives, frame.clone(), corrupted);
        }
        self.send(arrives, frame, corrupted);
        leaves
    }

    fn send(&mut self, arrives: Instant, frame: Vec<u8>, corrupted: bool) {
        let number = self.counts.taken + self.counts.duplicated;
        self.under_way.push(Reverse(UnderWay { arrives, number, frame, corrupted }));
    }

    /// Returns when the last bit of a frame will have left; `None` if there is no room for it.
    fn pass_bottleneck(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(rate) = self.path.rate.map(|rate| u128::from(rate.max(1))) else {
            return Some(now);
        };
        let begins = self.busy_until.map_or(now, |busy| busy.max(now));
        let waiting_bytes = begins.since(now).as_nanos() * rate / 8_000_000_000;
        if waiting_bytes > u128::from(self.path.queue_bytes) {
            return None;
        }
        let takes_ns = bytes as u128 * 8 * 1_000_000_000 / rate;
        let leaves = begins + Duration::from_nanos(u64::try_from(takes_ns).unwrap_or(u64::MAX));
        self.busy_until = Some(leaves);
        Some(leaves)
    }

    fn turn_a_bit(&mut self, frame: &mut [u8], header_bytes: usize) {
        let link_header_bytes =
            if self.layer == LinkType::Ethernet { ETHERNET_HEADER_BYTES } else { 0 };
        let begin = header_bytes + link_header_bytes;
        if let Some(bytes) = frame.get_mut(begin..).filter(|bytes| !bytes.is_empty()) {
            let at = self.dice.below(bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
        }
    }

    /// Returns when the next frame arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.under_way.peek().map(|Reverse(first)| first.arrives)
    }

    /// Takes a frame that has arrived by now.
    pub fn pop(&mut self, now: Instant) -> Option<Arrived> {
        if self.next_arrival()? > now {
            return None;
        }
        let Reverse(UnderWay { frame, corrupted, .. }) = self.under_way.pop()?;
        Some(Arrived { frame, corrupted })
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn is_lost(&mut self, frame: &[u8]) -> bool {
        let loss = &self.path.loss;
        if !loss.data.is_empty()
            && let Some(data_bytes) = data_bytes(self.layer, frame)
            && data_bytes >= loss.least_bytes.max(1)
            && loss.most_bytes.is_none_or(|most| data_bytes <= most)
        {
            self.data_seen += 1;
            if loss.data.contains(&self.data_seen) {
                return true;
            }
        }
        self.dice.happens(loss.probability)
    }
}

/// Returns the octets of TCP data in a frame; `None` if it is not TCP.
fn data_bytes(layer: LinkType, frame: &[u8]) -> Option<u32> {
    Some(read_frame(layer, frame, frame.len()).ok()?.payload_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Faults, Loss, Reorder};

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
        let start = Instant::from_millis(7);
        let mut queue = Queue::new(path, LinkType::Raw);
        for (at, frame) in frames {
            queue.push(start + *at, frame.clone(), 0);
        }
        let mut arrived = Vec::new();
        while let Some(at) = queue.next_arrival() {
            let before = Instant::from_nanos(at.as_nanos() - 1);
            assert!(queue.pop(before).is_none(), "a frame came early");
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
        let now = Instant::ZERO;
        for data in [0, 100, 50, 200, 300] {
            queue.push(now, ip_frame(data), 0);
        }
        assert_eq!(queue.counts().lost, 1);
        let mut lengths = Vec::new();
        while let Some(arrived) = queue.pop(now) {
            lengths.push(arrived.frame.len() - 40);
        }
        assert_eq!(lengths, [0, 100, 50, 300]);
    }

    #[test]
    fn losses_by_chance_are_about_as_many_and_the_same_each_time() {
        let lost = |seed| {
            let loss = Loss { probability: 0.1, seed, ..Loss::default() };
            let mut queue = Queue::new(Path { loss, ..Path::default() }, LinkType::Raw);
            for _ in 0..10_000 {
                queue.push(Instant::ZERO, ip_frame(10), 0);
            }
            queue.counts().lost
        };
        assert!((850..1150).contains(&lost(7)), "{} of 10,000", lost(7));
        assert_eq!(lost(7), lost(7));
        assert_ne!(lost(7), lost(8));
    }

    fn sent(path: Path, numbers: u8) -> (Vec<Vec<u8>>, Counts) {
        let now = Instant::ZERO;
        let mut queue = Queue::new(path, LinkType::Raw);
        for number in 0..numbers {
            let mut frame = ip_frame(1);
            frame[40] = number;
            queue.push(now, frame, 0);
        }
        let later = now + Duration::from_secs(1);
        let frames = std::iter::from_fn(|| queue.pop(later)).map(|arrived| arrived.frame).collect();
        (frames, queue.counts())
    }

    #[test]
    fn reordered_frames_all_arrive_and_only_they_are_late() {
        let reorder = Reorder { probability: 0.2, late_by: MILLISECOND };
        let faults = Faults { reorder, ..Faults::default() };
        let (frames, counts) = sent(Path { faults, ..Path::default() }, 100);
        let numbers: Vec<u8> = frames.iter().map(|frame| frame[40]).collect();
        let late = usize::try_from(counts.reordered).unwrap();
        assert!((10..30).contains(&late), "{late} of 100");
        assert!(numbers[..100 - late].is_sorted() && numbers[100 - late..].is_sorted());
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u8>>());
        assert!(!numbers.is_sorted());
    }

    #[test]
    fn a_duplicate_comes_right_behind_its_original() {
        let faults = Faults { duplicate: 0.3, ..Faults::default() };
        let (frames, counts) = sent(Path { faults, ..Path::default() }, 100);
        assert_eq!(frames.len() as u64, 100 + counts.duplicated);
        assert!((20..40).contains(&counts.duplicated), "{counts:?}");
        assert!(frames.is_sorted_by_key(|frame| frame[40]));
    }

    #[test]
    fn a_corrupted_frame_differs_in_one_bit_and_never_before_its_ip_header() {
        let faults = Faults { corrupt: 1.0, ..Faults::default() };
        let mut queue = Queue::new(Path { faults, ..Path::default() }, LinkType::Ethernet);
        let now = Instant::ZERO;
        let before = vec![0; 10 + ETHERNET_HEADER_BYTES + 40];
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..500 {
            queue.push(now, before.clone(), 10);
            let Arrived { frame: after, corrupted } = queue.pop(now).unwrap();
            assert!(corrupted);
            let turned: u32 = after.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(turned, 1);
            places.insert(after.iter().position(|byte| *byte != 0).unwrap());
        }
        assert_eq!(*places.first().unwrap(), 10 + ETHERNET_HEADER_BYTES);
        assert!(places.len() > 35, "{places:?}");
    }
}
