//! The stack itself over the ports: a program on the kernel's side sends to an echo server on it,
//! and gets every octet back.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::SocketAddr;
use std::time::Duration;

use uncork_bpf::owned::{Ours, Owned, Protocol, Settings};
use uncork_driver::{Disturb, af_packet, clock, tap};
use uncork_netns::Namespace;
use uncork_packet::Medium;
use uncork_path::{Loss, Path};

use crate::common::echo::{PORT, echo};
use crate::common::{KERNELS, Link, OURS, skipped, tc};

/// Makes a link on which the kernel finds us by ARP, which the stack answers.
fn link(label: &str) -> Link {
    let link = Link::new(label);
    link.kernels.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
    link
}

#[test]
fn over_a_packet_socket() {
    if skipped("over_a_packet_socket") {
        return;
    }
    let link = link("stk");
    let mut port = link.port(af_packet::Settings::new("eth0"));
    echo(&mut port, &link.kernels, 30_000_000);
}

#[test]
fn over_a_packet_socket_on_a_device_that_can_do_nothing() {
    if skipped("over_a_packet_socket_on_a_device_that_can_do_nothing") {
        return;
    }
    let link = link("stkoff");
    link.ethtool("-K eth0 tx off rx off tso off gso off gro off sg off");
    let mut port = link.port(af_packet::Settings::new("eth0"));
    echo(&mut port, &link.kernels, 3_000_000);
}

#[test]
fn over_a_packet_socket_above_a_bottleneck() {
    if skipped("over_a_packet_socket_above_a_bottleneck") {
        return;
    }
    let link = link("stktbf");
    tc(&link, "qdisc add dev eth0 root tbf rate 50mbit burst 16k limit 200k");
    let mut port = link.port(af_packet::Settings::new("eth0"));
    echo(&mut port, &link.kernels, 3_000_000);
}

#[test]
fn over_a_tap_and_over_a_tun() {
    if skipped("over_a_tap_and_over_a_tun") {
        return;
    }
    for (label, medium, offload) in [
        ("stktap", Medium::Ethernet, true),
        ("stkwire", Medium::Ethernet, false),
        ("stktun", Medium::Ip, true),
    ] {
        let namespace = Namespace::new(label).unwrap();
        let settings =
            tap::Settings { device: "eth0".to_owned(), medium, mtu: Some(1500), offload };
        let mut port = namespace.within(move || Ok(tap::Port::open(&settings)?)).unwrap();
        namespace.ip("link set eth0 up").unwrap();
        namespace.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
        echo(&mut port, &namespace, 5_000_000);
    }
}

#[test]
fn through_loss() {
    if skipped("through_loss") {
        return;
    }
    let link = link("stkloss");
    let port = link.port(af_packet::Settings::new("eth0"));
    let path = |seed| Path {
        delay: Duration::from_millis(2),
        loss: Loss { probability: 0.01, seed, ..Loss::default() },
        ..Path::default()
    };
    let mut port = Disturb::new(port, path(1), path(2), clock::clock()).unwrap();
    echo(&mut port, &link.kernels, 2_000_000);
    let [incoming, outgoing] = port.counts();
    assert!(incoming.lost > 0 && outgoing.lost > 0, "{incoming:?} {outgoing:?}");
}

#[test]
fn on_an_address_that_the_kernel_has_too() {
    if skipped("on_an_address_that_the_kernel_has_too") {
        return;
    }
    let link = link("stkown");
    link.ours.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
    let opened = link.ours.within(|| {
        // Neighbours are the kernel's where it has the address, but this stack also asks for them
        // itself, and the kernel's answers tell it the same.
        let mut owned = Owned::load(Settings { ethernet: true, neighbours: true })?;
        let settings = af_packet::Settings::new("eth0");
        let port = af_packet::Port::open(&settings, Some(owned.for_packet_socket()))?;
        owned.attach(port.index())?;
        owned.own(Ours::Port(Protocol::Tcp, SocketAddr::from((OURS, PORT))))?;
        Ok((owned, port))
    });
    let (owned, mut port) = opened.unwrap();
    echo(&mut port, &link.kernels, 10_000_000);
    assert!(owned.dropped().unwrap() > 10);
}
