//! Frames through packet sockets over a veth pair: what arrives, what has left and when, and wakes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use uncork_driver::af_packet::{Fanout, Port, Settings, Share};
use uncork_driver::{Driver, Offer, OpenError};
use uncork_wire::ethernet::Mac;

use crate::common::{
    self, KERNELS, LONG, Link, OURS, OWNER, far_port, left, mac_of, numbered, receive_until, send,
    skipped, tc, wait_until_left, wakes_within,
};

/// Opens a port at either end; the first receives frames that are longer than its slots.
fn with_long_frames(label: &str) -> (Link, Port, Port) {
    let link = Link::new(label);
    let here = link.port(Settings::new("eth0"));
    for host in [&link.ours, &link.kernels] {
        host.ip("link set eth0 mtu 9000").unwrap();
    }
    let there = far_port(&link);
    (link, here, there)
}

#[test]
fn every_frame_comes_once_in_order_and_is_told_to_have_left() {
    if skipped("every_frame_comes_once_in_order_and_is_told_to_have_left") {
        return;
    }
    let link = Link::new("frames");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    let to = mac_of(&link.kernels);
    // Several times round the ring, with all lengths.
    let mut told = 0;
    for batch in 0..30_u32 {
        let frames: Vec<Vec<u8>> = (0..60)
            .map(|number| numbered(batch * 60 + number, 60 + (number as usize * 24), to))
            .collect();
        for frame in &frames {
            assert_eq!(send(&mut here, frame, OWNER), Offer::Taken);
        }
        here.flush().unwrap();
        let came = receive_until(&mut there, |came| came.len() >= frames.len());
        let came: Vec<Vec<u8>> = came.into_iter().map(|came| came.bytes).collect();
        assert!(came == frames, "batch {batch} came changed");
        told += left(&mut here);
        let sent: usize = frames.iter().map(Vec::len).sum();
        assert!(told <= sent as u64 * (u64::from(batch) + 1));
    }
    let all = 30 * (0..60).map(|number| 60 + number * 24).sum::<u64>();
    wait_until_left(&mut here, all - told);
    assert_eq!(here.in_flight(), 0);
}

#[test]
fn a_frame_has_left_only_when_the_queue_below_has_let_it_go() {
    if skipped("a_frame_has_left_only_when_the_queue_below_has_let_it_go") {
        return;
    }
    let link = Link::new("tbf");
    tc(&link, "qdisc add dev eth0 root tbf rate 1mbit burst 4k limit 1m");
    let mut here = link.port(Settings::new("eth0"));
    let to = mac_of(&link.kernels);
    // 100 frames of 1000 octets take about 800 ms.
    let begun = Instant::now();
    for number in 0..100 {
        assert_eq!(send(&mut here, &numbered(number, 1000, to), OWNER), Offer::Taken);
    }
    here.flush().unwrap();
    let at_once = left(&mut here);
    assert!(at_once < 30_000, "{at_once} octets are said to have left at once");
    assert!(here.in_flight() > 50);
    // Woken by completions alone: nothing comes in.
    let (mut sum, mut wakes) = (at_once, 0);
    while sum < 100_000 {
        assert!(wakes_within(&here, LONG), "nobody was woken, {sum} octets have left");
        wakes += 1;
        let now = left(&mut here);
        assert!(now > 0 || wakes < 1000, "woken for nothing");
        sum += now;
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(600), "all had left after {took:?}");
    assert!(wakes > 3, "all left in {wakes} pieces");
    // And then nothing wakes it.
    left(&mut here);
    left(&mut here);
    assert!(!wakes_within(&here, Duration::from_millis(50)), "woken when nothing is there");
}

#[test]
fn what_a_full_queue_below_refuses_is_sent_later_and_not_lost() {
    if skipped("what_a_full_queue_below_refuses_is_sent_later_and_not_lost") {
        return;
    }
    let link = Link::new("full");
    tc(&link, "qdisc add dev eth0 root tbf rate 20mbit burst 2k limit 10k");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    let to = mac_of(&link.kernels);
    for number in 0..100 {
        assert_eq!(send(&mut here, &numbered(number, 1000, to), OWNER), Offer::Taken);
    }
    let (end, mut sum) = (Instant::now() + LONG, 0);
    while sum < 100_000 {
        here.flush().unwrap();
        sum += left(&mut here);
        assert!(Instant::now() < end, "{sum} octets left");
        wakes_within(&here, Duration::from_secs(5));
    }
    let came = receive_until(&mut there, |came| came.len() >= 100);
    let numbers: Vec<u8> = came.iter().map(|came| came.bytes[17]).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<u8>>());
}

