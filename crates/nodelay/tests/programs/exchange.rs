//! Client and server against each other: the published lines, and what the server counts.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Server, client, client_says, run_client, text};
use regex::Regex;

fn assert_line(line: &str, pattern: &str) {
    let whole = Regex::new(&format!("^(?:{pattern})$")).unwrap();
    assert!(whole.is_match(line), "{line:?} is not {pattern}");
}

/// A time and a rate, as the published lines have them.
const TIME_AND_RATE: &str = r"sent in (\d+\.\d{6}) ms: (\d+\.\d{6}) bytes/ms";

#[test]
fn modern_command_line_prints_the_published_line() {
    let mut server = Server::start(&["200"]);
    for (words, buffers, using) in [
        (&["-n"][..], "15 buffers", " using TCP_NODELAY"),
        (&["--no_delay"], "15 buffers", " using TCP_NODELAY"),
        (&["-c"], "15 buffers", " using TCP_CORK"),
        (&["-n", "-c"], "15 buffers", " using TCP_CORK"),
        (&["-s"], "1 buffer", ""),
        (&["-s", "-n"], "1 buffer", " using TCP_NODELAY"),
        (&["-H", "-n"], "2 buffers", " using TCP_NODELAY"),
        (&["-H", "--cork"], "2 buffers", " using TCP_CORK"),
    ] {
        let line = client_says(&server, &[&["-v", "-N", "200"], words].concat());
        assert_line(&line, &format!(r"200 packets \({buffers}\) {TIME_AND_RATE}{using}"));
        server.reads_of_next_client();
    }
}

#[test]
fn time_and_rate_belong_together() {
    let server = Server::start(&["500"]);
    let line = client_says(&server, &["-v", "-N500", "-s"]);
    let found = Regex::new(TIME_AND_RATE).unwrap().captures(&line).unwrap();
    let (time, rate): (f64, f64) = (found[1].parse().unwrap(), found[2].parse().unwrap());
    let expected = 500.0 * 30.0 / time;
    assert!((rate - expected).abs() <= expected * 1e-4, "{line}");
}

#[test]
fn without_verbose_only_the_rate_is_printed() {
    let server = Server::start(&["50"]);
    assert_line(&client_says(&server, &["-s", "-N50"]), r"\d+\.\d{6}");
}

#[test]
fn positional_command_line_prints_its_published_line() {
    let mut server = Server::start(&["100"]);
    let port = server.port.to_string();
    for (option, using) in [("no_delay", " using TCP_NODELAY"), ("cork", " using TCP_CORK")] {
        let output = client(&["localhost", &port, "100", option]).output().unwrap();
        assert_line(&text(&output), &format!("100 packets of 30 bytes {TIME_AND_RATE}{using}"));
        server.reads_of_next_client();
    }
}

#[test]
fn neither_option_meets_the_delayed_ack_and_says_nothing_of_options() {
    let server = Server::start(&["4"]);
    let port = server.port.to_string();
    let output = client(&["localhost", &port, "4"]).output().unwrap();
    assert_line(&text(&output), &format!("4 packets of 30 bytes {TIME_AND_RATE}"));
    // Linux delays an ACK by 40 ms at least; the first packets of a connection are spared.
    let line = client_says(&server, &["-v", "-N4"]);
    assert_line(&line, &format!(r"4 packets \(15 buffers\) {TIME_AND_RATE}"));
    let found = Regex::new(TIME_AND_RATE).unwrap().captures(&line).unwrap();
    assert!(found[1].parse::<f64>().unwrap() > 40.0, "no stall: {line}");
}

#[test]
fn whole_packets_are_read_at_once() {
    let mut server = Server::start(&["300"]);
    client_says(&server, &["-s", "-N300"]);
    assert_eq!(server.reads_of_next_client(), 300, "single request");
    client_says(&server, &["-c", "-N300"]);
    assert_eq!(server.reads_of_next_client(), 300, "corked");
    client_says(&server, &["-H", "-c", "-N300"]);
    assert_eq!(server.reads_of_next_client(), 300, "header and payload, corked");
}

