//! A stack on an address that the kernel has, too: with the filter of uncork-bpf the kernel ignores
//! what is not its own, and without it nothing is changed.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use uncork_bpf::owned::{Error, Ours, Owned, Protocol, Settings};
use uncork_driver::Driver as _;
use uncork_driver::af_packet::{self, Port};

use crate::common::{
    KERNELS, LONG, Link, OURS, Peer, mac_of, pattern, receive_until, skipped, start_again,
};

const SETTINGS: Settings = Settings { ethernet: true, neighbours: false };
const PORT: u16 = 7000;

/// Makes a link on which our end's kernel has our address.
fn shared(label: &str) -> Link {
    let link = Link::new(label).with_address();
    link.ours.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
    link
}

/// Opens both filters and the packet socket, on our end.
fn open(link: &Link) -> (Owned, Port) {
    open_with(link, SETTINGS, true)
}

/// Like [`open`], with a packet socket that sees everything if it is not `filtered`.
fn open_with(link: &Link, settings: Settings, filtered: bool) -> (Owned, Port) {
    let opened = link.ours.within(move || {
        let mut owned = Owned::load(settings)?;
        let filter = filtered.then(|| owned.for_packet_socket());
        let port = Port::open(&af_packet::Settings::new("eth0"), filter)?;
        owned.attach(port.index())?;
        Ok((owned, port))
    });
    opened.unwrap()
}

/// Returns the error of connecting to our address from the other end.
fn knock(link: &Link, port: u16) -> ErrorKind {
    let connect = move || {
        let to = SocketAddr::from((OURS, port));
        Ok(TcpStream::connect_timeout(&to, Duration::from_millis(300)).unwrap_err().kind())
    };
    link.kernels.within(connect).unwrap()
}

/// Waits until the filter is gone, when its descriptor is closed everywhere. A process that another
/// test of this program starts at this moment holds it until it execs.
fn is_refused_again(link: &Link) {
    let end = Instant::now() + LONG;
    while knock(link, PORT) != ErrorKind::ConnectionRefused {
        assert!(Instant::now() < end, "the filter is still there");
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((OURS, port))
}

#[test]
fn the_kernel_answers_for_what_is_its_own_and_for_nothing_else() {
    if skipped("the_kernel_answers_for_what_is_its_own_and_for_nothing_else") {
        return;
    }
    let link = shared("own");
    assert_eq!(knock(&link, PORT), ErrorKind::ConnectionRefused);
    let (owned, mut port) = open(&link);
    assert_eq!(knock(&link, PORT), ErrorKind::ConnectionRefused, "nothing is owned yet");
    owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    assert_eq!(knock(&link, PORT + 1), ErrorKind::ConnectionRefused, "the port beside it");
    assert!(owned.dropped().unwrap() >= 1);
    // The stack sees what the kernel does not, and nothing else.
    let came = receive_until(&mut port, |came| !came.is_empty());
    for frame in came {
        assert_eq!(frame.bytes[36..38], PORT.to_be_bytes());
    }
    owned.disown(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    owned.disown(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::ConnectionRefused, "given back");
    // On any address, of either version.
    owned.own(Ours::Port(Protocol::Tcp, "[::]:7000".parse().unwrap())).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    drop(owned);
    is_refused_again(&link);
}

/// The programs look up only kinds of which there are entries.
#[test]
fn what_is_disowned_takes_something_else_of_its_kind_with_it() {
    if skipped("what_is_disowned_takes_something_else_of_its_kind_with_it") {
        return;
    }
    let link = shared("counts");
    let (owned, _port) = open(&link);
    let tcp = |port| Ours::Port(Protocol::Tcp, at(port));
    let connection =
        |from| Ours::Connection(Protocol::Tcp, at(PORT + 2), SocketAddr::from((KERNELS, from)));
    let address = |last| Ours::Address(IpAddr::from([10, 91, 200, last]));
    // Entered twice is there once; what is not there cannot be removed.
    for (kept, gone) in [
        (tcp(PORT), tcp(PORT + 1)),
        (connection(40_000), connection(40_001)),
        (Ours::Address(OURS.into()), address(2)),
    ] {
        owned.own(kept).unwrap();
        owned.own(kept).unwrap();
        owned.own(gone).unwrap();
        owned.disown(gone).unwrap();
        owned.disown(gone).unwrap();
    }
    // The address is checked before the others, as nothing else counts while it is owned.
    assert_eq!(knock(&link, PORT + 5), ErrorKind::TimedOut);
    owned.disown(Ours::Address(OURS.into())).unwrap();
    assert_eq!(knock(&link, PORT + 5), ErrorKind::ConnectionRefused);
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    owned.disown(tcp(PORT)).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::ConnectionRefused);
    let knock_from = |from: u16| {
        let connect = move || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::from((KERNELS, from)).into())?;
            let short = Duration::from_millis(300);
            Ok(socket.connect_timeout(&at(PORT + 2).into(), short).unwrap_err().kind())
        };
        link.kernels.within(connect).unwrap()
    };
    assert_eq!(knock_from(40_001), ErrorKind::ConnectionRefused);
    assert_eq!(knock_from(40_000), ErrorKind::TimedOut);
    owned.disown(connection(40_000)).unwrap();
    assert_eq!(knock_from(40_000), ErrorKind::ConnectionRefused);
}

