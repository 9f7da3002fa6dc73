//! The delayed-ACK experiment, with real runs of both programs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod namespaces;
mod pair;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use namespaces::{Capture, HERE, Namespaces};
use pair::{Server, ack, client, client_in, delay_ms, gone, send};

use crate::common::refused;

/// What the reference run must show depends on the kernel that it runs on.
#[test]
fn the_reference_run_has_a_line_for_each_segment_and_a_verdict() {
    uncork_calm::asserted("the_reference_run_has_a_line_for_each_segment_and_a_verdict", || {
        let mut server = Server::start("-b 1k -D -s 50000 --connections 1");
        let summary = client(&server, "-b 1k -t 3 localhost").end().pop().unwrap();
        let (segments, verdict) = server.connection();
        assert!((30..=61).contains(&segments.len()), "{}", segments.len());
        for (index, segment) in segments.iter().enumerate() {
            assert_eq!(segment["number"], index as u64 + 1);
            assert_eq!(
                (&segment["first_write"], &segment["bytes"]),
                (&segment["number"], &1024.into())
            );
            assert!(delay_ms(segment) > 0.0, "{segment}");
        }
        assert_eq!(summary["ended_by"], "the time");
        assert!(summary["bytes"].as_u64().unwrap() <= verdict["bytes"].as_u64().unwrap());
        assert_eq!(verdict["ended_by"], "the client");
        assert_eq!(verdict["verdict"]["segments"], segments.len() as u64);
        match verdict["local_kernel"]["mss_boundary"].as_str().unwrap() {
            // Reads send the ACKs, so a busy machine that delays the reader makes one late.
            "after" => {
                let late = verdict["verdict"]["late"].as_u64().unwrap();
                assert!(late * 10 <= segments.len() as u64, "{verdict}");
                let quiet = late == 0;
                assert_eq!(verdict["verdict"]["kind"] == "quick_throughout", quiet, "{verdict}");
            }
            "before" => assert_eq!(verdict["verdict"]["kind"], "quick_then_late", "{verdict}"),
            _ => {}
        }
        assert_eq!(server.end(), (Some(0), String::new()));
    });
}

/// No read empties the receive buffer, so none sends an ACK: only the quick-ACK credits do.
#[test]
fn a_reader_that_stays_behind_shows_the_credits() {
    uncork_calm::asserted("a_reader_that_stays_behind_shows_the_credits", || {
        let mut server = Server::start("-b 1k -D -s 100000 --connections 1");
        client(&server, "-b 1k -L 4k -t 3.5 127.0.0.1").end();
        let (segments, verdict) = server.connection();
        let judged = &verdict["verdict"];
        assert_eq!(
            (&judged["kind"], &judged["credits_spent"]),
            (&"quick_then_late".into(), &true.into())
        );
        let quick = judged["quick_at_first"].as_u64().unwrap() as usize;
        assert!((16..=20).contains(&quick), "{verdict}");
        assert!(segments[..quick].iter().all(|segment| delay_ms(segment) < 20.0));
        assert!(segments[quick..].iter().filter(|segment| delay_ms(segment) > 35.0).count() >= 8);
        let sentence = verdict["sentence"].as_str().unwrap();
        assert!(sentence.starts_with(&format!("ACKs 1 to {quick} in ")), "{sentence}");
        assert!(sentence.ends_with("ms: quick-ACK credits spent"), "{sentence}");
    });
}

#[test]
fn a_small_window_has_fewer_credits() {
    uncork_calm::asserted("a_small_window_has_fewer_credits", || {
        let mut server = Server::start("-b 1k -D -s 100000 --connections 1 --quiet");
        client(&server, "-b 1k -L 4k -r 16k -t 2.5 127.0.0.1").end();
        let (segments, verdict) = server.connection();
        assert!(segments.is_empty(), "{segments:?}");
        assert_eq!(verdict["verdict"]["credits_spent"], true, "{verdict}");
        // rcv_wnd / (2 * rcv_mss): 16 KiB by 2 KiB.
        let quick = verdict["verdict"]["quick_at_first"].as_u64().unwrap();
        assert!((7..=12).contains(&quick), "{verdict}");
    });
}

/// A read leaves TCP_QUICKACK as it was when the data arrived. Where it is 0, the kernel holds the
/// ACK back for a reply to carry it, and the server's times must show that.
#[test]
fn ack_delays_agree_with_the_receivers_quickack() {
    uncork_calm::asserted("ack_delays_agree_with_the_receivers_quickack", || {
        let mut server = Server::start("-b 1k -D -s 100000 --connections 1");
        let said = client(&server, "-b 1k -t 3 --quickack off --trace-quickack 127.0.0.1").end();
        let (segments, _) = server.connection();
        let reads: Vec<_> = said.iter().filter(|object| object["event"] == "read").collect();
        assert!(reads.len() >= 15 && segments.len() >= 15, "{} {}", reads.len(), segments.len());
        let pairs: Vec<_> = reads
            .iter()
            .zip(&segments)
            .map(|(read, segment)| (read["quickack_after"].as_bool().unwrap(), delay_ms(segment)))
            .collect();
        let agreeing = pairs.iter().filter(|(quick, delay)| *quick == (*delay < 20.0)).count();
        // A reader that is woken late reads the option too late. That is rare.
        assert!(agreeing * 10 >= pairs.len() * 9, "{pairs:?}");
        for state in [true, false] {
            assert!(pairs.iter().filter(|(quick, _)| *quick == state).count() >= 5, "{pairs:?}");
        }
    });
}

