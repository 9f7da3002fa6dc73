//! Scenarios that an earlier doctor misjudged: a program's own pauses that are as long as a
//! kernel's timers, streams that nothing waits for, connections that end in unusual ways, and
//! captures with duplicated or reordered records.

use super::{At, Scenario, View, Wire, lost};
use crate::rewrite::Changes;

pub(super) fn all() -> Vec<Scenario> {
    let mut all = pauses();
    all.extend(pauses_of_one_beat());
    all.extend(streams());
    all.extend(ends());
    all.extend(records());
    all.push(slow_reader());
    all
}

/// Returns programs that pause for as long as a cork may hold (200 ms), or an ACK (40 ms).
fn pauses() -> Vec<Scenario> {
    let server = |write: &str| {
        format!("py:exchange server --host HOST --port PORT --read 50 --write {write}")
    };
    let client = |read: u32, count: u32| {
        format!(
            "py:exchange client --host HOST --port PORT --read {read} --write 50 --nodelay \
             --gap 10 --count {count}"
        )
    };
    let slow = |name: &str, about: &str, write: &str, pause: &str, (read, count): (u32, u32)| {
        let server = server(write);
        Scenario::new(
            &format!("slow-program-{name}-0.05ms"),
            about,
            Wire::loopback(),
            &format!("{server} {pause}"),
            &client(read, count),
        )
        .cured_server(&format!("{server} --nodelay"))
        .finds(&[lost("application", Some("server"), None)])
    };
    let paused_client = "py:exchange client --host HOST --port PORT --read 10 --write 20,20";
    vec![
        slow(
            "query-206ms",
            "each query takes the server 206 ms, nearly to the millisecond: no cork",
            "300",
            "--think 206 --nodelay",
            (300, 10),
        ),
        slow(
            "query-200ms-tail",
            "a full segment leaves at once, and 200 ms of work later the tail: no cork",
            "65483,300",
            "--piece-gap 200 --nodelay",
            (65_783, 10),
        ),
        slow(
            "query-200ms-tail-unsteady",
            "a full segment leaves at once, and 200 to 204 ms later the tail: no cork",
            "65483,300",
            "--piece-gap 200 --jitter 4 --nodelay",
            (65_783, 10),
        ),
        slow(
            "reply-50ms",
            "with Nagle on, a header, 50 ms of work, and the body: nothing was held",
            "10,10",
            "--piece-gap 50",
            (20, 20),
        ),
        Scenario::new(
            "healthy-client-works-within-request-0.05ms",
            "with Nagle on, the client writes a header, works for 50 ms, and writes the rest",
            Wire::loopback(),
            "py:exchange server --host HOST --port PORT --read 40 --write 10 --nodelay",
            &format!("{paused_client} --piece-gap 50"),
        ),
    ]
}

/// Returns programs that take their time for each request of a client that asks again at once.
fn pauses_of_one_beat() -> Vec<Scenario> {
    let prompt = |name: &str, about: &str, think_ms: u32, ask: u32| {
        let server = format!("py:exchange server --host HOST --port PORT --read {ask} --write 7");
        Scenario::new(
            &format!("slow-program-{name}-0.05ms"),
            about,
            Wire::loopback(),
            &format!("{server} --think {think_ms}"),
            &format!(
                "py:exchange client --host HOST --port PORT --read 7 --write {ask} --count 20"
            ),
        )
        .cured_server(&server)
        .finds(&[lost("application", Some("server"), None)])
    };
    vec![
        prompt(
            "sleep-200ms",
            "the server sleeps for 200 ms and is asked again at once; some of it ends late, at a tick",
            200,
            40,
        ),
        prompt(
            "short-requests-50ms",
            "each request of 14 octets takes the server 50 ms: it is a request all the same",
            50,
            14,
        ),
    ]
}

/// The probe of a nearly shut window leaves when a retransmission would: 200 ms late.
fn slow_reader() -> Scenario {
    let server = "py:bulk server --host HOST --port PORT --rcvbuf 8192 --block 4096";
    Scenario::new(
        "zero-window-slow-reader-0.05ms",
        "the server takes 20 ms for each 4 KiB that it reads, into a buffer of 8 KiB",
        Wire::veth(),
        &format!("{server} --slow 20"),
        "py:bulk client --host HOST --port PORT --size 40000 --count 2",
    )
    .cured_server(server)
    .finds(&[lost("zero_window", None, Some("server"))])
    // Reading what is in its buffer at the end takes it time, too.
    .may(&["application"])
}

