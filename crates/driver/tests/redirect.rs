//! What an AF_XDP socket takes away from the kernel, and what it leaves to it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use uncork_bpf::owned::{Engine, Error, Ours, Protocol, Settings};
use uncork_driver::af_xdp::{Nature, Port, Queues};
use uncork_driver::{Driver as _, Offer, af_packet};

use crate::common::engines::Engines;
use crate::common::xdp::{ALONE, Hold, open_with, settings};
use crate::common::{
    KERNELS, LONG, Link, OURS, receive_until, send, skipped, start_again, wakes_within,
};

const PORT: u16 = 7000;
/// The kernel has the address, and resolves its neighbours.
const SHARED: Settings = Settings { ethernet: true, neighbours: false };

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((OURS, port))
}

/// Makes a link on which our end's kernel has our address.
fn shared(label: &str) -> Link {
    let link = Link::new(label).with_address();
    link.ours.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
    link
}

/// Returns the error of connecting to our address from the other end.
fn knock(link: &Link, port: u16) -> ErrorKind {
    let connect = move || {
        Ok(TcpStream::connect_timeout(&at(port), Duration::from_millis(300)).unwrap_err().kind())
    };
    link.kernels.within(connect).unwrap()
}

/// Waits until the program is gone. A process that another test of this program starts at this
/// moment has our descriptors until it execs, and with them the program.
fn is_refused_again(link: &Link) {
    let end = Instant::now() + LONG;
    while knock(link, PORT) != ErrorKind::ConnectionRefused {
        assert!(Instant::now() < end, "the program is still there");
    }
}

