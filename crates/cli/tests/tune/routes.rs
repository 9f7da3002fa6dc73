//! Quick ACKs by routes.

use std::time::Duration;

use crate::place::Place;
use crate::program::Program;

fn routes(place: &Place) -> String {
    place.ip("route show table all") + &place.ip("-6 route show table all")
}

#[test]
fn a_receiver_that_acknowledges_at_once_cures_the_sender() {
    let Some(place) = Place::make("a_receiver_that_acknowledges_at_once_cures_the_sender") else {
        return;
    };
    let program = Program::python(&place);
    let before = routes(&place);
    assert!(program.p50() > Duration::from_millis(30));
    place.tuned(&format!("--quickack --netns {} --peer 127.0.0.0/8", place.name), 0);
    let cured = program.p50();
    assert!(cured <= Duration::from_micros(500), "{cured:?}");
    place.tuned("undo 1", 0);
    assert_eq!(routes(&place), before);
    assert!(program.p50() > Duration::from_millis(30));
}

#[test]
fn fewer_peers_than_a_route_has_get_one_of_their_own() {
    let Some(place) = Place::make("fewer_peers_than_a_route_has_get_one_of_their_own") else {
        return;
    };
    place.ip("route add default via 192.0.2.254 dev veth0");
    let before = routes(&place);
    for (peer, shown) in [
        ("192.0.2.128/25", "192.0.2.128/25 dev veth0 proto static scope link"),
        ("198.51.100.7", "198.51.100.7 via 192.0.2.254 dev veth0 proto static quickack 1"),
        ("2001:db8::7", "2001:db8::7 dev veth0 proto static metric 256 quickack 1"),
    ] {
        place.tuned(&format!("--quickack --netns {} --peer {peer}", place.name), 0);
        let now = routes(&place);
        assert!(now.contains(shown), "{now}");
        place.tuned("undo --all", 0);
        assert_eq!(routes(&place), before);
    }
}

#[test]
fn a_route_that_is_gone_or_another_one_now_is_left() {
    let Some(place) = Place::make("a_route_that_is_gone_or_another_one_now_is_left") else {
        return;
    };
    place.ip("route add 198.51.100.0/24 via 192.0.2.254 dev veth0");
    place.tuned(&format!("--quickack --netns {} --peer 198.51.100.0/24", place.name), 0);
    place.ip("route change 198.51.100.0/24 via 192.0.2.253 dev veth0");
    let (_, said) = place.tuned("undo 1", 1);
    assert!(said.contains("is another one now: changed by somebody"), "{said}");
    assert!(routes(&place).contains("via 192.0.2.253"));

    place.tuned(&format!("--quickack --netns {} --peer 198.51.100.0/24", place.name), 0);
    place.ip("route delete 198.51.100.0/24");
    let (_, said) = place.tuned("undo 2", 1);
    assert!(said.contains("is gone"), "{said}");
}

#[test]
fn what_the_kernel_keeps_to_itself_is_named() {
    let Some(place) = Place::make("what_the_kernel_keeps_to_itself_is_named") else { return };
    let (_, said) = place.tuned(&format!("--quickack --netns {}", place.name), 1);
    assert!(said.contains("::1/128 of table local: an IPv6 route of metric 0"), "{said}");
    // Two links, each with the same network.
    assert!(said.contains("fe80::/64 of table main: there are 2"), "{said}");
    let (_, said) =
        place.tuned(&format!("--quickack --netns {} --peer 203.0.113.1", place.name), 1);
    assert!(said.contains("no route to 203.0.113.1/32"), "{said}");
}
