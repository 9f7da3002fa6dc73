use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use super::*;
use crate::{InForce, Process, Spread};

const KINDS: [Kind; 11] = [
    Kind::NagleDelayedAck,
    Kind::DelayedAck,
    Kind::QuickAckExhausted,
    Kind::CorkTimeout,
    Kind::TinyPackets,
    Kind::Runt,
    Kind::NoDelayNotInForce,
    Kind::SenderQueue,
    Kind::ZeroWindow,
    Kind::Retransmission,
    Kind::Application,
];

fn party(endpoint: &str, program: &str) -> Party {
    let process = Process {
        pid: 4711,
        tid: None,
        name: program.to_owned(),
        fd: Some(7),
        ..Process::default()
    };
    Party {
        endpoint: endpoint.parse::<SocketAddr>().unwrap().into(),
        process: (!program.is_empty()).then_some(process),
        data_segments: 100,
        payload_bytes: 4500,
        messages: 10,
        segments_per_message: 12,
        message_bytes: 45,
        mss: Some(1460),
        nagle: InForce::On,
        uncork: None,
        ack_delay: Spread::default(),
    }
}

/// Returns what is advised when the bytes are at `held`, and the ACK at the other end.
fn advised(kind: Kind, client: &Party, server: &Party, held: Role) -> Vec<Remedy> {
    let (bytes_held_by, ack_held_by) = (Some(held), Some(held.other()));
    remedies(kind, &Context { client, server, sender: held, bytes_held_by, ack_held_by })
}

fn lines(remedies: &[Remedy]) -> Vec<&str> {
    remedies.iter().map(|remedy| remedy.line.as_str()).collect()
}

#[test]
fn uncork_run_is_advised_only_where_the_bytes_are_held_or_sent_in_pieces() {
    let (client, server) = (party("10.0.0.1:40000", ""), party("10.0.0.2:6379", ""));
    let (client, server) = (&client, &server);
    let ends = [Role::Client, Role::Server];
    let mut advised = 0;
    for kind in KINDS {
        for sender in ends {
            for bytes_held_by in [None, Some(sender)] {
                for ack_held_by in [None, Some(sender.other())] {
                    let context = Context { client, server, sender, bytes_held_by, ack_held_by };
                    for remedy in remedies(kind, &context) {
                        if remedy.line.starts_with("uncork run") {
                            let pieces = kind == Kind::TinyPackets;
                            assert!(bytes_held_by.is_some() || pieces, "{kind:?}");
                            assert_eq!(remedy.at, sender, "{kind:?}");
                            advised += 1;
                        }
                    }
                }
            }
        }
    }
    // Three kinds with held bytes, by each end, with and without an ACK; and tiny segments.
    assert_eq!(advised, 3 * 2 * 2 + 2 * 2 * 2);
}

#[test]
fn uncork_run_is_not_advised_where_it_would_not_help() {
    let (client, server) = (party("10.0.0.1:40000", ""), party("10.0.0.2:80", ""));
    // What a program corks itself is left alone; the others are not about held small writes.
    for kind in [
        Kind::DelayedAck,
        Kind::QuickAckExhausted,
        Kind::CorkTimeout,
        Kind::SenderQueue,
        Kind::ZeroWindow,
        Kind::Retransmission,
        Kind::Application,
    ] {
        for held in [Role::Client, Role::Server] {
            let advice = advised(kind, &client, &server, held);
            assert!(!lines(&advice).iter().any(|line| line.contains("uncork run")), "{advice:?}");
        }
    }
}

#[test]
fn each_remedy_is_one_line_with_a_reason_and_none_is_named_twice() {
    for program in ["", "nginx", "python3.11", "a b; rm -rf /", "redis-server"] {
        let (client, server) = (party("[fd00::1]:40000", program), party("[fd00::2]:80", program));
        for kind in KINDS {
            for held in [Role::Client, Role::Server] {
                let advice = advised(kind, &client, &server, held);
                let mut seen = lines(&advice);
                assert!(seen.len() <= MOST);
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), advice.len(), "{advice:?}");
                for remedy in &advice {
                    assert!(!remedy.line.is_empty() && !remedy.line.contains('\n'), "{remedy:?}");
                    assert!(!remedy.why.is_empty() && !remedy.why.contains('\n'), "{remedy:?}");
                    assert!(!remedy.line.contains("rm -rf"), "{remedy:?}");
                }
            }
        }
    }
}

#[test]
fn every_stall_of_small_writes_has_a_cure_at_each_end_that_holds_something() {
    let (client, server) = (party("10.0.0.1:40000", ""), party("10.0.0.2:5000", ""));
    for kind in [Kind::NagleDelayedAck, Kind::Runt] {
        let advice = advised(kind, &client, &server, Role::Client);
        assert!(lines(&advice).contains(&"uncork run -- COMMAND"), "{kind:?}");
        assert!(lines(&advice).contains(&"uncork tune --nodelay --peer 10.0.0.2 --port 5000"));
        let quick = advice.iter().find(|remedy| remedy.at == Role::Server).unwrap();
        assert_eq!(quick.line, "uncork tune --quickack --peer 10.0.0.1");
        let route = advice.iter().find(|remedy| remedy.line.contains("quickack 1")).unwrap();
        assert_eq!(route.at, Role::Server);
        assert!(route.line.contains("route get 10.0.0.1 "), "to the other end: {}", route.line);
        assert!(route.line.ends_with("# undo: ip route del 10.0.0.1"), "{}", route.line);
    }
}

