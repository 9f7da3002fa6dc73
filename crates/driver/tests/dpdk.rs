//! DPDK's virtual devices: what becomes of frames on them, and the errors for impossible devices.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use common::echo::{echo, echo_at};
use common::{
    Came, KERNELS, LONG, Link, OUR_MAC, OURS, Peer, fill, mac_of, numbered, pattern, receive_until,
    send, skipped, text,
};
use uncork_driver::dpdk::{Port, Settings};
use uncork_driver::{Driver as _, Offer, OpenError};
use uncork_netns::Namespace;
use uncork_packet::{Capabilities, Medium, Trust};
use uncork_wire::SeqNumber;
use uncork_wire::ethernet::Mac;
use uncork_wire::tcp::{Fields, Flags, OptionSet};

fn open(device: &str) -> Result<Port, OpenError> {
    Port::open(&Settings::new(device))
}

fn refused(device: &str) -> String {
    open(device).unwrap_err().to_string()
}

fn open_within(namespace: &Namespace, device: &str) -> Port {
    let settings = Settings::new(device);
    namespace.within(move || Ok(Port::open(&settings)?)).unwrap()
}

/// Makes a link on which each segment is a frame of its own with a checksum in it, as on a wire.
fn wire(label: &str) -> Link {
    let link = Link::new(label).with_address();
    link.ethtool("-K eth0 tx off");
    link
}

fn mtu(link: &Link, mtu: u16) {
    for namespace in [&link.ours, &link.kernels] {
        namespace.ip(&format!("link set eth0 mtu {mtu}")).unwrap();
    }
}

#[test]
fn frames_come_back_from_a_ring_as_they_were_and_in_order() {
    let mut port = open("net_ring0").unwrap();
    let mut plain = Capabilities::plain(Medium::Ethernet, 1500);
    plain.reports_completions = false;
    assert_eq!((port.capabilities(), port.driver()), (plain, "net_ring"));
    assert!(port.reads_along().is_none() && port.tap().is_none() && port.advice().is_none());
    for round in 0..50 {
        let frames = (0..100).map(|number| numbered(round * 100 + number, 60 + 14 * 100, OUR_MAC));
        let frames: Vec<_> = frames.collect();
        for frame in &frames {
            assert_eq!(send(&mut port, frame, 0), Offer::Taken);
        }
        port.flush().unwrap();
        let came = receive_until(&mut port, |came| came.len() >= frames.len());
        assert!(came.iter().map(|came| &came.bytes).eq(&frames), "others came in round {round}");
    }
    let counted = port.statistics();
    assert_eq!((counted.received, counted.sent, counted.lost, counted.refused), (5000, 5000, 0, 0));
}

#[test]
fn what_a_device_does_not_take_is_given_up_and_what_it_takes_again_is_sent() {
    // More buffers than the ring has room for.
    let many = Settings { transmit_frames: 4096, ..Settings::new("net_ring1") };
    let mut port = Port::open(&many).unwrap();
    let frame = numbered(1, 60, OUR_MAC);
    let mut taken = 0;
    while send(&mut port, &frame, 0) == Offer::Taken {
        taken += 1;
        assert!(taken < 100_000, "it is never full");
    }
    assert!(port.rest_at_most().unwrap() < Duration::from_millis(1), "some wait");
    let end = Instant::now() + LONG;
    while port.statistics().refused == 0 {
        port.flush().unwrap();
        assert!(Instant::now() < end, "nothing is given up");
    }
    // The first frame was given up, so there is room for the next.
    assert_eq!(send(&mut port, &frame, 0), Offer::Taken);
    let mut came = 0;
    while came < taken {
        came += port.receive(1000, &mut |frame| assert_eq!(frame.bytes.len(), 60)).unwrap();
        port.flush().unwrap();
        assert!(Instant::now() < end, "{came} of {taken} came");
    }
    assert_eq!(came, taken, "one was given up, and one sent after it");
}

