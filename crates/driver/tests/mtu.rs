//! A device whose MTU changes while frames leave: those that are too long then delay no others.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::{Duration, Instant};

use uncork_driver::af_packet::{Port, Settings};
use uncork_driver::{Driver as _, Offer};
use uncork_netns::Namespace;

use crate::common::{
    LONG, Link, OWNER, far_port, left, mac_of, numbered, receive_until, send, skipped, wakes_within,
};

/// A frame as long as an MTU of 1500 allows.
const FULL_BYTES: usize = 1514;
const SHORT_BYTES: usize = 300;

fn set_mtu(namespace: &Namespace, mtu: u16) {
    namespace.ip(&format!("link set eth0 mtu {mtu}")).unwrap();
}

/// Queues two frames of the old length, and a short one after them.
fn fill(here: &mut Port, link: &Link) {
    let to = mac_of(&link.kernels);
    for (number, bytes) in [(1, FULL_BYTES), (2, FULL_BYTES), (3, SHORT_BYTES)] {
        assert_eq!(send(here, &numbered(number, bytes, to), OWNER), Offer::Taken);
    }
}

/// Turns as an engine does until all have left; returns the number of wakes, and lengths received.
fn drive(here: &mut Port, there: &mut Port) -> (u32, Vec<usize>) {
    let (mut wakes, mut sum, mut came) = (0, 0, Vec::new());
    let end = Instant::now() + LONG;
    while sum < (2 * FULL_BYTES + SHORT_BYTES) as u64 || came.is_empty() {
        here.flush().unwrap();
        there.receive(9, &mut |frame| came.push(frame.bytes.len())).unwrap();
        sum += left(here);
        assert!(Instant::now() < end, "woken {wakes} times, {sum} octets have left");
        wakes += u32::from(wakes_within(here, Duration::from_millis(50)));
    }
    assert_eq!(here.in_flight(), 0);
    (wakes, came)
}

#[test]
fn what_is_too_long_for_a_device_by_now_is_taken_back_and_the_rest_leaves() {
    if skipped("what_is_too_long_for_a_device_by_now_is_taken_back_and_the_rest_leaves") {
        return;
    }
    let link = Link::new("mtuboth");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    fill(&mut here, &link);
    for namespace in [&link.ours, &link.kernels] {
        set_mtu(namespace, 1000);
    }
    let (wakes, came) = drive(&mut here, &mut there);
    assert_eq!(came, [SHORT_BYTES]);
    assert!(wakes < 10, "woken {wakes} times");
    assert_eq!(here.capabilities().mtu, 1000);
    // And larger again: the next frame that is sent shows it.
    for namespace in [&link.ours, &link.kernels] {
        set_mtu(namespace, 3000);
    }
    std::thread::sleep(Duration::from_millis(150));
    fill(&mut here, &link);
    let (_, came) = drive(&mut here, &mut there);
    assert_eq!(came, [FULL_BYTES, FULL_BYTES, SHORT_BYTES]);
    assert_eq!(here.capabilities().mtu, 3000);
    // Longer than any frame that could arrive when the ports were opened.
    let long = numbered(4, 3014, mac_of(&link.kernels));
    assert_eq!(send(&mut here, &long, OWNER), Offer::Taken);
    here.flush().unwrap();
    let came = receive_until(&mut there, |came| !came.is_empty());
    assert!(came[0].bytes == long, "{} octets came", came[0].bytes.len());
}

#[test]
fn what_only_the_other_end_refuses_is_given_up_and_the_rest_leaves() {
    if skipped("what_only_the_other_end_refuses_is_given_up_and_the_rest_leaves") {
        return;
    }
    let link = Link::new("mtutheirs");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    set_mtu(&link.kernels, 1000);
    fill(&mut here, &link);
    let (wakes, came) = drive(&mut here, &mut there);
    assert_eq!(came, [SHORT_BYTES]);
    assert!(wakes < 100, "woken {wakes} times");
    assert_eq!(here.capabilities().mtu, 1500);
}

#[test]
fn what_is_refused_is_offered_again_a_thousand_times_a_second_and_not_at_every_turn() {
    if skipped("what_is_refused_is_offered_again_a_thousand_times_a_second_and_not_at_every_turn") {
        return;
    }
    let link = Link::new("mturefused");
    let mut here = link.port(Settings::new("eth0"));
    link.kernels.ip("link set eth0 down").unwrap();
    fill(&mut here, &link);
    // As an engine that polls without sleeping.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(50) {
        here.flush().unwrap();
        left(&mut here);
    }
    let mut cat = link.ours.command("cat");
    let counted = cat.arg("/sys/class/net/eth0/statistics/tx_dropped").output().unwrap();
    let refused: u32 = String::from_utf8(counted.stdout).unwrap().trim().parse().unwrap();
    assert!((1..60).contains(&refused), "offered {refused} times in fifty milliseconds");
}
