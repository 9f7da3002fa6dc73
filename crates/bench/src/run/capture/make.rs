//! A large capture of ordinary connections, all at the same time: requests and replies of many
//! sizes, some with each of the faults that the doctor recognises by timing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::path_of;

/// How much of each frame is kept, in octets: `tcpdump -s 128`.
const SNAP_BYTES: usize = 128;
const MSS: u32 = 1448;
const SYN: u8 = 2;
const FIN: u8 = 1;
const ACK: u8 = 16;
const PSH: u8 = 8;

/// How long connections rest between a reply and the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Milliseconds: short connections are over before all have begun.
    Brisk,
    /// Seconds: all are open at the same time.
    Leisurely,
}

/// Writes a capture with so many connections, and at least as many segments, into `dir`.
pub(super) fn capture(dir: &Path, connections: u32, segments: u64, pace: Pace) -> Result<PathBuf> {
    let path = path_of(dir, connections, segments);
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, SNAP_BYTES as u32, 1_u32] {
        out.write_all(&word.to_le_bytes())?;
    }
    let each = segments.div_ceil(u64::from(connections));
    let mut all: Vec<Connection> =
        (0..connections).map(|number| Connection::new(number, each, pace)).collect();
    let mut next: BinaryHeap<_> =
        all.iter().enumerate().map(|(index, one)| Reverse((one.now, index))).collect();
    while let Some(Reverse((at, index))) = next.pop() {
        let connection = &mut all[index];
        if let Some(segment) = connection.step() {
            connection.write(at, &segment, &mut out)?;
            next.push(Reverse((connection.now, index)));
        }
    }
    out.flush().with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// A segment that a connection sends, and how long after it the next one follows.
struct Segment {
    from: usize,
    flags: u8,
    bytes: u32,
    then: Duration,
}

struct Connection {
    number: u32,
    pace: Pace,
    now: Duration,
    random: Random,
    round_trip: Duration,
    /// Segments left until it is closed.
    left: u64,
    coming: VecDeque<Segment>,
    closing: bool,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
}

