//! Frames through AF_XDP sockets over a veth pair: what arrives and what is known of it, what has
//! left, and what the kernel's TCP and the stack say to each other.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use uncork_bpf::owned::Ours;
use uncork_driver::af_xdp::{BusyPoll, Copying, Handed, Nature, Port, Settings};
use uncork_driver::{Driver as _, Offer, OpenError};
use uncork_packet::{Received, Trust};
use uncork_wire::ethernet::Mac;

use crate::common::echo::{echo, echo_at};
use crate::common::xdp::{ALONE, Hold, open, open_with, settings};
use crate::common::{
    KERNELS, LONG, Link, OURS, OWNER, Peer, far_port, left, mac_of, numbered, pattern,
    receive_until, send, skipped, wait_until_left, wakes_within,
};

/// Makes a link on which the kernel finds us by ARP, which the stack answers.
fn link(label: &str) -> Link {
    let link = Link::new(label);
    link.kernels.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
    link
}

fn with_mtu(label: &str, mtu: u16) -> Link {
    let link = link(label);
    for namespace in [&link.ours, &link.kernels] {
        namespace.ip(&format!("link set eth0 mtu {mtu}")).unwrap();
    }
    link
}

#[test]
fn the_stack_echoes() {
    if skipped("the_stack_echoes") {
        return;
    }
    let link = link("xdp");
    let (_hold, mut port) = open(&link, settings());
    assert!(port.capabilities().completes_checksums && !port.is_zero_copy());
    echo(&mut port, &link.kernels, 30_000_000);
    let statistics = port.statistics().unwrap();
    assert!(statistics.received > 10_000, "{statistics:?}");
}

#[test]
fn the_stack_echoes_where_nobody_leaves_checksums_out() {
    if skipped("the_stack_echoes_where_nobody_leaves_checksums_out") {
        return;
    }
    let link = link("xdpoff");
    link.ethtool("-K eth0 tx off rx off tso off gso off gro off sg off");
    let (_hold, mut port) = open(&link, settings());
    echo(&mut port, &link.kernels, 3_000_000);
}

#[test]
fn the_stack_echoes_in_frames_of_several_pieces() {
    if skipped("the_stack_echoes_in_frames_of_several_pieces") {
        return;
    }
    let link = with_mtu("xdplong", 9000);
    let (_hold, mut port) = open(&link, settings());
    assert_eq!(port.capabilities().mtu, 9000);
    echo(&mut port, &link.kernels, 10_000_000);
}

#[test]
fn a_smaller_mtu_is_followed_and_a_larger_one_up_to_what_it_was() {
    if skipped("a_smaller_mtu_is_followed_and_a_larger_one_up_to_what_it_was") {
        return;
    }
    let link = link("xdpmtu");
    let (_hold, mut port) = open(&link, settings());
    for (mtu, wanted) in [(1000, 1000), (2000, 1500)] {
        for namespace in [&link.ours, &link.kernels] {
            namespace.ip(&format!("link set eth0 mtu {mtu}")).unwrap();
        }
        std::thread::sleep(Duration::from_millis(150));
        // One that fits, and one that does not: both have left, according to the kernel.
        for bytes in [60, 1514] {
            let frame = numbered(1, bytes, Mac::BROADCAST);
            assert_eq!(send(&mut port, &frame, OWNER), Offer::Taken);
        }
        port.flush().unwrap();
        wait_until_left(&mut port, 1574);
        assert_eq!(port.capabilities().mtu, wanted);
    }
}

#[test]
fn the_stack_echoes_over_ipv6() {
    if skipped("the_stack_echoes_over_ipv6") {
        return;
    }
    const OUR_V6: Ipv6Addr = Ipv6Addr::new(0xfd91, 0, 0, 0, 0, 0, 0, 1);
    let link = link("xdpsix");
    link.kernels.set("ipv6/conf/eth0/disable_ipv6", 0).unwrap();
    link.kernels.ip("address add fd91::2/64 dev eth0 nodad").unwrap();
    let (hold, mut port) = open(&link, settings());
    hold.owned.own(Ours::Address(OUR_V6.into())).unwrap();
    // The kernel's solicitation goes to a multicast group, which was not entered as the stack's.
    echo_at(&mut port, &link.kernels, IpAddr::V6(OUR_V6), 10_000_000);
}

