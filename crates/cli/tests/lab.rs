//! `uncork lab`: it measures what it says, and leaves nothing when it ends, however it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{UNCORK, output, real, refused, stderr, stdout, uncork};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

/// Returns a lock for a test that makes namespaces, so that no other test clears away what it has
/// left or adds load to its measurements. Without the privilege a test says so and is skipped;
/// where everything is tested, it fails.
fn alone(test: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if uncork_netns::testing::is_skipped(test) {
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Lists the namespaces that this process has made.
fn namespaces_of(pid: u32) -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let all = String::from_utf8(listed.stdout).unwrap();
    let names = all.lines().filter_map(|line| line.split_whitespace().next());
    let ours = format!("uncork-{pid}-");
    names.filter(|name| name.starts_with(&ours)).map(str::to_owned).collect()
}

/// Counts the journals of what uncork tune changed for this process.
fn journals_of(pid: u32) -> usize {
    let ours = format!("uncork-{pid}-");
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&ours)).count()
}

fn lab(line: &str) -> Command {
    let mut command = uncork();
    command.arg("lab").args(line.split_whitespace());
    command
}

#[test]
fn who_may_not_make_namespaces_is_told_what_is_missing() {
    for name in ["nodelay", "tsq", "quickack", "link"] {
        let mut command = Command::new(UNCORK);
        if geteuid().is_root() {
            command = Command::new("setpriv");
            command.args(["--bounding-set=-all", "--inh-caps=-all", UNCORK]);
        }
        command.args(["lab", name]);
        let sentence = format!(
            "uncork: uncork lab {name} makes network namespaces, for which it lacks CAP_NET_ADMIN \
             and CAP_NET_RAW and CAP_SYS_ADMIN: run it as root, for example with `sudo uncork lab \
             {name}`\n"
        );
        refused(&mut command, 3, &sentence);
    }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (line, says) in [
        ("link --loss 2", "not a share from 0 to 1"),
        ("link --rate 10", "not a rate"),
        ("link --delay 11s", "more than 10s"),
        ("link --queue 5", "--rate"),
        ("tsq --congestion vegas", "vegas"),
        ("quark", "quark"),
    ] {
        let done = output(&mut lab(line));
        assert_eq!(done.status.code(), Some(2), "{line}");
        assert!(stderr(&done).contains(says), "{line}: {}", stderr(&done));
    }
}

/// The figures come from a short run on a machine that may be busy: the test compares only values
/// that are far apart.
#[test]
fn a_bulk_sender_with_small_queues_lets_a_ping_pass_and_loses_nothing() {
    let Some(_alone) = alone("a_bulk_sender_with_small_queues_lets_a_ping_pass_and_loses_nothing")
    else {
        return;
    };
    uncork_calm::asserted(
        "a_bulk_sender_with_small_queues_lets_a_ping_pass_and_loses_nothing",
        || {
            let directory = tempfile::tempdir().unwrap();
            let page = directory.path().join("page.html");
            let done = output(lab("tsq --quick --json --html").arg(&page));
            assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
            let measured: Value = serde_json::from_str(&stdout(&done)).unwrap();
            assert_eq!(measured["version"], 1);
            let rows = measured["compared"].as_array().unwrap();
            let row = |rate: u64, senders: u64, setting: &str| {
                let same = |row: &&Value| {
                    row["bottleneck"]["rate"] == rate
                        && row["senders"] == senders
                        && row["setting"] == setting
                };
                rows.iter().find(same).unwrap_or_else(|| panic!("{rate} {senders} {setting}"))
            };
            let number = |row: &Value, name: &str| row.pointer(name).unwrap().as_f64().unwrap();
            for senders in [1, 8] {
                let kernel = row(100_000_000, senders, "kernel");
                let small = row(100_000_000, senders, "tuned");
                let paced = row(100_000_000, senders, "paced");
                let ping = |row| number(row, "/ping/p50_ms");
                assert!(ping(small) * 3.0 < ping(kernel), "{small} {kernel}");
                assert!(ping(paced) < ping(small), "{paced} {small}");
                for row in [kernel, small, paced] {
                    let rate = number(row, "/throughput");
                    assert!((85e6..100e6).contains(&rate), "{row}");
                    assert!(
                        number(row, "/ping/count") > 20.0 && number(row, "/request/count") > 20.0
                    );
                    // The socket holds what the application has written and TCP has not sent. The
                    // kernel reads the two values without a lock, one after the other.
                    let sockets = number(row, "/queued/sockets/p50_bytes");
                    let unsent = number(row, "/queued/unsent/p50_bytes");
                    assert!(sockets > 0.0 && unsent < sockets * 1.2 + 64e3, "{row}");
                }
                // The ping waits for the queued bytes, and for little else.
                let queue = number(kernel, "/queued/backlog_p50_ms");
                assert!((ping(kernel) - queue).abs() < queue * 0.8 + 1.0, "{kernel}");
            }
            let eight = row(100_000_000, 8, "tuned");
            assert!(number(eight, "/least_share") > 0.8 && number(eight, "/largest_share") < 1.2);
            // uncork tune has set it, and the lab nothing.
            assert!(eight["settings"]["min_tso_segments"].is_null(), "{eight}");
            let tuned = eight["tuned"].to_string();
            for what in ["tcp_min_tso_segs", "tcp_limit_output_bytes", "tcp_notsent_lowat", "eth0"]
            {
                assert!(tuned.contains(what), "{what}: {tuned}");
            }
            assert_eq!(row(100_000_000, 8, "kernel")["tuned"].as_array().unwrap().len(), 0);
            let page = std::fs::read_to_string(page).unwrap();
            assert!(page.matches("<svg").count() >= 3 && page.contains("100 Mbit/s, 8 senders"));
            assert!(page.contains("tune small-queues") && page.contains("tcp_limit_output_bytes"));
            assert!(
                !page.contains("http://")
                    && !page.contains("https://")
                    && !page.contains("<script")
            );
        },
    );
}