#[test]
fn a_receiver_that_talks_shows_how_its_kernel_counts() {
    uncork_calm::asserted("a_receiver_that_talks_shows_how_its_kernel_counts", || {
        let mut server = Server::start("-b 1k -D -s 100000 --connections 1 --quiet");
        client(&server, "-b 1k -L 4k -t 3.5 --talk 9 ::1").end();
        let connection = server.event("connection");
        assert!(connection["peer"].as_str().unwrap().starts_with("[::1]:"), "{connection}");
        let verdict = server.event("verdict");
        assert_eq!(verdict["verdict"]["receiver_segments"], 9, "{verdict}");
        let (seen, expected) =
            (&verdict["verdict"]["credit_counting"], &verdict["local_kernel"]["credit_counting"]);
        if expected != "unknown" {
            assert_eq!(seen, expected, "{verdict}");
        }
    });
}

/// The kernel counts its late ACKs, and tcpdump captures them: all three accounts must agree.
#[test]
fn the_verdict_is_what_a_capture_shows() {
    uncork_calm::asserted("the_verdict_is_what_a_capture_shows", || {
        let test = "the_verdict_is_what_a_capture_shows";
        let Some(pair) = Namespaces::make(test) else { return };
        let mut server = Server::start_in(Some(&pair.here), "-b 1k -D -s 100000 --connections 1");
        let capture = Capture::start(&pair.here, server.port);
        let before = Namespaces::counter(&pair.there, "DelayedACKs");
        client_in(Some(&pair.there), &server, &format!("-b 1k -L 4k -t 4 {HERE}")).end();
        let delayed = Namespaces::counter(&pair.there, "DelayedACKs") - before;
        let (segments, verdict) = server.connection();
        let captured = capture.ack_delays_ms();

        let timed: Vec<_> = segments.iter().map(delay_ms).collect();
        assert!(timed.len() >= 30 && captured.len() >= timed.len(), "{verdict}");
        for (number, (timed, captured)) in timed.iter().zip(&captured).enumerate() {
            let difference = (timed - captured).abs();
            assert!(difference < 1.0, "segment {}: {timed} and {captured} ms", number + 1);
        }
        let judged = &verdict["verdict"];
        assert_eq!(judged["kind"], "quick_then_late", "{verdict}");
        // An ACK at the threshold may fall on either side of it.
        let seen = captured[..timed.len()].iter().filter(|delay| **delay > 20.0).count() as u64;
        assert!(judged["late"].as_u64().unwrap().abs_diff(seen) <= 1, "{seen}, {verdict}");
        // The last one may still have been in flight when the client ended.
        assert!(judged["late"].as_u64().unwrap().abs_diff(delayed) <= 1, "{delayed}, {verdict}");
    });
}

#[test]
fn usr1_pauses_all_connections() {
    let mut server = Server::start("-b 100 -D -s 20000 -R 1 --quiet --connections 1");
    let reader = client(&server, "-b 100 -t 3 --trace-quickack localhost");
    server.event("connection");
    std::thread::sleep(Duration::from_millis(700));
    server.signal(Signal::SIGUSR1);
    let said = reader.end();
    let times: Vec<_> = said.iter().filter_map(|read| read["at_s"].as_f64()).collect();
    let gaps: Vec<_> = times.windows(2).map(|two| two[1] - two[0]).collect();
    let longest = gaps.iter().copied().fold(0.0, f64::max);
    assert!((0.95..1.6).contains(&longest), "{longest}");
    // The connection goes on after the pause.
    assert!(times.last().unwrap() - 0.7 - longest > 0.2, "{times:?}");
}

#[test]
fn each_connection_has_a_process_of_its_own_and_none_is_left() {
    let mut server = Server::start("-b 100 -D -s 10000 --quiet --connections 2");
    let readers = [client(&server, "-t 1 localhost"), client(&server, "-t 1 localhost")];
    let mut pids: Vec<_> =
        (0..2).map(|_| server.event("connection")["pid"].as_u64().unwrap()).collect();
    pids.push(u64::from(server.pid()));
    pids.dedup();
    assert_eq!(pids.len(), 3, "{pids:?}");
    readers.into_iter().for_each(|reader| drop(reader.end()));
    assert_eq!(server.end(), (Some(0), String::new()));
    assert!(pids[..2].iter().all(|pid| gone(*pid)), "{pids:?}");
}