/// Returns one request, at once a header, and then events for as long as the connection lasts.
fn streams() -> Vec<Scenario> {
    let stream = |name: &str, about: &str, options: &str| {
        Scenario::new(
            &format!("healthy-events-{name}-0.05ms"),
            about,
            Wire::loopback(),
            &format!("py:push server --host HOST --port PORT --ask 60 {options}"),
            "py:push client --host HOST --port PORT --ask 60 --pieces 100",
        )
    };
    vec![
        stream(
            "each-250ms",
            "a stream of events, one each 250 ms",
            "--pieces 100 --pace 250 --count 12 --nodelay",
        ),
        stream(
            "each-200ms",
            "a stream of events, one each 200 to 206 ms, as long as a cork holds",
            "--pieces 100 --pace 200 --jitter 6 --count 15 --nodelay",
        ),
        stream(
            "each-40ms",
            "a stream of events, one each 40 ms, with Nagle on and nothing in flight",
            "--pieces 100 --pace 40 --count 60",
        ),
        stream(
            "each-20ms",
            "a reply in chunks, one each 20 ms",
            "--pieces 100 --pace 20 --count 60 --nodelay",
        ),
        Scenario::new(
            "healthy-heartbeats-0.05ms",
            "heartbeats, one each 200 to 206 ms, and nobody has asked",
            Wire::loopback(),
            "py:push server --host HOST --port PORT --nodelay --pace 200 --jitter 6 --count 15",
            "py:push client --host HOST --port PORT",
        ),
    ]
}

/// Returns connections with an unusual beginning or end.
fn ends() -> Vec<Scenario> {
    let ends = |name: &str, about: &str, mode: &str| {
        Scenario::new(
            &format!("healthy-{name}-0.05ms"),
            about,
            Wire::loopback(),
            "py:ends server --host HOST --port PORT",
            &format!("py:ends client --host HOST --port PORT {mode}"),
        )
    };
    vec![
        ends("half-closed", "the client ends each request by closing its half", "--mode half"),
        ends("reset", "each connection ends in a reset with octets unread", "--mode reset"),
        ends("port-used-again", "ten connections one after another from one port", "--mode reuse"),
        ends(
            "refused",
            "twenty connections to a port that nobody listens on",
            "--mode refused --count 20",
        ),
        ends(
            "kept-alive",
            "3.5 s of keepalive probes between two requests",
            "--mode keepalive --count 1",
        ),
    ]
}

/// Returns captures whose records are duplicated, or not in the order of the wire.
fn records() -> Vec<Scenario> {
    let view = |suffix, changes| View { suffix, changes, ..View::at(At::Client) };
    let double = Changes { double: true, ..Changes::default() };
    // An ACK that precedes its data says nothing about which end held what.
    let mixed = View {
        shows: Some(Vec::new()),
        ..view("-mixed", Changes { swap_each: Some(3), ..Changes::default() })
    };
    vec![
        Scenario::new(
            "format-records-0.05ms",
            "http.server, with the capture's records twice or mixed up",
            Wire::loopback(),
            "py:http_server --host HOST --port PORT",
            "py:http_client --host HOST --port PORT --count 20",
        )
        .cured_server("py:http_server --host HOST --port PORT --nodelay")
        .finds(&[lost("nagle_delayed_ack", Some("server"), Some("client"))])
        .may(&["nagle_delayed_ack"])
        .views(&[view("-twice", double), mixed.clone()]),
        Scenario::new(
            "format-healthy-records-0.05ms",
            "one write a message, with the capture's records twice or mixed up",
            Wire::loopback(),
            "py:exchange server --host HOST --port PORT --read 100 --write 500",
            "py:exchange client --host HOST --port PORT --read 500 --write 100 --gap 30",
        )
        .views(&[view("-twice", double), mixed]),
    ]
}
