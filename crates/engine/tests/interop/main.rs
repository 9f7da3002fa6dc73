//! Our stack and the kernel's, over a veth pair, through all that a network does: every octet goes
//! from one to the other and back, and no connection is left over.
//!
//! `UNCORK_E2E_SOAK=1` plays every combination at length (`make soak`); without, a selection of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod kernel;
mod link;
mod programs;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use link::{Conditions, Link};
use uncork_netns::testing::is_skipped;

/// A flag that stops an engine, however the owner of its guard ends.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn guard(&self) -> StopGuard {
        StopGuard(self.clone())
    }
}

/// Sets the flag when it is dropped.
pub(crate) struct StopGuard(Stop);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the octet at a place of a stream, of which no run is like another.
pub(crate) fn octet(place: usize) -> u8 {
    let mixed = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

pub(crate) fn octets(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes).map(octet).collect()
}

fn soaks() -> bool {
    std::env::var_os("UNCORK_E2E_SOAK").is_some_and(|value| value == "1")
}

/// Sends from the kernel's program to ours and back; then the other way round.
fn both_ways(label: &str, conditions: &Conditions, connections: usize, bytes: usize) {
    let link = Link::new(label, conditions);
    let stop = Stop::default();
    let client = kernel::client(&link, connections, bytes, stop.guard());
    let (served, left) = programs::serve(&link, conditions, &stop);
    client.join().unwrap();
    assert_eq!((served, left), (connections, 0), "{label}: served, and left in our stack");

    let server = kernel::Server::new(&link);
    let left = programs::connect(&link, conditions, connections, bytes);
    assert_eq!(left, 0, "{label}: left in our stack");
    assert_eq!(server.finish(), connections, "{label}: served by the kernel");
    assert_eq!(link.connections_of_the_kernel(), 0, "{label}: left in the kernel");
}

#[test]
fn a_selection_of_networks() {
    if is_skipped("a_selection_of_networks") {
        return;
    }
    let still = Conditions::default();
    let lossy = Conditions { loss: 0.01, delay: Duration::from_millis(2), ..still };
    let far = Duration::from_millis(200);
    let selection = [
        ("plain", still, 5_000_000),
        ("lossy", lossy, 500_000),
        ("worse", Conditions { loss: 0.05, ..lossy }, 100_000),
        ("late", Conditions { reorder: 0.02, loss: 0.001, ipv6: true, ..lossy }, 500_000),
        ("small", Conditions { mtu: 576, ..lossy }, 150_000),
        ("jumbo", Conditions { mtu: 9000, ipv6: true, ..still }, 5_000_000),
        ("far", Conditions { delay: far, ..still }, 100_000),
    ];
    // Each has a network of its own, and mostly waits for it.
    std::thread::scope(|scope| {
        for (label, conditions, bytes) in selection {
            scope.spawn(move || both_ways(&format!("iop{label}"), &conditions, 2, bytes));
        }
    });
}

#[test]
fn ten_thousand_connections_and_nothing_left() {
    if is_skipped("ten_thousand_connections_and_nothing_left") {
        return;
    }
    both_ways("iopmany", &Conditions::default(), 10_000, 500);
}

#[test]
fn the_mtu_changes_under_a_transfer() {
    if is_skipped("the_mtu_changes_under_a_transfer") {
        return;
    }
    let conditions = Conditions::default();
    let link = Link::new("iopmtu", &conditions);
    let stop = Stop::default();
    let client = kernel::client(&link, 2, 15_000_000, stop.guard());
    let (served, left) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for mtu in [1000, 1500, 600] {
                std::thread::sleep(Duration::from_millis(25));
                assert!(!stop.is_set(), "all was over before the MTU was {mtu}");
                link.set_mtu(mtu);
            }
        });
        programs::serve(&link, &conditions, &stop)
    });
    client.join().unwrap();
    assert_eq!((served, left), (2, 0), "served, and left in our stack");
}

/// Sends so much in each direction, and compares each octet with what was sent.
#[test]
fn gigabytes_and_what_the_network_loses_of_them() {
    if !soaks() || is_skipped("gigabytes_and_what_the_network_loses_of_them") {
        return;
    }
    let still = Conditions::default();
    let lossy = |loss, delay| Conditions { loss, delay, ..still };
    let (none, short) = (Duration::ZERO, Duration::from_millis(1));
    for (label, conditions, bytes) in [
        ("still", still, 1 << 30),
        ("long", Conditions { mtu: 9000, ipv6: true, ..still }, 1 << 30),
        ("mille", lossy(0.001, none), 200_000_000),
        ("cent", lossy(0.01, short), 50_000_000),
        ("twenty", lossy(0.05, none), 50_000_000),
    ] {
        let began = std::time::Instant::now();
        both_ways(&format!("iopg{label}"), &conditions, 1, bytes);
        println!("{bytes} octets over {conditions:?} and back, by each: {:?}", began.elapsed());
    }
}

#[test]
fn every_network() {
    if !soaks() || is_skipped("every_network") {
        return;
    }
    for ipv6 in [false, true] {
        for mtu in [576, 1280, 1500, 9000].into_iter().filter(|&mtu| !ipv6 || mtu >= 1280) {
            for (loss, bytes) in
                [(0.0, 20_000_000), (0.001, 5_000_000), (0.01, 1_000_000), (0.05, 300_000)]
            {
                for (millis, reorder) in [(0, 0.0), (5, 0.01), (50, 0.0), (200, 0.0)] {
                    let delay = Duration::from_millis(millis);
                    let conditions = Conditions { mtu, loss, delay, reorder, ipv6 };
                    // Recovery over a long path is slow, for any stack.
                    let slowness = 1 + millis as usize / 5;
                    println!("{conditions:?}");
                    both_ways("iopall", &conditions, 2, bytes / slowness);
                }
            }
        }
    }
}