#[test]
fn the_stack_echoes_while_it_polls_busily() {
    if skipped("the_stack_echoes_while_it_polls_busily") {
        return;
    }
    let link = link("xdpbusy");
    let busy_poll = Some(BusyPoll { time: Duration::from_micros(20), frames: 64 });
    let (_hold, mut port) = open(&link, Settings { busy_poll, ..settings() });
    echo(&mut port, &link.kernels, 3_000_000);
}

#[test]
fn a_kernel_that_verifies_gets_good_checksums_from_us() {
    if skipped("a_kernel_that_verifies_gets_good_checksums_from_us") {
        return;
    }
    // With and without a device that would fill them in.
    for (label, ethtool) in [("xdpsum", "-K eth0 tx on"), ("xdpsumoff", "-K eth0 tx off")] {
        let link = link(label);
        link.ethtool(ethtool);
        let (_hold, mut port) = open(&link, settings());
        let kernels = &link.kernels;
        kernels.ip(&format!("neigh add {OURS} lladdr 02:00:00:00:00:01 dev eth0")).unwrap();
        let listener =
            kernels.within(|| Ok(std::net::TcpListener::bind((KERNELS, 4000))?)).unwrap();
        let server = std::thread::spawn(move || {
            let mut got = Vec::new();
            let mut stream = listener.accept().unwrap().0;
            std::io::Write::write_all(&mut stream, &pattern(100_000)).unwrap();
            got.resize(100_000, 0);
            std::io::Read::read_exact(&mut stream, &mut got).unwrap();
            got
        });
        let mac = mac_of(kernels);
        let mut peer = Peer::connect(&mut port, Some(mac), 4000, false);
        assert!(peer.receive(100_000) == pattern(100_000));
        for segment in pattern(100_000).chunks(1460) {
            peer.send(segment, 1460);
        }
        assert!(server.join().unwrap() == pattern(100_000));
    }
}

#[test]
fn every_frame_comes_once_in_order_and_is_told_to_have_left() {
    if skipped("every_frame_comes_once_in_order_and_is_told_to_have_left") {
        return;
    }
    for (label, mtu, step) in [("xdpframes", 1500_u16, 24), ("xdpjumbo", 9000, 140)] {
        let link = with_mtu(label, mtu);
        let settings = Settings { transmit_frames: 64, ..settings() };
        let ((_hold, mut here), mut there) = (open(&link, settings), far_port(&link));
        let to = mac_of(&link.kernels);
        // Several times round the rings, with all lengths.
        let mut told = 0;
        for batch in 0..30_u32 {
            let frames: Vec<Vec<u8>> = (0..60)
                .map(|number| numbered(batch * 60 + number, 60 + (number as usize * step), to))
                .collect();
            for frame in &frames {
                assert_eq!(send(&mut here, frame, OWNER), Offer::Taken);
            }
            here.flush().unwrap();
            let came = receive_until(&mut there, |came| came.len() >= frames.len());
            let came: Vec<Vec<u8>> = came.into_iter().map(|came| came.bytes).collect();
            assert!(came == frames, "batch {batch} came changed");
            let sent: usize = frames.iter().map(Vec::len).sum();
            told += left(&mut here);
            wait_until_left(&mut here, sent as u64 * (u64::from(batch) + 1) - told);
            told = sent as u64 * (u64::from(batch) + 1);
        }
        assert_eq!(here.in_flight(), 0);
    }
}

#[test]
fn a_full_ring_says_so_and_goes_on_when_frames_have_left() {
    if skipped("a_full_ring_says_so_and_goes_on_when_frames_have_left") {
        return;
    }
    let link = link("xdpfull");
    let (_hold, mut here) = open(&link, Settings { transmit_frames: 8, ..settings() });
    let mut there = far_port(&link);
    let to = mac_of(&link.kernels);
    let mut taken = 0;
    while send(&mut here, &numbered(taken, 100, to), OWNER) == Offer::Taken {
        taken += 1;
        assert!(taken < 1000);
    }
    assert_eq!(taken, 8);
    assert_eq!(left(&mut here), 0, "nothing was flushed, so nothing has left");
    here.flush().unwrap();
    receive_until(&mut there, |came| came.len() == 8);
    wait_until_left(&mut here, 800);
    assert_eq!(send(&mut here, &numbered(0, 100, to), OWNER), Offer::Taken);
    let refused = here.offer(&mut |slot| {
        Some(uncork_packet::Transmit {
            frame_bytes: slot.len() as u32 + 1,
            checksum: uncork_packet::Checksum::Complete,
            segmentation: None,
            owner: None,
        })
    });
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(here.offer(&mut |_| None).unwrap(), Offer::Declined);
}