#[test]
fn a_late_ack_is_cured_where_it_is_held_and_nowhere_else() {
    let (client, server) = (party("10.0.0.1:40000", ""), party("10.0.0.2:5000", ""));
    for kind in [Kind::DelayedAck, Kind::QuickAckExhausted] {
        let advice = advised(kind, &client, &server, Role::Client);
        assert_eq!(advice[0].line, "uncork tune --quickack --peer 10.0.0.1");
        assert!(advice[1].line.contains("quickack 1"), "{advice:?}");
        assert!(advice.iter().all(|remedy| remedy.at == Role::Server), "{advice:?}");
    }
}

#[test]
fn a_program_that_is_known_is_told_its_own_option_first() {
    for (program, kind, held, option) in [
        ("nginx", Kind::NagleDelayedAck, Role::Server, "tcp_nodelay on;"),
        ("nginx", Kind::CorkTimeout, Role::Server, "tcp_nopush off;"),
        ("haproxy", Kind::Runt, Role::Client, "option http-no-delay"),
        (
            "redis-server",
            Kind::NagleDelayedAck,
            Role::Server,
            "redis-cli config set repl-disable-tcp-nodelay no",
        ),
    ] {
        let (client, server) = (party("10.0.0.1:40000", program), party("10.0.0.2:9", program));
        let advice = advised(kind, &client, &server, held);
        assert!(advice[0].line.starts_with(option), "{program}: {:?}", lines(&advice));
        assert_eq!(advice[0].at, held);
    }
}

#[test]
fn a_language_that_is_known_is_told_its_line_after_what_needs_no_change() {
    for (program, held, code) in [
        ("node", Role::Client, "socket.setNoDelay(true);"),
        ("java", Role::Server, "socket.setTcpNoDelay(true);"),
        ("php-fpm8.2", Role::Client, "stream_context_create"),
        ("python3.11", Role::Server, "wbufsize = -1"),
        ("python3.11", Role::Client, "sock.setsockopt"),
    ] {
        let (client, server) = (party("10.0.0.1:40000", program), party("10.0.0.2:9", program));
        let advice = advised(Kind::NagleDelayedAck, &client, &server, held);
        assert_eq!(advice[0].line, format!("uncork run -- {program}"));
        assert_eq!(advice[1].line, "uncork tune --nodelay --pid 4711");
        assert!(advice[2].line.starts_with(code), "{program}: {:?}", lines(&advice));
        assert!(advice.iter().all(|remedy| !remedy.line.starts_with("setsockopt(fd")));
    }
}

#[test]
fn a_port_is_only_a_guess_and_comes_after_what_surely_helps() {
    for (port, held, option) in [
        (9092, Role::Client, "socket.nagle.disable=true"),
        (11211, Role::Client, "$memcached->setOption(Memcached::OPT_TCP_NODELAY, true);"),
        (8000, Role::Server, "wbufsize = -1"),
    ] {
        let (client, server) =
            (party("10.0.0.1:40000", ""), party(&format!("10.0.0.2:{port}"), ""));
        let advice = advised(Kind::NagleDelayedAck, &client, &server, held);
        assert_eq!(advice[0].line, "uncork run -- COMMAND");
        let guess = advice.iter().find(|remedy| remedy.line == option).unwrap();
        assert!(guess.why.starts_with("if it is "), "{}", guess.why);
        // The program at the other end has no such option.
        let other_end = held.other();
        let other = advised(Kind::NagleDelayedAck, &client, &server, other_end);
        assert!(!lines(&other).contains(&option));
    }
}

#[test]
fn no_web_server_is_named_that_is_not_known() {
    for port in [80, 443, 8080, 8443] {
        let (client, server) =
            (party("10.0.0.1:40000", ""), party(&format!("10.0.0.2:{port}"), ""));
        for kind in [Kind::NagleDelayedAck, Kind::Runt, Kind::CorkTimeout] {
            let advice = advised(kind, &client, &server, Role::Server);
            let lines = lines(&advice).join(" ");
            assert!(!lines.contains("tcp_no") && !lines.contains("http-no-delay"), "{lines}");
        }
    }
}

#[test]
fn the_shape_of_the_messages_is_told_with_tiny_packets() {
    let (client, server) = (party("10.0.0.1:40000", "probe"), party("10.0.0.2:9", ""));
    let advice = advised(Kind::TinyPackets, &client, &server, Role::Client);
    assert_eq!(advice[0].line, "uncork run -- probe");
    assert!(advice[1].why.ends_with("its messages of 45 octets leave in 12 segments"));
}

