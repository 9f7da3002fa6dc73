//! What the kernel knows of neighbours, between network namespaces.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Gid, Uid, setresgid, setresuid};
use uncork_neighbours::{Answer, Found, Kind, Neighbours, Question, Way};
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;

/// Two namespaces and a link: here .1, there .2 with this hardware address.
struct Link {
    here: Namespace,
    there: Namespace,
}

/// An unprivileged user.
const NOBODY: Uid = Uid::from_raw(65_534);
const NOBODYS_GROUP: Gid = Gid::from_raw(65_534);
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];
const MOVED: [u8; 6] = [2, 0, 0, 0, 0, 3];

fn link(label: &str) -> Result<Link> {
    let here = Namespace::new(&format!("{label}-a"))?;
    let there = Namespace::new(&format!("{label}-b"))?;
    here.ip(&format!("link add veth0 type veth peer name veth0 netns {}", there.name()))?;
    there.ip("link set veth0 address 02:00:00:00:00:02")?;
    for (one, number) in [(&here, 1), (&there, 2)] {
        one.ip(&format!("address add 10.7.0.{number}/24 dev veth0"))?;
        one.ip(&format!("address add fd07::{number}/64 dev veth0 nodad"))?;
        one.ip("link set veth0 up")?;
    }
    Ok(Link { here, there })
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the next answer, within the time of one: the kernel asks three times, a second apart.
fn next(neighbours: &mut Neighbours) -> Option<Answer> {
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until {
        if let Some(answer) = neighbours.poll().unwrap() {
            return Some(answer);
        }
        neighbours.take_devices();
        if !neighbours.has_more() {
            let mut fds = [PollFd::new(neighbours.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(100_u16)).unwrap();
        }
    }
    None
}

/// Returns the way of a connection from anywhere to this port there.
fn way(neighbours: &mut Neighbours, remote: &str, port: u16) -> std::io::Result<Option<Way>> {
    let remote = SocketAddr::new(ip(remote), port);
    let anywhere = if remote.is_ipv4() { ip("0.0.0.0") } else { ip("::") };
    neighbours.way(SocketAddr::new(anywhere, 0), remote)
}

fn quiet(neighbours: &mut Neighbours) -> bool {
    std::thread::sleep(Duration::from_millis(100));
    neighbours.poll().unwrap().is_none()
}

fn mac_of(answer: Option<Answer>) -> Option<[u8; 6]> {
    match answer?.found {
        Found::At { mac, .. } => Some(mac),
        Found::Elsewhere | Found::Unreachable | Found::Lapsed => None,
    }
}

fn run(namespace: &str, arguments: &str) {
    let arguments = arguments.split_whitespace();
    assert!(Command::new("ip").args(["-n", namespace]).args(arguments).status().unwrap().success());
}

#[test]
fn a_neighbour_is_found_without_anybody_having_spoken_to_him_and_followed() {
    if is_skipped("a_neighbour_is_found_without_anybody_having_spoken_to_him_and_followed") {
        return;
    }
    let link = link("nb-found").unwrap();
    let (here, there) = (link.here.name().to_owned(), link.there.name().to_owned());
    link.here
        .within(move || {
            let mut neighbours = Neighbours::open()?;
            for address in ["10.7.0.2", "fd07::2"] {
                neighbours.ask(Question::of(ip(address)))?;
                let answer = next(&mut neighbours).unwrap();
                assert_eq!(
                    (answer.question.remote, mac_of(Some(answer))),
                    (ip(address), Some(THERE))
                );
                // A known answer is given again to a repeated question.
                neighbours.ask(Question::of(ip(address)))?;
                assert_eq!(mac_of(neighbours.poll()?), Some(THERE));
            }
            assert!(quiet(&mut neighbours));
            // The neighbour gets another MAC address.
            run(&here, "neighbour replace 10.7.0.2 lladdr 02:00:00:00:00:03 dev veth0");
            let moved = next(&mut neighbours);
            assert_eq!(
                (moved.map(|moved| moved.question.remote), mac_of(moved)),
                (Some(ip("10.7.0.2")), Some(MOVED))
            );
            neighbours.forget(Question::of(ip("10.7.0.2")));
            // Somebody deletes the neighbour entry, which invalidates it first (neigh_delete), and who needs it asks again.
            run(&here, "neighbour delete fd07::2 dev veth0");
            run(&there, "link set veth0 address 02:00:00:00:00:03");
            let question = Question::of(ip("fd07::2"));
            let gone = Answer { question, found: Found::Unreachable };
            assert_eq!(next(&mut neighbours), Some(gone));
            neighbours.ask(question)?;
            assert_eq!(mac_of(next(&mut neighbours)), Some(MOVED));
            Ok(())
        })
        .unwrap();
}

/// Returns the kernel's entries of a neighbour, those among them that it has not found.
fn entries(namespace: &str, address: &str) -> String {
    let shown = Command::new("ip").args(["-n", namespace, "neighbour", "show", address]).output();
    String::from_utf8(shown.unwrap().stdout).unwrap()
}

#[test]
fn who_has_vanished_is_not_asked_for_until_somebody_needs_him() {
    const BOTH: [&str; 2] = ["10.7.0.2", "fd07::2"];
    if is_skipped("who_has_vanished_is_not_asked_for_until_somebody_needs_him") {
        return;
    }
    let link = link("nb-gone").unwrap();
    let (here, there) = (link.here.name().to_owned(), link.there.name().to_owned());
    link.here
        .within(move || {
            let mut neighbours = Neighbours::open()?;
            for address in BOTH {
                neighbours.ask(Question::of(ip(address)))?;
                assert_eq!(mac_of(next(&mut neighbours)), Some(THERE));
            }
            run(&there, "address flush dev veth0 scope global");
            // The kernel drops its entries (neigh_flush_dev), as it does with what nothing has used (neigh_periodic_work).
            run(&here, "link set veth0 address 02:00:00:00:00:04");
            for address in BOTH {
                let lapsed = Answer { question: Question::of(ip(address)), found: Found::Lapsed };
                assert_eq!(next(&mut neighbours), Some(lapsed));
            }
            assert!(quiet(&mut neighbours) && quiet(&mut neighbours));
            for address in BOTH {
                assert_eq!(entries(&here, address), "", "it was made to ask");
            }
            // He is back, and somebody needs him.
            run(&there, "link set veth0 address 02:00:00:00:00:03");
            run(&there, "address add 10.7.0.2/24 dev veth0");
            run(&there, "address add fd07::2/64 dev veth0 nodad");
            for address in BOTH {
                neighbours.ask(Question::of(ip(address)))?;
                assert_eq!(mac_of(next(&mut neighbours)), Some(MOVED));
            }
            // And is followed again.
            run(&here, "neighbour replace 10.7.0.2 lladdr 02:00:00:00:00:02 dev veth0");
            assert_eq!(mac_of(next(&mut neighbours)), Some(THERE));
            run(&here, "neighbour delete 10.7.0.2 dev veth0");
            let gone = next(&mut neighbours).map(|answer| answer.found);
            assert_eq!(gone, Some(Found::Unreachable));
            assert!(quiet(&mut neighbours));
            assert_eq!(entries(&here, "10.7.0.2"), "", "it was made to ask");
            Ok(())
        })
        .unwrap();
}

#[test]
fn changes_of_routes_alone_make_the_kernel_ask_for_nobody() {
    if is_skipped("changes_of_routes_alone_make_the_kernel_ask_for_nobody") {
        return;
    }
    let link = link("nb-calm").unwrap();
    let here = link.here.name().to_owned();
    link.here
        .within(move || {
            let mut neighbours = Neighbours::open()?;
            neighbours.ask(Question::of(ip("10.7.0.77")))?;
            let found = |answer: Option<Answer>| answer.map(|answer| answer.found);
            assert_eq!(found(next(&mut neighbours)), Some(Found::Unreachable));
            run(&here, "route add 198.51.100.0/24 via 10.7.0.2");
            assert!(quiet(&mut neighbours));
            let entry = entries(&here, "10.7.0.77");
            assert!(entry.contains("FAILED"), "{entry}");
            Ok(())
        })
        .unwrap();
}

/// Makes a namespace with two devices, a0 and a1, and the addresses .6.1 and .7.1, and on each a router with the same
/// addresses, with THERE and MOVED.
fn two_routers(label: &str) -> (Namespace, [Namespace; 2]) {
    let here = Namespace::new(&format!("{label}-a")).unwrap();
    let routers = ["b", "c"].map(|one| Namespace::new(&format!("{label}-{one}")).unwrap());
    for (number, (ours, router)) in [6, 7].into_iter().zip(&routers).enumerate() {
        let peer = format!("peer name b0 address 02:00:00:00:00:0{}", number + 2);
        here.ip(&format!("link add a{number} type veth {peer} netns {}", router.name())).unwrap();
        here.ip(&format!("address add 10.9.{ours}.1/24 dev a{number}")).unwrap();
        here.ip(&format!("address add fd09:{ours}::1/64 dev a{number} nodad")).unwrap();
        here.ip(&format!("link set a{number} up")).unwrap();
        router.ip("address add 10.99.0.1/24 dev b0").unwrap();
        router.ip("address add fd99::1/64 dev b0 nodad").unwrap();
        router.ip("link set b0 up").unwrap();
        router.ip(&format!("route add 10.9.{ours}.0/24 dev b0")).unwrap();
        router.ip(&format!("-6 route add fd09:{ours}::/64 dev b0")).unwrap();
    }
    (here, routers)
}

#[test]
fn routers_with_one_address_on_two_devices_are_told_apart() {
    if is_skipped("routers_with_one_address_on_two_devices_are_told_apart") {
        return;
    }
    let (here, _routers) = two_routers("nb-two");
    let namespace = here.name().to_owned();
    here.within(move || {
        run(&namespace, "route add default via 10.99.0.1 dev a0 onlink");
        run(&namespace, "-6 route add default via fd99::1 dev a0 onlink");
        run(&namespace, "route add default via 10.99.0.1 dev a1 onlink table 100");
        run(&namespace, "-6 route add default via fd99::1 dev a1 onlink table 100");
        run(&namespace, "rule add from 10.9.7.1 lookup 100");
        run(&namespace, "-6 rule add from fd09:7::1 lookup 100");
        let mut neighbours = Neighbours::open()?;
        for (remote, source) in [("198.51.100.7", "10.9.7.1"), ("2001:db8::7", "fd09:7::1")] {
            let question = Question { source: Some(ip(source)), ..Question::of(ip(remote)) };
            neighbours.ask(question)?;
            assert_eq!(mac_of(next(&mut neighbours)), Some(MOVED), "{source}");
            neighbours.ask(Question::of(ip(remote)))?;
            assert_eq!(mac_of(next(&mut neighbours)), Some(THERE), "{remote}");
        }
        for router in ["10.99.0.1", "fd99::1"] {
            assert_eq!(entries(&namespace, router).lines().count(), 2, "one on each device");
        }
        // Nor is a router looked for behind another one of its device.
        run(&namespace, "neighbour flush dev a1");
        run(&namespace, "route add default via 10.99.0.9 dev a1 onlink metric 500");
        run(&namespace, "route add 203.0.113.0/24 via 10.99.0.1 dev a1 onlink");
        let mut neighbours = Neighbours::open()?;
        neighbours.ask(Question::of(ip("203.0.113.7")))?;
        assert_eq!(mac_of(next(&mut neighbours)), Some(MOVED));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_router_is_found_on_its_device_although_another_one_has_its_network() {
    if is_skipped("a_router_is_found_on_its_device_although_another_one_has_its_network") {
        return;
    }
    let (here, _routers) = two_routers("nb-net");
    let namespace = here.name().to_owned();
    here.within(move || {
        for (device, number) in [("a0", 6), ("a1", 7)] {
            run(&namespace, &format!("address add 10.99.0.{number}/24 dev {device}"));
            run(&namespace, &format!("address add fd99::{number}/64 dev {device} nodad"));
        }
        run(&namespace, "route add default via 10.99.0.1 dev a1");
        run(&namespace, "-6 route add default via fd99::1 dev a1");
        let mut neighbours = Neighbours::open()?;
        for remote in ["198.51.100.7", "2001:db8::7"] {
            neighbours.ask(Question::of(ip(remote)))?;
            assert_eq!(mac_of(next(&mut neighbours)), Some(MOVED), "{remote}");
        }
        Ok(())
    })
    .unwrap();
}

/// Runs this program again, without any privilege.
#[test]
fn it_takes_no_privilege() {
    const TEST: &str = "it_takes_no_privilege";
    const CHILD: &str = "UNCORK_TEST_UNPRIVILEGED";
    if std::env::var_os(CHILD).is_some() {
        setresgid(NOBODYS_GROUP, NOBODYS_GROUP, NOBODYS_GROUP).unwrap();
        setresuid(NOBODY, NOBODY, NOBODY).unwrap();
        let mut neighbours = Neighbours::open().unwrap();
        for address in ["10.7.0.2", "fd07::2"] {
            neighbours.ask(Question::of(ip(address))).unwrap();
            assert_eq!(mac_of(next(&mut neighbours)), Some(THERE));
        }
        return;
    }
    if is_skipped(TEST) {
        return;
    }
    let link = link("nb-user").unwrap();
    let program = std::env::current_exe().unwrap();
    let mut command = link.here.command(program.to_str().unwrap());
    let child = command.args(["--exact", TEST]).env(CHILD, "1").output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn nobody_there_and_no_route_are_unreachable() {
    if is_skipped("nobody_there_and_no_route_are_unreachable") {
        return;
    }
    let link = link("nb-none").unwrap();
    let here = link.here.name().to_owned();
    link.here
        .within(move || {
            let mut neighbours = Neighbours::open()?;
            neighbours.ask(Question::of(ip("192.0.2.1")))?;
            let unreachable = |remote| {
                Some(Answer { question: Question::of(ip(remote)), found: Found::Unreachable })
            };
            assert_eq!(neighbours.poll()?, unreachable("192.0.2.1"));
            assert_eq!(way(&mut neighbours, "192.0.2.1", 0)?, None);
            run(&here, "route add blackhole 192.0.2.0/24");
            run(&here, "-6 route add unreachable 2001:db8::/32");
            assert_eq!(way(&mut neighbours, "192.0.2.1", 0)?, None);
            assert_eq!(way(&mut neighbours, "2001:db8::1", 0)?, None);
            // This host's own addresses are on no link.
            let own = way(&mut neighbours, "10.7.0.1", 0)?.unwrap();
            assert_eq!(own.kind, Kind::Local);
            neighbours.ask(Question::of(ip("10.7.0.1")))?;
            assert_eq!(next(&mut neighbours), unreachable("10.7.0.1"));
            neighbours.ask(Question::of(ip("10.7.0.77")))?;
            assert_eq!(next(&mut neighbours), unreachable("10.7.0.77"));
            Ok(())
        })
        .unwrap();
}

#[test]
fn who_is_behind_a_router_moves_with_the_route() {
    if is_skipped("who_is_behind_a_router_moves_with_the_route") {
        return;
    }
    let link = link("nb-route").unwrap();
    let here = link.here.name().to_owned();
    link.here
        .within(move || {
            run(&here, "address add 10.7.0.11/24 dev veth0");
            run(&here, "neighbour add 10.7.0.9 lladdr 02:00:00:00:00:03 dev veth0");
            run(&here, "route add default via 10.7.0.2 src 10.7.0.11 mtu 1300");
            let remote = ip("198.51.100.7");
            let mut neighbours = Neighbours::open()?;
            let way = way(&mut neighbours, "198.51.100.7", 0)?.unwrap();
            assert_eq!(
                (way.kind, way.next_hop, way.source, way.mtu),
                (Kind::Link, ip("10.7.0.2"), Some(ip("10.7.0.11")), Some(1300))
            );
            let source = Some(ip("10.7.0.11"));
            let question = Question { source, ..Question::of(remote) };
            neighbours.ask(question)?;
            let device = way.device;
            let at = |mac, mtu| Some(Answer { question, found: Found::At { device, mac, mtu } });
            assert_eq!(next(&mut neighbours), at(THERE, Some(1300)));
            run(&here, "route replace default via 10.7.0.9");
            assert_eq!(next(&mut neighbours), at(MOVED, None));
            // With the device go its neighbours, and its routes.
            run(&here, "link set veth0 down");
            assert_eq!(next(&mut neighbours).map(|answer| answer.found), Some(Found::Lapsed));
            neighbours.ask(question)?;
            assert_eq!(next(&mut neighbours).map(|answer| answer.found), Some(Found::Unreachable));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_router_of_the_other_version_is_one_too() {
    if is_skipped("a_router_of_the_other_version_is_one_too") {
        return;
    }
    let link = link("nb-via").unwrap();
    let here = link.here.name().to_owned();
    link.here
        .within(move || {
            run(&here, "route add 198.51.100.0/24 via inet6 fd07::2");
            let mut neighbours = Neighbours::open()?;
            neighbours.ask(Question::of(ip("198.51.100.7")))?;
            assert_eq!(mac_of(next(&mut neighbours)), Some(THERE));
            Ok(())
        })
        .unwrap();
}

#[test]
fn whose_device_it_is_and_what_rules_say_of_an_address_counts() {
    if is_skipped("whose_device_it_is_and_what_rules_say_of_an_address_counts") {
        return;
    }
    let link = link("nb-rules").unwrap();
    let here = link.here.name().to_owned();
    link.here
        .within(move || {
            run(&here, "link add veth1 type veth peer name veth2");
            run(&here, "address add 10.8.0.1/24 dev veth1");
            run(&here, "link set veth1 up");
            run(&here, "link set veth2 up");
            run(&here, "route replace default via 10.8.0.2");
            let remote = ip("198.51.100.7");
            let mut neighbours = Neighbours::open()?;
            let default = way(&mut neighbours, "198.51.100.7", 0)?.unwrap().device;
            let ours = way(&mut neighbours, "10.7.0.2", 0)?.unwrap().device;
            let asked = Question::by(ours, [ip("fe80::1"), ip("10.7.0.1")], remote);
            assert_eq!(
                asked,
                Question { remote, source: Some(ip("10.7.0.1")), device: Some(ours) }
            );
            neighbours.ask(asked)?;
            let found = |answer: Option<Answer>| answer.map(|answer| answer.found);
            assert_eq!(found(next(&mut neighbours)), Some(Found::Elsewhere));
            // The other device has another answer for this address, and each question its own.
            let other = Question::by(default, [ip("10.8.0.1")], remote);
            neighbours.ask(other)?;
            run(&here, "neighbour replace 10.8.0.2 lladdr 02:00:00:00:00:03 dev veth1");
            let answer = next(&mut neighbours).unwrap();
            assert_eq!((answer.question, mac_of(Some(answer))), (other, Some(MOVED)));
            run(&here, "route add default via 10.7.0.2 table 101");
            run(&here, "rule add from 10.7.0.1 lookup 101");
            let answer = next(&mut neighbours).unwrap();
            assert_eq!((answer.question, mac_of(Some(answer))), (asked, Some(THERE)));
            assert!(quiet(&mut neighbours));
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_rules_say_of_protocol_and_ports_counts_for_the_connection_that_has_them() {
    if is_skipped("what_rules_say_of_protocol_and_ports_counts_for_the_connection_that_has_them") {
        return;
    }
    let link = link("nb-ports").unwrap();
    let here = link.here.name().to_owned();
    link.here
        .within(move || {
            let neighbours = &mut Neighbours::open()?;
            for (version, remote, router) in
                [("-4", "198.51.100.7", "10.7.0.2"), ("-6", "2001:db8::7", "fd07::2")]
            {
                run(&here, &format!("{version} route add default via {router}"));
                assert!(!way(neighbours, remote, 7777)?.unwrap().by_ports);
                run(
                    &here,
                    &format!("{version} rule add ipproto tcp dport 7777 prio 50 unreachable"),
                );
                assert_eq!(way(neighbours, remote, 7777)?, None);
                let other = way(neighbours, remote, 7778)?.unwrap();
                assert_eq!((other.next_hop, other.by_ports), (ip(router), false));
                // A rule that leads another way.
                let aside = if version == "-4" { "10.7.0.9" } else { "fd07::9" };
                run(&here, &format!("{version} route add default via {aside} table 100"));
                run(&here, &format!("{version} rule add ipproto tcp sport 999 prio 40 lookup 100"));
                let ours = if version == "-4" { "10.7.0.1" } else { "fd07::1" };
                let (from, to) = ((ip(ours), 999).into(), (ip(remote), 7778).into());
                let by_ours = neighbours.way(from, to)?.unwrap();
                assert_eq!((by_ours.next_hop, by_ours.by_ports), (ip(aside), true));
                // What is asked of all connections to an address hears of no ports, but is about TCP.
                neighbours.ask(Question::of(ip(remote)))?;
                assert_eq!(mac_of(next(neighbours)), Some(THERE));
                run(&here, &format!("{version} rule delete prio 50"));
                run(&here, &format!("{version} rule delete prio 40"));
                assert_eq!(way(neighbours, remote, 7777)?, Some(other));
                run(&here, &format!("{version} rule add ipproto tcp prio 50 unreachable"));
                assert_eq!(way(neighbours, remote, 7777)?, None);
                assert_eq!(next(neighbours).map(|answer| answer.found), Some(Found::Unreachable));
            }
            Ok(())
        })
        .unwrap();
}