impl Connection {
    fn new(number: u32, segments: u64, pace: Pace) -> Self {
        let mut random = Random(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let round_trip = Duration::from_micros(50 + random.below(2_000));
        let start =
            Duration::from_secs(1_700_000_000) + Duration::from_micros(random.below(1 << 20));
        let mut connection = Self {
            number,
            pace,
            now: start,
            round_trip,
            left: segments.saturating_sub(6),
            coming: VecDeque::new(),
            closing: false,
            next: [random.next() as u32, random.next() as u32],
            random,
        };
        connection.say(0, SYN, 0, round_trip);
        connection.say(1, SYN | ACK, 0, round_trip / 8);
        connection.say(0, ACK, 0, round_trip / 8);
        connection
    }

    fn say(&mut self, from: usize, flags: u8, bytes: u32, then: Duration) {
        self.coming.push_back(Segment { from, flags, bytes, then });
    }

    /// Returns the next segment; `None` when it is closed.
    fn step(&mut self) -> Option<Segment> {
        if self.coming.is_empty() {
            if self.closing {
                return None;
            }
            if self.left == 0 {
                self.closing = true;
                self.say(0, FIN | ACK, 0, self.round_trip);
                self.say(1, FIN | ACK, 0, self.round_trip / 8);
                self.say(0, ACK, 0, Duration::ZERO);
            } else {
                self.exchange();
                self.left = self.left.saturating_sub(self.coming.len() as u64);
            }
        }
        let segment = self.coming.pop_front()?;
        self.now += segment.then;
        Some(segment)
    }

    /// Queues a request and its reply.
    fn exchange(&mut self) {
        let soon = Duration::from_micros(5 + self.random.below(60));
        let half = self.round_trip / 2;
        let request = 40 + self.random.below(600) as u32;
        self.say(0, ACK | PSH, request, half);
        match self.random.below(20) {
            // Its second half waited for the ACK of the first, which was delayed.
            0 => {
                self.say(1, ACK, 0, soon);
                let held = self.coming.len() - 2;
                self.coming[held].then = self.round_trip + Duration::from_millis(40);
                self.say(0, ACK | PSH, 60, half);
            }
            // The program took its time.
            1 => {
                let slow = Duration::from_millis(20 + self.random.below(30));
                self.say(1, ACK, 0, slow);
            }
            _ => {}
        }
        let mut reply = match self.random.below(4) {
            0 => self.random.below(60_000) as u32,
            _ => 100 + self.random.below(1_300) as u32,
        };
        while reply > MSS {
            self.say(1, ACK, MSS, Duration::from_micros(12));
            reply -= MSS;
            // Every second full segment is acknowledged (RFC 9293 §3.8.6.3).
            if (reply / MSS).is_multiple_of(2) {
                self.say(0, ACK, 0, soon);
            }
        }
        self.say(1, ACK | PSH, reply.max(1), half);
        let pause = Duration::from_micros(200 + self.random.below(4_000));
        let times = if self.pace == Pace::Leisurely { 1000 } else { 1 };
        self.say(0, ACK, 0, pause * times);
    }

    /// Writes an Ethernet frame as the capture keeps it.
    fn write(&mut self, at: Duration, segment: &Segment, out: &mut impl Write) -> Result<()> {
        let &Segment { from, flags, bytes, .. } = segment;
        let to = 1 - from;
        let mut frame = [0_u8; SNAP_BYTES];
        let wire_bytes = 14 + 20 + 32 + bytes as usize;
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        frame[16..18].copy_from_slice(&(52 + bytes as u16).to_be_bytes());
        frame[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
        // 250 clients per address, so that there are enough ports.
        let number = self.number;
        let ends =
            [(0x0a01_0000 + number / 250, 20_000 + (number % 250) as u16), (0x0a02_0001, 8080)];
        for (place, end) in [(26, from), (30, to)] {
            frame[place..place + 4].copy_from_slice(&ends[end].0.to_be_bytes());
        }
        for (place, end) in [(34, from), (36, to)] {
            frame[place..place + 2].copy_from_slice(&ends[end].1.to_be_bytes());
        }
        frame[38..42].copy_from_slice(&self.next[from].to_be_bytes());
        if flags & ACK != 0 {
            frame[42..46].copy_from_slice(&self.next[to].to_be_bytes());
        }
        frame[46..50].copy_from_slice(&[0x80, flags, 0xfa, 0]);
        if flags & SYN != 0 {
            frame[54..66].copy_from_slice(&[2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 4, 2]);
        } else {
            frame[54..58].copy_from_slice(&[1, 1, 8, 10]);
            let milliseconds = at.as_millis() as u32;
            frame[58..62].copy_from_slice(&milliseconds.to_be_bytes());
        }
        let grows = u32::from(flags & (SYN | FIN) != 0);
        self.next[from] = self.next[from].wrapping_add(bytes + grows);
        let kept = wire_bytes.min(SNAP_BYTES);
        for word in [at.as_secs() as u32, at.subsec_micros(), kept as u32, wire_bytes as u32] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(out.write_all(&frame[..kept])?)
    }
}

/// Pseudo-random numbers that are the same each time (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_segments_and_connections_that_were_asked_for() {
        let dir = std::env::temp_dir().join(format!("bench-capture-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = capture(&dir, 20, 2_000, Pace::Brisk).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let (mut at, mut segments, mut opened) = (24, 0, 0);
        let mut last = (0, 0);
        while at < bytes.len() {
            let word = |n: usize| u32::from_le_bytes(*bytes[at + 4 * n..].first_chunk().unwrap());
            assert!((word(0), word(1)) >= last, "times go up");
            last = (word(0), word(1));
            opened += u32::from(bytes[at + 16 + 47] == SYN);
            segments += 1;
            at += 16 + word(2) as usize;
        }
        assert_eq!((at, opened), (bytes.len(), 20));
        assert!((2_000..4_000).contains(&segments), "{segments}");
    }
}