#[test]
fn what_runs_already_is_cured_without_a_restart() {
    let (client, server) = (party("10.0.0.1:40000", ""), party("10.0.0.2:5000", "static"));
    let advice = advised(Kind::NagleDelayedAck, &client, &server, Role::Server);
    assert!(lines(&advice).contains(&"uncork tune --nodelay --pid 4711"), "{advice:?}");
    // A capture names no process, so what it shows of the connection decides.
    let server = party("10.0.0.2:5000", "");
    let advice = advised(Kind::Runt, &client, &server, Role::Server);
    assert!(lines(&advice).contains(&"uncork tune --nodelay --port 5000"), "{advice:?}");
    // For a program that cannot be preloaded into, this is the only cure.
    let mut server = party("10.0.0.2:5000", "static");
    server.process.as_mut().unwrap().beyond_preload = true;
    let advice = advised(Kind::NagleDelayedAck, &client, &server, Role::Server);
    assert_eq!(advice[0].line, "uncork tune --nodelay --pid 4711");
}

#[test]
fn where_no_route_can_acknowledge_at_once_the_delay_is_made_shorter() {
    let (client, server) = (party("[::1]:40000", ""), party("[::1]:5000", ""));
    let advice = advised(Kind::DelayedAck, &client, &server, Role::Client);
    assert_eq!(advice[0].line, "uncork tune --delack-max 10ms --port 5000");
}

/// A program in a container: what is said of the network is to be said there.
#[test]
fn what_is_about_another_network_says_how_to_get_there() {
    let (mut client, server) = (party("10.0.0.1:40000", "a"), party("10.0.0.2:5000", "b"));
    client.process.as_mut().unwrap().elsewhere = true;
    let own: Vec<_> = KINDS
        .into_iter()
        .flat_map(|kind| {
            [Role::Client, Role::Server].map(|held| advised(kind, &client, &server, held))
        })
        .flatten()
        .filter(|remedy| remedy.at == Role::Client)
        .map(|remedy| remedy.line)
        .collect();
    for line in [
        "uncork tune --quickack --peer 10.0.0.2 --netns /proc/4711/ns/net",
        "nsenter -t 4711 -n ss -tmi src 10.0.0.1:40000 dst 10.0.0.2:5000",
        "nsenter -t 4711 -n ip route replace $(nsenter -t 4711 -n ip route get 10.0.0.2 | \
         sed 's/ uid.*//;q') quickack 1  # undo: nsenter -t 4711 -n ip route del 10.0.0.2",
    ] {
        assert!(own.iter().any(|own| own == line), "{line}: {own:#?}");
    }
    let about_the_network = ["ip ", "ss ", "tc ", "sysctl ", "nstat "];
    for line in &own {
        assert!(!about_the_network.iter().any(|command| line.starts_with(command)), "{line}");
        assert!(!line.contains("$(ip "), "{line}");
        let of_uncork = line.contains("small-queues") || line.contains("--quickack");
        assert_eq!(of_uncork, line.contains("--netns"), "{line}");
    }
    // The other end is in ours.
    let its = advised(Kind::DelayedAck, &client, &server, Role::Client);
    assert_eq!(its[0].line, "uncork tune --quickack --peer 10.0.0.1");
}

/// Runs `script` in a network namespace of its own with 10.0.0.1 and fd00::1 on a device, where
/// that is possible.
fn in_own_network(script: &str) -> Option<String> {
    let network = "ip link set lo up; ip link add near type veth peer name far; \
                   ip addr add 10.0.0.1/24 dev near; ip -6 addr add fd00::1/64 dev near nodad; \
                   ip link set near up; ip link set far up; ip route add default via 10.0.0.254; \
                   ip -6 route add default via fd00::254; sleep 0.1";
    let script = format!("set -e; {network}; {script}");
    let done = Command::new("unshare").args(["-n", "sh", "-c", &script]).output();
    let done = done.ok().filter(|_| nobody_refuses())?;
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8(done.stdout).unwrap())
}

fn nobody_refuses() -> bool {
    let tried = Command::new("unshare").args(["-n", "ip", "link", "set", "lo", "up"]).status();
    tried.is_ok_and(|status| status.success())
}

#[test]
fn a_real_route_takes_the_attribute_and_loses_it_again() {
    for (peer, same_host) in [
        ("10.0.0.2", false),
        ("192.0.2.7", false),
        ("fd00::2", false),
        ("2001:db8::1", false),
        ("127.0.0.1", true),
        ("10.0.0.1", true),
    ] {
        let peer: IpAddr = peer.parse().unwrap();
        let line = network::route(peer, same_host, "quickack 1", "").unwrap();
        let (set, undo) = line.split_once("# undo: ").unwrap();
        let show = format!("ip -o route get {peer}");
        let script = format!("{set}; {show}; echo then; {undo}; {show}");
        let Some(told) = in_own_network(&script) else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "needs root, unshare and ip");
            eprintln!("skipped: a_real_route_takes_the_attribute: needs root, unshare and ip");
            return;
        };
        let (with, without) = told.split_once("then").unwrap();
        assert!(with.contains("quickack 1"), "{script}: {told}");
        assert!(!without.contains("quickack 1"), "{script}: {told}");
        assert!(with.contains("dev near") || with.contains("dev lo"), "{told}");
    }
}
