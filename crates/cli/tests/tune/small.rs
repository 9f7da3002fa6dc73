//! `uncork tune small-queues` with other settings already in place.

use std::net::TcpStream;
use std::os::fd::OwnedFd;

use crate::place::Place;

const KNOBS: [&str; 3] = ["tcp_limit_output_bytes", "tcp_notsent_lowat", "tcp_min_tso_segs"];

/// Returns the settings that it changes, with the device's limit on a train last.
fn set(place: &Place) -> Vec<u64> {
    let mut all: Vec<u64> = KNOBS
        .iter()
        .map(|name| place.shell(&format!("cat /proc/sys/net/ipv4/{name}")).parse().unwrap())
        .collect();
    let link = place.ip("-d link show veth0");
    let size = link.split_once("gso_max_size ").unwrap().1;
    all.push(size.split_whitespace().next().unwrap().parse().unwrap());
    all
}

fn small(place: &Place, words: &str, code: i32) -> String {
    let (said, complaint) =
        place.tuned(&format!("small-queues --dev veth0 --netns {} {words}", place.name), code);
    said + &complaint
}

#[test]
fn what_is_tighter_than_the_target_takes_is_left_so() {
    let Some(place) = Place::make("what_is_tighter_than_the_target_takes_is_left_so") else {
        return;
    };
    for (name, value) in KNOBS.iter().zip([2000, 16_384, 1]) {
        place.shell(&format!("echo {value} >/proc/sys/net/ipv4/{name}"));
    }
    place.ip("link set veth0 gso_max_size 2000");
    let before = set(&place);
    let said = small(&place, "--rate 100mbit", 0);
    assert_eq!(set(&place), before, "{said}");
    for left in [
        "tcp_limit_output_bytes stays 2000",
        "tcp_notsent_lowat stays 16384",
        "tcp_min_tso_segs stays 1",
        "veth0 from 2000/2000/65535 to 2000/2000/2",
    ] {
        assert!(said.contains(left), "{left}: {said}");
    }
    let from_to = "note: net.ipv4.tcp_limit_output_bytes from 2000 to 6264";
    assert!(said.contains(from_to) && said.contains("would loosen it"), "{said}");
    // A setting that uncork left alone is not reported as changed by others.
    place.shell("echo 16777 >/proc/sys/net/ipv4/tcp_notsent_lowat");
    let (said, complaint) = place.tuned("undo 1", 0);
    assert!(complaint.is_empty() && !said.contains("lowat"), "{said}{complaint}");
    assert_eq!(set(&place)[1], 16_777);
    place.shell("echo 16384 >/proc/sys/net/ipv4/tcp_notsent_lowat");
    assert_eq!(set(&place), before);
}

