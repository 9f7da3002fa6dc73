//! Engines that share a device, each with a packet socket and queues of its own beside it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uncork_bpf::owned::{
    Ours, Owned, Protocol, Queues, RedirectByQueue, Settings, Sharing, Whence,
};
use uncork_driver::af_xdp::{self, Nature};
use uncork_driver::{Beside, Door, Driver as _, af_packet};
use uncork_wire::ethernet::{self, EtherType, Mac};
use uncork_wire::tcp::{Fields, Flags, OptionSet};
use uncork_wire::{SeqNumber, ipv4};

use crate::common::engines::{Engines, engine};
use crate::common::{KERNELS, LONG, Link, OUR_MAC, OURS, far_port, numbered, send, skipped};

const PORT: u16 = 7000;
const REMOTES: usize = 40;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((OURS, port))
}

type Opened = (Beside, Door);

/// Opens an engine's packet socket, with room for queues beside it.
fn open(opens: &mut Engines, link: &Link, owned: &Owned, number: u32) -> Opened {
    let (_, handed) = opens.open(&link.ours, owned, engine(number), number);
    Beside::new(af_packet::Port::adopt(handed).unwrap()).unwrap()
}

/// Two queues at our end, a kernel with an address, and two engines that share a UDP port.
struct Place {
    link: Link,
    owned: Owned,
    redirect: RedirectByQueue,
    opens: Engines,
    engines: Vec<Opened>,
    /// Sockets at the other end.
    remotes: Vec<UdpSocket>,
    /// A queue's socket that another process also has takes what comes after it was closed here.
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    fn new(label: &str) -> Self {
        let alone = uncork_netns::testing::alone();
        let link = Link::new(label).with_address();
        link.ethtool("-L eth0 rx 2 tx 2");
        link.ours.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
        let begin = || {
            let mut owned = Owned::load(Settings { ethernet: true, neighbours: false })?;
            let Nature { queues, marks, index } = Nature::of("eth0")?;
            assert_eq!(queues, 2);
            let mut redirect = owned.redirect_by_queue(Queues { count: queues, marks })?;
            owned.attach(index)?;
            redirect.attach(index)?;
            Ok((owned, redirect))
        };
        let (owned, redirect) = link.ours.within(begin).unwrap();
        let mut opens = Engines::default();
        let engines = (1..=2).map(|number| open(&mut opens, &link, &owned, number)).collect();
        let members = [engine(1), engine(2)];
        owned.share(Protocol::Udp, at(PORT), Whence::Anywhere, &members, Sharing::Shared).unwrap();
        let bind = || (0..REMOTES).map(|_| Ok(UdpSocket::bind((KERNELS, 0))?)).collect();
        let remotes = link.kernels.within(bind).unwrap();
        Self { link, owned, redirect, opens, engines, remotes, _alone: alone }
    }

    /// Gives this queue to an engine from now on.
    fn give(&mut self, queue: u32, number: u32) {
        let settings = af_xdp::Settings { queue, ..af_xdp::Settings::new("eth0") };
        let open = move || {
            let end = Instant::now() + LONG;
            loop {
                match af_xdp::Port::open(&settings) {
                    // The kernel lets go of a queue a little after its socket was closed.
                    Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                    opened => return Ok(opened?),
                }
            }
        };
        let port = self.link.ours.within(open).unwrap();
        self.redirect.enter(queue, engine(number), port.socket()).unwrap();
        self.engines[number as usize - 1].1.bring(port).unwrap();
    }

    /// Sends a datagram from each remote; returns for each engine from which ports it got one.
    fn send(&mut self) -> [Vec<u16>; 2] {
        for remote in &self.remotes {
            remote.send_to(b"hello", at(PORT)).unwrap();
        }
        let mut came: BTreeMap<u16, usize> = BTreeMap::new();
        let end = Instant::now() + LONG;
        while came.len() < REMOTES {
            for (number, (driver, _)) in self.engines.iter_mut().enumerate() {
                let each = &mut |frame: uncork_packet::Received<'_>| {
                    assert_eq!(frame.bytes[36..38], PORT.to_be_bytes());
                    let from = u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]);
                    assert_eq!(came.insert(from, number), None, "it has come twice");
                };
                driver.receive(64, each).unwrap();
            }
            assert!(Instant::now() < end, "{} of {REMOTES} datagrams came", came.len());
        }
        [0, 1].map(|number| {
            came.iter().filter(|(_, engine)| **engine == number).map(|(from, _)| *from).collect()
        })
    }

    /// Returns how many frames have reached each engine by queues.
    fn redirected(&self) -> [u64; 2] {
        [0, 1].map(|at| self.engines[at].0.redirected().unwrap().frames)
    }
}