#[test]
fn a_connection_of_the_stack_is_not_reset_by_the_kernel() {
    if skipped("a_connection_of_the_stack_is_not_reset_by_the_kernel") {
        return;
    }
    const BYTES: usize = 200_000;
    let talk = |owns: bool| {
        let link = shared(if owns { "conn" } else { "reset" });
        // The packet socket sees the connection either way.
        let (owned, mut port) = open_with(&link, SETTINGS, false);
        let remote = SocketAddr::from((KERNELS, PORT));
        if owns {
            owned.own(Ours::Connection(Protocol::Tcp, at(40_000), remote)).unwrap();
        }
        let listener = link.kernels.within(|| Ok(TcpListener::bind((KERNELS, PORT))?)).unwrap();
        let server = thread::spawn(move || {
            let mut stream = listener.accept().ok()?.0;
            stream.set_read_timeout(Some(LONG)).ok()?;
            let mut got = vec![0; BYTES];
            stream.read_exact(&mut got).ok()?;
            stream.write_all(&got).ok()?;
            Some(got)
        });
        let mac = Some(mac_of(&link.kernels));
        let mut peer = Peer::connect(&mut port, mac, PORT, true);
        for train in pattern(BYTES).chunks(40 * 1460) {
            peer.send(train, 1460);
        }
        assert!(peer.receive(BYTES) == pattern(BYTES));
        assert!(server.join().unwrap().unwrap() == pattern(BYTES));
    };
    talk(true);
    // Without the entry our end's kernel resets it, or this test could not fail.
    let failed = thread::spawn(move || talk(false)).join().unwrap_err();
    let said = failed.downcast_ref::<&str>().copied().unwrap_or_default();
    assert_eq!(said, "the kernel has reset the connection");
}

#[test]
fn udp_and_a_whole_address_are_owned_too() {
    if skipped("udp_and_a_whole_address_are_owned_too") {
        return;
    }
    let link = shared("udp");
    let (owned, mut port) = open(&link);
    let ask = || {
        let ask = || {
            let socket = UdpSocket::bind((KERNELS, 0))?;
            socket.connect((OURS, PORT))?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            socket.send(b"is anybody there")?;
            Ok(socket.recv(&mut [0; 9]).unwrap_err().kind())
        };
        link.kernels.within(ask).unwrap()
    };
    assert_eq!(ask(), ErrorKind::ConnectionRefused);
    owned.own(Ours::Port(Protocol::Udp, at(PORT))).unwrap();
    assert_eq!(ask(), ErrorKind::WouldBlock);
    assert_eq!(knock(&link, PORT), ErrorKind::ConnectionRefused, "TCP's port is another");
    owned.disown(Ours::Port(Protocol::Udp, at(PORT))).unwrap();
    owned.own(Ours::Address(OURS.into())).unwrap();
    assert_eq!(ask(), ErrorKind::WouldBlock);
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    receive_until(&mut port, |came| came.len() >= 3);
}

