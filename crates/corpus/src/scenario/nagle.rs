//! Nagle's algorithm and what it interacts with: delayed ACKs, spent quick-ACK credits, runts.

use super::{At, Scenario, View, Wire, either, harmless, lost};
use crate::label::Finding;
use crate::rewrite::Changes;

fn server_holds() -> Finding {
    lost("nagle_delayed_ack", Some("server"), Some("client"))
}

fn client_holds() -> Finding {
    lost("nagle_delayed_ack", Some("client"), Some("server"))
}

pub(super) fn all() -> Vec<Scenario> {
    let mut all = http();
    all.extend(clients());
    all.extend(servers());
    all.extend(runts());
    all.extend(acks());
    all
}

/// Returns scenarios with Python's http.server, which writes header and body separately.
fn http() -> Vec<Scenario> {
    let links = [
        ("0.05ms", Wire::veth()),
        ("1ms", Wire::rtt(1.0)),
        ("10ms", Wire::rtt(10.0)),
        ("40ms", Wire::rtt(40.0)),
        ("80ms", Wire::rtt(80.0)),
    ];
    links
        .into_iter()
        .map(|(rtt, wire)| {
            Scenario::new(
                &format!("nagle-python-http-{rtt}"),
                "http.server writes the header and the body apart; Nagle holds the body until the \
                 client's delayed ACK",
                wire,
                "py:http_server --host HOST --port PORT",
                "py:http_client --host HOST --port PORT --count 20",
            )
            .cured_server("py:http_server --host HOST --port PORT --nodelay")
            .finds(&[server_holds()])
            .both_ends()
        })
        .collect()
}

/// Returns clients that write a request in pieces.
fn clients() -> Vec<Scenario> {
    let about = "the client writes its request in pieces; Nagle holds the rest until the server's \
                 delayed ACK";
    let exchange = |name: &str, wire: Wire, server: &str, client: &str, nodelay: &str| {
        Scenario::new(name, about, wire, server, client)
            .cured_client(&format!("{client}{nodelay}"))
            .finds(&[client_holds()])
    };
    let python = "py:exchange server --host HOST --port PORT --read 300 --write 50";
    let go = "go:exchange server --host HOST --port PORT --read 300 --write 50";
    let c = "c:exchange client --host HOST --port PORT --read 50 --write 100,200 --count 20";
    let perl = "perl:exchange client --host HOST --port PORT --read 50 --write 100,200 --count 20";
    vec![
        exchange("nagle-static-client-0.05ms", Wire::veth(), python, c, " --nodelay"),
        exchange("nagle-static-client-20ms", Wire::rtt(20.0), python, c, " --nodelay").at_server(),
        exchange("nagle-perl-client-5ms", Wire::rtt(5.0), go, perl, " --nodelay").both_ends(),
        exchange(
            "nagle-go-client-2ms",
            Wire::rtt(2.0),
            "perl:exchange server --host HOST --port PORT --read 300 --write 50",
            "go:exchange client --host HOST --port PORT --read 50 --write 100,200 --nagle",
            " --nagle=false",
        ),
        exchange(
            "nagle-redis-client-0.05ms",
            Wire::veth(),
            "redis",
            "py:redis_client --host HOST --port PORT",
            " --nodelay",
        )
        .both_ends(),
        exchange(
            "nagle-postgres-client-1ms",
            Wire::rtt(1.0),
            "postgres",
            "py:postgres_client --host HOST --port PORT",
            " --nodelay",
        ),
        Scenario::new(
            "nagle-python-post-5ms",
            "an old http.client posts with an iterable body: header and body leave apart",
            Wire::rtt(5.0),
            "py:http_server --host HOST --port PORT --nodelay",
            "py:http_client --host HOST --port PORT --post 700 --nagle",
        )
        .cured_client("py:http_client --host HOST --port PORT --post 700")
        .finds(&[client_holds()]),
        not_in_force("wrong-level", "sets TCP_NODELAY at the wrong level", "--nodelay-wrongly"),
        not_in_force("undone", "sets TCP_NODELAY, and takes it back", "--nodelay-undone"),
    ]
}

