//! The system call that sends, deferred until others may have the port ([`Driver::flush_later`]).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use uncork_driver::af_packet::{Port, Settings};
use uncork_driver::{Driver, Offer};
use uncork_wire::ethernet::Mac;

use crate::common::{
    Came, LONG, Link, OWNER, far_port, left, mac_of, numbered, receive_until, send, skipped, tc,
    wakes_within,
};

/// Size of a frame in octets.
const BYTES: usize = 200;

fn numbers(came: &[Came]) -> Vec<u32> {
    came.iter().map(|came| u32::from_be_bytes(came.bytes[14..18].try_into().unwrap())).collect()
}

fn fill(port: &mut Port, numbers: std::ops::Range<u32>, to: Mac) {
    for number in numbers {
        assert_eq!(send(port, &numbered(number, BYTES, to), OWNER), Offer::Taken);
    }
}

#[test]
fn what_was_filled_leaves_when_the_call_is_made_or_in_a_flush_before_that() {
    if skipped("what_was_filled_leaves_when_the_call_is_made_or_in_a_flush_before_that") {
        return;
    }
    let link = Link::new("kick");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    let to = mac_of(&link.kernels);
    assert!(here.flush_later().unwrap().is_none(), "nothing was filled");

    fill(&mut here, 0..10, to);
    let kick = here.flush_later().unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(there.receive(10, &mut |_| ()).unwrap(), 0, "the call was made at once");
    assert!(kick.make());
    assert_eq!(numbers(&receive_until(&mut there, |came| came.len() >= 10)).len(), 10);

    fill(&mut here, 10..20, to);
    let kick = here.flush_later().unwrap().unwrap();
    here.flush().unwrap();
    let came = receive_until(&mut there, |came| came.len() >= 10);
    assert_eq!(numbers(&came), (10..20).collect::<Vec<_>>());
    assert!(kick.make());
    fill(&mut here, 20..21, to);
    here.flush().unwrap();
    assert_eq!(numbers(&receive_until(&mut there, |came| !came.is_empty())), [20], "twice");
}

#[test]
fn who_is_about_to_fork_waits_for_calls_that_are_about_to_be_made_but_not_for_ever() {
    if skipped("who_is_about_to_fork_waits_for_calls_that_are_about_to_be_made_but_not_for_ever") {
        return;
    }
    let link = Link::new("settle");
    let mut here = link.port(Settings::new("eth0"));
    let timed = |port: &Port| {
        let begun = Instant::now();
        port.settle();
        begun.elapsed()
    };
    fill(&mut here, 0..1, mac_of(&link.kernels));
    let kick = here.flush_later().unwrap().unwrap();
    assert!(timed(&here) >= Duration::from_millis(100), "a call was about to be made");
    let maker = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(20));
        assert!(kick.make());
    });
    assert!(timed(&here) >= Duration::from_millis(15), "it had not been made");
    maker.join().unwrap();
    let begun = Instant::now();
    while timed(&here) >= Duration::from_millis(15) {
        assert!(begun.elapsed() < LONG, "none is left");
    }
}

#[test]
fn threads_that_share_a_port_lose_nothing_however_their_calls_meet() {
    const THREADS: u32 = 4;
    const EACH: u32 = 2000;
    if skipped("threads_that_share_a_port_lose_nothing_however_their_calls_meet") {
        return;
    }
    let link = Link::new("kicks");
    let (here, mut there) = (Mutex::new(link.port(Settings::new("eth0"))), far_port(&link));
    let to = mac_of(&link.kernels);
    let sends = |thread: u32| {
        let mut number = thread * EACH;
        while number < (thread + 1) * EACH {
            let mut port = here.lock().unwrap();
            port.complete(&mut |_| ()).unwrap();
            if send(&mut *port, &numbered(number, BYTES, to), OWNER) == Offer::Taken {
                number += 1;
            }
            let kick = port.flush_later().unwrap();
            drop(port);
            if kick.is_some_and(|kick| !kick.make()) {
                here.lock().unwrap().flush().unwrap();
            }
        }
    };
    let came = std::thread::scope(|scope| {
        let sends = &sends;
        for thread in 0..THREADS {
            scope.spawn(move || sends(thread));
        }
        receive_until(&mut there, |came| came.len() >= (THREADS * EACH) as usize)
    });
    let all: BTreeSet<u32> = numbers(&came).into_iter().collect();
    assert_eq!(all.len(), came.len(), "some came twice");
    assert!(all.into_iter().eq(0..THREADS * EACH));
    assert_eq!(there.statistics().unwrap().lost, 0);
}

#[test]
fn what_a_full_queue_refuses_then_is_told_and_sent_later() {
    if skipped("what_a_full_queue_refuses_then_is_told_and_sent_later") {
        return;
    }
    let link = Link::new("kickfull");
    tc(&link, "qdisc add dev eth0 root tbf rate 20mbit burst 2k limit 5k");
    let (mut here, mut there) = (link.port(Settings::new("eth0")), far_port(&link));
    fill(&mut here, 0..100, mac_of(&link.kernels));
    let kick = here.flush_later().unwrap().unwrap();
    assert!(!kick.make(), "the queue has room for a fifth of them");
    here.flush().unwrap();
    assert!(here.flush_later().unwrap().is_none(), "it is too early to ask again");
    let (end, mut sum) = (Instant::now() + LONG, left(&mut here));
    while sum < 100 * BYTES as u64 {
        assert!(Instant::now() < end, "{sum} octets left");
        wakes_within(&here, Duration::from_secs(5));
        sum += left(&mut here);
        if here.flush_later().unwrap().is_some_and(|kick| !kick.make()) {
            here.flush().unwrap();
        }
    }
    let came = receive_until(&mut there, |came| came.len() >= 100);
    assert_eq!(numbers(&came), (0..100).collect::<Vec<_>>());
}
