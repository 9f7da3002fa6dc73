//! Other faults than Nagle's algorithm: corks, tiny packets, queues, windows, losses, slow programs.

use super::{At, Expected, Scenario, View, Wire, either, lost, waste};

pub(super) fn all() -> Vec<Scenario> {
    let mut all = corks();
    all.extend(tiny());
    all.extend(queues());
    all.extend(windows());
    all.extend(losses());
    all.extend(programs());
    all
}

/// Returns corked tails, which leave after the kernel's 200 ms.
fn corks() -> Vec<Scenario> {
    let finding = [lost("cork_timeout", Some("server"), None)];
    let client = "py:exchange client --host HOST --port PORT --read 900 --write 100 --count 12";
    let c = "c:exchange server --host HOST --port PORT --read 100 --write 200,700 --cork";
    let python = "py:exchange server --host HOST --port PORT --read 100 --write 200,700 --more";
    vec![
        Scenario::new(
            "cork-forgotten-0.05ms",
            "the server sets TCP_CORK before each reply and never takes it off",
            Wire::veth(),
            c,
            client,
        )
        .cured_server(&format!("{c} --uncork"))
        .finds(&finding)
        .both_ends(),
        Scenario::new(
            "cork-forgotten-20ms",
            "the server sets TCP_CORK before each reply and never takes it off",
            Wire::rtt(20.0),
            c,
            client,
        )
        .cured_server(&format!("{c} --uncork"))
        .finds(&finding),
        Scenario::new(
            "cork-more-5ms",
            "the server sends even the last piece with MSG_MORE",
            Wire::rtt(5.0),
            python,
            client,
        )
        .cured_server("py:exchange server --host HOST --port PORT --read 100 --write 900")
        .finds(&finding)
        .at_server(),
        Scenario::new(
            "cork-tail-80ms",
            "the client corks an upload of two full segments and a tail",
            Wire::rtt(80.0),
            "py:exchange server --host HOST --port PORT --read 3500 --write 100",
            "c:exchange client --host HOST --port PORT --read 100 --write 3500 --cork --count 10",
        )
        .cured_client(
            "c:exchange client --host HOST --port PORT --read 100 --write 3500 --cork --uncork --count 10",
        )
        .finds(&[lost("cork_timeout", Some("client"), None)]),
        Scenario::new(
            "cork-forgotten-short-requests-0.05ms",
            "corked replies to requests of 14 octets, each as late as the one before",
            Wire::loopback(),
            "c:exchange server --host HOST --port PORT --read 14 --write 900 --cork",
            "py:exchange client --host HOST --port PORT --read 900 --write 14 --count 10",
        )
        .cured_server("c:exchange server --host HOST --port PORT --read 14 --write 900 --cork --uncork")
        .finds(&finding),
    ]
}

/// Returns a hundred writes of two octets with `TCP_NODELAY`.
fn tiny() -> Vec<Scenario> {
    let pieces = ["2"; 100].join(",");
    let scenario = |rtt: &str, wire: Wire, program: &str| {
        Scenario::new(
            &format!("tiny-packets-{}-{rtt}", program.split(':').next().unwrap_or_default()),
            "each request leaves in a hundred segments of two octets",
            wire,
            "py:exchange server --host HOST --port PORT --read 200 --write 50 --nodelay",
            &format!(
                "{program} client --host HOST --port PORT --read 50 --write {pieces} --count 5"
            ),
        )
        .finds(&[waste("tiny_packets", "client")])
    };
    let mut go = scenario("1ms", Wire::rtt(1.0), "go:exchange");
    let mut c = scenario("0.05ms", Wire::veth(), "c:exchange");
    let mut python = scenario("20ms", Wire::rtt(20.0), "py:exchange");
    let mut perl = scenario("80ms", Wire::rtt(80.0), "perl:exchange");
    for scenario in [&mut c, &mut python, &mut perl] {
        scenario.ill.client.1.push_str(" --nodelay");
    }
    go.about.push_str(", as Go sets TCP_NODELAY by itself");
    vec![go, c, python, perl]
}