#[test]
fn what_a_queue_refuses_with_nothing_under_way_wakes_to_be_sent_again() {
    if skipped("what_a_queue_refuses_with_nothing_under_way_wakes_to_be_sent_again") {
        return;
    }
    let link = Link::new("refused");
    // The burst is shorter than the frame.
    tc(&link, "qdisc add dev eth0 root tbf rate 20mbit burst 2k limit 500");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    send(&mut here, &numbered(1, 1000, Mac::BROADCAST), OWNER);
    for turn in 0..5 {
        here.flush().unwrap();
        assert_eq!(left(&mut here), 0);
        assert!(wakes_within(&here, LONG), "nobody was woken, turn {turn}");
        left(&mut here);
    }
    assert_eq!(there.receive(9, &mut |_| ()).unwrap(), 0);
    tc(&link, "qdisc del dev eth0 root");
    here.flush().unwrap();
    receive_until(&mut there, |came| came.len() == 1);
    wait_until_left(&mut here, 1000);
}

#[test]
fn a_full_ring_says_so_and_goes_on_when_frames_have_left() {
    if skipped("a_full_ring_says_so_and_goes_on_when_frames_have_left") {
        return;
    }
    let link = Link::new("ring");
    let settings = Settings { transmit_slots: 8, max_train_bytes: 1500, ..Settings::new("eth0") };
    let (mut here, mut there) = (link.port(settings), far_port(&link));
    let to = mac_of(&link.kernels);
    let mut taken = 0;
    while send(&mut here, &numbered(taken, 100, to), OWNER) == Offer::Taken {
        taken += 1;
        assert!(taken < 1000);
    }
    assert!(taken >= 8);
    // Nothing was flushed, so nothing has left.
    assert_eq!(left(&mut here), 0);
    here.flush().unwrap();
    receive_until(&mut there, |came| came.len() == taken as usize);
    wait_until_left(&mut here, u64::from(taken) * 100);
    assert_eq!(send(&mut here, &numbered(0, 100, to), OWNER), Offer::Taken);
}

#[test]
fn thousands_of_frames_of_all_lengths_find_room_while_nobody_receives() {
    const FRAMES: u32 = 6000;
    if skipped("thousands_of_frames_of_all_lengths_find_room_while_nobody_receives") {
        return;
    }
    let (_link, mut here, mut there) = with_long_frames("room");
    let long = |number: u32| number % 7 == 3;
    let frame = |number| {
        let bytes = if long(number) { 9000 } else { 60 + number as usize % 1400 };
        numbered(number, bytes, common::OUR_MAC)
    };
    let mut send_all = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            while send(&mut there, &frame(number), OWNER) == Offer::Full {
                there.flush().unwrap();
                left(&mut there);
            }
        }
        there.flush().unwrap();
    };
    assert!(!here.is_filling());
    send_all(0..FRAMES);
    assert!(here.is_filling());
    let came = receive_until(&mut here, |came| came.len() >= FRAMES as usize);
    for (number, came) in (0..).zip(&came) {
        assert!(came.bytes == frame(number), "frame {number}: {} octets", came.bytes.len());
    }
    assert_eq!((came.len(), here.is_filling(), here.lost()), (FRAMES as usize, false, Some(0)));
    // Frames for which there is no slot in the end are counted.
    send_all(0..2 * FRAMES);
    let mut came = 0;
    while here.receive(64, &mut |_| came += 1).unwrap() > 0 {}
    let lost = here.lost().unwrap();
    assert!(lost > 1000 && came + lost == u64::from(2 * FRAMES), "{came} came, {lost} were lost");
}

#[test]
fn a_frame_wakes_who_sleeps_and_quiet_does_not() {
    if skipped("a_frame_wakes_who_sleeps_and_quiet_does_not") {
        return;
    }
    let link = Link::new("wake");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    // From the first sleep on it watches the socket, which reports earlier completions at once.
    wakes_within(&there, Duration::ZERO);
    for turn in 0..20 {
        left(&mut there);
        assert!(!wakes_within(&there, Duration::from_millis(5)), "woken by nothing, turn {turn}");
        send(&mut here, &numbered(turn, 60, Mac::BROADCAST), OWNER);
        here.flush().unwrap();
        assert!(wakes_within(&there, LONG), "nobody was woken, turn {turn}");
        assert_eq!(there.receive(9, &mut |_| ()).unwrap(), 1);
    }
}

