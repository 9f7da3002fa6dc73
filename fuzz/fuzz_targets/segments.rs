//! A peer that sends anything: segments near the numbers that matter, or any octets at all, between
//! calls of the user, and time that passes. The stack must not panic, must stop sending at some
//! point, and must have nothing left when all are gone.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use uncork_packet::{Capabilities, Completion, Medium, Received, Trust};
use uncork_stack::{
    Algorithm, Config, Ecn, Instant, KeepAlive, ListenerId, Mac, Shutdown, SocketId, SocketOption,
    Stack,
};
use uncork_wire::tcp::{Fields, Flags, Header, OptionSet};
use uncork_wire::{Protocol, SeqNumber, ipv4};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// More than any input can make a stack send at one moment: beyond that it would never stop.
const MOST_FRAMES: usize = 60_000;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn octet(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn word(&mut self) -> Option<i32> {
        let (low, high) = (self.octet()?, self.octet()?);
        Some(i16::from_le_bytes([low, high]).into())
    }
}

struct Play {
    stack: Stack,
    now: Instant,
    listener: ListenerId,
    sockets: Vec<SocketId>,
    in_device: Vec<Completion>,
    /// What the stack has sent last: its number, the one it expects, and its port.
    said: (SeqNumber, SeqNumber, u16),
}

impl Play {
    fn new(choice: u8) -> Self {
        let config = Config {
            congestion: if choice & 1 == 0 { Algorithm::Cubic } else { Algorithm::NewReno },
            pacing: choice & 2 == 0,
            ecn: if choice & 4 == 0 { Ecn::Asked } else { Ecn::Granted },
            kept_storage_bytes: 1 << 20,
            ..Config::default()
        };
        let trains = choice & 8 == 0;
        let device = Capabilities {
            max_train_bytes: if trains { 65_000 } else { 1500 },
            completes_checksums: trains,
            reports_completions: choice & 16 == 0,
            ..Capabilities::plain(Medium::Ip, 1500)
        };
        let mut stack = Stack::new(config, device, Mac::default(), [choice; 32]);
        stack.add_address("10.0.0.1/24".parse().expect("an address"));
        let local = SocketAddr::new(OURS.into(), 80);
        let listener = stack.listen(local, 2).expect("a listener");
        Self {
            stack,
            now: Instant::from_millis(1),
            listener,
            sockets: vec![],
            in_device: vec![],
            said: (SeqNumber(0), SeqNumber(0), 80),
        }
    }

    fn flush(&mut self) {
        let mut slot = vec![0; 66_000];
        for _ in 0..MOST_FRAMES {
            let Some(transmit) = self.stack.poll_transmit(self.now, &mut slot) else {
                while self.stack.poll_event().is_some() {}
                return;
            };
            let frame = &slot[..transmit.frame_bytes as usize];
            if let Ok((_, segment)) = ipv4::Header::read(frame)
                && let Ok(header) = Header::read(segment, segment.len())
            {
                let bytes = (segment.len() - header.header_bytes()) as u32;
                let syn = u32::from(header.flags().has(Flags::SYN));
                let expected = header.ack().unwrap_or(self.said.1);
                self.said = (header.seq() + bytes + syn, expected, header.source_port());
            }
            if let Some(owner) = transmit.owner {
                self.in_device.push(Completion { owner, bytes: transmit.frame_bytes });
            }
        }
        panic!("it does not stop sending");
    }