/// Returns what ip(8) shows of our device.
fn shown(link: &Link) -> String {
    let mut command = link.ours.command("ip");
    let shown = command.args(["link", "show", "dev", "eth0"]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

#[test]
fn the_kernel_answers_for_what_is_its_own_and_for_nothing_else() {
    if skipped("the_kernel_answers_for_what_is_its_own_and_for_nothing_else") {
        return;
    }
    let link = shared("red");
    let (hold, mut port) = open_with(&link, settings(), SHARED);
    assert_eq!(knock(&link, PORT), ErrorKind::ConnectionRefused, "nothing is owned yet");
    hold.owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    assert_eq!(knock(&link, PORT + 1), ErrorKind::ConnectionRefused, "the port beside it");
    // The stack sees what the kernel does not, and nothing else.
    let came = receive_until(&mut port, |came| !came.is_empty());
    for frame in came {
        assert_eq!(frame.bytes[36..38], PORT.to_be_bytes());
    }
    assert_eq!(hold.owned.dropped().unwrap(), 0);
    // A listener on a kernel socket is reached.
    let listener = link.ours.within(|| Ok(TcpListener::bind((OURS, 9))?)).unwrap();
    link.kernels.within(|| Ok(TcpStream::connect_timeout(&at(9), LONG)?)).unwrap();
    listener.accept().unwrap();
    hold.owned.disown(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::ConnectionRefused, "given back");
    hold.owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    assert!(shown(&link).contains("xdp"), "{}", shown(&link));
    drop((hold, port));
    is_refused_again(&link);
    assert!(!shown(&link).contains("xdp"), "{}", shown(&link));
}

#[test]
fn what_is_owned_and_has_no_socket_is_nobodys() {
    if skipped("what_is_owned_and_has_no_socket_is_nobodys") {
        return;
    }
    let link = shared("rednone");
    let (hold, port) = open_with(&link, settings(), SHARED);
    hold.owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    // Only the socket is closed; a reset would end its peers' connections.
    drop(port);
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    assert!(hold.owned.dropped().unwrap() >= 1);
}

#[test]
fn neighbours_are_told_to_whoever_they_are_told_to() {
    if skipped("neighbours_are_told_to_whoever_they_are_told_to") {
        return;
    }
    // Our kernel has an address, the stack another, both on one device.
    let link = Link::new("redarp");
    link.kernels.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
    link.ours.ip("address add 10.91.0.3/24 dev eth0").unwrap();
    let (hold, mut port) = open_with(&link, settings(), ALONE);
    hold.owned.own(Ours::Address(OURS.into())).unwrap();
    let ask = |address: &'static str| {
        let send = move || Ok(UdpSocket::bind((KERNELS, 0))?.send_to(b"hello", (address, PORT))?);
        link.kernels.within(send).unwrap();
    };
    ask("10.91.0.1");
    let came = receive_until(&mut port, |came| !came.is_empty());
    assert_eq!(came[0].bytes[12..14], [0x08, 0x06], "who has the stack's address");
    assert_eq!(came[0].bytes[38..42], OURS.octets());
    // The kernel resolves addresses both ways, and the stack has no part in it.
    let listener = link.ours.within(|| Ok(TcpListener::bind("10.91.0.3:9")?)).unwrap();
    let connect = || Ok(TcpStream::connect_timeout(&"10.91.0.3:9".parse()?, LONG)?);
    link.kernels.within(connect).unwrap();
    listener.accept().unwrap();
    let rest = port.receive(64, &mut |frame| {
        assert_eq!(frame.bytes[38..42], OURS.octets(), "only who asks for us");
    });
    rest.unwrap();
}

#[test]
fn errors_go_to_whom_they_are_about() {
    if skipped("errors_go_to_whom_they_are_about") {
        return;
    }
    let link = shared("redicmp");
    let (hold, mut port) = open_with(&link, settings(), SHARED);
    let far = SocketAddr::from((KERNELS, 9));
    hold.owned.own(Ours::Connection(Protocol::Udp, at(5000), far)).unwrap();
    // The far end's port is closed, as its kernel says. Of two sockets of our kernel one has the
    // ends of the stack's connection, which is how a test makes a packet of the stack's.
    let ask = |port: u16| {
        let ask = move || {
            let socket = UdpSocket::bind((OURS, port))?;
            socket.connect((KERNELS, 9))?;
            socket.set_read_timeout(Some(Duration::from_millis(300)))?;
            socket.send(b"is anybody there")?;
            Ok(socket.recv(&mut [0; 9]).unwrap_err().kind())
        };
        link.ours.within(ask).unwrap()
    };
    assert_eq!(ask(5001), ErrorKind::ConnectionRefused, "the kernel's");
    assert_eq!(port.receive(9, &mut |_| ()).unwrap(), 0);
    assert_eq!(ask(5000), ErrorKind::WouldBlock, "the stack's");
    let came = receive_until(&mut port, |came| !came.is_empty());
    // ICMP, destination unreachable.
    assert_eq!((came[0].bytes[23], came[0].bytes[34]), (1, 3), "{came:?}");
}

#[test]
fn what_is_another_engines_comes_to_its_packet_socket() {
    if skipped("what_is_another_engines_comes_to_its_packet_socket") {
        return;
    }
    let link = shared("redother");
    let (hold, mut port) = open_with(&link, settings(), SHARED);
    let other = Engine(2.try_into().unwrap());
    let mut opens = Engines::default();
    let (_, handed) = opens.open(&link.ours, &hold.owned, other, 1);
    let mut socket = af_packet::Port::adopt(handed).unwrap();
    let index = socket.index();
    let opened = link.ours.within(move || {
        let mut hold = hold;
        hold.owned.attach(index)?;
        Ok(hold)
    });
    let hold = opened.unwrap();
    hold.owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    hold.owned.own_as(other, Ours::Port(Protocol::Tcp, at(PORT + 1))).unwrap();
    let local = SocketAddr::from((KERNELS, 40_000));
    hold.owned.own(Ours::Port(Protocol::Udp, at(PORT))).unwrap();
    hold.owned.keep(Protocol::Udp, at(PORT), local).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    assert_eq!(knock(&link, PORT + 1), ErrorKind::TimedOut);
    assert_eq!(knock(&link, PORT + 2), ErrorKind::ConnectionRefused);
    let came = receive_until(&mut port, |came| !came.is_empty());
    assert!(came.iter().all(|came| came.bytes[36..38] == PORT.to_be_bytes()));
    let came = receive_until(&mut socket, |came| !came.is_empty());
    assert!(came.iter().all(|came| came.bytes[36..38] == (PORT + 1).to_be_bytes()));
    // What is kept for the kernel of an engine's port reaches the kernel.
    let ask = move || {
        let socket = UdpSocket::bind(local)?;
        socket.connect(at(PORT))?;
        socket.set_read_timeout(Some(LONG))?;
        socket.send(b"is anybody there")?;
        Ok(socket.recv(&mut [0; 9]).unwrap_err().kind())
    };
    assert_eq!(link.kernels.within(ask).unwrap(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_program_that_is_there_stays_and_is_named() {
    if skipped("a_program_that_is_there_stays_and_is_named") {
        return;
    }
    let link = shared("redtwo");
    let (hold, _port) = open_with(&link, settings(), SHARED);
    hold.owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    let before = shown(&link);
    let second = || {
        let mut hold = Hold::load(SHARED)?;
        Ok(hold.redirect.attach(Nature::of("eth0")?.index).unwrap_err())
    };
    let error = link.ours.within(second).unwrap();
    let Error::Occupied { program, .. } = error else { panic!("{error}") };
    assert!(before.contains(&format!("id {program}")), "{before}");
    assert_eq!(shown(&link), before);
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut, "the first still takes what is its own");
}

#[test]
fn each_queue_has_a_socket_of_its_own() {
    if skipped("each_queue_has_a_socket_of_its_own") {
        return;
    }
    let link = shared("redqueues");
    for namespace in [&link.ours, &link.kernels] {
        let mut ethtool = namespace.command("ethtool");
        uncork_netns::run(ethtool.args(["-L", "eth0", "rx", "2", "tx", "2"])).unwrap();
    }
    let opened = link.ours.within(|| {
        let nature = Nature::of("eth0")?;
        assert_eq!(nature.queues, 2);
        let mut hold = Hold::load(SHARED)?;
        let open = |queue| Port::open(&uncork_driver::af_xdp::Settings { queue, ..settings() });
        let ports = [open(0)?, open(1)?];
        for port in &ports {
            hold.redirect.enter(port.queue(), port.socket())?;
        }
        hold.owned.own(Ours::Port(Protocol::Udp, at(PORT)))?;
        hold.redirect.attach(nature.index)?;
        Ok((hold, ports))
    });
    let (_hold, ports) = opened.unwrap();
    let mut queues = Queues::new(ports.into()).unwrap();
    let send = || {
        for number in 0..200_u16 {
            let number = number.to_be_bytes();
            UdpSocket::bind((KERNELS, 0))?.send_to(&number, (OURS, PORT))?;
        }
        Ok(())
    };
    link.kernels.within(send).unwrap();
    let mut seen = BTreeSet::new();
    let end = Instant::now() + LONG;
    while seen.len() < 200 {
        assert!(Instant::now() < end, "{} datagrams came", seen.len());
        let received = queues.receive(64, &mut |frame| {
            assert!(seen.insert(frame.bytes[42..44].to_vec()), "one came twice");
        });
        if received.unwrap() == 0 {
            assert!(wakes_within(&queues, LONG), "nobody was woken");
        }
    }
    // Hashed by their ports, frames come by both queues.
    let by_queue: Vec<_> =
        queues.ports().iter().map(|port| port.statistics().unwrap().received).collect();
    assert!(by_queue.iter().all(|received| *received > 0), "{by_queue:?}");
    // State is combined over all queues.
    assert_eq!((queues.lost(), queues.is_filling()), (Some(0), false));
    assert!(queues.descriptors().len() > 2, "{:?}", queues.descriptors());
    // A wait for frames only is woken by either queue, too.
    for _ in 0..100 {
        queues.wakes_for_frames().unwrap();
    }
    link.kernels.within(send).unwrap();
    assert!(wakes_within(&queues, LONG), "nobody was woken");
}

/// Runs this program again, as a process that owns a port until it is killed.
#[test]
fn a_killed_process_leaves_nothing_behind() {
    const TEST: &str = "redirect::a_killed_process_leaves_nothing_behind";
    if let Ok(()) = std::env::var("UNCORK_TEST_OWNS_A_PORT").map(drop) {
        let mut hold = Hold::load(SHARED).unwrap();
        let port = Port::open(&settings()).unwrap();
        hold.redirect.enter(0, port.socket()).unwrap();
        hold.owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
        hold.redirect.attach(port.index()).unwrap();
        println!("\nattached");
        thread::sleep(Duration::from_secs(60));
        return;
    }
    if skipped(TEST) {
        return;
    }
    let link = shared("redkill");
    let mut child = start_again(&link.ours, TEST, ("UNCORK_TEST_OWNS_A_PORT", "attached"));
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    // By SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    is_refused_again(&link);
    assert!(!shown(&link).contains("xdp"), "{}", shown(&link));
    // And the queue is free again.
    let _ = open_with(&link, settings(), SHARED);
}

#[test]
fn what_is_of_a_vlan_is_the_kernels() {
    if skipped("what_is_of_a_vlan_is_the_kernels") {
        return;
    }
    let link = shared("redvlan");
    let (hold, mut port) = open_with(&link, settings(), SHARED);
    hold.owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    knock(&link, PORT);
    let frame = receive_until(&mut port, |came| !came.is_empty()).remove(0).bytes;
    let mut tagged = frame.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    let open = || Ok(af_packet::Port::open(&af_packet::Settings::new("eth0"), None)?);
    let mut far = link.kernels.within(open).unwrap();
    for frame in [&tagged, &frame] {
        assert_eq!(send(&mut far, frame, 1), Offer::Taken);
    }
    far.flush().unwrap();
    // The frame without a tag comes last, and alone.
    let came = receive_until(&mut port, |came| came.iter().any(|came| came.bytes == frame));
    assert!(came.iter().all(|came| came.bytes[12..14] == [0x08, 0x00]), "{came:?}");
}