#[test]
fn a_new_target_takes_the_place_of_ours_and_not_of_somebody_s() {
    let Some(place) = Place::make("a_new_target_takes_the_place_of_ours") else { return };
    let before = set(&place);
    small(&place, "--rate 100mbit", 0);
    assert_eq!(set(&place)[0], 6264);
    small(&place, "--rate 1gbit", 0);
    assert_eq!(set(&place)[0], 54_048);
    // Another device of the same namespace still needs the shorter limit.
    small(&place, "--rate 100mbit", 0);
    let words = format!("small-queues --dev veth1 --netns {} --rate 1gbit", place.name);
    let (said, _) = place.tuned(&words, 0);
    assert!(said.contains("tcp_limit_output_bytes stays 6264"), "{said}");
    for id in [3, 1, 4, 2] {
        place.tuned(&format!("undo {id}"), 0);
    }
    assert_eq!(set(&place), before);
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn rates_that_no_link_has_are_refused_and_slow_ones_are_told() {
    let Some(place) = Place::make("rates_that_no_link_has_are_refused") else { return };
    for absurd in ["0mbit", "1bit", "10tbit", "99999999gbit"] {
        let said = small(&place, &format!("--rate {absurd} --dry-run"), 2);
        assert!(said.contains("32kbit to 2tbit are possible"), "{absurd}: {said}");
    }
    let said = small(&place, "--rate 64kbit --dry-run", 0);
    assert!(said.contains("1ms at 64 kbit/s"), "{said}");
    let cannot =
        "note: the target of 1ms cannot be met: two full segments take 378.5ms at 64 kbit/s";
    assert!(said.contains(cannot), "{said}");
    let said = small(&place, "--rate 100mbit --senders 8 --dry-run", 0);
    assert!(said.contains("two full segments of 8 senders take 1.9ms at 100 Mbit/s"), "{said}");
    let said = small(&place, "--rate 100mbit --senders 8 --target 2ms --dry-run", 0);
    assert!(!said.contains("cannot be met"), "{said}");
    place.shell("tc qdisc add dev veth0 root tbf rate 8kbit burst 3000 latency 500ms");
    let said = small(&place, "--dry-run", 1);
    assert!(said.contains("8 kbit/s (tbf on veth0) is the rate of no link"), "{said}");
}

#[test]
fn the_class_that_shapes_what_nobody_has_sorted_tells_the_rate() {
    let Some(place) = Place::make("the_class_that_shapes_what_nobody_has_sorted") else { return };
    let tc = |line: &str| place.shell(&format!("tc {line} 2>&1"));
    tc("qdisc add dev veth0 root handle 1: htb default 30");
    tc("class add dev veth0 parent 1: classid 1:1 htb rate 20mbit");
    tc("class add dev veth0 parent 1: classid 1:10 htb rate 1gbit");
    let said = small(&place, "--dry-run", 0);
    assert!(said.contains("at 1000 Mbit/s (htb class 1:10, the fastest, on veth0)"), "{said}");
    tc("class add dev veth0 parent 1:1 classid 1:30 htb rate 5mbit ceil 50mbit");
    let said = small(&place, "--dry-run", 0);
    let expected = "at 20 Mbit/s (htb class 1:30, that of unsorted traffic, on veth0)";
    assert!(said.contains(expected), "{said}");
    tc("class change dev veth0 parent 1:1 classid 1:30 htb rate 5mbit ceil 10mbit");
    assert!(small(&place, "--dry-run", 0).contains("at 10 Mbit/s (htb class 1:30"));
}

/// Returns TCP_NOTSENT_LOWAT and SO_MAX_PACING_RATE of a connection, after setting them if given.
fn limits(place: &Place, stream: &TcpStream, set: Option<(u32, u32)>) -> (u32, u32) {
    let setting = set.map(|(lowat, pacing)| {
        format!("s.setsockopt(6, 25, {lowat}); s.setsockopt(1, 47, {pacing});")
    });
    let script = format!(
        "import socket; s = socket.socket(fileno=0); {} \
         print(s.getsockopt(6, 25) & 0xffffffff, s.getsockopt(1, 47) & 0xffffffff)",
        setting.unwrap_or_default()
    );
    let fd = OwnedFd::from(stream.try_clone().unwrap());
    let output =
        place.command("/usr/bin/python3").args(["-c", &script]).stdin(fd).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (lowat, pacing) = text.trim().split_once(' ').unwrap();
    (lowat.parse().unwrap(), pacing.parse().unwrap())
}

#[test]
fn sockets_that_are_limited_more_tightly_are_not_loosened_by_pacing() {
    let name = "sockets_that_are_limited_more_tightly_are_not_loosened_by_pacing";
    let Some(place) = Place::make(name) else { return };
    let (tight, loose, _listener) = place.connection();
    let own = limits(&place, &tight, Some((16_384, 1_000_000)));
    assert_eq!(own, (16_384, 1_000_000));
    let before = limits(&place, &loose, None);
    let words = format!("small-queues --dev lo --netns {} --rate 100mbit --pace", place.name);
    let (said, _) = place.tuned(&words, 0);
    assert!(said.contains("set on 1 connection now, so already or tighter on 1"), "{said}");
    assert_eq!(limits(&place, &tight, None), own);
    let (lowat, pacing) = limits(&place, &loose, None);
    assert!(lowat == 131_072 && (11_000_000..12_500_000).contains(&pacing), "{lowat} {pacing}");
    place.tuned("undo --all", 0);
    assert_eq!(limits(&place, &loose, None), before);
    // A socket's own value takes precedence over the system-wide setting.
    place.shell("echo 16384 >/proc/sys/net/ipv4/tcp_notsent_lowat");
    place.tuned(&words, 0);
    assert_eq!(limits(&place, &loose, None).0, 16_384);
    place.tuned("undo --all", 0);
}