#[test]
fn the_same_over_ipv6() {
    if skipped("the_same_over_ipv6") {
        return;
    }
    const OUR_V6: Ipv6Addr = Ipv6Addr::new(0xfd91, 0, 0, 0, 0, 0, 0, 1);
    let link = shared("six");
    for (namespace, address) in [(&link.ours, "fd91::1/64"), (&link.kernels, "fd91::2/64")] {
        namespace.set("ipv6/conf/eth0/disable_ipv6", 0).unwrap();
        namespace.ip(&format!("address add {address} dev eth0 nodad")).unwrap();
    }
    let (owned, mut port) = open(&link);
    let knock = || {
        let connect = || {
            let to = SocketAddr::from((OUR_V6, PORT));
            Ok(TcpStream::connect_timeout(&to, Duration::from_millis(500)).unwrap_err().kind())
        };
        link.kernels.within(connect).unwrap()
    };
    // The link-local address takes a while to be ready.
    let end = Instant::now() + LONG;
    while knock() != ErrorKind::ConnectionRefused {
        assert!(Instant::now() < end, "the kernel does not answer over IPv6");
    }
    owned.own(Ours::Port(Protocol::Tcp, (IpAddr::from(OUR_V6), PORT).into())).unwrap();
    assert_eq!(knock(), ErrorKind::TimedOut);
    receive_until(&mut port, |came| came.iter().any(|frame| frame.bytes[12..14] == [0x86, 0xdd]));
}

/// Runs this program again, as a process that owns a port until it is killed.
#[test]
fn a_killed_process_leaves_nothing_behind() {
    const TEST: &str = "owned::a_killed_process_leaves_nothing_behind";
    if let Ok(()) = std::env::var("UNCORK_TEST_OWNS_A_PORT").map(drop) {
        let mut owned = Owned::load(SETTINGS).unwrap();
        let port = Port::open(&af_packet::Settings::new("eth0"), None).unwrap();
        owned.attach(port.index()).unwrap();
        owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
        println!("\nattached");
        thread::sleep(Duration::from_secs(60));
        return;
    }
    if skipped(TEST) {
        return;
    }
    let link = shared("killed");
    let mut child = start_again(&link.ours, TEST, ("UNCORK_TEST_OWNS_A_PORT", "attached"));
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
    // By SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    is_refused_again(&link);
    let mut filters = link.ours.command("tc");
    let shown = filters.args(["filter", "show", "dev", "eth0", "ingress"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "");
}

#[test]
fn an_address_that_only_the_stack_has_needs_a_filter_where_the_kernel_forwards() {
    if skipped("an_address_that_only_the_stack_has_needs_a_filter_where_the_kernel_forwards") {
        return;
    }
    let link = Link::new("alone").with_address();
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut, "the kernel answers for no address");
    link.ours.ip("address add 10.92.0.1/24 dev lo").unwrap();
    link.ours.set("ipv4/ip_forward", 1).unwrap();
    link.ours.ip("route add unreachable default").unwrap();
    link.ours.ip(&format!("route add {KERNELS}/32 dev eth0")).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::HostUnreachable, "the kernel wants to pass it on");
    let (owned, _port) = open(&link);
    owned.own(Ours::Address(OURS.into())).unwrap();
    assert_eq!(knock(&link, PORT), ErrorKind::TimedOut);
}

#[test]
fn neighbours_are_seen_by_a_stack_that_asks_for_them_only() {
    if skipped("neighbours_are_seen_by_a_stack_that_asks_for_them_only") {
        return;
    }
    for neighbours in [true, false] {
        let link = Link::new(if neighbours { "arp" } else { "noarp" });
        link.kernels.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
        let (owned, mut port) = open_with(&link, Settings { neighbours, ..SETTINGS }, true);
        owned.own(Ours::Address(OURS.into())).unwrap();
        let send = || {
            let socket = UdpSocket::bind((KERNELS, 0))?;
            Ok(socket.send_to(b"hello", (OURS, PORT))?)
        };
        link.kernels.within(send).unwrap();
        if !neighbours {
            thread::sleep(Duration::from_millis(100));
            assert_eq!(port.receive(9, &mut |_| ()).unwrap(), 0);
            // Once it knows where we are, the kernel sends what is ours.
            let neighbour = format!("neigh replace {OURS} lladdr 02:00:00:00:00:01 dev eth0");
            link.kernels.ip(&neighbour).unwrap();
        }
        let came = receive_until(&mut port, |came| !came.is_empty());
        let kind = if neighbours { [0x08, 0x06] } else { [0x08, 0x00] };
        assert_eq!(came[0].bytes[12..14], kind);
    }
}

#[test]
fn what_is_missing_is_said() {
    if skipped("what_is_missing_is_said") {
        return;
    }
    let mut owned = Owned::load(SETTINGS).unwrap();
    let error = owned.attach(123_456).unwrap_err();
    assert!(matches!(error, Error::NoDevice(123_456)), "{error}");
}