#[test]
fn each_engine_gets_what_is_its_by_whichever_queue_it_comes() {
    if skipped("each_engine_gets_what_is_its_by_whichever_queue_it_comes") {
        return;
    }
    let mut place = Place::new("beside");
    let by_packets = place.send();
    assert!(by_packets.iter().all(|ports| ports.len() > 5), "{by_packets:?}");
    assert_eq!(place.redirected(), [0, 0], "nobody has a queue");
    place.give(0, 1);
    assert_eq!(place.send(), by_packets, "whose it is does not depend on the queue");
    let [first, second] = place.redirected();
    assert!((1..by_packets[0].len() as u64).contains(&first), "{first} of {by_packets:?}");
    assert_eq!(second, 0);
    // A queue is added while the other is in use; frames on the wrong one take the longer path.
    place.give(1, 2);
    assert_eq!(place.send(), by_packets);
    let [first, second] = [place.redirected()[0] - first, place.redirected()[1]];
    assert!((1..by_packets[0].len() as u64).contains(&first), "{first} of {by_packets:?}");
    assert!((1..by_packets[1].len() as u64).contains(&second), "{second} of {by_packets:?}");
    place.redirect.leave(1).unwrap();
    let before = place.redirected();
    place.send();
    assert_eq!(place.redirected()[1], before[1], "it was left");
}

#[test]
fn who_has_a_queue_takes_no_longer_packets_than_it_was_opened_for() {
    if skipped("who_has_a_queue_takes_no_longer_packets_than_it_was_opened_for") {
        return;
    }
    let mut place = Place::new("besidemtu");
    place.give(0, 1);
    for host in [&place.link.ours, &place.link.kernels] {
        host.ip("link set eth0 mtu 9000").unwrap();
    }
    // The MTU is checked now and then, when something is sent.
    std::thread::sleep(Duration::from_millis(200));
    let mtus: Vec<u16> = place
        .engines
        .iter_mut()
        .map(|(driver, _)| {
            driver.receive(1, &mut |_| {}).unwrap();
            send(driver, &numbered(1, 60, Mac::BROADCAST), 1);
            driver.flush().unwrap();
            driver.capabilities().mtu
        })
        .collect();
    assert_eq!(mtus, [1500, 9000]);
}

#[test]
fn one_that_has_all_queues_gets_nothing_by_its_packet_socket() {
    if skipped("one_that_has_all_queues_gets_nothing_by_its_packet_socket") {
        return;
    }
    let mut place = Place::new("besideall");
    place.owned.own_as(engine(2), Ours::Port(Protocol::Udp, at(PORT))).unwrap();
    place.give(0, 2);
    place.give(1, 2);
    assert_eq!(place.send()[1].len(), REMOTES);
    assert_eq!(place.redirected(), [0, REMOTES as u64]);
    assert_eq!(place.engines[1].0.redirected().unwrap().queues, [0, 1]);
}

#[test]
fn what_is_not_an_engines_or_has_no_socket_goes_where_it_would_go() {
    if skipped("what_is_not_an_engines_or_has_no_socket_goes_where_it_would_go") {
        return;
    }
    let mut place = Place::new("besidenone");
    place.give(0, 1);
    place.give(1, 2);
    // A listener of the kernel's own.
    let listener = place.link.ours.within(|| Ok(TcpListener::bind((OURS, 9))?)).unwrap();
    place.link.kernels.within(|| Ok(TcpStream::connect_timeout(&at(9), LONG)?)).unwrap();
    listener.accept().unwrap();
    // The sockets are closed without notice: the packet sockets get everything.
    let by_queues = place.send();
    for number in 1..=2 {
        place.engines[number as usize - 1] =
            open(&mut place.opens, &place.link, &place.owned, number);
    }
    assert_eq!(place.send(), by_queues);
    assert_eq!(place.redirected(), [0, 0]);
    // And the queues can be given to another engine then.
    place.give(0, 2);
    assert_eq!(place.send(), by_queues);
    assert!(place.redirected()[1] > 0);
    place.owned.disown(Ours::Port(Protocol::Udp, at(PORT))).unwrap();
}