#[test]
fn what_never_was_on_a_wire_is_trusted_and_nothing_else() {
    if skipped("what_never_was_on_a_wire_is_trusted_and_nothing_else") {
        return;
    }
    for (label, ethtool, trust) in
        [("xdptrust", "-K eth0 tx on", Trust::Good), ("xdpdoubt", "-K eth0 tx off", Trust::Unknown)]
    {
        let link = link(label).with_neighbour();
        link.ethtool(ethtool);
        let (_hold, mut port) = open(&link, settings());
        let socket = link.kernels.within(|| Ok(UdpSocket::bind((KERNELS, 5000))?)).unwrap();
        socket.send_to(b"a datagram", (OURS, 5001)).unwrap();
        let came = receive_until(&mut port, |came| !came.is_empty());
        assert!(came[0].bytes.ends_with(b"a datagram"), "{came:?}");
        assert_eq!(came[0].trust, trust, "{ethtool}");
    }
}

#[test]
fn a_frame_that_was_damaged_on_the_way_is_not_trusted() {
    if skipped("a_frame_that_was_damaged_on_the_way_is_not_trusted") {
        return;
    }
    let link = link("xdpdamage").with_neighbour();
    let (_hold, mut port) = open(&link, settings());
    // A datagram of the kernel's is trusted, so that its chunk is marked so.
    let socket = link.kernels.within(|| Ok(UdpSocket::bind((KERNELS, 5000))?)).unwrap();
    socket.send_to(b"a datagram", (OURS, 5001)).unwrap();
    let mut frame = receive_until(&mut port, |came| !came.is_empty()).remove(0).bytes;
    // A bridge or a tunnel sends frames on as they are, as this packet socket does: the same frame
    // is damaged, as its checksum is not filled in. After a round of the whole ring, chunks are
    // used again.
    let last = frame.len() - 1;
    frame[last] ^= 1;
    let mut far = far_port(&link);
    for _ in 0..2 {
        for _ in 0..128 {
            assert_eq!(send(&mut far, &frame, OWNER), Offer::Taken);
        }
        far.flush().unwrap();
        let came = receive_until(&mut port, |came| came.len() >= 128);
        assert!(came.iter().all(|came| came.trust == Trust::Unknown && came.bytes == frame));
        while far.in_flight() > 0 {
            far.complete(&mut |_| ()).unwrap();
        }
    }
}