/// Returns a bulk upload that fills the queue below it, where requests wait.
fn queues() -> Vec<Scenario> {
    let scenario = |rtt: &str, wire: Wire, bulk: &str, calm: Wire| {
        let mut scenario = Scenario::new(
            &format!("sender-queue-{rtt}"),
            "requests on port 4000 wait in the queue that a bulk upload to port 4001 fills",
            wire,
            "py:exchange server --host HOST --port PORT --read 100 --write 100 --nodelay",
            "py:exchange client --host HOST --port PORT --read 100 --write 100 --nodelay --gap 20 --count 20",
        )
        .with_server(4001, "py:bulk server --host HOST --port PORT")
        .with_client(4001, bulk)
        .cured_wire(calm)
        .finds(&[])
        .may(&["sender_queue"]);
        scenario.expected.push(Expected {
            port: 4001,
            findings: vec![either(lost("sender_queue", Some("client"), None))],
            may: Vec::new(),
            measured: false,
        });
        scenario
    };
    let alone = Scenario::new(
        "sender-queue-alone-1ms",
        "an upload of 1 MB at 20 Mbit/s through a queue of 2 MB: it waits for nobody but itself",
        Wire::rtt(1.0).rate(20_000_000, 2_000_000),
        "py:bulk server --host HOST --port PORT",
        "py:bulk client --host HOST --port PORT --size 1000000 --count 1",
    );
    let mut alone = alone.finds(&[either(waste("sender_queue", "client"))]);
    alone.expected[0].measured = false;
    let bulk = "py:bulk client --host HOST --port PORT --size 500000 --count 1";
    vec![
        scenario("2ms", Wire::rtt(2.0).rate(10_000_000, 2_000_000), bulk, Wire::rtt(2.0)),
        scenario(
            "20ms",
            Wire::rtt(20.0).rate(10_000_000, 2_000_000).plain(),
            bulk,
            Wire::rtt(20.0),
        ),
        alone,
    ]
}

/// Returns receivers that do not read.
fn windows() -> Vec<Scenario> {
    let scenario = |name: &str, wire: Wire, late: &str| {
        let server = "py:bulk server --host HOST --port PORT --rcvbuf 32768";
        let client = "py:bulk client --host HOST --port PORT --size 200000 --count 4";
        Scenario::new(
            &format!("zero-window-{name}"),
            &format!("the server waits {late} ms before it reads an upload larger than its window"),
            wire,
            &format!("{server} --late {late}"),
            client,
        )
        .cured_server(server)
        .finds(&[lost("zero_window", None, Some("server"))])
        // A tail-loss probe, since ACKs wait for the program too (RFC 8985).
        .may(&["retransmission"])
    };
    vec![
        scenario("0.05ms", Wire::veth(), "150"),
        scenario("10ms", Wire::rtt(10.0), "400").both_ends(),
        // A rest so long that the congestion window restarts (RFC 9293 §3.8.6.1, RFC 5681 §4.1).
        scenario("80ms", Wire::rtt(80.0).plain(), "600").indirect(),
    ]
}