#[test]
fn a_frame_of_a_queue_wakes_who_sleeps_since_before_it_came() {
    if skipped("a_frame_of_a_queue_wakes_who_sleeps_since_before_it_came") {
        return;
    }
    let mut place = Place::new("besidewake");
    place.owned.own_as(engine(1), Ours::Port(Protocol::Udp, at(PORT))).unwrap();
    let [all, frames] = {
        let driver = &place.engines[0].0;
        let [all, frames] = [driver.wakes(), driver.wakes_for_frames()];
        [all, frames].map(|fd| fd.unwrap().try_clone_to_owned().unwrap())
    };
    place.give(0, 1);
    place.give(1, 1);
    let woken = |time: Duration| {
        [&all, &frames].map(|fd| {
            let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::try_from(time).unwrap()).unwrap() > 0
        })
    };
    // Fetches what the packet socket reports at its beginning.
    for _ in 0..8 {
        place.engines[0].0.complete(&mut |_| {}).unwrap();
    }
    assert_eq!(woken(Duration::ZERO), [false, false]);
    assert!(!place.engines[0].0.has_frames());
    place.remotes[0].send_to(b"hello", at(PORT)).unwrap();
    assert_eq!(woken(LONG), [true, true]);
    assert!(place.engines[0].0.has_frames());
    let mut came = 0;
    place.engines[0].0.receive(64, &mut |_| came += 1).unwrap();
    assert_eq!((came, place.redirected()), (1, [1, 0]));
    assert_eq!(woken(Duration::ZERO), [false, false]);
}

/// Builds a SYN to our port.
fn syn(source: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut frame = vec![0; 54];
    ethernet::Header { destination: OUR_MAC, source: Mac([2; 6]), ethertype: EtherType::IPV4 }
        .emit(&mut frame);
    ipv4::Header::whole(uncork_wire::Protocol::TCP, source, OURS, 40).emit(&mut frame[14..]);
    let fields = Fields {
        source_port: port,
        destination_port: PORT,
        seq: SeqNumber(1),
        ack: SeqNumber(0),
        flags: Flags::SYN,
        window: 1000,
    };
    let mut segment = [0; 60];
    let bytes = fields.emit(&OptionSet::default(), &mut segment);
    frame[34..].copy_from_slice(&segment[..bytes]);
    frame
}

#[test]
fn what_comes_by_another_device_or_from_this_host_is_the_kernels() {
    if skipped("what_comes_by_another_device_or_from_this_host_is_the_kernels") {
        return;
    }
    let mut place = Place::new("besidewhence");
    // One queue is redirected, the other is not.
    place.give(0, 1);
    let device = place.link.ours.within(|| Ok(Nature::of("eth0")?.index)).unwrap();
    let device = device.cast_unsigned();
    let share = |owned: &Owned, device| {
        let whence = Whence::Device(device);
        owned.share(Protocol::Tcp, at(PORT), whence, &[engine(1)], Sharing::Shared).unwrap();
    };
    let other = Ipv4Addr::new(10, 91, 0, 9);
    place.owned.host_has(other.into(), Whence::Device(device + 1)).unwrap();
    place.owned.host_has(OURS.into(), Whence::Device(device)).unwrap();
    let mut far = far_port(&place.link);
    // Enough ports for both queues, each from as many addresses.
    let mut came = |place: &mut Place, sources: &[Ipv4Addr]| {
        let dropped = place.owned.dropped().unwrap();
        for port in 4000..4000 + REMOTES as u16 {
            for source in sources {
                send(&mut far, &syn(*source, port), 1);
            }
        }
        far.flush().unwrap();
        let mut came = BTreeMap::new();
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            let each = &mut |frame: uncork_packet::Received<'_>| {
                let source: [u8; 4] = frame.bytes[26..30].try_into().unwrap();
                *came.entry(Ipv4Addr::from(source)).or_default() += 1_usize;
            };
            place.engines[0].0.receive(64, each).unwrap();
        }
        (came, place.owned.dropped().unwrap() - dropped)
    };
    let all = [Ipv4Addr::LOCALHOST, OURS, other, Ipv4Addr::BROADCAST, KERNELS];
    share(&place.owned, device);
    let (seen, dropped) = came(&mut place, &all);
    assert_eq!(seen, BTreeMap::from([(KERNELS, REMOTES)]));
    // What comes by no queue reaches the engine, too, and the kernel's copy of nothing else is
    // dropped.
    let [redirected, _] = place.redirected();
    assert_eq!(redirected + dropped, REMOTES as u64);
    assert!((1..REMOTES as u64).contains(&redirected), "{redirected}");
    share(&place.owned, device + 1);
    assert_eq!(came(&mut place, &all), (BTreeMap::new(), 0));
    // An engine that names no device gets everything.
    place.owned.own_as(engine(1), Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    let (seen, _) = came(&mut place, &all);
    assert_eq!(seen, all.into_iter().map(|source| (source, REMOTES)).collect());
}