#[test]
fn no_more_frames_are_handed_on_than_were_asked_for() {
    // Meaningless frames, as many as are asked for.
    let mut port = open("net_null0").unwrap();
    for budget in [1, 31, 32, 33, 100] {
        assert_eq!(port.receive(budget, &mut |_| ()).unwrap(), budget);
    }
    // And as many as are sent are discarded.
    for number in 0..1000 {
        assert_eq!(send(&mut port, &numbered(number, 60, OUR_MAC), 0), Offer::Taken);
    }
    port.flush().unwrap();
    assert_eq!(port.statistics().sent, 1000);
}

#[test]
fn who_has_to_ask_asks_more_often_while_frames_come() {
    let mut port = open("net_ring2").unwrap();
    send(&mut port, &numbered(1, 60, OUR_MAC), 0);
    port.flush().unwrap();
    assert!(port.wakes().is_none());
    thread::sleep(Duration::from_millis(20));
    assert_eq!(port.rest_at_most(), Some(Duration::from_millis(1)));
    receive_until(&mut port, |came| !came.is_empty());
    assert!(port.rest_at_most() < Some(Duration::from_millis(1)));
}

#[test]
fn a_device_is_opened_once_and_again_when_it_was_closed() {
    let port = open("net_ring3").unwrap();
    let sentence = refused("net_ring3");
    assert_eq!(sentence, "DPDK cannot use net_ring3: it is in use in this process already");
    drop(port);
    for _ in 0..3 {
        drop(open("net_ring3").unwrap());
    }
}

#[test]
fn the_mtu_is_what_was_asked_for_if_the_device_can() {
    let of = |mtu| Port::open(&Settings { mtu: Some(mtu), ..Settings::new("net_ring4") });
    let mut port = of(9000).unwrap();
    assert_eq!(port.capabilities().mtu, 9000);
    let long = numbered(1, 9014, OUR_MAC);
    assert_eq!(send(&mut port, &long, 0), Offer::Taken);
    port.flush().unwrap();
    let came = receive_until(&mut port, |came| !came.is_empty());
    assert!(came[0].bytes == long);
    let memif = Settings { mtu: Some(9000), ..Settings::new("net_memif0,role=server,id=7") };
    let sentence = Port::open(&memif).unwrap_err().to_string();
    assert!(sentence.contains("9014") || sentence.contains("9018"), "{sentence}");
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    for (device, says) in [
        ("", "net_af_packet0,iface=eth0"),
        ("net_nothing0", "DPDK cannot use net_nothing0: "),
        ("crypto_null0", "it is no network device"),
        ("net_af_packet9", "iface=eth0"),
        ("net_af_packet9,iface=lo,framesz=100", "framesz="),
        ("net_null9,size=x,nonsense=1", "DPDK cannot use net_null9: "),
        ("0000:ff:1f.7", "no such device on the PCI bus"),
    ] {
        let sentence = refused(device);
        assert!(sentence.contains(says) && !sentence.contains('\n'), "{device}: {sentence}");
    }
    if skipped("what_cannot_be_is_said_in_a_sentence") {
        return;
    }
    let none = refused("net_af_packet9,iface=none0");
    assert!(none.contains("there is no network device none0"), "{none}");
    let namespace = Namespace::new("dpdkdown").unwrap();
    namespace.ip("link set lo down").unwrap();
    let down = move || Ok(refused("net_af_packet8,iface=lo"));
    assert!(namespace.within(down).unwrap().contains("lo is down: ip link set lo up"));
    let sized = || {
        let of = Settings { mtu: Some(9000), ..Settings::new("net_af_packet8,iface=lo") };
        Ok(Port::open(&of).unwrap_err().to_string())
    };
    assert!(namespace.within(sized).unwrap().contains("ip link set DEVICE mtu"));
}

