//! Helpers that the tests of the ports share: namespaces, and a TCP just good enough to talk to the
//! kernel's over a link that loses nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod echo;
pub(crate) mod engines;
pub(crate) mod xdp;

use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uncork_driver::af_packet::{Port, Settings};
use uncork_driver::{Driver, Offer};
use uncork_netns::Namespace;
use uncork_packet::{Checksum, Completion, Owner, Segmentation, Transmit, Trust};
use uncork_wire::checksum::Sum;
use uncork_wire::ethernet::{self, EtherType, Mac};
use uncork_wire::tcp::{CHECKSUM_OFFSET, Fields, Flags, OptionSet};
use uncork_wire::{Protocol, SeqNumber, ipv4, tcp};

pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
pub(crate) const KERNELS: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
pub(crate) const OUR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// How long an engine sleeps if nothing wakes it: a test in which that happens fails.
const ASLEEP: Duration = Duration::from_secs(10);

/// Skips a test without the privilege, and says so; where everything is tested, it fails.
pub(crate) fn skipped(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        assert!(std::env::var_os("CI").is_none(), "{test} needs root");
        println!("skipped: {test}: it needs root to make network namespaces");
    }
    !root
}

/// Two namespaces joined by a veth pair, `eth0` in each, both up, with no IPv6 to talk unasked.
pub(crate) struct Link {
    pub(crate) ours: Namespace,
    pub(crate) kernels: Namespace,
}

impl Link {
    pub(crate) fn new(label: &str) -> Self {
        // Tests of several files may use the same label.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let label = format!("{label}{}", COUNT.fetch_add(1, Relaxed));
        let ours = Namespace::new(&format!("{label}-o")).unwrap();
        let kernels = Namespace::new(&format!("{label}-k")).unwrap();
        for namespace in [&ours, &kernels] {
            namespace.set("ipv6/conf/default/disable_ipv6", 1).unwrap();
        }
        let pair = format!("link add eth0 type veth peer name eth0 netns {}", kernels.name());
        ours.ip(&pair).unwrap();
        ours.ip(&format!("link set eth0 address {}", text(OUR_MAC))).unwrap();
        for namespace in [&ours, &kernels] {
            namespace.ip("link set eth0 up").unwrap();
        }
        Self { ours, kernels }
    }

    /// Gives the kernel's end an address, and a neighbour entry for ours.
    pub(crate) fn with_address(self) -> Self {
        self.kernels.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
        let neighbour = format!("neigh add {OURS} lladdr {} dev eth0", text(OUR_MAC));
        self.kernels.ip(&neighbour).unwrap();
        self
    }

    /// Gives the kernel's end a neighbour entry for our address.
    pub(crate) fn with_neighbour(self) -> Self {
        let neighbour = format!("neigh add {OURS} lladdr {} dev eth0", text(OUR_MAC));
        self.kernels.ip(&neighbour).unwrap();
        self
    }

    /// Changes a setting of both devices with ethtool(8).
    pub(crate) fn ethtool(&self, arguments: &str) {
        for namespace in [&self.ours, &self.kernels] {
            let mut command = namespace.command("ethtool");
            uncork_netns::run(command.args(arguments.split_whitespace())).unwrap();
        }
    }

    /// Opens a packet socket on our end.
    pub(crate) fn port(&self, settings: Settings) -> Port {
        let open = move || Ok(Port::open(&settings, None)?);
        self.ours.within(open).unwrap()
    }
}

/// Opens a packet socket at the kernel's end.
pub(crate) fn far_port(link: &Link) -> Port {
    let open = || Ok(Port::open(&Settings::new("eth0"), None)?);
    link.kernels.within(open).unwrap()
}

/// Changes the queueing discipline of our end with tc(8).
pub(crate) fn tc(link: &Link, arguments: &str) {
    let mut command = link.ours.command("tc");
    uncork_netns::run(command.args(arguments.split_whitespace())).unwrap();
}

pub(crate) fn text(mac: Mac) -> String {
    mac.0.map(|octet| format!("{octet:02x}")).join(":")
}