/// Returns `uncork lab nodelay`, with the library and the programs that cargo builds beside it.
fn nodelay(more: &str) -> Command {
    real::built();
    let mut command = lab(&format!("nodelay {more}"));
    command.env_remove("UNCORK_LIBRARY");
    command
}

/// Stalled and unstalled times are far apart, and the number of segments does not depend on how
/// busy the machine is.
#[test]
fn small_writes_stall_are_a_storm_or_leave_as_one() {
    let Some(_alone) = alone("small_writes_stall_are_a_storm_or_leave_as_one") else { return };
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let done = output(nodelay("--quick --json --html").arg(&page));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let measured: Value = serde_json::from_str(&stdout(&done)).unwrap();
    assert_eq!(measured["version"], 1);
    let rows = measured["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 17);
    let two_cores = thread::available_parallelism().unwrap().get() > 1;
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap();
        let (who, asks, cut) = (text("who"), text("asks"), text("cut"));
        let one = |name: &str| row["one_core"][name].as_f64().unwrap();
        let writes = one("writes_per_packet");
        let stalls = who == "alone" && asks == "nothing" && cut != "single";
        // The first packets of a connection do not stall.
        assert_eq!(one("us_per_packet") > 25_000.0, stalls, "{row}");
        let segments = one("segments_per_packet");
        match (who, asks, cut) {
            ("alone", "nodelay", "buffers") => assert!(segments > writes / 5.0, "{row}"),
            // A payload joins a header that has not left yet (autocorking).
            ("alone", "nodelay", "header_payload") => {
                assert!(segments > 1.2 && segments <= 2.0, "{row}");
            }
            _ if stalls => assert!(segments >= 1.8, "{row}"),
            // The timer may push on a machine that does not let the client run.
            _ => assert!((1.0..1.2).contains(&segments), "{row}"),
        }
        if who != "alone" {
            assert!(one("reads_per_packet") < 1.2, "{row}");
        }
        for name in ["two_cores", "two_cores_spinning"] {
            assert_eq!(row[name].is_object(), two_cores && !stalls, "{name}: {row}");
        }
    }
    let published = rows.iter().filter(|row| row["published"].is_object()).count();
    assert_eq!(published, 4);
    let page = std::fs::read_to_string(page).unwrap();
    let places = if two_cores { 3 } else { 1 };
    assert!(page.matches("<svg").count() == 2 * places && page.contains("writev, TCP_NODELAY"));
    assert!(page.contains("uncork run --hold kernel") && page.contains("uncork run --hold user"));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"));
}