#[test]
fn a_packet_socket_of_dpdks_carries_both_directions_whatever_the_mtu() {
    if skipped("a_packet_socket_of_dpdks_carries_both_directions_whatever_the_mtu") {
        return;
    }
    let link = wire("dpdkpackets");
    for (number, size) in [(10, 1500), (11, 9000), (12, 1280)] {
        mtu(&link, size);
        let mut port = open_within(&link.ours, &format!("net_af_packet{number},iface=eth0"));
        assert_eq!((port.capabilities().mtu, port.mac()), (size, OUR_MAC.0));
        assert!(port.reads_along().is_some());
        assert!(port.advice().unwrap().contains("ethtool -K DEVICE tx off"));
        echo(&mut port, &link.kernels, 5_000_000);
        let counted = port.statistics();
        assert!(counted.received > 500 && counted.sent > 500, "{counted:?}");
        assert_eq!((counted.left_aside, counted.refused), (0, 0));
    }
}

#[test]
fn ipv6_finds_its_neighbours_too() {
    if skipped("ipv6_finds_its_neighbours_too") {
        return;
    }
    let link = wire("dpdksix");
    link.kernels.set("ipv6/conf/eth0/disable_ipv6", 0).unwrap();
    link.kernels.ip("address add fd91::2/64 dev eth0 nodad").unwrap();
    let mut port = open_within(&link.ours, "net_af_packet20,iface=eth0");
    echo_at(&mut port, &link.kernels, "fd91::1".parse().unwrap(), 1_000_000);
}

#[test]
fn an_mtu_that_changes_is_noticed_and_a_device_that_goes_too() {
    if skipped("an_mtu_that_changes_is_noticed_and_a_device_that_goes_too") {
        return;
    }
    let link = wire("dpdkmtu");
    let mut port = open_within(&link.ours, "net_af_packet30,iface=eth0");
    let mut flushed_until = |enough: &dyn Fn(&Port) -> bool| {
        let end = Instant::now() + LONG;
        while !enough(&port) {
            assert!(Instant::now() < end, "it is not noticed");
            if let Err(error) = port.flush() {
                return error.to_string();
            }
        }
        String::new()
    };
    mtu(&link, 1300);
    flushed_until(&|port| port.capabilities().mtu == 1300);
    // Limited by the slots, which were made when the device was opened.
    mtu(&link, 9000);
    flushed_until(&|port| port.capabilities().mtu == 1968);
    link.ours.ip("link delete eth0").unwrap();
    assert!(flushed_until(&|_| false).contains("eth0 is gone"));
}

/// Opens a TAP device with the kernel's address at its end.
fn tap(namespace: &Namespace, device: &str) -> Port {
    let port = open_within(namespace, &format!("{device},iface=eth0"));
    assert_eq!(port.tap(), Some("eth0"));
    namespace.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
    namespace.ip("link set eth0 up").unwrap();
    namespace.ip(&format!("neigh add {OURS} lladdr {} dev eth0", text(OUR_MAC))).unwrap();
    port
}

#[test]
fn a_tap_of_dpdks_fills_in_checksums() {
    if skipped("a_tap_of_dpdks_fills_in_checksums") {
        return;
    }
    let namespace = Namespace::new("dpdktap").unwrap();
    let mut port = tap(&namespace, "net_tap0");
    let capabilities = port.capabilities();
    assert!(capabilities.completes_checksums);
    assert_eq!(capabilities.max_train_bytes, capabilities.mtu.into());
    let listener = namespace.within(|| Ok(TcpListener::bind((KERNELS, 4000))?)).unwrap();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut got = vec![0; 100_000];
        stream.read_exact(&mut got).unwrap();
        stream.write_all(&pattern(1_000_000)).unwrap();
        got
    });
    let mut peer = Peer::connect(&mut port, Some(mac_of(&namespace)), 4000, true);
    for segment in pattern(100_000).chunks(1400) {
        peer.send(segment, 1400);
    }
    let down = peer.receive(1_000_000);
    assert!(down == pattern(1_000_000), "the kernel's octets came changed");
    assert!(server.join().unwrap() == pattern(100_000), "ours came to the kernel changed");
}