/// How many of a client's small writes a read finds together is up to the scheduler, from one
/// write to all of them; so this client waits until each of its writes was read.
#[test]
fn reads_are_counted_one_by_one() {
    let mut server = Server::start(&["2"]);
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    socket.set_nodelay(true).unwrap();
    assert_eq!(server.line(), "server: waiting for connection");
    assert!(server.line().starts_with("server: accept from "));
    for _ in 0..2 {
        for _ in 0..15 {
            let reads = calls(server.pid()).0;
            socket.write_all(b"xy").unwrap();
            wait_for_read(&server, reads);
        }
        socket.read_exact(&mut [0; 2]).unwrap();
    }
    assert_eq!(server.received(), 30);
}

#[test]
fn without_delay_there_is_no_stall_but_up_to_a_read_a_buffer() {
    let mut server = Server::start(&["100"]);
    let begun = Instant::now();
    client_says(&server, &["-n", "-N100"]);
    // With the 40 ms of a delayed ACK for each it would be 4 s.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let reads = server.reads_of_next_client();
    assert!((100..=1500).contains(&reads), "{reads}");
}

#[test]
fn buffers_set_the_size_of_a_packet_at_both_ends() {
    let mut server = Server::start(&["20", "--buffers", "100", "--json"]);
    let port = server.port.to_string();
    let output = client(&["--buffers", "100", "localhost", &port, "20", "cork"]).output().unwrap();
    assert_line(&text(&output), &format!("20 packets of 200 bytes {TIME_AND_RATE} using TCP_CORK"));
    let told = server.json();
    assert_eq!((&told["bytes"], &told["packets"]), (&4000.into(), &20.into()));
}

/// A packet of this size is more than the sockets' buffers hold, so writes are partial and reads
/// are many.
#[test]
fn a_packet_larger_than_the_sockets_buffers_arrives_whole() {
    let mut server = Server::start(&["3", "--buffers", "1000000", "--json"]);
    let words = ["-s", "-N3", "--buffers", "1000000", "--json"];
    let told: serde_json::Value = serde_json::from_str(&client_says(&server, &words)).unwrap();
    assert_eq!(told["bytes"], 6_000_000);
    let received = server.json();
    assert_eq!((&received["bytes"], &received["ended"]), (&6_000_000.into(), &"complete".into()));
    assert!(received["reads"].as_u64().unwrap() > 3, "{received}");
}

#[test]
fn ipv4_ipv6_and_names_reach_the_server_that_listens_everywhere() {
    let mut server = Server::start(&["5"]);
    for host in ["127.0.0.1", "localhost", "::1"] {
        assert_line(&client_says(&server, &["-s", "-N5", host]), r"\d+\.\d{6}");
        server.reads_of_next_client();
    }
}

/// The client tries `::1` first for the name and must go on to the address that answers.
#[test]
fn every_address_of_a_name_is_tried() {
    for address in ["127.0.0.1", "::1"] {
        let server = Server::start(&["5", "--bind", address]);
        let output = run_client(&server, &["-s", "-N5", "localhost"]);
        // `localhost` need not have an IPv6 address.
        if address == "127.0.0.1" || output.status.success() {
            assert_line(&text(&output), r"\d+\.\d{6}");
        }
    }
}

#[test]
fn the_client_is_greeted_by_the_name_of_its_host() {
    let mut server = Server::start(&["1"]);
    client_says(&server, &["-s", "-N1", "127.0.0.1"]);
    assert_eq!(server.line(), "server: waiting for connection");
    let expected = dns_lookup::lookup_addr(&[127, 0, 0, 1].into());
    let expected = expected.unwrap_or_else(|_| "127.0.0.1".to_owned());
    assert_eq!(server.line(), format!("server: accept from {expected}"));
}

#[test]
fn the_server_goes_on_until_its_last_connection() {
    let mut server = Server::start(&["2", "--connections", "3"]);
    for _ in 0..3 {
        client_says(&server, &["-s", "-N2"]);
        assert_eq!(server.reads_of_next_client(), 2);
    }
    assert_eq!(server.end(), (Some(0), String::new(), String::new()));
}

