//! A packet socket that one process opens and another, without any privilege, uses.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use uncork_driver::af_packet::{Description, Handed, Port, Settings};
use uncork_driver::{Driver as _, Offer, OpenError};
use uncork_wire::ethernet::Mac;

use crate::common::{self, Link, numbered, receive_until, send, skipped};

/// User and group that own nothing.
const NOBODY: u32 = 65_534;
const DESCRIPTION: &str = "UNCORK_TEST_DESCRIPTION";

/// Plays this program again, without privileges and with the socket as standard input.
fn use_it(description: &str) {
    let refused = Port::open(&Settings::new("eth0"), None).unwrap_err();
    assert!(matches!(refused, OpenError::Privilege { .. }), "{refused}");
    let description: Description = serde_json::from_str(description).unwrap();
    let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut port = Port::adopt(Handed { socket, description }).unwrap();
    assert_eq!(port.mac(), Some(common::OUR_MAC.0));
    let came = receive_until(&mut port, |came| !came.is_empty());
    assert_eq!(came[0].bytes, numbered(1, 60, Mac::BROADCAST));
    assert_eq!(send(&mut port, &numbered(2, 2000, Mac::BROADCAST), 1), Offer::Taken);
    port.flush().unwrap();
}

#[test]
fn a_port_is_used_by_somebody_who_could_not_have_opened_it() {
    const TEST: &str = "handed::a_port_is_used_by_somebody_who_could_not_have_opened_it";
    if let Ok(description) = std::env::var(DESCRIPTION) {
        return use_it(&description);
    }
    if skipped(TEST) {
        return;
    }
    let link = Link::new("handed");
    link.ours.ip("link set eth0 mtu 9000").unwrap();
    link.kernels.ip("link set eth0 mtu 9000").unwrap();
    let mut there = link.kernels.within(|| Ok(Port::open(&Settings::new("eth0"), None)?)).unwrap();
    let open = || Ok(Handed::open(&Settings::new("eth0"), None)?);
    let Handed { socket, description } = link.ours.within(open).unwrap();
    assert_eq!(send(&mut there, &numbered(1, 60, Mac::BROADCAST), 1), Offer::Taken);
    there.flush().unwrap();
    let user = Command::new("/proc/self/exe")
        .args(["--exact", TEST, "--nocapture"])
        .env(DESCRIPTION, serde_json::to_string(&description).unwrap())
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::from(socket))
        .output()
        .unwrap();
    assert!(user.status.success(), "{}", String::from_utf8_lossy(&user.stderr));
    let came = receive_until(&mut there, |came| !came.is_empty());
    assert_eq!(came[0].bytes, numbered(2, 2000, Mac::BROADCAST));
}

#[test]
fn a_description_of_other_rings_maps_nothing() {
    if skipped("a_description_of_other_rings_maps_nothing") {
        return;
    }
    let link = Link::new("misled");
    for (told, lie) in [("blocks", 1), ("slot_bytes", 64), ("per_block", 4096)] {
        let open = || Ok(Handed::open(&Settings::new("eth0"), None)?);
        let Handed { socket, description } = link.ours.within(open).unwrap();
        let mut value = serde_json::to_value(description).unwrap();
        value["rings"]["receive"][told] = lie.into();
        let description = serde_json::from_value(value).unwrap();
        let error = Port::adopt(Handed { socket, description }).unwrap_err().to_string();
        assert!(error.starts_with("cannot map the rings of the packet socket"), "{error}");
    }
}
