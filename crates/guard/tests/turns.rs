//! Ports of processes that serve one connection after the other: they are the kernel's for good,
//! for every process that joins them later.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use uncork_guardian::{Client, Error};
use uncork_netns::testing::is_skipped;

use crate::common::{LONG, Link, OUR_V6, OURS, end, knock, listen};

const PORT: u16 = 7400;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// A guardian waits longer before it says that no handshake is under way any more.
const NOT_YET: Duration = Duration::from_secs(1);

fn is_refused<T: std::fmt::Debug>(done: Result<T, Error>, why: &str) {
    assert!(matches!(&done, Err(Error::Refused(said)) if said.contains(why)), "{done:?}");
}

/// Waits until a process is told that a port is the kernel's.
fn told(client: &mut Client) -> SocketAddr {
    let until = Instant::now() + LONG;
    loop {
        client.check().unwrap();
        if let Some(local) = client.next_kernels() {
            return local;
        }
        assert!(Instant::now() < until, "it is not told");
        thread::sleep(BETWEEN_LOOKS);
    }
}

#[test]
fn who_serves_one_connection_after_the_other_leaves_its_port_to_the_kernel_with_all_who_have_it() {
    if is_skipped(
        "who_serves_one_connection_after_the_other_leaves_its_port_to_the_kernel_with_all_who_have_it",
    ) {
        return;
    }
    let link = Link::new("turns", &[]);
    let (any, local) = (end("0.0.0.0", PORT), end(OURS, PORT));
    let listener = link.ours.within(move || Ok(TcpListener::bind(any)?)).unwrap();
    let [mut first, mut second, mut third, mut fourth] = [0; 4].map(|_| link.client());
    is_refused(first.takes_turns(any), "nobody else listens at 0.0.0.0:7400");
    first.own(any, listener.as_fd()).unwrap();
    // A process that is alone may serve as it likes.
    is_refused(first.takes_turns(any), "nobody else listens at 0.0.0.0:7400");
    second.own(any, listener.as_fd()).unwrap();
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut));
    is_refused(third.own_kernels(any, listener.as_fd()), "may be the stack's");
    is_refused(third.takes_turns(any), "nobody else listens at 0.0.0.0:7400");

    first.takes_turns(any).unwrap();
    let begun = Instant::now();
    assert_eq!(knock(&link, local), Ok(()));
    // A connection may still be under way that is passed to a newcomer.
    is_refused(third.own_kernels(any, listener.as_fd()), "may be the stack's");
    third.own(any, listener.as_fd()).unwrap();
    assert_eq!(knock(&link, local), Ok(()));
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(told(client), any);
        assert!(begun.elapsed() >= NOT_YET, "after {:?}", begun.elapsed());
        assert_eq!(client.next_kernels(), None);
    }
    // From then on all are told at once, or need no device for it.
    fourth.own(any, listener.as_fd()).unwrap();
    assert_eq!(fourth.next_kernels(), Some(any), "it came with the answer");
    let mut fifth = link.client();
    fifth.own_kernels(any, listener.as_fd()).unwrap();
    let elsewhere = end(OURS, PORT + 1);
    is_refused(fifth.own_kernels(elsewhere, listener.as_fd()), "needs the kernel's socket");
    // As long as one of them is left, even one without a device.
    drop((first, second, third, fourth));
    fifth.own_kernels(any, listener.as_fd()).unwrap();
    for _ in 0..2 {
        fifth.disown(any).unwrap();
    }
    is_refused(fifth.own_kernels(any, listener.as_fd()), "may be the stack's");
    fifth.own(any, listener.as_fd()).unwrap();
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut), "others begin anew");
}

/// As inetd(8) does, which gives a child one of them and waits at the other.
#[test]
fn who_shares_one_of_two_listeners_at_a_port_leaves_that_one() {
    if is_skipped("who_shares_one_of_two_listeners_at_a_port_leaves_that_one") {
        return;
    }
    let link = Link::new("two", &[]);
    let (any, other) = (end("0.0.0.0", PORT), end(OUR_V6, PORT));
    let (shared, own) = (listen(&link, any), listen(&link, other));
    let [mut parent, mut child] = [0; 2].map(|_| link.client());
    parent.own(any, shared.as_fd()).unwrap();
    parent.own(other, own.as_fd()).unwrap();
    child.own(any, shared.as_fd()).unwrap();
    parent.others(any).unwrap();
    is_refused(parent.others(other), "nobody else listens at");
    parent.takes_turns(any).unwrap();
    assert_eq!(knock(&link, end(OURS, PORT)), Ok(()));
    assert_eq!(knock(&link, other), Err(ErrorKind::TimedOut), "nobody has left that");
}

#[test]
fn who_renounces_a_port_leaves_it_to_the_kernel_alone_and_with_all_who_come() {
    if is_skipped("who_renounces_a_port_leaves_it_to_the_kernel_alone_and_with_all_who_come") {
        return;
    }
    let link = Link::new("renounce", &[]);
    let (any, local) = (end("0.0.0.0", PORT), end(OURS, PORT));
    let listener = link.ours.within(move || Ok(TcpListener::bind(any)?)).unwrap();
    let [mut first, mut second] = [0; 2].map(|_| link.client());
    is_refused(first.renounces(any), "has not asked for 0.0.0.0:7400");
    first.own(any, listener.as_fd()).unwrap();
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut));
    first.renounces(any).unwrap();
    assert_eq!(knock(&link, local), Ok(()));
    // For example a child of it.
    second.own(any, listener.as_fd()).unwrap();
    assert_eq!(knock(&link, local), Ok(()));
    for client in [&mut first, &mut second] {
        assert_eq!(told(client), any);
    }
    first.renounces(any).unwrap();
    drop((first, second));
    let mut third = link.client();
    third.own(any, listener.as_fd()).unwrap();
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut), "others begin anew");
}

#[test]
fn who_says_that_it_has_closed_its_devices_may_not_open_more_of_them_than_others() {
    if is_skipped("who_says_that_it_has_closed_its_devices_may_not_open_more_of_them_than_others") {
        return;
    }
    let link = Link::new("closed", &[]);
    let mut client = link.client();
    let device = client.devices()[0].index;
    for _ in 0..4 {
        client.open(device).unwrap();
        client.has_closed().unwrap();
    }
    is_refused(client.open(device), "which is all it may");
}
