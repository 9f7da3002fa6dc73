//! What a running stack answers to questions.

use std::io::{Read as _, Write as _};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;
use uncork_netns::testing::is_skipped;

use crate::common::{output, refused, stdout, uncork};
use crate::stack::place::{OURS, Place, Server, until};

fn ask(server: &Server) -> Value {
    let pid = server.pid().to_string();
    let done = output(uncork().args(["stack", "stat", "--json", &pid]));
    assert_eq!(done.status.code(), Some(0));
    serde_json::from_str(&stdout(&done)).unwrap()
}

#[test]
fn who_waits_for_a_window_for_a_request_and_why_is_shown() {
    if is_skipped("who_waits_for_a_window_for_a_request_and_why_is_shown") {
        return;
    }
    let place = Place::veth("ststat");
    let server = place.serve("http --bytes 1000000000");
    let mut greedy = place.connect(OURS[0], 8080);
    greedy.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let idle = place.connect(OURS[1], 8080);
    let found = |report: &Value, local: String| {
        let connections = report["connections"].as_array().unwrap();
        connections.iter().find(|one| one["remote"] == local.as_str()).cloned().unwrap_or_default()
    };
    let (greedys, idles) =
        (greedy.local_addr().unwrap().to_string(), idle.local_addr().unwrap().to_string());
    // Nothing is in flight any more: all that fits the window has arrived.
    let report = until(
        || ask(&server),
        |report| {
            let one = found(report, greedys.clone());
            let is_held = one["waits_for"] == "window" && one["in_flight"] == 0;
            is_held && one["device_bytes"] == 0 && found(report, idles.clone()).is_object()
        },
    );
    assert_eq!(
        (report["does"].as_str(), report["device"].as_str()),
        (Some("serve http"), Some("eth0"))
    );
    assert_eq!(report["counts"]["passive_opens"], 2);
    // The device counts its losses, and there was no reason for any here.
    assert_eq!(report["frames_lost"], 0);
    let one = found(&report, greedys.clone());
    assert_eq!(one["state"], "ESTAB");
    assert!(one["held_bytes"].as_u64().unwrap() > 0, "{one:#}");
    assert!(one["cwnd"].as_u64().unwrap() >= 10 && one["srtt_us"].as_u64().is_some(), "{one:#}");
    let other = found(&report, idles.clone());
    assert_eq!(
        (other["state"].as_str(), other["waits_for"].as_str()),
        (Some("ESTAB"), Some("application"))
    );

    let pid = server.pid().to_string();
    let table = stdout(&output(uncork().args(["stack", "stat", &pid])));
    let row = |remote: &str| table.lines().find(|line| line.contains(remote)).unwrap().to_owned();
    assert!(row(&greedys).contains("  window  ") && row(&greedys).contains("ESTAB"), "{table}");
    assert!(row(&idles).contains("  application  "), "{table}");
    assert!(
        table.starts_with(&format!("process {pid}: serve http at 10.92.0.2:8080, ")),
        "{table}"
    );

    // The transfer goes on where it was held.
    let mut more = vec![0; 50_000_000];
    greedy.read_exact(&mut more).unwrap();
    drop((greedy, idle));
    until(|| ask(&server)["connections"].as_array().unwrap().len(), |&count| count == 0);
    server.stop();
}

/// Returns the most octets of a connection seen in the device, which is as fast as most networks.
fn most_in_device(place: &Place, line: &str) -> u64 {
    let server = place.serve(line);
    let mut greedy = place.connect(OURS[0], 8080);
    greedy.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut octets = vec![0; 1 << 16];
            while !over.load(Relaxed) {
                assert!(greedy.read(&mut octets).unwrap() > 0, "the body has an end");
            }
        });
        let in_device = || {
            let report = ask(&server);
            report["connections"][0]["device_bytes"].as_u64().unwrap_or(0)
        };
        let most = (0..30).map(|_| in_device()).max().unwrap();
        over.store(true, Relaxed);
        most
    });
    drop(greedy);
    server.stop();
    most
}

#[test]
fn a_small_queue_is_as_long_as_ever_whatever_it_was_told() {
    if is_skipped("a_small_queue_is_as_long_as_ever_whatever_it_was_told") {
        return;
    }
    let place = Place::veth("stsmall");
    let mut tc = place.ours().command("tc");
    tc.args("qdisc add dev eth0 root tbf rate 1gbit burst 70000 limit 10000000".split(' '));
    assert!(tc.status().unwrap().success());
    let body = "http --bytes 100000000000";
    let (least, usual) = (2 * 1514, 128 << 10);
    let most = most_in_device(&place, body);
    assert!(most > 4 * least && most <= usual, "{most} without an option");
    let most = most_in_device(&place, &format!("{body} --small-queue 1"));
    assert!(most > 0 && most <= least, "{most} of two segments");
    let most = most_in_device(&place, &format!("{body} --small-queue 10000"));
    assert!(most > least && most <= 10_000, "{most} of 10000");
}

