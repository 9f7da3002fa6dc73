//! A stack alone with a peer that sends exactly what a test wants, in virtual time.
//!
//! Segments are written as tcpdump writes them, with numbers relative to both initial ones:
//! `S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,ts 5 0,ws 7>`.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uncork_packet::{Capabilities, Checksum, Completion, Medium, Owner, Received, Transmit};
use uncork_stack::{Config, Instant, ListenerId, Mac, RecvError, SocketId, Stack, State};
use uncork_wire::checksum::Sum;
use uncork_wire::tcp::{Cookie, Fields, Flags, Header, OptionSet, SackBlocks};
use uncork_wire::{Protocol, SeqNumber, ipv4};

pub const OURS: &str = "10.0.0.1";
pub const PEER: &str = "10.0.0.2";
pub const PORT: u16 = 80;
pub const PEER_PORT: u16 = 40_000;

/// The peer's initial sequence number.
const PEER_ISS: u32 = 0xffff_fff0;

pub struct Lab {
    pub stack: Stack,
    pub now: Instant,
    /// Our initial sequence number, once it was seen.
    pub iss: Option<SeqNumber>,
    /// Our port, where it is not [`PORT`].
    pub our_port: u16,
    pub peer_port: u16,
    /// Completions that the device has not reported yet.
    pub in_device: Vec<Completion>,
    /// Whether the device reports completions at once.
    pub completes: bool,
    /// Segment size of the next frame, if that stands for several segments joined by GRO.
    pub train: Option<u16>,
    /// TOS octet of the peer's packets, with the ECN bits.
    pub tos: u8,
    pub last_tos: u8,
    /// IP identification of the last packet, if routers may fragment it.
    pub last_id: Option<u16>,
    /// The window field of the last segment that has left, as it is on the wire.
    pub last_window: u16,
    pub last: Option<Transmit>,
    /// Milliseconds that the peer takes for its part of a handshake.
    pub round_trip: u64,
    /// The first timestamp that we have sent.
    stamp: Option<u32>,
}

impl Lab {
    pub fn new(config: Config) -> Self {
        Self::with_device(config, Capabilities::plain(Medium::Ip, 1500))
    }

    pub fn with_device(config: Config, device: Capabilities) -> Self {
        let mut stack = Stack::new(config, device, Mac::default(), [3; 32]);
        stack.add_address(format!("{OURS}/24").parse().unwrap());
        Self {
            stack,
            now: Instant::from_millis(1000),
            iss: None,
            our_port: PORT,
            peer_port: PEER_PORT,
            in_device: Vec::new(),
            completes: true,
            train: None,
            tos: 0,
            last_tos: 0,
            last_id: None,
            last_window: 0,
            last: None,
            round_trip: 10,
            stamp: None,
        }
    }

    pub fn listen(&mut self) -> ListenerId {
        self.stack.listen(SocketAddr::new(OURS.parse().unwrap(), PORT), 5).unwrap()
    }

    /// Accepts a connection that the peer opens with the options of `syn`. Its ACK takes
    /// `round_trip` milliseconds.
    pub fn accepted(&mut self, syn: &str) -> SocketId {
        let listener = self.listen();
        self.send(&format!("S 0:0(0) win 65535 <{syn}>"));
        self.take();
        self.wait(self.round_trip);
        let stamp = if syn.contains("ts ") { " <ts 200 0>" } else { "" };
        self.send(&format!(". 1:1(0) ack 1 win 65535{stamp}"));
        assert_eq!(self.take(), [""; 0]);
        self.stack.accept(listener).unwrap()
    }

    /// Opens a connection from this side.
    pub fn connected(&mut self, syn_ack: &str) -> SocketId {
        let remote = SocketAddr::new(PEER.parse().unwrap(), PEER_PORT);
        let socket = self.stack.connect(self.now, None, remote).unwrap();
        self.take();
        self.wait(10);
        self.send(&format!("S. 0:0(0) ack 1 win 65535 <{syn_ack}>"));
        assert_eq!(self.take().len(), 1);
        socket
    }

    /// Lets time pass, and timers expire.
    pub fn wait(&mut self, millis: u64) {
        self.wait_for(Duration::from_millis(millis));
    }

    pub fn wait_for(&mut self, time: Duration) {
        let target = self.now + time;
        while let Some(due) = self.stack.poll_timeout().filter(|&due| due <= target) {
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
        }
        self.now = target;
        self.stack.handle_timeout(self.now);
    }