/// Returns a client that asks for `TCP_NODELAY` and does not have it.
fn not_in_force(name: &str, mistake: &str, option: &str) -> Scenario {
    let client = "py:exchange client --host HOST --port PORT --read 50 --write 100,200";
    Scenario::new(
        &format!("nagle-nodelay-{name}-0.3ms"),
        &format!("the client {mistake}, and writes its request in two pieces"),
        Wire::rtt(0.3),
        "py:exchange server --host HOST --port PORT --read 300 --write 50",
        &format!("{client} {option}"),
    )
    .cured_client(&format!("{client} --nodelay"))
    .finds(&[client_holds()])
    .finds_live(&[client_holds(), either(lost("nodelay_not_in_force", Some("client"), None))])
}

/// Returns servers that write a reply in pieces.
fn servers() -> Vec<Scenario> {
    let read = "--host HOST --port PORT --read 1000 --write 100";
    let three = Scenario::new(
        "nagle-one-of-three-0.3ms",
        "three servers on three ports; only the one on port 4000 leaves Nagle on",
        Wire::rtt(0.3),
        "py:exchange server --host HOST --port PORT --read 100 --write 300,700",
        &format!("py:exchange client {read} --count 15"),
    );
    vec![
        Scenario::new(
            "nagle-go-server-0.3ms",
            "a Go server that has turned TCP_NODELAY off writes its reply in two pieces",
            Wire::rtt(0.3),
            "go:exchange server --host HOST --port PORT --read 100 --write 300,700 --nagle",
            &format!("py:exchange client {read}"),
        )
        .cured_server("go:exchange server --host HOST --port PORT --read 100 --write 300,700")
        .finds(&[server_holds()])
        // Go sets it on every connection, and the program clears it.
        .finds_live(&[server_holds(), either(lost("nodelay_not_in_force", Some("server"), None))]),
        Scenario::new(
            "nagle-nginx-proxy-2ms",
            "nginx with tcp_nodelay off passes on what the program behind it writes in two pieces",
            Wire::rtt(2.0),
            "nginx:proxy-nagle",
            "curl 20 /",
        )
        .with_server(7999, "py:http_server --host 127.0.0.1 --port 7999 --nodelay")
        .cured_server("nginx:proxy")
        .finds(&[server_holds()]),
        three
            .with_server(4001, "py:exchange server --host HOST --port PORT --read 100 --write 300,700 --nodelay")
            .with_server(4002, "py:exchange server --host HOST --port PORT --read 100 --write 1000")
            .with_client(4001, &format!("py:exchange client {read} --count 60 --gap 10"))
            .with_client(4002, &format!("py:exchange client {read} --count 60 --gap 10"))
            .cured_server("py:exchange server --host HOST --port PORT --read 100 --write 300,700 --nodelay")
            .finds(&[server_holds()]),
        Scenario::new(
            "nagle-and-slow-program-1ms",
            "the server thinks for 60 ms, and then writes its reply in two pieces",
            Wire::rtt(1.0),
            "py:exchange server --host HOST --port PORT --read 100 --write 300,700 --think 60",
            &format!("py:exchange client {read}"),
        )
        .cured_server(
            "py:exchange server --host HOST --port PORT --read 100 --write 300,700 --think 60 --nodelay",
        )
        .finds(&[server_holds(), lost("application", None, None)]),
    ]
}