#[test]
fn who_has_slept_for_long_without_completions_is_still_woken_by_them_and_by_a_device_that_goes() {
    let name = "who_has_slept_for_long_without_completions_is_still_woken_by_them_and_by_a_device_that_goes";
    if skipped(name) {
        return;
    }
    let link = Link::new("rest");
    let mut here = link.port(Settings::new("eth0"));
    tc(&link, "qdisc add dev eth0 root tbf rate 100kbit burst 1600 limit 100000");
    let rest = |port: &Port| (0..100).for_each(|_| assert!(port.wakes_for_frames().is_some()));
    rest(&here);
    for number in 0..4 {
        send(&mut here, &numbered(number, 1000, Mac::BROADCAST), OWNER);
    }
    here.flush().unwrap();
    rest(&here);
    let mut sum = 0;
    while sum < 4000 {
        assert!(wakes_within(&here, LONG), "nobody was woken, {sum} octets left");
        sum += left(&mut here);
    }
    rest(&here);
    link.ours.ip("link del eth0").unwrap();
    let told = (0..100).find_map(|_| here.complete(&mut |_| ()).err());
    assert_eq!(told.unwrap().to_string(), "the network device eth0 is gone");
}

#[test]
fn each_flow_comes_to_one_engine_of_a_group() {
    if skipped("each_flow_comes_to_one_engine_of_a_group") {
        return;
    }
    let link = Link::new("fanout").with_address();
    let fanout = Some(Fanout { group: 5, share: Share::Flow });
    let settings = || Settings { fanout, ..Settings::new("eth0") };
    let mut engines = [link.port(settings()), link.port(settings())];
    let sockets: Vec<UdpSocket> = (0..64)
        .map(|_| link.kernels.within(|| Ok(UdpSocket::bind((KERNELS, 0))?)).unwrap())
        .collect();
    for _ in 0..3 {
        for socket in &sockets {
            socket.send_to(b"hello", (OURS, 9)).unwrap();
        }
    }
    let mut flows: [Vec<u16>; 2] = [vec![], vec![]];
    let end = Instant::now() + LONG;
    while flows.iter().map(Vec::len).sum::<usize>() < 64 * 3 {
        assert!(Instant::now() < end, "{flows:?}");
        for (engine, flows) in engines.iter_mut().zip(&mut flows) {
            let each = &mut |frame: uncork_packet::Received<'_>| {
                assert!(frame.bytes.ends_with(b"hello"));
                flows.push(u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]));
            };
            engine.receive(64, each).unwrap();
        }
    }
    let ports = flows.map(|flows| flows.into_iter().collect::<BTreeSet<u16>>());
    assert_eq!(ports[0].len() + ports[1].len(), 64, "a flow came to both");
    assert!(ports.iter().all(|ports| ports.len() > 10), "{ports:?}");
    // What the first sends reaches neither the second nor itself, nor does what our kernel sends.
    send(&mut engines[0], &numbered(1, 60, Mac::BROADCAST), OWNER);
    engines[0].flush().unwrap();
    link.ours.ip("address add 10.92.0.1/24 broadcast 10.92.0.255 dev eth0").unwrap();
    let broadcast = || {
        let socket = UdpSocket::bind(("10.92.0.1", 0))?;
        socket.set_broadcast(true)?;
        Ok(socket.send_to(b"all of you", ("10.92.0.255", 9))?)
    };
    link.ours.within(broadcast).unwrap();
    for engine in &mut engines {
        assert_eq!(engine.receive(9, &mut |_| ()).unwrap(), 0);
    }
}

