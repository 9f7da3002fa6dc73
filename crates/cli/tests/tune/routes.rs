//! Quick ACKs by routes.

use std::thread;
use std::time::{Duration, Instant};

use crate::place::Place;
use crate::program::Program;

/// Returns the routes as ip-route(8) shows them.
pub(crate) fn routes(place: &Place) -> String {
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

fn quick(place: &Place, peer: &str, code: i32) -> String {
    place.tuned(&format!("--quickack --netns {} --peer {peer}", place.name), code).1
}

/// The kernel lets a route by next-hop id share the metrics of another one by that id if none are
/// given: here those of the route that it replaces.
#[test]
fn routes_by_the_number_of_a_next_hop_are_set_back() {
    let Some(place) = Place::make("routes_by_the_number_of_a_next_hop_are_set_back") else {
        return;
    };
    place.ip("nexthop add id 10 via 192.0.2.254 dev veth0");
    place.ip("nexthop add id 11 via 2001:db8::fe dev veth0");
    place.ip("route add 198.51.100.0/24 nhid 10");
    place.ip("route add 203.0.113.0/24 nhid 10 mtu 1400");
    place.ip("-6 route add 2001:db9::/32 nhid 11");
    let before = routes(&place);
    for peer in
        ["198.51.100.0/24", "203.0.113.0/24", "2001:db9::/32", "198.51.100.7", "2001:db9::7"]
    {
        quick(&place, peer, 0);
        assert!(routes(&place).contains("quickack 1"), "{peer}");
        place.tuned("undo --all", 0);
        assert_eq!(routes(&place), before, "{peer}");
    }
}

#[test]
fn a_route_over_several_next_hops_is_set_back_though_one_has_lost_its_carrier() {
    let name = "a_route_over_several_next_hops_is_set_back_though_one_has_lost_its_carrier";
    let Some(place) = Place::make(name) else { return };
    place.ip("link add veth2 type veth peer name veth3");
    place.ip("address add 192.0.3.1/24 dev veth2");
    place.ip("link set veth2 up");
    place.ip("link set veth3 up");
    place.ip("route add 198.51.100.0/24 nexthop via 192.0.2.254 dev veth0 weight 2 \
         nexthop via 192.0.3.254 dev veth2");
    let before = place.ip("route show 198.51.100.0/24");
    quick(&place, "198.51.100.0/24", 0);
    quick(&place, "198.51.100.7", 0);
    place.ip("link set veth3 down");
    let patience = Instant::now() + Duration::from_secs(20);
    while !routes(&place).contains("linkdown") {
        assert!(Instant::now() < patience, "{}", routes(&place));
        thread::sleep(Duration::from_millis(20));
    }
    let (list, _) = place.tuned("list", 0);
    assert!(!list.contains("another one now") && !list.contains("beware"), "{list}");
    place.tuned("undo --all", 0);
    place.ip("link set veth3 up");
    let patience = Instant::now() + Duration::from_secs(20);
    while routes(&place).contains("linkdown") {
        assert!(Instant::now() < patience, "{}", routes(&place));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(place.ip("route show 198.51.100.0/24"), before);
    assert!(!routes(&place).contains("quickack"), "{}", routes(&place));
}

/// The kernel removes its routes when a device goes down, and makes them anew when it comes up;
/// that of the host's own address it only adds, beside ours.
#[test]
fn a_device_that_went_down_and_up_leaves_no_route_doubled() {
    let Some(place) = Place::make("a_device_that_went_down_and_up_leaves_no_route_doubled") else {
        return;
    };
    let own = || place.ip("-4 route show table all dev veth0");
    let before = own();
    quick(&place, "192.0.2.0/24", 0);
    assert_eq!(own().matches("quickack 1").count(), 2, "{}", own());
    place.ip("link set veth0 down");
    place.ip("link set veth0 up");
    assert!(own().contains("quickack 1"), "nothing is left to be undone: {}", own());
    assert_ne!(own(), before);
    place.tuned("undo 1", 0);
    assert_eq!(own(), before);
}

/// Another program makes the quick route anew: undo removes only ours.
#[test]
fn a_route_that_somebody_made_anew_stays_and_ours_goes() {
    let Some(place) = Place::make("a_route_that_somebody_made_anew_stays_and_ours_goes") else {
        return;
    };
    let route = "198.51.100.0/24 via 192.0.2.254 dev veth0";
    place.ip(&format!("route add {route}"));
    let before = routes(&place);
    for how in ["append", "prepend"] {
        quick(&place, "198.51.100.0/24", 0);
        place.ip(&format!("route {how} {route}"));
        let (list, _) = place.tuned("list", 0);
        let unused = list.contains("beware: another route to the same addresses comes before it");
        assert_eq!(unused, how == "prepend", "{list}");
        place.tuned("undo --all", 0);
        assert_eq!(routes(&place), before, "{how}");
    }
}

/// The kernel would replace the first route of a destination and metric, which is not ours.
#[test]
fn a_route_that_somebody_put_before_ours_is_not_replaced() {
    let Some(place) = Place::make("a_route_that_somebody_put_before_ours_is_not_replaced") else {
        return;
    };
    let there =
        || place.ip("route show 198.51.100.0/24") + &place.ip("-6 route show 2001:db9::/32");
    place.ip("link set veth1 up");
    place.ip("route add 198.51.100.0/24 via 192.0.2.254 dev veth0");
    place.ip("-6 route add 2001:db9::/32 dev veth0");
    place.ip("route prepend 198.51.100.0/24 via 192.0.2.253 dev veth0");
    place.ip("-6 route prepend 2001:db9::/32 dev veth1");
    let expected = there();
    place.ip("route delete 198.51.100.0/24 via 192.0.2.253 dev veth0");
    place.ip("-6 route delete 2001:db9::/32 dev veth1");
    quick(&place, "198.51.100.0/24", 0);
    quick(&place, "2001:db9::/32", 0);
    place.ip("route prepend 198.51.100.0/24 via 192.0.2.253 dev veth0");
    place.ip("-6 route prepend 2001:db9::/32 dev veth1");
    place.tuned("undo --all", 0);
    assert_eq!(there(), expected);
}

/// A route made for the peers leads where the route led that it was copied from.
#[test]
fn a_route_that_does_not_follow_is_told() {
    let Some(place) = Place::make("a_route_that_does_not_follow_is_told") else { return };
    let told = |part: &str| {
        let (list, _) = place.tuned("list", 0);
        assert!(list.contains(part), "{part}: {list}");
        let (json, _) = place.tuned("list --json", 0);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json[0]["changes"][0]["warning"].as_str().unwrap().contains(part), "{json:#}");
    };
    place.ip("route add default via 192.0.2.254 dev veth0");
    quick(&place, "198.51.100.7", 0);
    let (list, _) = place.tuned("list", 0);
    assert!(!list.contains("beware"), "{list}");
    place.ip("route change default via 192.0.2.253 dev veth0");
    told(
        "it leads via 192.0.2.254 dev veth0 as when it was made, and does not follow route \
         0.0.0.0/0 of table main, which leads via 192.0.2.253 dev veth0 now",
    );
    place.ip("route add unreachable 198.51.100.0/24");
    told("around route unreachable 198.51.100.0/24 of table main, which keeps packets from there");
    place.ip("route delete unreachable 198.51.100.0/24");
    place.ip("route delete default");
    told("the route that it was made from is gone");
    place.ip("route add default via 192.0.2.254 dev veth0 metric 50");
    let (list, _) = place.tuned("list", 0);
    assert!(!list.contains("beware"), "it is the same way again: {list}");
    place.tuned("undo 1", 0);
    assert!(!routes(&place).contains("198.51.100.7"));
}

/// IPv4 addresses as IPv6 sockets show them.
#[test]
fn addresses_of_ipv4_written_as_ipv6_are_those_of_ipv4() {
    let Some(place) = Place::make("addresses_of_ipv4_written_as_ipv6_are_those_of_ipv4") else {
        return;
    };
    let before = routes(&place);
    quick(&place, "::ffff:192.0.2.7", 0);
    let now = routes(&place);
    assert!(now.contains("192.0.2.7 dev veth0 proto static scope link"), "{now}");
    place.tuned("undo 1", 0);
    quick(&place, "::ffff:192.0.2.0/120", 0);
    let now = routes(&place);
    assert!(now.contains("192.0.2.0/24 dev veth0 proto kernel scope link"), "{now}");
    assert_eq!(now.matches("quickack 1").count(), 2, "{now}");
    place.tuned("undo --all", 0);
    assert_eq!(routes(&place), before);
}

#[test]
fn a_route_that_is_quick_already_stays_so() {
    let Some(place) = Place::make("a_route_that_is_quick_already_stays_so") else { return };
    place.ip("route add 198.51.100.0/24 via 192.0.2.254 dev veth0 quickack 1");
    let before = routes(&place);
    let (said, _) =
        place.tuned(&format!("--quickack --netns {} --peer 198.51.100.0/24", place.name), 0);
    assert!(said.contains("route 198.51.100.0/24 of table main: quickack 1 already"), "{said}");
    assert_eq!(routes(&place), before);
    place.tuned("undo 1", 0);
    assert_eq!(routes(&place), before);
}

/// Two entries over one route: undone in either order, both undone restore the route.
#[test]
fn two_entries_over_one_route_are_undone_in_any_order() {
    let Some(place) = Place::make("two_entries_over_one_route_are_undone_in_any_order") else {
        return;
    };
    place.ip("route add 198.51.100.0/24 via 192.0.2.254 dev veth0");
    let before = routes(&place);
    for order in [[1, 2], [2, 1]] {
        let _ = std::fs::remove_dir_all(place.state());
        quick(&place, "198.51.100.0/24", 0);
        quick(&place, "198.51.0.0/16", 0);
        for (at, id) in order.into_iter().enumerate() {
            assert!(routes(&place).contains("quickack 1"), "{id}");
            place.tuned(&format!("undo {id}"), 0);
            assert_eq!(routes(&place) == before, at == 1, "{order:?}");
        }
    }
}