    fn segment(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (flags, near) = (Flags(input.octet()?), input.octet()?);
        let (seq, ack, window) = (input.word()?, input.word()?, input.word()?);
        let bytes = usize::from(input.octet()?) * if near & 1 == 0 { 1 } else { 20 };
        let options = usize::from(input.octet()? % 11) * 4;
        // Small distances, as those are decisive.
        let distance = |word: i32| if near & 2 == 0 { word >> 8 } else { word };
        let offset = |number: SeqNumber, by: i32| SeqNumber(number.0.wrapping_add(by as u32));
        let fields = Fields {
            source_port: 1000 + u16::from(near >> 6),
            destination_port: self.said.2,
            seq: offset(self.said.1, distance(seq)),
            ack: offset(self.said.0, distance(ack)),
            flags,
            window: window as u16,
        };
        let mut segment = vec![0; 20 + options];
        fields.emit(&OptionSet::default(), &mut segment);
        for place in &mut segment[20..] {
            *place = input.octet()?;
        }
        segment[12] = ((20 + options) as u8 / 4) << 4;
        segment.resize(segment.len() + bytes, 7);
        let mut frame = vec![0; 20];
        ipv4::Header {
            tos: near >> 2 & 3,
            ..ipv4::Header::whole(Protocol::TCP, PEER, OURS, (20 + segment.len()) as u16)
        }
        .emit(&mut frame);
        frame.extend(segment);
        let train = (near & 32 != 0).then_some(100);
        let received = Received { bytes: &frame, trust: Trust::Good, segment_bytes: train };
        self.stack.handle_frame(self.now, &received);
        Some(())
    }

    fn user(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (what, how) = (input.octet()?, input.octet()?);
        let now = self.now;
        if let Some(socket) = self.stack.accept(self.listener) {
            self.sockets.push(socket);
        }
        if what % 16 == 0 && self.sockets.len() < 4 {
            let remote = SocketAddr::new(PEER.into(), 1000 + u16::from(how & 3));
            self.sockets.extend(self.stack.connect(now, None, remote).ok());
        }
        let socket = *self.sockets.get(usize::from(how >> 4) % self.sockets.len().max(1))?;
        let on = how & 1 == 1;
        let option = match what % 16 {
            1..=3 => {
                let bytes = vec![9; usize::from(how) * 40 + 1];
                let _ = self.stack.send(now, socket, &bytes, on);
                return Some(());
            }
            4..=6 => {
                let _ = self.stack.recv(now, socket, &mut vec![0; usize::from(how) * 40 + 1]);
                return Some(());
            }
            7 => {
                self.stack.shutdown(now, socket, if on { Shutdown::Write } else { Shutdown::Both });
                return Some(());
            }
            8 => {
                self.stack.close(now, socket);
                self.sockets.retain(|other| *other != socket);
                return Some(());
            }
            9 => SocketOption::NoDelay(on),
            10 => SocketOption::Cork(on),
            11 => SocketOption::QuickAck(on),
            12 => SocketOption::MaxSegment(u16::from(how) * 8),
            13 => SocketOption::ReceiveBuffer(u32::from(how) * 1000),
            14 => SocketOption::UserTimeout(on.then_some(Duration::from_millis(how.into()))),
            _ => SocketOption::KeepAlive(on.then_some(KeepAlive {
                idle: Duration::from_secs(how.into()),
                interval: Duration::from_secs(1),
                probes: 3,
            })),
        };
        self.stack.set_option(now, socket, option);
        let _ = self.stack.info(now, socket);
        Some(())
    }

    fn pass(&mut self, time: Duration) {
        let target = self.now + time;
        for _ in 0..MOST_FRAMES {
            let Some(due) = self.stack.poll_timeout().filter(|&due| due <= target) else {
                self.now = target;
                return;
            };
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
            self.flush();
        }
        panic!("its timers do not stop");
    }

    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        match input.octet()? % 8 {
            0..=3 => self.segment(input)?,
            4..=5 => self.user(input)?,
            6 => {
                let exponent = input.octet()? % 36;
                self.pass(Duration::from_nanos(1 << exponent));
            }
            _ => {
                for completion in std::mem::take(&mut self.in_device) {
                    self.stack.handle_completion(self.now, completion);
                }
            }
        }
        self.flush();
        Some(())
    }

    fn end(mut self) {
        for socket in std::mem::take(&mut self.sockets) {
            self.stack.abort(self.now, socket);
            self.stack.close(self.now, socket);
        }
        self.stack.close_listener(self.now, self.listener);
        self.flush();
        // Connections that were closed and not aborted: the peer is silent from now on.
        self.pass(Duration::from_secs(3 * 3600));
        assert_eq!(self.stack.connection_count(), 0, "a connection is left over");
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let mut play = Play::new(choice);
    let mut input = Input(rest);
    while play.step(&mut input).is_some() {}
    play.end();
});