#[test]
fn frames_of_a_vlan_are_left_aside() {
    if skipped("frames_of_a_vlan_are_left_aside") {
        return;
    }
    let link = Link::new("vlan");
    let mut here = link.port(Settings::new("eth0"));
    let mut there = far_port(&link);
    for tag in [7_u16, 3 << 13] {
        // An IEEE 802.1Q tag after the addresses: VLAN 7, and a priority without a VLAN.
        let plain = numbered(tag.into(), 60, common::OUR_MAC);
        let tagged = [&plain[..12], &[0x81, 0], &tag.to_be_bytes(), &plain[12..]].concat();
        send(&mut there, &tagged, OWNER);
    }
    send(&mut there, &numbered(3, 60, common::OUR_MAC), OWNER);
    there.flush().unwrap();
    let came = receive_until(&mut here, |came| came.len() >= 2);
    let came: Vec<Vec<u8>> = came.into_iter().map(|came| came.bytes).collect();
    assert_eq!(came, [3 << 13, 3].map(|number| numbered(number, 60, common::OUR_MAC)));
    assert_eq!(here.statistics().unwrap().left_aside, 1);
}

#[test]
fn a_pulled_cable_is_no_error_and_a_device_that_is_gone_is_one() {
    if skipped("a_pulled_cable_is_no_error_and_a_device_that_is_gone_is_one") {
        return;
    }
    let link = Link::new("gone");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    wakes_within(&here, Duration::ZERO);
    link.ours.ip("link set eth0 down").unwrap();
    send(&mut here, &numbered(1, 60, Mac::BROADCAST), OWNER);
    here.flush().unwrap();
    left(&mut here);
    left(&mut here);
    assert!(!wakes_within(&here, Duration::from_millis(20)), "woken again and again");
    link.ours.ip("link set eth0 up").unwrap();
    here.flush().unwrap();
    receive_until(&mut there, |came| !came.is_empty());
    link.ours.ip("link del eth0").unwrap();
    assert!(wakes_within(&here, LONG));
    let end = Instant::now() + LONG;
    let error = loop {
        if let Err(error) = here.complete(&mut |_| ()) {
            break error;
        }
        assert!(Instant::now() < end, "nobody was told");
    };
    assert_eq!(error.to_string(), "the network device eth0 is gone");
    assert!(here.receive(9, &mut |_| ()).is_err());
}

#[test]
fn a_device_that_is_not_there_or_not_up_is_told() {
    if skipped("a_device_that_is_not_there_or_not_up_is_told") {
        return;
    }
    let link = Link::new("none");
    let open = || Ok(Port::open(&Settings::new("eth9"), None).unwrap_err());
    let error: OpenError = link.ours.within(open).unwrap();
    assert!(matches!(&error, OpenError::NoDevice(name) if name == "eth9"), "{error}");
    link.ours.ip("link set eth0 down").unwrap();
    let open = || Ok(Port::open(&Settings::new("eth0"), None).unwrap_err().to_string());
    let error = link.ours.within(open).unwrap();
    assert!(error.contains("eth0 is down: ip link set eth0 up"), "{error}");
}