/// Returns the Ethernet address of `eth0` in a namespace.
pub(crate) fn mac_of(namespace: &Namespace) -> Mac {
    let mut command = namespace.command("cat");
    let found = command.arg("/sys/class/net/eth0/address").output().unwrap();
    let mut mac = [0; 6];
    let text = String::from_utf8(found.stdout).unwrap();
    for (to, octet) in mac.iter_mut().zip(text.trim().split(':')) {
        *to = u8::from_str_radix(octet, 16).unwrap();
    }
    Mac(mac)
}

/// A frame as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) bytes: Vec<u8>,
    pub(crate) trust: Trust,
    pub(crate) segment_bytes: Option<u16>,
}

/// Waits up to `time` for the driver to wake. One that must be polled is due when its rest is over.
pub(crate) fn wakes_within(driver: &dyn Driver, time: Duration) -> bool {
    if let Some(rest) = driver.rest_at_most() {
        std::thread::sleep(rest.min(time));
        return true;
    }
    let fd = driver.wakes().unwrap();
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::try_from(time).unwrap()).unwrap() > 0
}

/// Returns all that comes until `enough`, sleeping in between as an engine does.
pub(crate) fn receive_until(
    driver: &mut dyn Driver,
    mut enough: impl FnMut(&[Came]) -> bool,
) -> Vec<Came> {
    let mut came = Vec::new();
    let end = Instant::now() + LONG;
    loop {
        let received = driver
            .receive(64, &mut |frame| {
                came.push(Came {
                    bytes: frame.bytes.to_vec(),
                    trust: frame.trust,
                    segment_bytes: frame.segment_bytes,
                });
            })
            .unwrap();
        driver.complete(&mut |_| ()).unwrap();
        if enough(&came) {
            return came;
        }
        assert!(Instant::now() < end, "only {} frames came", came.len());
        if received == 0 {
            assert!(wakes_within(driver, ASLEEP), "nobody was woken");
        }
    }
}

/// Sends one frame of plain octets.
pub(crate) fn send(driver: &mut dyn Driver, frame: &[u8], owner: u64) -> Offer {
    driver
        .offer(&mut |slot| {
            slot[..frame.len()].copy_from_slice(frame);
            Some(Transmit {
                frame_bytes: frame.len().try_into().unwrap(),
                checksum: Checksum::Complete,
                segmentation: None,
                owner: Some(Owner(owner)),
            })
        })
        .unwrap()
}

/// Builds an Ethernet frame of no protocol, with a number and a length.
pub(crate) fn numbered(number: u32, bytes: usize, to: Mac) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..bytes).map(|at| (at as u32 * 7 + number) as u8).collect();
    // An EtherType of IEEE 802 for local experiments: the kernel answers none of these.
    ethernet::Header { destination: to, source: OUR_MAC, ethertype: EtherType(0x88b5) }
        .emit(&mut frame);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A TCP without retransmission and without windows of its own.
pub(crate) struct Peer<'a> {
    pub(crate) driver: &'a mut dyn Driver,
    /// MAC address of the kernel's end; none where there is no Ethernet.
    pub(crate) mac: Option<Mac>,
    pub(crate) port: u16,
    pub(crate) to_port: u16,
    /// Whether checksums and segmentation are left to the device.
    pub(crate) offload: bool,
    seq: u32,
    ack: u32,
    /// Data frames that have arrived.
    pub(crate) came: Vec<Came>,
}

pub(crate) struct Segment {
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) data: Vec<u8>,
}

impl<'a> Peer<'a> {
    pub(crate) fn connect(
        driver: &'a mut dyn Driver,
        mac: Option<Mac>,
        to_port: u16,
        offload: bool,
    ) -> Self {
        let mut peer = Self {
            driver,
            mac,
            port: 40_000,
            to_port,
            offload,
            seq: 1_000,
            ack: 0,
            came: Vec::new(),
        };
        let syn = OptionSet { mss: Some(1460), window_scale: Some(2), ..OptionSet::default() };
        peer.emit(Flags::SYN, &syn, &[], None);
        let answer = peer.next(|segment| segment.flags.has(Flags::SYN));
        assert!(answer.flags.has(Flags::ACK) && answer.ack == 1_001);
        peer.seq = 1_001;
        peer.ack = answer.seq.wrapping_add(1);
        peer.emit(Flags::ACK, &OptionSet::default(), &[], None);
        peer
    }