#[test]
fn a_stack_talks_over_a_tap_of_dpdks() {
    if skipped("a_stack_talks_over_a_tap_of_dpdks") {
        return;
    }
    let namespace = Namespace::new("dpdktaps").unwrap();
    let mut port = tap(&namespace, "net_tap1");
    echo(&mut port, &namespace, 5_000_000);
}

#[test]
fn a_frame_in_several_buffers_is_put_together() {
    if skipped("a_frame_in_several_buffers_is_put_together") {
        return;
    }
    let namespace = Namespace::new("dpdksegs").unwrap();
    let mut port = tap(&namespace, "net_tap2");
    // The device was opened for less, but takes what the kernel sends all the same.
    namespace.ip("link set eth0 mtu 9000").unwrap();
    let octets = pattern(8900);
    let sent = octets.clone();
    let udp = move || Ok(UdpSocket::bind((KERNELS, 0))?.send_to(&sent, (OURS, 9))?);
    namespace.within(udp).unwrap();
    let is_long = |came: &Came| came.bytes.len() == 8900 + 42;
    let came = receive_until(&mut port, |came| came.iter().any(is_long));
    let frame = came.iter().find(|came| is_long(came)).unwrap();
    assert!(frame.bytes[42..] == octets, "it was put together wrongly");
    assert_eq!(port.capabilities().mtu, 1500, "what leaves is as long as the device takes");
    assert_eq!(send(&mut port, &numbered(1, 1514, Mac::BROADCAST), 0), Offer::Taken);
}

#[test]
fn closed_a_tap_is_gone() {
    if skipped("closed_a_tap_is_gone") {
        return;
    }
    let namespace = Namespace::new("dpdkgone").unwrap();
    let port = tap(&namespace, "net_tap3");
    drop(port);
    let shown = namespace.command("ip").args(["link", "show", "dev", "eth0"]).output().unwrap();
    assert!(!shown.status.success());
}

/// Sends a train as the stack writes it; returns what arrives at the far port.
fn across(near: &mut Port, far: &mut Port, data: &[u8]) -> Came {
    let fields = Fields {
        source_port: 40_000,
        destination_port: 4000,
        seq: SeqNumber(1),
        ack: SeqNumber(1),
        flags: Flags::ACK,
        window: u16::MAX,
    };
    let none = OptionSet::default();
    let mac = Some(Mac::BROADCAST);
    let cut = (data.len() > 1460).then_some(1460);
    let filled = near.offer(&mut |slot| Some(fill(slot, mac, &fields, &none, data, cut, true)));
    assert_eq!(filled.unwrap(), Offer::Taken);
    near.flush().unwrap();
    receive_until(far, |came| !came.is_empty()).remove(0)
}

#[test]
fn a_device_that_cuts_trains_is_told_how() {
    // A virtual machine's device and the host's end of it, both in here: trains cross whole.
    let path = std::env::temp_dir().join(format!("uncork-vhost-{}", std::process::id()));
    let path = path.to_str().unwrap();
    let mut far = open(&format!("net_vhost0,iface={path},queues=1,tso=1")).unwrap();
    let mut near = open(&format!("net_virtio_user0,path={path},queues=1,queue_size=1024")).unwrap();
    let capabilities = near.capabilities();
    assert!(capabilities.completes_checksums && capabilities.max_train_bytes == 16_000);
    for bytes in [1, 1000, 1460, 1461, 10_000, 15_900] {
        let data = pattern(bytes);
        let came = across(&mut near, &mut far, &data);
        // After the headers of Ethernet, IP and TCP.
        assert!(came.bytes[54..] == data, "{} octets came, or others", came.bytes.len());
        assert_eq!(came.trust, Trust::Good);
        assert_eq!(came.segment_bytes, (bytes > 1460).then_some(1460));
    }
}
