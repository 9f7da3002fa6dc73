//! Frames and bits a second over veth: packet sockets, by ring and by system calls, and AF_XDP.
//!
//! As root: `cargo run --release -p uncork-driver --example ports [-- SECONDS]`. What is sent is
//! dropped at once at the other end, so it is the sender's and the link's cost; what is received
//! was sent in a batch before, and costs the receiver alone. All in CPU time, so that other load on
//! the machine matters little; the ratios within one run are what counts.
#![allow(clippy::unwrap_used, reason = "a measurement that fails has nothing to say")]

use std::io::{IoSlice, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockType, recvmmsg, sendmmsg,
    setsockopt, socket, sockopt,
};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use uncork_bpf::owned::{self, Engine, Ours, Owned, Queues, Redirect};
use uncork_driver::af_packet::{Port, Settings};
use uncork_driver::af_xdp::{self, Nature};
use uncork_driver::{Driver, Offer};
use uncork_netns::Namespace;
use uncork_packet::{Checksum, Owner, Segmentation, Transmit};
use uncork_wire::checksum::Sum;
use uncork_wire::ethernet::{self, EtherType, Mac};
use uncork_wire::tcp::{CHECKSUM_OFFSET, Fields, Flags, OptionSet};
use uncork_wire::{Protocol, SeqNumber, ipv4};

const BATCH: usize = 64;
const MSS: u16 = 1448;
/// The destination of all frames.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);

/// The kind of frames that are sent.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    frame_bytes: usize,
    train: bool,
}

const LOADS: [Load; 4] = [
    Load { name: "60 octets", frame_bytes: 60, train: false },
    Load { name: "714 octets", frame_bytes: 714, train: false },
    Load { name: "1514 octets", frame_bytes: 1514, train: false },
    Load { name: "trains of 64 KB", frame_bytes: 14 + 40 + 45 * 1448, train: true },
];

/// The result for the thread that was measured.
struct Figure {
    frames: u64,
    cpu: Duration,
}

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    println!(
        "{:<18} {:<22} {:>12} {:>10} {:>14}",
        "frames", "way", "a CPU-second", "Gbit", "CPU a frame"
    );
    for load in LOADS {
        for (way, direction) in [
            ("sent by ring", send_by_ring as fn(&Link, Load, Duration) -> Result<Figure>),
            ("… past the queues", send_past_queues),
            ("sent by AF_XDP", send_by_xdp),
            ("sent by sendmmsg", send_by_calls),
            ("received by ring", receive_by_ring),
            ("received by AF_XDP", receive_by_xdp),
            ("received by recvmmsg", receive_by_calls),
        ] {
            // None of these takes trains.
            if load.train && ["mmsg", "queues", "XDP"].iter().any(|end| way.ends_with(end)) {
                continue;
            }
            let link = Link::new()?;
            show(load, way, &direction(&link, load, time)?);
        }
    }
    Ok(())
}

fn show(load: Load, way: &str, figure: &Figure) {
    let frames = figure.frames as f64;
    let rate = frames / figure.cpu.as_secs_f64();
    let gigabits = rate * load.frame_bytes as f64 * 8.0 / 1e9;
    let cpu = figure.cpu.as_secs_f64() / frames.max(1.0) * 1e6;
    println!("{:<18} {way:<22} {rate:>12.0} {gigabits:>10.2} {cpu:>11.2} µs", load.name);
}

struct Link {
    ours: Namespace,
    theirs: Namespace,
}

impl Link {
    fn new() -> Result<Self> {
        let (ours, theirs) = (Namespace::new("po")?, Namespace::new("pt")?);
        for namespace in [&ours, &theirs] {
            namespace.set("ipv6/conf/default/disable_ipv6", 1)?;
        }
        ours.ip(&format!("link add eth0 type veth peer name eth0 netns {}", theirs.name()))?;
        ours.ip("link set eth0 up")?;
        theirs.ip("link set eth0 up")?;
        Ok(Self { ours, theirs })
    }

    fn port(&self, settings: Settings) -> Result<Port> {
        self.ours.within(move || Ok(Port::open(&settings, None)?))
    }
}

