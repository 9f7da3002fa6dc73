//! The same mistakes in every file format.

use super::{At, Scenario, View, Wire, lost};
use crate::rewrite::Changes;

pub(super) fn all() -> Vec<Scenario> {
    let http = |name: &str, wire: Wire, about: &str| {
        Scenario::new(
            name,
            about,
            wire,
            "py:http_server --host HOST --port PORT",
            "py:http_client --host HOST --port PORT --count 20",
        )
        .cured_server("py:http_server --host HOST --port PORT --nodelay")
        .finds(&[lost("nagle_delayed_ack", Some("server"), Some("client"))])
    };
    let client = View::at(At::Client);
    let changes = Changes::default();
    vec![
        http("format-ethernet-0.3ms", Wire::rtt(0.3), "http.server, in several kinds of file")
            .views(&[
                View { suffix: "-nanoseconds", nanoseconds: true, ..client.clone() },
                View {
                    suffix: "-pcapng",
                    nanoseconds: true,
                    changes: Changes { pcapng: true, ..changes },
                    ..client.clone()
                },
                View { suffix: "-sll", any: Some("LINUX_SLL"), ..client.clone() },
                View {
                    suffix: "-sll2",
                    any: Some("LINUX_SLL2"),
                    snaplen: 128,
                    all: true,
                    ..View::at(At::Server)
                },
                View { suffix: "-whole-frames", snaplen: 2000, all: true, ..client.clone() },
                View { suffix: "-headers-only", snaplen: 68, ..client.clone() },
            ]),
        http("format-loopback", Wire::loopback(), "http.server on the loopback device"),
        http("format-ipv6-2ms", Wire::rtt(2.0).ipv6(), "http.server over IPv6").views(&[View {
            snaplen: 128,
            all: true,
            ..client.clone()
        }]),
        http("format-ipv6-loopback", Wire::loopback().ipv6(), "http.server on ::1")
            .views(&[View { snaplen: 128, ..client.clone() }]),
        http("format-bare-ip-5ms", Wire::rtt(5.0).bare_ip(), "http.server over a TUN device"),
        http("format-vlan-2ms", Wire::rtt(2.0), "http.server, as captured on a trunk")
            .views(&[View { changes: Changes { vlan: Some(7), ..changes }, ..client.clone() }]),
        http(
            "format-incomplete-1ms",
            Wire::rtt(1.0),
            "http.server, with parts of the capture missing",
        )
        .views(&[
            View {
                suffix: "-mid-connection",
                changes: Changes { skip: 40, ..changes },
                ..client.clone()
            },
            View {
                suffix: "-lost-records",
                changes: Changes { drop_each: Some(23), ..changes },
                ..client
            },
        ]),
    ]
}