    /// Advances to the next moment at which something leaves; returns that and the milliseconds.
    pub fn until_something(&mut self) -> (f64, Vec<String>) {
        let began = self.now;
        for _ in 0..100 {
            let taken = self.take();
            if !taken.is_empty() {
                return (self.now.since(began).as_secs_f64() * 1e3, taken);
            }
            let Some(due) = self.stack.poll_timeout() else { break };
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
        }
        (self.now.since(began).as_secs_f64() * 1e3, Vec::new())
    }

    /// Returns what leaves now, in our notation.
    pub fn take(&mut self) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            taken.extend(std::iter::from_fn(|| self.take_one()));
            if !self.completes || self.in_device.is_empty() {
                return taken;
            }
            self.complete();
        }
    }

    /// Returns the next frame, whose completion is not reported by itself.
    pub fn take_one(&mut self) -> Option<String> {
        let mut slot = vec![0; 70_000];
        let transmit = self.stack.poll_transmit(self.now, &mut slot)?;
        self.last = Some(transmit);
        if let Some(owner) = transmit.owner {
            self.in_device.push(Completion { owner, bytes: transmit.frame_bytes });
        }
        Some(self.describe(&slot[..transmit.frame_bytes as usize], &transmit))
    }

    /// Reports the completion of all that was handed to the device.
    pub fn complete(&mut self) {
        for completion in std::mem::take(&mut self.in_device) {
            self.stack.handle_completion(self.now, completion);
        }
    }

    pub fn complete_first(&mut self) {
        let completion = self.in_device.remove(0);
        self.stack.handle_completion(self.now, completion);
    }

    fn describe(&mut self, frame: &[u8], transmit: &Transmit) -> String {
        let (ip, tcp) = ipv4::Header::read(frame).unwrap();
        assert_eq!(
            (ip.source, IpAddr::V4(ip.destination)),
            (OURS.parse().unwrap(), PEER.parse().unwrap())
        );
        let mut sum = Sum::default();
        sum.add_pseudo_v4(ip.source, ip.destination, 6, u32::try_from(tcp.len()).unwrap());
        if transmit.checksum == Checksum::Complete {
            sum.add(tcp);
            assert!(sum.is_good(), "a checksum is wrong");
        }
        self.last_tos = ip.tos;
        self.last_id = (!ip.dont_fragment).then_some(ip.id);
        let header = Header::read(tcp, tcp.len()).unwrap();
        self.last_window = header.window();
        self.our_port = header.source_port();
        let flags = header.flags();
        if flags.has(Flags::SYN) {
            self.iss = Some(header.seq());
        }
        let iss = self.iss.unwrap_or(SeqNumber(0));
        let from = header.seq() - iss.0;
        let bytes = u32::try_from(tcp.len() - header.header_bytes()).unwrap();
        let letters = flags;
        let mut text = format!("{letters} {}:{}({bytes})", from.0, (from + bytes).0);
        if let Some(ack) = header.ack() {
            text += &format!(" ack {}", (ack - PEER_ISS).0);
        }
        let options = header.option_set();
        let mut words = Vec::new();
        if let Some(mss) = options.mss {
            words.push(format!("mss {mss}"));
        }
        if options.sack_permitted {
            words.push("sackOK".into());
        }
        if let Some((value, _)) = options.timestamps {
            self.stamp.get_or_insert(value);
            words.push("ts".into());
        }
        if let Some(shift) = options.window_scale {
            words.push(format!("ws {shift}"));
        }
        if let Some(cookie) = options.fast_open {
            let kind = if cookie.is_experimental() { "FOEXP" } else { "FO" };
            let hex: String =
                cookie.as_slice().iter().map(|octet| format!("{octet:02x}")).collect();
            words.push(format!("{kind} {hex}").trim_end().to_owned());
        }
        for (left, right) in options.sack.as_slice() {
            words.push(format!("sack {}:{}", (*left - PEER_ISS).0, (*right - PEER_ISS).0));
        }
        if !words.is_empty() {
            text += &format!(" <{}>", words.join(","));
        }
        text
    }

    /// Returns our sequence number `seq` as it is on the wire.
    pub fn absolute(&self, seq: u32) -> u32 {
        (self.iss.unwrap() + seq).0
    }

    /// Returns what `ts` has to give for a zero in the segment: the peer echoes nothing.
    pub fn no_echo(&self) -> u32 {
        0_u32.wrapping_sub(self.stamp.unwrap_or(0))
    }

    /// Delivers this segment from the peer.
    pub fn send(&mut self, text: &str) {
        let frame = self.frame(text);
        let received = Received { segment_bytes: self.train.take(), ..Received::plain(&frame) };
        self.stack.handle_frame(self.now, &received);
    }

    fn frame(&self, text: &str) -> Vec<u8> {
        let (text, options) = text.split_once(" <").unwrap_or((text, ""));
        let mut words = text.split_whitespace();
        let letters = words.next().unwrap();
        let flags = Flags::LETTERS
            .iter()
            .filter(|(_, letter)| letters.contains(*letter))
            .fold(Flags(0), |flags, (flag, _)| flags.with(*flag));
        let (numbers, bytes) = words.next().unwrap().split_once('(').unwrap();
        let bytes: usize = bytes.trim_end_matches(')').parse().unwrap();
        let seq: u32 = numbers.split_once(':').unwrap().0.parse().unwrap();
        let (mut ack, mut window) = (None, 65_535);
        while let Some(word) = words.next() {
            let number: u32 = words.next().unwrap().parse().unwrap();
            match word {
                "ack" => ack = Some(number),
                "win" => window = u16::try_from(number).unwrap(),
                other => panic!("{other}?"),
            }
        }
        let options = self.options(options.trim_end_matches('>'));
        let ack = ack.map_or(SeqNumber(0), |ack| self.iss.unwrap_or_default() + ack);
        let fields = Fields {
            source_port: self.peer_port,
            destination_port: self.our_port,
            seq: SeqNumber(PEER_ISS) + seq,
            ack,
            flags,
            window,
        };
        let mut segment = vec![0; 60];
        let header_bytes = fields.emit(&options, &mut segment);
        segment.truncate(header_bytes);
        let first = seq as usize;
        segment.extend((0..bytes).map(|n| byte(first + n)));
        let (source, destination) = (PEER.parse().unwrap(), OURS.parse().unwrap());
        let mut sum = Sum::default();
        sum.add_pseudo_v4(source, destination, 6, u32::try_from(segment.len()).unwrap());
        sum.add(&segment);
        segment[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        let mut frame = vec![0; 20];
        let total = u16::try_from(20 + segment.len()).unwrap();
        let whole = ipv4::Header::whole(Protocol::TCP, source, destination, total);
        ipv4::Header { tos: self.tos, ..whole }.emit(&mut frame);
        frame.extend(segment);
        frame
    }

    fn options(&self, text: &str) -> OptionSet {
        let mut set = OptionSet::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let mut parts = word.split_whitespace();
            let name = parts.next().unwrap();
            let mut number = || parts.next().unwrap().parse::<u32>().unwrap();
            match name {
                "mss" => set.mss = u16::try_from(number()).ok(),
                "ws" => set.window_scale = u8::try_from(number()).ok(),
                "sackOK" => set.sack_permitted = true,
                "FO" | "FOEXP" => {
                    let hex = parts.next().unwrap_or_default();
                    let octets = (0..hex.len() / 2)
                        .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap());
                    let cookie = Cookie::new(&octets.collect::<Vec<_>>());
                    set.fast_open = cookie.map(|cookie| cookie.in_experiment(name == "FOEXP"));
                }
                "ts" => {
                    let (value, echo) = (number(), number());
                    // Relative to our first timestamp; before that there is none to echo.
                    let echo = self.stamp.map_or(0, |stamp| stamp.wrapping_add(echo));
                    set.timestamps = Some((value, echo));
                }
                "sack" => {
                    let (left, right) = parts.next().unwrap().split_once(':').unwrap();
                    let iss = self.iss.unwrap();
                    let edge = |text: &str| iss + text.parse::<u32>().unwrap();
                    let mut blocks: SackBlocks = set.sack;
                    blocks.push(edge(left), edge(right));
                    set.sack = blocks;
                }
                other => panic!("{other}?"),
            }
        }
        set
    }

    /// Writes this many bytes as the user.
    pub fn write(&mut self, socket: SocketId, bytes: usize) -> usize {
        self.stack.send(self.now, socket, &vec![b'x'; bytes], false).unwrap()
    }

    pub fn write_more(&mut self, socket: SocketId, bytes: usize) {
        assert_eq!(self.stack.send(self.now, socket, &vec![b'x'; bytes], true), Ok(bytes));
    }

    /// Reads all there is as the user, and returns how many bytes.
    pub fn read(&mut self, socket: SocketId) -> Result<usize, RecvError> {
        let mut buffer = vec![0; 1 << 20];
        self.stack.recv(self.now, socket, &mut buffer)
    }

    pub fn state(&mut self, socket: SocketId) -> State {
        self.stack.info(self.now, socket).map_or(State::Closed, |info| info.state)
    }
}

/// Returns the octet at relative place `n` of the peer's stream.
pub fn byte(n: usize) -> u8 {
    (n % 251) as u8
}

pub fn owner(socket: SocketId) -> Owner {
    Owner(socket.as_u64())
}