fn on_cpu(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Repeats `work`, which returns how many frames it has moved, on the first processor.
fn measure(time: Duration, mut work: impl FnMut() -> Result<u64>) -> Result<Figure> {
    on_cpu(0)?;
    for _ in 0..100 {
        work()?;
    }
    let begun = Instant::now();
    let cpu = cpu_time()?;
    let mut frames = 0;
    while begun.elapsed() < time {
        frames += work()?;
    }
    Ok(Figure { frames, cpu: cpu_time()?.saturating_sub(cpu) })
}

/// Writes a TCP segment or train to an address that no host has.
fn segment(slot: &mut [u8], load: Load) -> Transmit {
    let link = ethernet::Header {
        // No host's: the far end looks at it and drops it.
        destination: Mac([2, 9, 9, 9, 9, 9]),
        source: Mac([2, 0, 0, 0, 0, 1]),
        ethertype: EtherType::IPV4,
    };
    link.emit(slot);
    let (source, destination) = ([10, 91, 0, 1].into(), NOBODY);
    let total_bytes = u16::try_from(load.frame_bytes - 14).unwrap();
    ipv4::Header::whole(Protocol::TCP, source, destination, total_bytes).emit(&mut slot[14..]);
    let fields = Fields {
        source_port: 1,
        destination_port: 2,
        seq: SeqNumber(1),
        ack: SeqNumber(1),
        flags: Flags::ACK,
        window: 9,
    };
    fields.emit(&OptionSet::default(), &mut slot[34..]);
    let mut sum = Sum::default();
    sum.add_pseudo_v4(source, destination, 6, u32::from(total_bytes) - 20);
    slot[34 + CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.folded().to_be_bytes());
    // As the stack does: the data is copied into the slot.
    slot[54..load.frame_bytes].fill(7);
    Transmit {
        frame_bytes: load.frame_bytes.try_into().unwrap(),
        checksum: Checksum::Partial { start: 34, offset: 16 },
        segmentation: load.train.then_some(Segmentation {
            segment_bytes: MSS,
            header_bytes: 54,
            ipv6: false,
            ecn: false,
        }),
        owner: Some(Owner(1)),
    }
}

fn send_by_ring(link: &Link, load: Load, time: Duration) -> Result<Figure> {
    send_through(link.port(Settings::new("eth0"))?, load, time)
}

fn send_past_queues(link: &Link, load: Load, time: Duration) -> Result<Figure> {
    let settings = Settings { bypass_queues: true, ..Settings::new("eth0") };
    send_through(link.port(settings)?, load, time)
}

/// Opens the port on our end, and what redirects all frames for that address to it.
fn xdp_port(link: &Link) -> Result<(Owned, Redirect, af_xdp::Port)> {
    link.ours.within(|| {
        let Nature { index, queues, marks } = Nature::of("eth0")?;
        let owned = Owned::load(owned::Settings { ethernet: true, neighbours: false })?;
        let mut redirect = owned.redirect_for(Engine::ONLY, Queues { count: queues, marks })?;
        let port = af_xdp::Port::open(&af_xdp::Settings::new("eth0"))?;
        redirect.enter(0, port.socket())?;
        owned.own(Ours::Address(NOBODY.into()))?;
        redirect.attach(index)?;
        Ok((owned, redirect, port))
    })
}

fn send_by_xdp(link: &Link, load: Load, time: Duration) -> Result<Figure> {
    let (_owned, _redirect, port) = xdp_port(link)?;
    send_through(port, load, time)
}

fn send_through(mut port: impl Driver, load: Load, time: Duration) -> Result<Figure> {
    measure(time, move || {
        let mut sent = 0;
        port.complete(&mut |_| ())?;
        while sent < BATCH as u64
            && port.offer(&mut |slot| Some(segment(slot, load)))? == Offer::Taken
        {
            sent += 1;
        }
        port.flush()?;
        Ok(sent)
    })
}

/// Opens a packet socket on a device that is used by system calls alone.
fn plain_socket(namespace: &Namespace) -> Result<OwnedFd> {
    namespace.within(|| {
        let all = nix::sys::socket::SockProtocol::EthAll;
        let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, all)?;
        setsockopt(&fd, sockopt::SndBufForce, &(64 << 20))?;
        setsockopt(&fd, sockopt::RcvBufForce, &(64 << 20))?;
        Ok(fd)
    })
}