#[test]
fn what_nodelay_runs_ends_with_it_and_what_it_lacks_is_said() {
    let Some(_alone) = alone("what_nodelay_runs_ends_with_it_and_what_it_lacks_is_said") else {
        return;
    };
    let mut child = started_with(nodelay(""), 1);
    let name = namespaces_of(child.id()).remove(0);
    let runs = || Command::new("ip").args(["netns", "pids", &name]).output().unwrap().stdout;
    let start = Instant::now();
    while runs().iter().filter(|byte| **byte == b'\n').count() < 2 {
        assert!(start.elapsed() < Duration::from_secs(10), "neither client nor server");
        thread::sleep(Duration::from_millis(10));
    }
    let began = Instant::now();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(namespaces_of(child.id()), [""; 0]);

    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("uncork");
    common::copy_executable(std::path::Path::new(UNCORK), &copy);
    let sentence = "tcp_nodelay_client is not in";
    refused(Command::new(copy).args(["lab", "nodelay"]), 125, sentence);
}

/// Starts it, and returns when its namespaces exist.
fn started(command: Command) -> Child {
    started_with(command, 2)
}

fn started_with(mut command: Command, namespaces: usize) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while namespaces_of(child.id()).len() < namespaces {
        assert!(start.elapsed() < Duration::from_secs(10), "no namespaces");
        thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn nothing_is_left_when_it_is_interrupted_and_what_a_kill_leaves_goes_with_the_next_run() {
    let Some(_alone) = alone("nothing_is_left_when_it_is_interrupted") else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut child = started(lab("tsq --quick"));
        let pid = child.id();
        kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        assert_eq!(namespaces_of(pid), [""; 0], "{signal}");
        assert_eq!(journals_of(pid), 0, "{signal}");
    }
    let mut child = started(lab("tsq --quick"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(namespaces_of(child.id()).len(), 2);
    assert_eq!(journals_of(child.id()), 1);
    let done = output(&mut lab("link -- true"));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_eq!(namespaces_of(child.id()), [""; 0]);
    assert_eq!(journals_of(child.id()), 0);
}

/// Milliseconds until the far end refuses a connection: one round trip, without a server.
const REFUSED: &str = "import socket,time\nb=9e9\nfor _ in range(8):\n \
    t=time.perf_counter(); s=socket.socket(); s.settimeout(2)\n \
    try: s.connect(('10.79.0.2',9))\n except ConnectionRefusedError: pass\n \
    b=min(b,time.perf_counter()-t)\nprint(b*1000)";

fn round_trip_ms(options: &str) -> f64 {
    let mut command = lab(&format!("link {options} -- /usr/bin/python3 -c"));
    let done = output(command.arg(REFUSED));
    assert_eq!(done.status.code(), Some(0), "{options}: {}", stderr(&done));
    stdout(&done).trim().parse().unwrap()
}

#[test]
fn a_link_takes_the_delay_of_each_direction() {
    let Some(_alone) = alone("a_link_takes_the_delay_of_each_direction") else { return };
    let without = round_trip_ms("");
    let same = round_trip_ms("--delay 10ms") - without;
    assert!((19.0..23.0).contains(&same), "{same}");
    let different = round_trip_ms("--delay 5ms/20ms") - without;
    assert!((24.0..28.0).contains(&different), "{different}");
}

#[test]
fn what_becomes_of_frames_is_counted() {
    let Some(_alone) = alone("what_becomes_of_frames_is_counted") else { return };
    // Frames of an experimental EtherType (RFC 5342, appendix B.2): no host answers them.
    let send = "import socket,time\ns=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\n\
                s.bind(('eth0',0))\n\
                for _ in range(200): s.send(b'\\xff'*12+b'\\x88\\xb5'+b'x'*1000)\n\
                time.sleep(0.3)";
    let counts = |options: &str| {
        let mut command = lab(&format!("link --json {options} -- /usr/bin/python3 -c"));
        let done = output(command.arg(send));
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        let said = stderr(&done);
        let events: Vec<Value> =
            said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert_eq!(events[0]["event"], "up", "{said}");
        assert_eq!(events[0]["far"]["address"], "10.79.0.2");
        events.last().unwrap()["near"].clone()
    };
    let number = |counts: &Value, name: &str| counts[name].as_u64().unwrap();
    let lost = counts("--loss 0.5/0");
    assert!((60..140).contains(&number(&lost, "lost")), "{lost}");
    let twice = counts("--dup 0.5 --reorder 0.5");
    assert!((60..140).contains(&number(&twice, "duplicated")), "{twice}");
    assert!((60..140).contains(&number(&twice, "reordered")), "{twice}");
    let broken = counts("--corrupt 0.5/0");
    assert!((60..140).contains(&number(&broken, "corrupted")), "{broken}");
    let full = counts("--rate 100k --queue 5000");
    assert!(number(&full, "dropped") > 100, "{full}");
}

#[test]
fn a_link_ends_as_its_command_does_or_by_ctrl_c() {
    let Some(_alone) = alone("a_link_ends_as_its_command_does_or_by_ctrl_c") else { return };
    assert_eq!(output(lab("link -- sh -c").arg("exit 7")).status.code(), Some(7));
    assert_eq!(output(lab("link -- sh -c").arg("kill -9 $$")).status.code(), Some(137));
    let done = output(&mut lab("link -- no-such-program"));
    assert_eq!(done.status.code(), Some(127));
    assert!(stderr(&done).contains("no-such-program: not found in PATH"), "{}", stderr(&done));

    let mut child = started(lab("link"));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let names = namespaces_of(child.id());
    assert!(names.iter().any(|name| first.ends_with(name.as_str())), "{first}: {names:?}");
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.starts_with("near to far: ")), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(namespaces_of(child.id()), [""; 0]);
}

/// On a kernel since October 2023 the reference run has no late ACK, and a lagging reader shows
/// when the credits are spent; before that commit both have late ACKs.
#[test]
fn the_lab_shows_from_which_segment_on_acks_are_late() {
    let Some(_alone) = alone("the_lab_shows_from_which_segment_on_acks_are_late") else { return };
    uncork_calm::asserted("the_lab_shows_from_which_segment_on_acks_are_late", || {
        let done = output(&mut lab("quickack --quick --json"));
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        let document: Value = serde_json::from_str(&stdout(&done)).unwrap();
        let runs = document["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 7);
        for run in runs {
            let delays = run["ack_delays_ms"].as_array().unwrap();
            let replies = delays.len() as u64 / run["reply_segments"].as_u64().unwrap_or(1);
            let each_10_ms = run["client"].as_str().unwrap().ends_with("-s 10000");
            let most = if each_10_ms { 360 } else { 36 };
            assert!((most * 2 / 3..=most).contains(&replies), "{run}");
            let known = delays.iter().filter(|delay| delay.is_number()).count();
            assert!(known * 10 > delays.len() * 9, "{run}");
        }
        // A client that asks again after 10 ms is interactive: the ACK of an odd last segment goes
        // with its next request. One that asks every 100 ms acknowledges each reply at once.
        let median = |asks: &str, place: usize| {
            let asked = |run: &&Value| {
                run["reply_segments"] == 3 && run["client"].as_str().unwrap().ends_with(asks)
            };
            let delays = runs.iter().find(asked).unwrap()["ack_delays_ms"].as_array().unwrap();
            let mut all: Vec<f64> =
                delays.iter().skip(place - 1).step_by(3).filter_map(Value::as_f64).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        assert!((8.0..30.0).contains(&median("-s 10000", 3)), "{}", median("-s 10000", 3));
        assert!(median("-s 10000", 2) < 5.0 && median("-s 100000", 3) < 5.0);
        let behind = runs.iter().find(|run| run["client"] == "-b 1k -L 4k").unwrap();
        assert_eq!(behind["verdict"]["kind"], "quick_then_late", "{behind}");
        let quick = behind["verdict"]["quick_at_first"].as_u64().unwrap();
        assert!((16..=20).contains(&quick), "{behind}");
        assert!(behind["ack_delays_ms"][25].as_f64().unwrap() > 35.0, "{behind}");
    });
}