#[test]
fn a_killed_client_ends_its_connection_and_nothing_else() {
    let mut server = Server::start("-b 1k -D -s 10000 --quiet");
    let reader = client(&server, "-t 60 localhost");
    let pid = server.event("connection")["pid"].as_u64().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    reader.kill();
    assert_eq!(server.event("verdict")["ended_by"], "the client");
    assert!(gone(pid), "not reaped");
    // The next client is served as if nothing had happened.
    client(&server, "-t 0.3 localhost").end();
    assert_eq!(server.event("verdict")["connection"], "2");
}

#[test]
fn the_end_of_the_server_is_the_end_of_all() {
    for (signal, status) in [(Signal::SIGINT, Some(0)), (Signal::SIGKILL, None)] {
        let mut server = Server::start("-b 1k -D -s 10000 --quiet");
        let reader = client(&server, "-t 60 localhost");
        let pid = server.event("connection")["pid"].as_u64().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        server.signal(signal);
        assert_eq!(server.event("verdict")["ended_by"], "a signal");
        assert_eq!(server.end().0, status);
        assert!(gone(pid), "{signal}");
        let summary = reader.end().pop().unwrap();
        assert_eq!(summary["ended_by"], "the server", "{signal}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{signal}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_process_of_a_connection_that_is_killed_is_told_of() {
    let mut server = Server::start("-b 1k -D -s 10000 --quiet --connections 1");
    let reader = client(&server, "-t 60 localhost");
    let pid = server.event("connection")["pid"].as_u64().unwrap();
    send(pid.try_into().unwrap(), Signal::SIGKILL);
    reader.end();
    let (status, complaint) = server.end();
    assert_eq!(status, Some(2));
    assert_eq!(complaint, "uncork: the process of connection 1 was ended by signal 9\n");
}

#[test]
fn nagle_shows_as_time_before_the_departure() {
    uncork_calm::asserted("nagle_shows_as_time_before_the_departure", || {
        let mut server = Server::start("-b 100 -s 10000 --connections 1");
        client(&server, "-b 64k -L 64k -t 2 127.0.0.1").end();
        let (segments, _) = server.connection();
        let held = |segment: &serde_json::Value| segment["held_us"].as_f64().unwrap() > 5000.0;
        // Once ACKs are late, small writes wait for them and leave together.
        let together = segments.iter().filter(|segment| {
            segment["first_write"].as_u64().unwrap() < segment["last_write"].as_u64().unwrap()
        });
        assert!(together.count() >= 3, "{segments:?}");
        assert!(!segments.iter().take(5).any(held), "{segments:?}");
    });
}

#[test]
fn a_bulk_transfer_loses_no_byte_and_keeps_time() {
    uncork_calm::asserted("a_bulk_transfer_loses_no_byte_and_keeps_time", || {
        let mut server = Server::start("-b 16k -r 4m --quiet --connections 1");
        let summary = client(&server, "-b 16k -t 1.5 localhost").end().pop().unwrap();
        let verdict = server.event("verdict");
        let (sent, read) = (verdict["bytes"].as_u64().unwrap(), summary["bytes"].as_u64().unwrap());
        assert!(read <= sent && sent - read <= 1 << 20, "{read} of {sent}");
        let rate = read as f64 / 1.5 / f64::from(1 << 20);
        assert!((3.0..=4.5).contains(&rate), "{rate} MB/s");
        assert_eq!(verdict["untimed"], 0, "{verdict}");
    });
}

#[test]
fn failures_are_one_sentence_and_2() {
    let taken = TcpListener::bind(("::", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(ack(None).args(["server", "-p", &port]), 2, "Address already in use; stop the program");
    refused(
        ack(None).args(["server", "--bind", "no.such.host.invalid"]),
        2,
        "cannot find the host",
    );
    drop(taken);
    let client = |words: &[&str]| {
        let mut command = ack(None);
        command.arg("client").args(words);
        command
    };
    refused(&mut client(&["-p", &port, "127.0.0.1"]), 2, "Connection refused; is `uncork ack");
    refused(&mut client(&["no.such.host.invalid"]), 2, "cannot find the host");
    refused(&mut client(&["-c", "1000", "localhost"]), 2, "cannot run on CPU 1000");
    let mut stray = ack(None);
    stray.arg("server").env("UNCORK_ACK_CONNECTION", "1");
    refused(&mut stray, 2, "standard input is not a TCP connection");
}

#[test]
fn a_bad_command_line_is_2_and_output_that_nobody_reads_is_none() {
    let status = |words: &[&str]| ack(None).args(words).output().unwrap().status.code();
    assert_eq!(status(&["server", "-b", "0"]), Some(2));
    assert_eq!(status(&["client"]), Some(2));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = ack(None).args(["server", "-p", "0"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