fn address(namespace: &Namespace) -> Result<LinkAddr> {
    namespace.within(|| {
        let all = nix::ifaddrs::getifaddrs()?;
        let found = all
            .filter(|one| one.interface_name == "eth0")
            .find_map(|one| one.address?.as_link_addr().copied());
        found.context("eth0 has no address")
    })
}

fn send_by_calls(link: &Link, load: Load, time: Duration) -> Result<Figure> {
    let fd = plain_socket(&link.ours)?;
    let to = address(&link.ours)?;
    let mut frames = vec![vec![0; load.frame_bytes]; BATCH];
    let mut headers = MultiHeaders::preallocate(BATCH, None);
    measure(time, move || {
        for frame in &mut frames {
            segment(frame, load);
        }
        let slices: Vec<[IoSlice<'_>; 1]> =
            frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        let addresses = [Some(to); BATCH];
        let flags = MsgFlags::MSG_DONTWAIT;
        match sendmmsg(fd.as_raw_fd(), &mut headers, &slices, addresses, [], flags) {
            Ok(sent) => Ok(sent.count() as u64),
            Err(nix::Error::EAGAIN | nix::Error::ENOBUFS) => Ok(0),
            Err(error) => Err(error.into()),
        }
    })
}

/// Sends a batch from the far end, which delivers it at ours, and measures `work` alone, until it
/// finds nothing more. One thread does both, so neither waits for the other, nor for a processor.
fn in_turns(
    link: &Link,
    load: Load,
    time: Duration,
    mut work: impl FnMut() -> Result<u64>,
) -> Result<Figure> {
    let mut port = link.theirs.within(|| Ok(Port::open(&Settings::new("eth0"), None)?))?;
    on_cpu(0)?;
    let begun = Instant::now();
    let mut figure = Figure { frames: 0, cpu: Duration::ZERO };
    while begun.elapsed() < time {
        port.complete(&mut |_| ())?;
        for _ in 0..2 * BATCH {
            port.offer(&mut |slot| Some(segment(slot, load)))?;
        }
        port.flush()?;
        let cpu = cpu_time()?;
        loop {
            match work()? {
                0 => break,
                received => figure.frames += received,
            }
        }
        figure.cpu += cpu_time()?.saturating_sub(cpu);
    }
    Ok(figure)
}

fn receive_by_ring(link: &Link, load: Load, time: Duration) -> Result<Figure> {
    receive_through(link.port(Settings::new("eth0"))?, link, load, time)
}

fn receive_through(
    mut port: impl Driver,
    link: &Link,
    load: Load,
    time: Duration,
) -> Result<Figure> {
    let mut taken = vec![0; 70_000];
    in_turns(link, load, time, move || {
        // As the stack does: the data is copied out of the slot.
        let received = port.receive(BATCH, &mut |frame| {
            taken[..frame.bytes.len()].copy_from_slice(frame.bytes);
        })?;
        Ok(received as u64)
    })
}

fn receive_by_xdp(link: &Link, load: Load, time: Duration) -> Result<Figure> {
    let (_owned, _redirect, port) = xdp_port(link)?;
    receive_through(port, link, load, time)
}

fn receive_by_calls(link: &Link, load: Load, time: Duration) -> Result<Figure> {
    let fd = plain_socket(&link.ours)?;
    let mut frames = vec![vec![0; 2048]; BATCH];
    let mut headers = MultiHeaders::<LinkAddr>::preallocate(BATCH, None);
    in_turns(link, load, time, move || {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            frames.iter_mut().map(|frame| [IoSliceMut::new(frame)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        match recvmmsg(fd.as_fd().as_raw_fd(), &mut headers, &mut slices, flags, None) {
            Ok(received) => Ok(received.count() as u64),
            Err(nix::Error::EAGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    })
}
