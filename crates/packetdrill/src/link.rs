//! A device with a limited rate: a token bucket like tc-tbf(8), so that a script can see what waits
//! above it. A packet has left, and its completion is reported, when the bucket has released it.

use std::collections::VecDeque;
use std::time::Duration;

use uncork_packet::{Completion, Instant};

/// Parameters of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Rate of filling, in bits a second.
    pub rate: u64,
    /// Capacity, in octets of IP packets.
    pub bucket_bytes: u32,
}

impl Link {
    fn time_of(self, bytes: u32) -> Duration {
        Duration::from_nanos(u64::from(bytes) * 8_000_000_000 / self.rate.max(1))
    }
}

/// A packet that has left.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) at: Instant,
    pub(crate) bytes: Vec<u8>,
    /// Completion of the frame, on its last packet only.
    pub(crate) completion: Option<Completion>,
}

/// The bucket and the packets that wait for it.
#[derive(Debug)]
pub(crate) struct Queue {
    link: Link,
    /// When the bucket is full again, which determines its content.
    full_at: Instant,
    waiting: VecDeque<Gone>,
}

impl Queue {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, full_at: Instant::ZERO, waiting: VecDeque::new() }
    }

    /// Takes the packets of a frame.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        packets: Vec<Vec<u8>>,
        completion: Option<Completion>,
    ) {
        let last = packets.len().saturating_sub(1);
        for (index, bytes) in packets.into_iter().enumerate() {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            // It leaves when the missing tokens are no more than those that would be left over.
            let spare = self.link.time_of(self.link.bucket_bytes.saturating_sub(length));
            let after = self.waiting.back().map_or(now, |before| before.at.max(now));
            let missing = self.full_at.since(after).saturating_sub(spare);
            let at = after + missing;
            self.full_at = self.full_at.max(at) + self.link.time_of(length);
            let completion = completion.filter(|_| index == last);
            self.waiting.push_back(Gone { at, bytes, completion });
        }
    }

    /// Takes the next packet that has left by now.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Gone> {
        let gone = self.waiting.front().is_some_and(|first| first.at <= now);
        if gone { self.waiting.pop_front() } else { None }
    }

    /// Returns when the next packet leaves.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_bucket_lets_a_packet_go_at_once_and_the_next_one_when_it_has_filled() {
        let mut queue = Queue::new(Link { rate: 80_000, bucket_bytes: 1500 });
        let now = Instant::from_millis(10);
        for bytes in [1500, 1000, 500] {
            queue.push(now, vec![vec![0; bytes]], None);
        }
        assert!(queue.pop(now).is_some() && queue.pop(now).is_none());
        // Ten octets a millisecond.
        assert_eq!(queue.next(), Some(now + Duration::from_millis(100)));
        let later = now + Duration::from_millis(150);
        let gone: Vec<_> = std::iter::from_fn(|| queue.pop(later)).map(|gone| gone.at).collect();
        assert_eq!(gone, [now + Duration::from_millis(100), later]);
        // Empty at 160 ms, so half a second later it is full, and no more than that.
        let idle = now + Duration::from_millis(900);
        queue.push(idle, vec![vec![0; 1500], vec![0; 100]], None);
        assert_eq!(queue.pop(idle).map(|gone| gone.at), Some(idle));
        assert_eq!(queue.next(), Some(idle + Duration::from_millis(10)));
    }
}