    /// Sends data in segments of `mss`, as a train with `offload`, until all of it is acknowledged.
    pub(crate) fn send(&mut self, data: &[u8], mss: u16) {
        let trains = if self.offload { data.len() } else { usize::from(mss) };
        for train in data.chunks(trains) {
            let cut = (train.len() > usize::from(mss)).then_some(mss);
            self.emit(Flags::ACK.with(Flags::PSH), &OptionSet::default(), train, cut);
            self.seq = self.seq.wrapping_add(train.len().try_into().unwrap());
        }
        let all = self.seq;
        self.next(|segment| segment.ack == all);
    }

    /// Receives so much data, and acknowledges all of it. Over veth, trains overtake each other
    /// when the sender moves to another processor, so they are put in order again.
    pub(crate) fn receive(&mut self, bytes: usize) -> Vec<u8> {
        let mut data = Vec::new();
        let mut early: Vec<Segment> = Vec::new();
        while data.len() < bytes {
            early.push(self.next(|segment| !segment.data.is_empty()));
            while let Some(at) = early.iter().position(|segment| segment.seq == self.ack) {
                let segment = early.swap_remove(at);
                data.extend_from_slice(&segment.data);
                self.ack = self.ack.wrapping_add(segment.data.len().try_into().unwrap());
            }
            self.emit(Flags::ACK, &OptionSet::default(), &[], None);
        }
        data
    }

    fn emit(&mut self, flags: Flags, options: &OptionSet, data: &[u8], cut: Option<u16>) {
        let fields = Fields {
            source_port: self.port,
            destination_port: self.to_port,
            seq: SeqNumber(self.seq),
            ack: SeqNumber(self.ack),
            flags,
            window: u16::MAX,
        };
        let (mac, offload) = (self.mac, self.offload);
        let offered = self
            .driver
            .offer(&mut |slot| Some(fill(slot, mac, &fields, options, data, cut, offload)))
            .unwrap();
        assert_eq!(offered, Offer::Taken);
        self.driver.flush().unwrap();
    }

    /// Returns the next segment of this connection that is `wanted`; the others are skipped.
    fn next(&mut self, wanted: impl Fn(&Segment) -> bool) -> Segment {
        let end = Instant::now() + LONG;
        let ethernet = self.mac.is_some();
        loop {
            let mut found = None;
            let mut came = None;
            let received = self
                .driver
                .receive(1, &mut |frame| {
                    let Some(segment) =
                        read(frame.bytes, ethernet, frame.trust, frame.segment_bytes)
                    else {
                        return;
                    };
                    assert!(!segment.flags.has(Flags::RST), "the kernel has reset the connection");
                    came = Some(Came {
                        bytes: frame.bytes.to_vec(),
                        trust: frame.trust,
                        segment_bytes: frame.segment_bytes,
                    });
                    found = Some(segment);
                })
                .unwrap();
            self.driver.complete(&mut |_| ()).unwrap();
            if let Some(segment) = found.filter(&wanted) {
                self.came.extend(came);
                return segment;
            }
            assert!(Instant::now() < end, "nothing came that was waited for");
            if received == 0 {
                assert!(wakes_within(self.driver, ASLEEP), "nobody was woken");
            }
        }
    }
}

