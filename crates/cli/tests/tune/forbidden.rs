//! Traffic that an administrator has forbidden or rerouted stays so under quick ACKs.

use crate::place::Place;
use crate::routes::routes;

/// The kinds of route that keep traffic away.
const KINDS: [&str; 4] = ["blackhole", "unreachable", "prohibit", "throw"];

fn quick(place: &Place, peer: &str, code: i32) -> String {
    place.tuned(&format!("--quickack --netns {} --peer {peer}", place.name), code).1
}

/// Makes a place with routes to everywhere.
fn connected(test: &str) -> Option<Place> {
    let place = Place::make(test)?;
    place.ip("route add default via 192.0.2.254 dev veth0");
    place.ip("-6 route add default via 2001:db8::fe dev veth0");
    Some(place)
}

fn leads_somewhere(place: &Place, address: &str) -> bool {
    let mut ip = place.command("ip");
    ip.args(["route", "get", address]).output().unwrap().status.success()
}

/// Such a route once did: the one for the peers was copied from the default route, and was found
/// before the one that forbade it.
#[test]
fn no_route_leads_around_one_that_forbids() {
    let Some(place) = connected("no_route_leads_around_one_that_forbids") else { return };
    for kind in KINDS {
        for (family, forbidden, peers, address) in [
            ("", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3"),
            ("-6 ", "2001:db9::/32", "2001:db9:1::/48", "2001:db9:1::3"),
        ] {
            place.ip(&format!("{family}route add {kind} {forbidden}"));
            let before = routes(&place);
            // A throw route that no other table completes leads nowhere either.
            assert!(!leads_somewhere(&place, address), "{kind}");
            for peers in [peers, forbidden, address] {
                let said = quick(&place, peers, 1);
                let named = format!("route {kind} {forbidden} of table main keeps packets from");
                assert!(said.contains(&named), "{said}");
                assert!(!leads_somewhere(&place, address), "{kind}");
                assert_eq!(routes(&place), before);
            }
            place.ip(&format!("{family}route delete {kind} {forbidden}"));
        }
    }
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn exceptions_from_what_is_forbidden_are_made_quick_and_nothing_else() {
    let name = "exceptions_from_what_is_forbidden_are_made_quick_and_nothing_else";
    let Some(place) = connected(name) else { return };
    place.ip("route add blackhole 10.0.0.0/8");
    place.ip("route add 10.2.0.0/24 via 192.0.2.254 dev veth0");
    let said = quick(&place, "10.0.0.0/8", 1);
    assert!(said.contains("route blackhole 10.0.0.0/8"), "{said}");
    let now = place.ip("route show");
    assert!(now.contains("10.2.0.0/24 via 192.0.2.254 dev veth0 quickack 1"), "{now}");
    assert_eq!(now.matches("quickack").count(), 1, "{now}");
    assert!(!leads_somewhere(&place, "10.1.2.3"));
}

/// The kernel replaces the first route of a destination and metric, of whatever kind.
#[test]
fn a_route_that_forbids_is_not_the_one_that_is_replaced() {
    let Some(place) = connected("a_route_that_forbids_is_not_the_one_that_is_replaced") else {
        return;
    };
    place.ip("route add blackhole 10.0.0.0/8");
    place.ip("route append 10.0.0.0/8 via 192.0.2.254 dev veth0");
    let before = routes(&place);
    let said = quick(&place, "10.0.0.0/8", 1);
    assert!(said.contains("10.0.0.0/8 of table main: there are 2 of the same metric"), "{said}");
    assert_eq!(routes(&place), before);
}

/// As wg-quick(8) sets it up: the default route of table main does not count.
#[test]
fn no_route_draws_traffic_out_of_a_tunnel() {
    let Some(place) = connected("no_route_draws_traffic_out_of_a_tunnel") else { return };
    place.ip("route add default via 192.0.2.253 dev veth0 table 51820");
    place.ip("rule add pref 101 not fwmark 0xca6c lookup 51820");
    place.ip("rule add pref 100 lookup main suppress_prefixlength 0");
    let way = || place.ip("route get 198.51.100.7");
    assert!(way().contains("via 192.0.2.253"), "{}", way());
    let before = routes(&place);
    let said = quick(&place, "198.51.100.0/24", 1);
    for part in ["rule 100: from all lookup main suppress_prefixlength 0", "route 0.0.0.0/0"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(way().contains("via 192.0.2.253"), "{}", way());
    assert_eq!(routes(&place), before);
    // A route that does count in main may get quick ACKs.
    place.ip("route add 203.0.113.0/24 via 192.0.2.254 dev veth0");
    let said = quick(&place, "203.0.113.7", 1);
    assert!(place.ip("route get 203.0.113.7").contains("via 192.0.2.254"));
    assert!(said.contains("rule 101: not from all fwmark 0xca6c lookup 51820"), "{said}");
}

#[test]
fn a_route_for_some_packets_only_is_not_hidden() {
    let Some(place) = connected("a_route_for_some_packets_only_is_not_hidden") else { return };
    place.ip("route add 10.0.0.0/8 tos 0x10 via 192.0.2.253 dev veth0");
    let way = || place.ip("route get 10.1.2.3 tos 0x10");
    assert!(way().contains("via 192.0.2.253"), "{}", way());
    let said = quick(&place, "10.1.0.0/16", 1);
    assert!(
        said.contains("route 10.0.0.0/8 of table main for type of service 0x10, which"),
        "{said}"
    );
    assert!(way().contains("via 192.0.2.253"), "{}", way());
}

#[test]
fn rules_that_lead_elsewhere_are_named() {
    let Some(place) = connected("rules_that_lead_elsewhere_are_named") else { return };
    let peers = "198.51.100.0/24";
    for (rule, shown) in [
        ("from 192.0.2.1 lookup 100", "from 192.0.2.1/32 lookup 100"),
        ("fwmark 0x7 lookup 100", "from all fwmark 0x7 lookup 100"),
        ("to 198.51.0.0/16 lookup 100", "from all to 198.51.0.0/16 lookup 100"),
        ("oif veth0 lookup 100", "from all oif veth0 lookup 100"),
        ("ipproto tcp lookup 100", "from all … lookup 100"),
    ] {
        place.ip("route add default via 192.0.2.253 dev veth0 table 100");
        place.ip(&format!("rule add pref 77 {rule}"));
        let said = quick(&place, peers, 1);
        assert!(said.contains(&format!("rule 77: {shown}")), "{said}");
        place.tuned("undo --all", 0);
        place.ip("rule delete pref 77");
        place.ip("route flush table 100");
    }
    for (rule, destination) in [
        ("to 203.0.113.0/24 lookup 100", "default"),
        ("iif veth1 lookup 100", "default"),
        ("ipproto udp lookup 100", "default"),
        ("from 192.0.2.1 lookup 100", "203.0.113.0/24"),
        ("from 192.0.2.1 lookup main", "default"),
        ("goto 32766", "default"),
    ] {
        place.ip(&format!("rule add pref 77 {rule}"));
        place.ip(&format!("route add {destination} via 192.0.2.253 dev veth0 table 100"));
        let said = quick(&place, peers, 0);
        assert_eq!(said, "", "{rule}");
        place.tuned("undo --all", 0);
        place.ip("rule delete pref 77");
        place.ip("route flush table 100");
    }
    place.ip("-6 rule add pref 77 from 2001:db8::1 lookup 100");
    place.ip("-6 route add default via 2001:db8::fd dev veth0 table 100");
    assert_eq!(quick(&place, peers, 0), "", "it is of IPv6");
    let said = quick(&place, "2001:db9::7", 1);
    assert!(said.contains("IPv6 rule 77: from 2001:db8::1/128 lookup 100"), "{said}");
    place.tuned("undo --all", 0);
    place.ip("rule add pref 77 goto 32767");
    let said = quick(&place, "192.0.2.128/25", 1);
    assert!(said.contains("rule 77: from all goto 32767"), "{said}");
    place.tuned("undo --all", 0);
    place.ip("rule delete pref 77");
    // Once main has a route, later rules are not consulted.
    place.ip("rule add pref 40000 from 192.0.2.1 lookup 100");
    place.ip("route add default via 192.0.2.253 dev veth0 table 100");
    assert_eq!(quick(&place, peers, 0), "");
}