/// Returns a header, then a body of one full segment and a bit: the bit waits for the header's ACK.
fn runts() -> Vec<Scenario> {
    let links =
        [("5ms", Wire::rtt(5.0)), ("20ms", Wire::rtt(20.0).plain()), ("80ms", Wire::rtt(80.0))];
    links
        .into_iter()
        .map(|(rtt, wire)| {
            let server = "c:exchange server --host HOST --port PORT --read 100 --write 200,1748";
            Scenario::new(
                &format!("runt-{rtt}"),
                "the reply is a header and then one full segment and 300 octets; these wait for \
                 the header's ACK",
                wire,
                server,
                "py:exchange client --host HOST --port PORT --read 1948 --write 100",
            )
            .cured_server(&format!("{server} --nodelay"))
            .finds(&[lost("runt", Some("server"), None)])
            .both_ends()
        })
        .collect()
}

/// Returns ACKs that are late by themselves.
fn acks() -> Vec<Scenario> {
    let mut all = spent_credits();
    let links = [
        ("0.05ms", Wire::veth(), 350),
        ("1ms", Wire::rtt(1.0), 350),
        ("20ms", Wire::rtt(20.0), 350),
        // Two retransmission timeouts, each of which halves the window once.
        ("80ms", Wire::rtt(80.0), 800),
    ];
    for (name, wire, rest) in links {
        let wire = wire.plain().initial_window(1);
        all.push(
            Scenario::new(
                &format!("delayed-ack-window-of-one-{name}"),
                "each request is two full segments, and after a rest the client's congestion window \
                 lets one of them go: the other waits for its ACK, which is delayed",
                wire.clone(),
                "py:exchange server --host HOST --port PORT --read 2896 --write 50 --nodelay",
                &format!(
                    "c:exchange client --host HOST --port PORT --read 50 --write 2896 --nodelay \
                     --count 15 --gap {rest}"
                ),
            )
            .cured_wire(wire.quick_acks())
            .finds(&[lost("delayed_ack", None, Some("server"))])
            .both_ends(),
        );
    }
    all
}

/// Returns a new connection whose first ACKs are quick, as far as its credits go. (Linux also acknowledges
/// when a program reads pushed data, so a program that reads at once never shows what comes after.)
fn spent_credits() -> Vec<Scenario> {
    let mid_connection = View {
        suffix: "-late",
        changes: Changes { skip: 60, ..Changes::default() },
        // That there were quick ACKs before cannot be seen.
        shows: Some(vec![harmless("delayed_ack", "client")]),
        ..View::at(At::Client)
    };
    let one_way = |name: &str, wire: Wire, client: &str| {
        Scenario::new(
            name,
            "1 KiB each 100 ms with TCP_NODELAY to a client that only reads",
            wire,
            "py:push server --host HOST --port PORT --nodelay --count 45",
            client,
        )
    };
    let late = |name: &str, wire: Wire| {
        one_way(name, wire, "py:push client --host HOST --port PORT --read-after 70")
    };
    let whole = View { suffix: "-whole", ..View::at(At::Client) };
    let pieces = "--host HOST --port PORT --pieces 300,500 --count 40 --pace 130";
    let credits = |name: &str, wire: Wire| {
        Scenario::new(
            name,
            "a server that only sends writes each message in two pieces with Nagle on: quick at \
             first, late once the client's quick-ACK credits are spent",
            wire,
            &format!("py:push server {pieces}"),
            "py:push client --host HOST --port PORT --pieces 300,500 --lowat",
        )
        .cured_server(&format!("py:push server {pieces} --nodelay"))
        .finds(&[server_holds(), either(lost("quickack_exhausted", None, Some("client")))])
    };
    vec![
        late("quickack-exhausted-0.05ms", Wire::veth())
            .finds(&[harmless("quickack_exhausted", "client")])
            .views(&[whole.clone(), mid_connection.clone()]),
        late("quickack-exhausted-10ms", Wire::rtt(10.0))
            .finds(&[harmless("quickack_exhausted", "client")])
            .views(&[whole, mid_connection]),
        one_way("healthy-one-way-1ms", Wire::rtt(1.0), "py:push client --host HOST --port PORT"),
        credits("quickack-exhausted-nagle-1ms", Wire::rtt(1.0)).at_server(),
        credits("quickack-exhausted-nagle-20ms", Wire::rtt(20.0)),
    ]
}