#[test]
fn a_frame_wakes_who_sleeps_and_quiet_does_not() {
    if skipped("a_frame_wakes_who_sleeps_and_quiet_does_not") {
        return;
    }
    let link = link("xdpwake").with_neighbour();
    let (_hold, mut port) = open(&link, settings());
    let socket = link.kernels.within(|| Ok(UdpSocket::bind((KERNELS, 5000))?)).unwrap();
    // From the first sleep on it watches the socket, which reports earlier completions at once.
    wakes_within(&port, Duration::ZERO);
    for turn in 0..20 {
        left(&mut port);
        assert!(!wakes_within(&port, Duration::from_millis(5)), "woken by nothing, turn {turn}");
        socket.send_to(b"a datagram", (OURS, 5001)).unwrap();
        assert!(wakes_within(&port, LONG), "nobody was woken, turn {turn}");
        assert_eq!(port.receive(9, &mut |_: Received<'_>| ()).unwrap(), 1);
    }
}

#[test]
fn a_device_that_is_down_is_waited_for_and_one_that_is_gone_is_told() {
    if skipped("a_device_that_is_down_is_waited_for_and_one_that_is_gone_is_told") {
        return;
    }
    let link = link("xdpgone").with_neighbour();
    let (_hold, mut port) = open(&link, settings());
    link.ours.ip("link set eth0 down").unwrap();
    send(&mut port, &numbered(1, 100, Mac::BROADCAST), OWNER);
    port.flush().unwrap();
    for _ in 0..100 {
        assert_eq!(left(&mut port), 0);
    }
    link.ours.ip("link set eth0 up").unwrap();
    let mut there = far_port(&link);
    let end = Instant::now() + LONG;
    let mut sum = 0;
    while sum < 100 {
        assert!(Instant::now() < end, "what was sent while it was down is still there");
        port.flush().unwrap();
        sum += left(&mut port);
        wakes_within(&port, Duration::from_millis(300));
    }
    receive_until(&mut there, |came| came.iter().any(|came| came.bytes.len() == 100));
    link.ours.ip("link del eth0").unwrap();
    let told = (0..100).find_map(|_| port.complete(&mut |_| ()).err());
    assert_eq!(told.unwrap().to_string(), "the network device eth0 is gone");
}

#[test]
fn what_was_opened_is_used_by_whoever_it_is_handed_to() {
    if skipped("what_was_opened_is_used_by_whoever_it_is_handed_to") {
        return;
    }
    let link = link("xdphand");
    let opened = link.ours.within(|| {
        let mut hold = Hold::load(ALONE)?;
        let handed = Handed::open(&settings())?;
        hold.redirect.enter(0, handed.socket.as_fd())?;
        hold.redirect.attach(Nature::of("eth0")?.index)?;
        hold.owned.own(Ours::Address(OURS.into()))?;
        Ok((hold, handed))
    });
    let (_hold, handed) = opened.unwrap();
    // What arrives before the port is used is not lost.
    link.kernels.ip(&format!("neigh add {OURS} lladdr 02:00:00:00:00:01 dev eth0")).unwrap();
    let socket = link.kernels.within(|| Ok(UdpSocket::bind((KERNELS, 5000))?)).unwrap();
    socket.send_to(b"early", (OURS, 5001)).unwrap();
    let text = serde_json::to_string(&handed.description).unwrap();
    let copy = |description| Handed {
        socket: handed.socket.try_clone().unwrap(),
        frames: handed.frames.try_clone().unwrap(),
        description,
    };
    for (true_part, lie) in [
        ("\"slots\":1024", "\"slots\":2048"),
        ("\"receive_chunks\":2048", "\"receive_chunks\":4096"),
        ("\"chunk_bytes\":2048", "\"chunk_bytes\":1"),
        ("\"slot_chunks\":1", "\"slot_chunks\":4000000000"),
    ] {
        assert!(text.contains(true_part), "{text}");
        let description = serde_json::from_str(&text.replace(true_part, lie)).unwrap();
        let refused = Port::adopt(copy(description)).unwrap_err();
        assert!(matches!(refused, OpenError::System { .. }), "{refused}");
    }
    let mut port = Port::adopt(copy(serde_json::from_str(&text).unwrap())).unwrap();
    drop(handed);
    let came = receive_until(&mut port, |came| !came.is_empty());
    assert!(came[0].bytes.ends_with(b"early"));
    echo(&mut port, &link.kernels, 2_000_000);
}

#[test]
fn what_cannot_be_opened_says_why() {
    if skipped("what_cannot_be_opened_says_why") {
        return;
    }
    let link = link("xdpwhy");
    link.ours.ip("tuntap add tap0 mode tap").unwrap();
    link.ours.ip("link set tap0 up").unwrap();
    let refused = |settings: Settings| {
        link.ours.within(move || Ok(Port::open(&settings).unwrap_err().to_string())).unwrap()
    };
    let at = |device: &str| Settings { device: device.to_owned(), ..settings() };
    assert!(refused(at("eth7")).contains("no network device eth7"));
    assert!(refused(at("tap0")).contains("(tun) hands on frames"));
    assert!(refused(at("lo")).contains("packet socket"));
    let text = refused(Settings { queue: 1, ..settings() });
    assert!(text.contains("eth0 has no queue 1: it has 1"), "{text}");
    let text = refused(Settings { copying: Copying::ZeroCopy, ..settings() });
    assert!(text.contains("cannot do without copying"), "{text}");
    let text = refused(Settings { receive_frames: usize::MAX, ..settings() });
    assert!(text.contains("more frames"), "{text}");
    let (_hold, _port) = open_with(&link, settings(), ALONE);
    let text = refused(settings());
    assert!(text.contains("eth0 (its queue 0) is held by another program"), "{text}");
    link.ours.ip("link set eth0 down").unwrap();
    assert!(refused(settings()).contains("eth0 is down: ip link set eth0 up"));
}
