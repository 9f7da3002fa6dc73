//! `uncork doctor` on live processes: real connections on loopback, real kernels.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::live::{alone, ask, doctor, json, kinds, may_trace, traced};

/// Starts a server that answers each octet by calling `answer`, which writes 300 octets.
fn serve(answer: impl Fn(&mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0];
        while matches!(stream.read(&mut request), Ok(1)) {
            answer(&mut stream);
        }
    });
    address
}

fn in_two(stream: &mut TcpStream) {
    stream.write_all(&[b'h'; 100]).unwrap();
    stream.write_all(&[b'b'; 200]).unwrap();
}

#[test]
fn two_writes_meet_the_delayed_ack_and_both_ends_are_named() {
    let _alone = alone();
    uncork_calm::asserted("two_writes_meet_the_delayed_ack_and_both_ends_are_named", || {
        if !may_trace() {
            return;
        }
        let (took, report, code) = traced(|| ask(serve(in_two), 20));
        assert_eq!((kinds(&report), code), (vec!["nagle_delayed_ack"], 1), "{report:#}");
        let connection = &report["connections"][0];
        let finding = &connection["findings"][0];
        assert_eq!(finding["bytes_held_by"], "server");
        assert_eq!(finding["ack_held_by"], "client");
        for end in ["client", "server"] {
            let process = &connection[end]["process"];
            assert_eq!(process["pid"], std::process::id(), "{end}: {process}");
            assert!(process["fd"].is_number(), "{end}: {process}");
        }
        // All time but the exchange itself is lost: without stalls that takes a millisecond or two.
        let lost = connection["lost_ms"].as_f64().unwrap();
        let took = took.as_secs_f64() * 1e3;
        assert!(lost > took * 0.9 && lost < took * 1.02, "{lost} of {took} ms");
        assert_eq!(connection["requests"], 20);
        let events = finding["examples"][0]["events"].as_array().unwrap();
        assert!(events.iter().any(|event| event["what"] == "ack_timer"), "{finding:#}");
    });
}

#[test]
fn what_is_cured_or_well_gets_no_finding() {
    let _alone = alone();
    uncork_calm::asserted("what_is_cured_or_well_gets_no_finding", || {
        if !may_trace() {
            return;
        }
        let (_, report, code) = traced(|| {
            ask(
                serve(|stream| {
                    stream.set_nodelay(true).unwrap();
                    in_two(stream);
                }),
                50,
            );
            ask(serve(|stream| stream.write_all(&[b'x'; 300]).unwrap()), 50);
        });
        assert_eq!((kinds(&report), code), (vec![], 0), "{report:#}");
        assert_eq!(report["summary"]["connections"], 2);
    });
}

#[test]
fn a_corked_tail_costs_the_kernels_200_ms() {
    let _alone = alone();
    uncork_calm::asserted("a_corked_tail_costs_the_kernels_200_ms", || {
        if !may_trace() {
            return;
        }
        let cork = |stream: &mut TcpStream| {
            rustix::net::sockopt::set_tcp_cork(&*stream, true).unwrap();
            in_two(stream);
        };
        let (took, report, code) = traced(|| ask(serve(cork), 4));
        assert_eq!((kinds(&report), code), (vec!["cork_timeout"], 1), "{report:#}");
        let lost = report["summary"]["lost_ms"].as_f64().unwrap();
        let took = took.as_secs_f64() * 1e3;
        assert!(lost > took * 0.9 && lost < took * 1.02, "{lost} of {took} ms");
    });
}

#[test]
fn a_slow_program_is_told_from_tcp() {
    let _alone = alone();
    uncork_calm::asserted("a_slow_program_is_told_from_tcp", || {
        if !may_trace() {
            return;
        }
        let slow = |stream: &mut TcpStream| {
            thread::sleep(Duration::from_millis(45));
            stream.write_all(&[b'x'; 300]).unwrap();
        };
        let (_, report, _) = traced(|| ask(serve(slow), 8));
        assert_eq!(kinds(&report), ["application"], "{report:#}");
        assert_eq!(report["summary"]["stalls"], 0);
    });
}

#[test]
fn nodelay_that_is_set_only_after_the_stall_is_named() {
    let _alone = alone();
    uncork_calm::asserted("nodelay_that_is_set_only_after_the_stall_is_named", || {
        if !may_trace() {
            return;
        }
        let late = |stream: &mut TcpStream| {
            in_two(stream);
            thread::sleep(Duration::from_millis(10));
            stream.set_nodelay(true).unwrap();
            stream.set_nodelay(false).unwrap();
        };
        let (_, report, _) = traced(|| ask(serve(late), 8));
        let kinds = kinds(&report);
        assert!(kinds.contains(&"nodelay_not_in_force"), "{report:#}");
        assert!(kinds.contains(&"nagle_delayed_ack"), "{report:#}");
    });
}

/// An unmodified program as the client: bash writes each printf separately.
fn client_in_bash(address: SocketAddr) -> String {
    format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; for i in 1 2 3 4 5 6 7 8; do printf a >&3; printf b >&3; \
         read -r -N 1 -u 3; done",
        address.port()
    )
}

/// Answers each second octet with one.
fn pairs() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 2];
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(b"!").unwrap();
        }
    });
    address
}

#[test]
fn a_command_is_traced_from_its_start_to_its_end() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let script = client_in_bash(pairs());
    let output = doctor(&["--json", "--", "bash", "-c", &script]).output().unwrap();
    let report = json(&output);
    assert_eq!(kinds(&report), ["nagle_delayed_ack"], "{report:#}");
    let client = &report["connections"][0]["client"]["process"];
    assert_eq!(client["name"], "bash", "{report:#}");
    assert_eq!(report["connections"][0]["findings"][0]["bytes_held_by"], "client");
    // The process that delayed the ACK is named although it is not traced.
    let server = &report["connections"][0]["server"]["process"];
    assert_eq!(server["pid"], std::process::id(), "{report:#}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn without_the_capabilities_it_says_which_and_goes_on_by_asking() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let copy = tempfile::Builder::new().prefix("uncork").tempfile_in("/tmp").unwrap();
    std::fs::copy(common::UNCORK, copy.path()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(copy.path(), mode).unwrap();
    // A file that any process has open for writing cannot be executed.
    let program = copy.into_temp_path();
    let script = client_in_bash(pairs());
    let output = Command::new("setpriv")
        .args(nobody)
        .arg(&program)
        .args(["doctor", "--json", "--", "bash", "-c", &script])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    for part in ["CAP_BPF and CAP_PERFMON", "setcap cap_bpf,cap_perfmon", "going on without"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert_eq!(kinds(&json(&output)), ["nagle_delayed_ack"], "{errors}");

    let init = Command::new("setpriv")
        .args(nobody)
        .arg(&program)
        .args(["doctor", "--pid", "1", "--for", "1s"])
        .output()
        .unwrap();
    assert_eq!(init.status.code(), Some(3), "{}", String::from_utf8_lossy(&init.stderr));
}

#[test]
fn a_process_that_is_not_there_and_a_command_that_is_not_found_have_their_codes() {
    let output = doctor(&["--pid", "2147483647"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = doctor(&["--", "no-such-command-here"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", String::from_utf8_lossy(&output.stderr));
}