/// Runs this program again, as an unprivileged user.
#[test]
fn without_the_privilege_the_error_names_the_capability() {
    const TEST: &str = "frames::without_the_privilege_the_error_names_the_capability";
    if !nix::unistd::geteuid().is_root() {
        let error = Port::open(&Settings::new("lo"), None).unwrap_err().to_string();
        assert!(error.contains("CAP_NET_RAW"), "{error}");
        let settings = uncork_driver::tap::Settings {
            device: "uncork%d".to_owned(),
            medium: uncork_packet::Medium::Ip,
            mtu: None,
            offload: true,
        };
        let error = uncork_driver::tap::Port::open(&settings).unwrap_err().to_string();
        assert!(error.contains("CAP_NET_ADMIN") || error.contains("/dev/net/tun"), "{error}");
        return;
    }
    let done = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn long_frames_fill_what_they_have_before_the_ring_is_full() {
    if skipped("long_frames_fill_what_they_have_before_the_ring_is_full") {
        return;
    }
    let (link, mut here, mut there) = with_long_frames("longs");
    let to = mac_of(&link.ours);
    let mut send_some = |frames: u32, bytes| {
        for number in 0..frames {
            while send(&mut there, &numbered(number, bytes, to), OWNER) == Offer::Full {
                there.flush().unwrap();
                left(&mut there);
            }
        }
        there.flush().unwrap();
    };
    send_some(20, 9000);
    assert!(!here.is_filling(), "a few");
    send_some(180, 9000);
    assert!(here.is_filling());
    receive_until(&mut here, |came| came.len() >= 200);
    send_some(200, 1000);
    assert!(!here.is_filling(), "of as many short ones there is not much in the ring");
}

#[test]
fn a_device_that_has_gone_while_long_frames_waited_is_told() {
    if skipped("a_device_that_has_gone_while_long_frames_waited_is_told") {
        return;
    }
    let (link, mut here, mut there) = with_long_frames("longgone");
    wakes_within(&here, Duration::ZERO);
    for number in 0..3 {
        send(&mut there, &numbered(number, 9000, mac_of(&link.ours)), OWNER);
    }
    there.flush().unwrap();
    wait_until_left(&mut there, 27_000);
    link.ours.ip("link del eth0").unwrap();
    // The first call consumes what the kernel reports about the device, and the other frames still
    // come after it.
    for _ in 0..3 {
        assert_eq!(here.receive(1, &mut |_| ()).unwrap(), 1);
    }
    let end = Instant::now() + LONG;
    let error = loop {
        if let Err(error) = here.complete(&mut |_| ()) {
            break error;
        }
        assert!(Instant::now() < end, "nobody was told");
        wakes_within(&here, Duration::from_secs(1));
    };
    assert_eq!(error.to_string(), "the network device eth0 is gone");
}

/// Runs this program again, with CAP_NET_RAW and without CAP_NET_ADMIN.
#[test]
fn long_frames_come_whole_where_the_kernel_may_not_keep_many() {
    const TEST: &str = "frames::long_frames_come_whole_where_the_kernel_may_not_keep_many";
    const AGAIN: &str = "UNCORK_TEST_AGAIN";
    if std::env::var_os(AGAIN).is_some() {
        let mut port = Port::open(&Settings::new("lo"), None).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..60 {
            socket.send_to(&[number; 60_000], "127.0.0.1:9").unwrap();
        }
        // ICMP errors come among them, as there is no listener.
        let is_long = |came: &&common::Came| came.bytes.len() > 10_000;
        let came = receive_until(&mut port, |came| came.iter().filter(is_long).count() >= 60);
        for (number, came) in (0..).zip(came.iter().filter(is_long)) {
            assert!(came.bytes.ends_with(&[number; 60_000]), "{number}");
        }
        assert_eq!(port.lost(), Some(0));
        return;
    }
    if skipped(TEST) {
        return;
    }
    let link = Link::new("little");
    link.ours.ip("link set lo up").unwrap();
    let mut command = link.ours.command("setpriv");
    let command = command.args(["--bounding-set", "-net_admin"]).env(AGAIN, "1");
    let again = command.arg(std::env::current_exe().unwrap()).args(["--exact", TEST]);
    let done = again.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn past_the_queues_nothing_waits_and_there_are_no_trains() {
    if skipped("past_the_queues_nothing_waits_and_there_are_no_trains") {
        return;
    }
    let link = Link::new("bypass");
    tc(&link, "qdisc add dev eth0 root tbf rate 8kbit burst 2k limit 1m");
    let settings = Settings { bypass_queues: true, ..Settings::new("eth0") };
    let (mut here, mut there) = (link.port(settings), far_port(&link));
    assert_eq!(here.capabilities().max_train_bytes, 1500);
    let to = mac_of(&link.kernels);
    for number in 0..50 {
        assert_eq!(send(&mut here, &numbered(number, 1000, to), OWNER), Offer::Taken);
    }
    here.flush().unwrap();
    // Through the queue it would take 50 seconds.
    receive_until(&mut there, |came| came.len() == 50);
}

#[test]
fn a_promiscuous_device_is_so_while_the_port_lives() {
    if skipped("a_promiscuous_device_is_so_while_the_port_lives") {
        return;
    }
    let link = Link::new("promisc");
    let promiscuity = || {
        let mut command = link.ours.command("ip");
        let shown = command.args(["-d", "link", "show", "eth0"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let after = shown.split("promiscuity ").nth(1).unwrap();
        after.split(' ').next().unwrap().to_owned()
    };
    let port = link.port(Settings { promiscuous: true, ..Settings::new("eth0") });
    assert_eq!(promiscuity(), "1");
    drop(port);
    // A process that another test of this program starts at this moment holds it until it execs.
    let end = Instant::now() + LONG;
    while promiscuity() != "0" {
        assert!(Instant::now() < end, "it still is");
    }
}