/// Writes a segment with all its headers into a slot.
pub(crate) fn fill(
    slot: &mut [u8],
    mac: Option<Mac>,
    fields: &Fields,
    options: &OptionSet,
    data: &[u8],
    cut: Option<u16>,
    offload: bool,
) -> Transmit {
    let link = if let Some(destination) = mac {
        ethernet::Header { destination, source: OUR_MAC, ethertype: EtherType::IPV4 }.emit(slot);
        ethernet::HEADER_BYTES
    } else {
        0
    };
    let transport = link + ipv4::HEADER_BYTES;
    let header_bytes = fields.emit(options, &mut slot[transport..]);
    let payload = transport + header_bytes;
    slot[payload..payload + data.len()].copy_from_slice(data);
    let total = ipv4::HEADER_BYTES + header_bytes + data.len();
    ipv4::Header::whole(Protocol::TCP, OURS, KERNELS, total.try_into().unwrap())
        .emit(&mut slot[link..]);
    let segment_bytes = (header_bytes + data.len()).try_into().unwrap();
    let mut sum = Sum::default();
    sum.add_pseudo_v4(OURS, KERNELS, 6, segment_bytes);
    let end = link + total;
    let at = transport + CHECKSUM_OFFSET;
    let checksum = if offload {
        slot[at..at + 2].copy_from_slice(&sum.folded().to_be_bytes());
        Checksum::Partial {
            start: transport.try_into().unwrap(),
            offset: CHECKSUM_OFFSET.try_into().unwrap(),
        }
    } else {
        sum.add(&slot[transport..end]);
        slot[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
        Checksum::Complete
    };
    Transmit {
        frame_bytes: end.try_into().unwrap(),
        checksum,
        segmentation: cut.map(|segment_bytes| Segmentation {
            segment_bytes,
            header_bytes: payload.try_into().unwrap(),
            ipv6: false,
            ecn: false,
        }),
        owner: Some(Owner(1)),
    }
}

/// Returns the TCP segment of a frame to us, or none if it is something else. Checksums are
/// verified unless they need not be.
pub(crate) fn read(
    frame: &[u8],
    ethernet: bool,
    trust: Trust,
    train: Option<u16>,
) -> Option<Segment> {
    let packet = if ethernet {
        let (header, packet) = ethernet::Header::read(frame).ok()?;
        (header.ethertype == EtherType::IPV4).then_some(packet)?
    } else {
        frame
    };
    let (header, bytes) = ipv4::Header::read(packet).ok()?;
    if header.protocol != Protocol::TCP || header.destination != OURS {
        return None;
    }
    if trust == Trust::Unknown {
        assert_eq!(train, None, "a train whose checksum is not known to be good");
        let mut sum = Sum::default();
        sum.add_pseudo_v4(header.source, OURS, 6, bytes.len().try_into().unwrap());
        sum.add(bytes);
        assert!(sum.is_good(), "a checksum that is not good");
    }
    let tcp = tcp::Header::read(bytes, bytes.len()).unwrap();
    Some(Segment {
        flags: tcp.flags(),
        seq: tcp.seq().0,
        ack: tcp.ack().map_or(0, |ack| ack.0),
        data: bytes[tcp.header_bytes()..].to_vec(),
    })
}

/// Returns pseudo-random octets, the same at every call.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The owner of the frames that these tests send.
pub(crate) const OWNER: u64 = 77;

/// Returns the octets that have left since the last call, all of [`OWNER`].
pub(crate) fn left(port: &mut impl Driver) -> u64 {
    let mut bytes = 0;
    port.complete(&mut |completion: Completion| {
        assert_eq!(completion.owner, Owner(OWNER));
        bytes += u64::from(completion.bytes);
    })
    .unwrap();
    bytes
}

/// Polls for completions, sleeping in between, until `bytes` octets have left.
pub(crate) fn wait_until_left(port: &mut impl Driver, bytes: u64) {
    let (end, mut sum) = (Instant::now() + LONG, 0);
    while sum < bytes {
        let now = left(port);
        sum += now;
        assert!(Instant::now() < end, "{sum} of {bytes} octets left");
        if now == 0 {
            wakes_within(port, Duration::from_secs(1));
        }
    }
    assert_eq!(sum, bytes);
}

/// Starts this test program again for one test, in a namespace, with a variable set, and waits
/// until it has printed the word.
pub(crate) fn start_again(
    namespace: &Namespace,
    test: &str,
    (variable, word): (&str, &str),
) -> Child {
    // The process itself is started in the namespace: ip(8) execs it.
    let program = std::env::current_exe().unwrap();
    let mut child = namespace
        .command(program.to_str().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let has_said = said.lines().map_while(Result::ok).any(|line| line == word);
    assert!(has_said, "the process ended before it was ready");
    child
}
