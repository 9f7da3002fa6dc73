//! A device is renamed, or goes into another network namespace and comes back.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::time::Instant;

use uncork_driver::af_packet::Port;
use uncork_guardian::Client;
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;

use crate::common::{LONG, Link, OURS, SHORT, end, knock, open, seen};

const PORT: u16 = 7600;

fn listen(host: &Namespace) -> TcpListener {
    host.within(|| Ok(TcpListener::bind(end("0.0.0.0", PORT))?)).unwrap()
}

/// Waits until the guardian has heard of it.
fn in_the_end(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: never");
    }
}

/// Returns a program that has the port on the stack.
fn owner(link: &Link, listener: &TcpListener) -> (Client, Port) {
    let mut client = link.client();
    let port = open(&mut client);
    client.own(end("0.0.0.0", PORT), listener.as_fd()).unwrap();
    (client, port)
}

#[test]
fn a_device_in_another_namespace_is_that_one_s_and_the_stack_s_again_when_it_is_back() {
    const NAME: &str =
        "a_device_in_another_namespace_is_that_one_s_and_the_stack_s_again_when_it_is_back";
    if is_skipped(NAME) {
        return;
    }
    let link = Link::new("moves", &[]);
    let listener = listen(&link.ours);
    let (mut old, _port) = owner(&link, &listener);
    assert_eq!(knock(&link, end(OURS, PORT)), Err(ErrorKind::TimedOut), "it is not the stack's");
    let other = Namespace::new("moves-x").unwrap();
    let comes_to = |host: &Namespace| {
        host.ip("link set eth0 up").unwrap();
        host.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
    };
    link.ours.ip(&format!("link set eth0 netns {}", other.name())).unwrap();
    comes_to(&other);
    let there = listen(&other);
    in_the_end("it is kept from who listens there", || knock(&link, end(OURS, PORT)) == Ok(()));
    let mut new = link.client();
    new.open(new.devices()[0].index).unwrap_err();
    drop(there);
    other.ip(&format!("link set eth0 netns {}", link.ours.name())).unwrap();
    comes_to(&link.ours);
    // The old program gets no frames there, and listens on kernel sockets, too.
    in_the_end("it comes to nobody", || knock(&link, end(OURS, PORT)) == Ok(()));
    old.check().unwrap();
    let mut is_open = || {
        let mut client = link.client();
        let index = client.devices()[0].index;
        client.open(index).is_ok()
    };
    in_the_end("it is not the stack's any more", &mut is_open);
    let (_new, port) = owner(&link, &listener);
    assert_eq!(knock(&link, end(OURS, PORT)), Err(ErrorKind::TimedOut), "it is not the stack's");
    assert!(!seen(&mut [port], SHORT)[0].is_empty());
}

#[test]
fn a_device_that_is_called_otherwise_is_opened_all_the_same() {
    if is_skipped("a_device_that_is_called_otherwise_is_opened_all_the_same") {
        return;
    }
    let link = Link::new("renamed", &[]);
    let listener = listen(&link.ours);
    let (_old, _port) = owner(&link, &listener);
    // As udev does, while it is up.
    link.ours.ip("link set eth0 down").unwrap();
    link.ours.ip("link set eth0 name lan0").unwrap();
    link.ours.ip("link set lan0 up").unwrap();
    let mut new = link.client();
    let mut open_now = || new.open(new.devices()[0].index).map_err(|error| error.to_string());
    let opened = open_now().unwrap();
    drop(Port::adopt(opened).unwrap());
    // From then on the new name is reported.
    assert_eq!(link.client().devices()[0].name, "lan0");
}
