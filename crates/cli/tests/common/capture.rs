//! Captures of connections that behave well, and of some that do not.

use std::time::Duration;

const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 1], 40_000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 8080);
const SYN: u8 = 2;
const ACK: u8 = 16;
const PSH: u8 = 8;
/// The round-trip time.
const ROUND_TRIP: Duration = Duration::from_micros(200);

type End = ([u8; 4], u16);

/// Frames with their timestamps.
pub(crate) struct Trace {
    frames: Vec<(Duration, Vec<u8>)>,
    now: Duration,
    client: End,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
}

impl Trace {
    fn new(client: End) -> Self {
        let now = Duration::from_secs(1_700_000_000);
        let mut trace = Self { frames: Vec::new(), now, client, next: [1000, 5000] };
        trace.send(0, SYN, &[2, 4, 5, 180], b"");
        trace.pass(ROUND_TRIP);
        trace.send(1, SYN | ACK, &[2, 4, 5, 180], b"");
        trace.pass(Duration::from_micros(20));
        trace.send(0, ACK, &[], b"");
        trace
    }

    /// Requests in one segment each, answered at once.
    pub(crate) fn healthy(requests: usize) -> Self {
        Self::slow(requests, Duration::from_micros(50))
    }

    /// Requests in one segment each, answered after a while; the ACK comes at once.
    pub(crate) fn slow(requests: usize, after: Duration) -> Self {
        let mut trace = Self::new(CLIENT);
        trace.answered(requests, after);
        trace
    }

    /// More requests that are answered at once.
    pub(crate) fn more(&mut self, requests: usize) {
        self.answered(requests, Duration::from_micros(50));
    }

    fn answered(&mut self, requests: usize, after: Duration) {
        for _ in 0..requests {
            self.pass(Duration::from_millis(1));
            self.send(0, ACK | PSH, &[], b"request");
            self.pass(ROUND_TRIP);
            self.send(1, ACK, &[], b"");
            self.pass(after);
            self.send(1, ACK | PSH, &[], b"reply");
            self.pass(Duration::from_micros(20));
            self.send(0, ACK, &[], b"");
        }
    }

    /// Sets the capturing machine's clock back.
    pub(crate) fn set_clock_back(&mut self, by: Duration) {
        self.now -= by;
    }

    /// Header and body written one by one, the second held by Nagle's algorithm until the ACK of
    /// the first, which is delayed by 40 ms.
    pub(crate) fn nagle(requests: usize) -> Self {
        let mut trace = Self::new(CLIENT);
        trace.nagle_requests(requests);
        trace
    }

    /// Makes this many such connections.
    pub(crate) fn many(connections: u16) -> Self {
        let mut all = Self::new(CLIENT);
        for number in 0..connections {
            let mut one = Self::new((CLIENT.0, 10_000 + number));
            one.nagle_requests(2);
            all.frames.extend(one.frames);
        }
        all
    }

    /// A frame that is not TCP.
    pub(crate) fn arp() -> Self {
        let mut trace = Self::new(CLIENT);
        trace.frames = vec![(trace.now, [&[0xff; 12][..], &[8, 6], &[0; 46]].concat())];
        trace
    }

    fn nagle_requests(&mut self, requests: usize) {
        for _ in 0..requests {
            self.pass(Duration::from_millis(1));
            self.send(0, ACK | PSH, &[], b"header");
            self.pass(ROUND_TRIP + Duration::from_millis(40));
            self.send(1, ACK, &[], b"");
            self.pass(Duration::from_micros(20));
            self.send(0, ACK | PSH, &[], b"body");
            self.pass(ROUND_TRIP);
            self.send(1, ACK | PSH, &[], b"reply");
            self.pass(Duration::from_micros(20));
            self.send(0, ACK, &[], b"");
        }
    }