/// Returns lost segments.
fn losses() -> Vec<Scenario> {
    let found = |by: &str| [lost("retransmission", Some(by), None)];
    let download = |size: u32, count: u32| {
        (
            format!(
                "c:exchange server --host HOST --port PORT --read 100 --write {size} --nodelay"
            ),
            format!(
                "c:exchange client --host HOST --port PORT --read {size} --write 100 --count {count}"
            ),
        )
    };
    let request =
        "perl:exchange client --host HOST --port PORT --read 100 --write 200 --nodelay --count 20";
    let replies = "go:exchange server --host HOST --port PORT --read 200 --write 100";
    let lossy = |name: &str, about: &str, well: Wire, ill: Wire, programs: &(String, String)| {
        let by = if ill.paths[0].loss.data.is_empty() { "server" } else { "client" };
        Scenario::new(name, about, ill, &programs.0, &programs.1).cured_wire(well).finds(&found(by))
    };
    // Four segments fit into any window: the effect of a loss is over when the reply is complete.
    let (small, large) = (download(5000, 20), download(40_000, 6));
    let asked = (replies.to_owned(), request.to_owned());
    let middle = "the second segment of two of twenty replies is lost: those after it show it";
    let tail =
        "the last segment of two of twenty replies is lost: nothing comes that would show it";
    let lone = "three of twenty requests of one segment are lost";
    let plain = |rtt: f64| Wire::rtt(rtt).plain();
    // At the server's end nothing can be seen: there, the client only seems to rest.
    let unseen = [
        View { suffix: "-client", ..View::at(At::Client) },
        View { suffix: "-server", shows: Some(Vec::new()), ..View::at(At::Server) },
    ];
    // Replies of 4 segments: the 2nd of the 5th and of the 11th, counting retransmissions; and the 4th.
    let inner = |rtt: f64| plain(rtt).lose_to_client(1, &[18, 43]);
    let last = |rtt: f64| plain(rtt).lose_to_client(1, &[20, 45]);
    vec![
        lossy("loss-middle-5ms", middle, plain(5.0), inner(5.0), &small),
        lossy("loss-middle-20ms", middle, plain(20.0), inner(20.0), &small).both_ends(),
        lossy("loss-middle-80ms", middle, plain(80.0), inner(80.0), &small).at_server(),
        lossy("loss-tail-1ms", tail, plain(1.0), last(1.0), &small),
        lossy("loss-tail-40ms", tail, plain(40.0), last(40.0), &small).both_ends(),
        lossy(
            "loss-request-1ms",
            lone,
            Wire::rtt(1.0),
            Wire::rtt(1.0).lose_to_server(1, &[4, 9, 15]),
            &asked,
        )
        .views(&unseen),
        lossy(
            "loss-request-80ms",
            lone,
            Wire::rtt(80.0),
            Wire::rtt(80.0).lose_to_server(1, &[4, 9, 15]),
            &asked,
        ),
        lossy(
            "loss-random-10ms",
            "one frame in thirty is lost, whichever it is",
            plain(10.0),
            plain(10.0).lossy(0.033, 7),
            &large,
        )
        .indirect(),
        lossy(
            "loss-bulk-20ms",
            "a segment in the middle of replies that need the whole congestion window is lost",
            plain(20.0),
            plain(20.0).lose_to_client(1000, &[70, 200]),
            &large,
        )
        .indirect()
        .both_ends(),
    ]
}

/// Returns slow programs: not TCP's fault.
fn programs() -> Vec<Scenario> {
    let finding = [lost("application", Some("server"), None)];
    vec![
        Scenario::new(
            "slow-program-0.05ms",
            "the server thinks for 60 ms before each reply",
            Wire::veth(),
            "py:exchange server --host HOST --port PORT --read 100 --write 500 --think 60 --nodelay",
            "c:exchange client --host HOST --port PORT --read 500 --write 100 --count 20",
        )
        .cured_server("py:exchange server --host HOST --port PORT --read 100 --write 500 --nodelay")
        .finds(&finding)
        .both_ends(),
        Scenario::new(
            "slow-program-http-20ms",
            "a web page that takes 150 ms to make",
            Wire::rtt(20.0),
            "py:http_server --host HOST --port PORT --nodelay --think 150",
            "curl 15 /",
        )
        .cured_server("py:http_server --host HOST --port PORT --nodelay")
        .finds(&finding),
        Scenario::new(
            "slow-program-40ms-at-80ms",
            "the server thinks for 40 ms, as long as an ACK may be delayed, on a long way",
            Wire::rtt(80.0),
            "py:exchange server --host HOST --port PORT --read 100 --write 500 --think 40 --nodelay",
            "c:exchange client --host HOST --port PORT --read 500 --write 100 --count 20",
        )
        .cured_server("py:exchange server --host HOST --port PORT --read 100 --write 500 --nodelay")
        .finds(&finding),
        Scenario::new(
            "slow-program-sometimes-5ms",
            "every fourth reply takes the server 200 ms",
            Wire::rtt(5.0),
            "py:exchange server --host HOST --port PORT --read 100 --write 500 --think 200 --think-every 4 --nodelay",
            "perl:exchange client --host HOST --port PORT --read 500 --write 100 --count 24",
        )
        .cured_server("py:exchange server --host HOST --port PORT --read 100 --write 500 --nodelay")
        .finds(&finding)
        .at_server(),
    ]
}