#[test]
fn options_on_the_replies_change_nothing_of_what_arrives() {
    for words in [&["no_delay"][..], &["cork"], &["30", "no_delay"], &["30", "cork"]] {
        let mut server = Server::start(words);
        client_says(&server, &["-c", "-N30"]);
        assert_eq!(server.reads_of_next_client(), 30, "{words:?}");
    }
}

#[test]
fn a_rate_is_kept_with_a_server_that_answers() {
    let server = Server::start(&["21"]);
    let begun = Instant::now();
    client_says(&server, &["-n", "-N21", "--rate=100"]);
    // Packet 20 is due 200 ms after packet 0.
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_millis(200), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
}

#[test]
fn a_rate_is_measured_by_a_server_that_does_not_answer() {
    let mut server = Server::start(&["11", "rate"]);
    client_says(&server, &["-s", "-N11", "-r", "100", "--no_reply"]);
    assert_eq!(server.reads_of_next_client(), 11);
    let [min, max, average] = intervals(&server.line());
    assert!(min <= average && average <= max && max > Duration::ZERO);
}

#[test]
fn intervals_are_those_between_packets() {
    let mut server = Server::start(&["3", "rate"]);
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    assert_eq!(server.line(), "server: waiting for connection");
    assert!(server.line().starts_with("server: accept from "));
    for _ in 0..3 {
        let reads = calls(server.pid()).0;
        socket.write_all(&[b'x'; 30]).unwrap();
        wait_for_read(&server, reads);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.received(), 3);
    let [min, _, _] = intervals(&server.line());
    // The time of a packet is taken just after its read was counted.
    assert!(min >= Duration::from_millis(20), "{min:?}");
}

/// Returns least, most and average of the server's line about the times between packets.
fn intervals(line: &str) -> [Duration; 3] {
    let pattern = Regex::new(r"^server: min=(\d+)ns, max=(\d+)ns, avg=(\d+)ns$").unwrap();
    let found = pattern.captures(line).unwrap_or_else(|| panic!("{line}"));
    [1, 2, 3].map(|nth| Duration::from_nanos(found[nth].parse().unwrap()))
}

/// Waits until the server has made another read than these.
fn wait_for_read(server: &Server, reads: u64) {
    let limit = Instant::now() + Duration::from_secs(5);
    while calls(server.pid()).0 == reads {
        assert!(Instant::now() < limit, "not read");
        thread::yield_now();
    }
}

/// What the experiment is about is `write(2)` and `read(2)`; the kernel does not count `send` and
/// `recv` here.
#[test]
fn both_ends_use_write_and_read() {
    let mut server = Server::start(&["100"]);
    let before = calls(server.pid());
    client_says(&server, &["-c", "-N100"]);
    server.reads_of_next_client();
    let after = calls(server.pid());
    assert!(after.0 - before.0 >= 100 && after.1 - before.1 >= 100, "{before:?} {after:?}");

    // A server that withholds the last reply keeps the client where it can be inspected.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let words = ["-n", "-N4", "-p", &port, "127.0.0.1"];
    let mut waiting = client(&words).stderr(Stdio::null()).spawn().unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let at_first = calls(waiting.id());
    let mut packet = [0; 30];
    for _ in 0..3 {
        socket.read_exact(&mut packet).unwrap();
        socket.write_all(b"ok").unwrap();
    }
    socket.read_exact(&mut packet).unwrap();
    // The last call or two may not be counted yet.
    let at_last = calls(waiting.id());
    drop(socket);
    assert_eq!(waiting.wait().unwrap().code(), Some(1));
    assert!((40..=60).contains(&(at_last.1 - at_first.1)), "{at_first:?} {at_last:?}");
    assert!(at_last.0 - at_first.0 >= 3, "{at_first:?} {at_last:?}");
}

/// Returns the calls of read(2) and the like, and of write(2) and the like, of a process.
fn calls(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
    };
    (value("syscr:"), value("syscw:"))
}