    /// Adds a segment with an option that is longer than the header.
    pub(crate) fn lie_in_option(&mut self) {
        self.send(0, ACK, &[8, 200, 0, 0], b"");
    }

    /// Adds a packet whose total length is longer than its frame.
    pub(crate) fn lie_in_length(&mut self) {
        self.send(0, ACK, &[], b"");
        if let Some((_, frame)) = self.frames.last_mut() {
            frame[16] = 0x40;
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Adds a segment from the client (0) or the server (1).
    fn send(&mut self, from: usize, flags: u8, options: &[u8], data: &[u8]) {
        let mut ends = [self.client, SERVER];
        ends.rotate_left(from);
        let [source, destination] = ends;
        let header_bytes = 20 + options.len();
        let total = u16::try_from(20 + header_bytes + data.len()).unwrap();
        let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0], &total.to_be_bytes()].concat();
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([source.0, destination.0].concat());
        frame.extend([source.1.to_be_bytes(), destination.1.to_be_bytes()].concat());
        frame.extend(self.next[from].to_be_bytes());
        let ack = if flags & ACK == 0 { 0 } else { self.next[1 - from] };
        frame.extend(ack.to_be_bytes());
        frame.extend([u8::try_from(header_bytes / 4).unwrap() << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend_from_slice(options);
        frame.extend_from_slice(data);
        self.next[from] += u32::try_from(data.len()).unwrap() + u32::from(flags & SYN != 0);
        self.frames.push((self.now, frame));
    }

    /// Returns the file as tcpdump writes it.
    pub(crate) fn pcap(&self) -> Vec<u8> {
        let head: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, 1];
        let mut file: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
        for (at, frame) in &self.frames {
            let length = u32::try_from(frame.len()).unwrap();
            let seconds = u32::try_from(at.as_secs()).unwrap();
            let numbers = [seconds, at.subsec_micros(), length, length];
            file.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
            file.extend_from_slice(frame);
        }
        file
    }

    /// Returns the file as Wireshark writes it.
    pub(crate) fn pcapng(&self) -> Vec<u8> {
        let mut file = Self::pcapng_head(&[1]);
        self.pcapng_packets(0, &mut file);
        file
    }

    /// Returns a pcapng file with a second interface whose frames cannot be read.
    pub(crate) fn pcapng_with_usb(&self) -> Vec<u8> {
        let mut file = Self::pcapng_head(&[189, 1]);
        let usb = [0, 0, 0, 4, 4].into_iter().flat_map(u32::to_le_bytes);
        block(&mut file, 6, &usb.chain([1, 2, 3, 4]).collect::<Vec<_>>());
        self.pcapng_packets(1, &mut file);
        file
    }

    fn pcapng_head(links: &[u16]) -> Vec<u8> {
        let mut file = Vec::new();
        let section = [0x1a2b_3c4d_u32, 1, u32::MAX, u32::MAX];
        let section: Vec<u8> = section.into_iter().flat_map(u32::to_le_bytes).collect();
        block(&mut file, 0x0a0d_0d0a, &section);
        for link in links {
            block(&mut file, 1, &[&link.to_le_bytes()[..], &[0; 6]].concat());
        }
        file
    }

    fn pcapng_packets(&self, interface: u32, file: &mut Vec<u8>) {
        for (at, frame) in &self.frames {
            let units = u64::try_from(at.as_micros()).unwrap();
            let high = u32::try_from(units >> 32).unwrap();
            let low = u32::try_from(units & 0xffff_ffff).unwrap();
            let length = u32::try_from(frame.len()).unwrap();
            let numbers = [interface, high, low, length, length];
            let mut body: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
            body.extend_from_slice(frame);
            block(file, 6, &body);
        }
    }
}

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let padded = body.len().next_multiple_of(4);
    let length = u32::try_from(padded + 12).unwrap().to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(length);
    file.extend_from_slice(body);
    file.resize(file.len() + padded - body.len(), 0);
    file.extend(length);
}