#[test]
fn a_stack_is_asked_at_the_place_that_it_was_told() {
    if is_skipped("a_stack_is_asked_at_the_place_that_it_was_told") {
        return;
    }
    let place = Place::tap("stsock");
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("asked");
    // A socket file left by a killed stack is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let server = place.serve(&format!("discard --socket {}", socket.display()));
    let done = output(uncork().args(["stack", "stat", "--socket"]).arg(&socket));
    assert!(
        stdout(&done).contains("serve discard at 10.92.0.2:9, [fd92::2]:9"),
        "{}",
        stdout(&done)
    );
    assert!(stdout(&done).ends_with("no connections\n"));
    let pid = server.pid().to_string();
    refused(uncork().args(["stack", "stat", &pid]), 4, "no stack of this user runs in process");
    server.stop();
    refused(
        uncork().args(["stack", "stat", "--socket"]).arg(&socket),
        1,
        "no stack can be asked at",
    );
}

/// Users need not look for process ids first.
#[test]
fn those_that_run_are_listed_with_number_and_name() {
    if is_skipped("those_that_run_are_listed_with_number_and_name") {
        return;
    }
    let (one, other) = (Place::tap("stlist"), Place::tap("stlist2"));
    let servers = [one.serve("discard"), other.serve("echo")];
    let list = output(uncork().args(["stack", "stat"]));
    let all: Value =
        serde_json::from_str(&stdout(&output(uncork().args(["stack", "stat", "--json"])))).unwrap();
    for server in servers {
        let pid = server.pid();
        let row = format!("{pid}  uncork   uncork stack serve or connect");
        let is_it = |line: &str| line.split_whitespace().eq(row.split_whitespace());
        assert!(stdout(&list).lines().any(is_it), "{}", stdout(&list));
        let entry = all.as_array().unwrap().iter().find(|one| one["pid"] == pid);
        assert_eq!(entry.unwrap()["program"], "uncork", "{all:#}");
        server.stop();
    }
    assert_eq!(list.status.code(), Some(0));
    assert!(stdout(&list).starts_with("these run: uncork stack stat PID"), "{}", stdout(&list));
}

#[test]
fn other_users_may_not_ask() {
    if is_skipped("other_users_may_not_ask") {
        return;
    }
    let place = Place::tap("stother");
    let server = place.serve("discard");
    let socket = format!("/run/uncork/stack-{}.sock", server.pid());
    let (_kept, mut nobody) = crate::common::uncork_of_nobody();
    refused(nobody.args(["stack", "stat", "--socket", &socket]), 3, "belongs to another user");
    let (_kept, mut nobody) = crate::common::uncork_of_nobody();
    let pid = server.pid().to_string();
    refused(nobody.args(["stack", "stat", &pid]), 3, "is another user's: ask as that one");
    server.stop();
}

#[test]
fn another_user_s_server_is_not_found_by_root() {
    if is_skipped("another_user_s_server_is_not_found_by_root") {
        return;
    }
    let place = Place::veth("stothers");
    let (kept, _) = crate::common::uncork_of_nobody();
    let mut command = place.ours().command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
        .args(["--inh-caps=+net_raw", "--ambient-caps=+net_raw"])
        .arg(kept.path().join("uncork"));
    command.args(["stack", "serve", "discard"]).args(place.device());
    let mut server = Server::start(command.env_remove("XDG_RUNTIME_DIR"));
    assert_eq!(ask(&server)["does"], "serve discard");
    let list = output(uncork().args(["stack", "stat"]));
    assert!(stdout(&list).contains(&server.pid().to_string()), "{}", stdout(&list));
    server.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(server.end().code(), Some(0));
    let _ = std::fs::remove_dir("/tmp/uncork-65534");
}

#[test]
fn without_a_stack_there_is_nobody_to_ask() {
    // In a directory of its own, where no user's stack is.
    let (_kept, mut command) = if nix::unistd::geteuid().is_root() {
        crate::common::uncork_of_nobody()
    } else {
        (tempfile::tempdir().unwrap(), uncork())
    };
    let empty = tempfile::tempdir().unwrap();
    command.env("XDG_RUNTIME_DIR", empty.path()).args(["stack", "stat"]);
    refused(&mut command, 1, "no stack of this user runs");
}
