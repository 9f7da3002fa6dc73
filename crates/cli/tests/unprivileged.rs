//! `uncork doctor` on live processes without any capability: what it then reports is true, and it
//! says what it cannot know.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};
use std::thread;

use common::{UNCORK, real, stderr, stdout};
use serde_json::Value;

/// Returns uncork as it runs for an ordinary user. (root with an empty bounding set is one, and may
/// still read this test's files.)
fn powerless() -> Command {
    let mut command = Command::new(UNCORK);
    if nix::unistd::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all", UNCORK]);
    }
    command.env_remove("LD_PRELOAD").env("UNCORK_LIBRARY", real::library());
    command
}

fn doctor(arguments: &[&str]) -> Command {
    let mut command = powerless();
    command.arg("doctor").args(arguments);
    command
}

/// Held for writing by a test that must be alone: the kernel counts connections for all together.
static CONNECTIONS: RwLock<()> = RwLock::new(());

fn output(command: &mut Command) -> Output {
    let _with_others = CONNECTIONS.read().unwrap_or_else(PoisonError::into_inner);
    common::output(command)
}

/// Answers each second octet with one, on any number of connections.
fn pairs() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut request = [0; 2];
                while stream.read_exact(&mut request).is_ok() && stream.write_all(b"!").is_ok() {}
            });
        }
    });
    address
}

/// Returns a client that writes twice for each request, and then does `more`. It lives long enough
/// to be seen by a doctor that gets little of a busy machine.
fn client(address: SocketAddr, requests: u32, more: &str) -> [String; 4] {
    let script = format!(
        "$s = IO::Socket::INET->new('{address}') or die; select undef, undef, undef, 0.3; \
         for (1..{requests}) {{ syswrite $s, 'a'; syswrite $s, 'b'; sysread $s, $x, 1 }} {more}"
    );
    ["perl".to_owned(), "-MIO::Socket::INET".to_owned(), "-e".to_owned(), script]
}

fn words(line: &[String]) -> Vec<&str> {
    line.iter().map(String::as_str).collect()
}

fn json(output: &Output) -> Value {
    let text = stdout(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{}", stderr(output)))
}

fn notes(report: &Value) -> String {
    let notes = report["notes"].as_array().unwrap();
    notes.iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_sampled_is_told_as_a_floor_and_does_not_contradict_itself() {
    let line = client(pairs(), 12, "");
    let line = words(&line);
    let output = output(&mut doctor(&[&["--json", "--"][..], &line].concat()));
    let report = json(&output);
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    assert!(report["sampling"]["looks"].as_u64().unwrap() > 10, "{report:#}");
    let finding = &report["connections"][0]["findings"][0];
    assert_eq!(finding["kind"], "nagle_delayed_ack");
    let count = finding["count"].as_u64().unwrap();
    assert!((3..=12).contains(&count), "{report:#}");
    assert!(finding["evidence"].as_str().unwrap().contains("at least"), "{finding:#}");
    assert_eq!(report["connections"][0]["client"]["nagle"], "on");
    assert_eq!(report["connections"][0]["server"]["nagle"], "unknown");
    // Requests were not seen, and none are invented.
    assert_eq!(report["summary"]["request_ms"], 0.0);
    let notes = notes(&report);
    for part in ["not traced but looked at", "at least", "Not seen that way"] {
        assert!(notes.contains(part), "{notes}");
    }
    let errors = stderr(&output);
    for part in ["CAP_BPF and CAP_PERFMON", "setcap cap_bpf,cap_perfmon,cap_net_admin+ep"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert!(!errors.contains("who delays ACKs"), "{errors}");
}

#[test]
fn the_table_and_the_page_say_so_too() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let line = client(pairs(), 6, "exit 3");
    let arguments = ["--html", page.to_str().unwrap(), "--fail-on", "share>99%", "--"];
    let output = output(&mut doctor(&[&arguments[..], &words(&line)].concat()));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("requests are not seen without tracing"));
    let page = std::fs::read_to_string(page).unwrap();
    for text in [stdout(&output), page] {
        assert!(text.contains("at least") && text.contains("looked at"), "{text}");
        assert!(text.contains("The command ended with status 3."), "{text}");
        assert!(!text.contains("0 requests") && !text.contains("0 request,"), "{text}");
        assert!(!text.contains("of the time spent waiting"), "{text}");
    }
}

#[test]
fn connections_too_short_to_be_caught_are_not_said_to_be_none() {
    let address = pairs();
    let script = format!("IO::Socket::INET->new('{address}') for 1..20");
    let line = ["--", "perl", "-MIO::Socket::INET", "-e", &script];
    let _alone = CONNECTIONS.write().unwrap_or_else(PoisonError::into_inner);
    let output = |arguments: &[&str]| common::output(&mut doctor(arguments));
    let told = stdout(&output(&line));
    assert!(!told.contains("No TCP connection was seen"), "{told}");
    assert!(told.contains("between two looks for new ones"), "{told}");
    let report = json(&output(&[&["--json", "--all"][..], &line].concat()));
    let caught = report["summary"]["connections"].as_u64().unwrap();
    let missed = notes(&report).contains("came and went too fast");
    assert!(caught >= 20 || missed, "{report:#}");
}

#[test]
fn a_command_that_ends_at_once_was_looked_at_once() {
    let done = output(&mut doctor(&["--", "true"]));
    let told = stdout(&done);
    assert!(!told.contains("0 times"), "{told}");
    let report = json(&output(&mut doctor(&["--json", "--", "true"])));
    assert!(report["sampling"]["looks"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn a_command_under_uncork_is_told_to_be_cured_with_what_was_held() {
    let line = client(pairs(), 40, "");
    let line = [&["--json", "--all", "--", UNCORK, "run", "--"][..], &words(&line)].concat();
    let output = output(&mut doctor(&line));
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["command"]["status"], 0);
    let uncork = &report["connections"][0]["client"]["uncork"];
    let how = (&uncork["state"], &uncork["hold"]);
    assert_eq!(how, (&"helped".into(), &"kernel".into()), "{report:#}");
    assert_eq!((&uncork["writes"], &uncork["pushes"]), (&80.into(), &40.into()), "{report:#}");
    assert!(uncork["held"]["count"].as_u64().unwrap() > 0, "{uncork:#}");
    assert_eq!(uncork["complete"], true);
    let notes = notes(&report);
    assert!(notes.contains("runs under uncork (hold kernel"), "{notes}");
    assert!(notes.contains("80 writes on 1 socket left as 40 packets, 2.0 writes each"), "{notes}");
    assert!(notes.contains("cured already"), "{notes}");
}

#[test]
fn a_stall_under_uncork_is_not_answered_by_uncork_run() {
    let line = client(pairs(), 8, "");
    let run = ["--json", "--", UNCORK, "run", "--hold", "off", "--"];
    let report = json(&output(&mut doctor(&[&run[..], &words(&line)].concat())));
    let finding = &report["connections"][0]["findings"][0];
    assert_eq!(finding["kind"], "nagle_delayed_ack", "{report:#}");
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(evidence.contains("leaves this socket alone: hold is off"), "{evidence}");
    let remedies = finding["remedies"].as_array().unwrap();
    let lines = remedies.iter().map(|remedy| remedy["line"].as_str().unwrap());
    assert!(lines.clone().count() > 0);
    assert!(lines.clone().all(|line| !line.starts_with("uncork run")), "{finding:#}");
}

#[test]
fn the_record_of_a_running_process_is_read_out_of_its_memory() {
    let address = pairs();
    let line = client(address, 1_000_000_000, "");
    let mut run = powerless();
    let mut child = run.args(["run", "--"]).args(&line).process_group(0).spawn().unwrap();
    let pid = child.id().to_string();
    real::until(|| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.contains("libuncork.so")
    });
    let output = output(&mut doctor(&["--json", "--all", "--pid", &pid, "--for", "1500ms"]));
    child.kill().unwrap();
    child.wait().unwrap();
    let report = json(&output);
    let uncork = &report["connections"][0]["client"]["uncork"];
    assert_eq!(uncork["state"], "helped", "{report:#}");
    assert_eq!(uncork["complete"], false);
    let (writes, pushes) = (uncork["writes"].as_f64().unwrap(), uncork["pushes"].as_f64().unwrap());
    assert!((1.5..=2.5).contains(&(writes / pushes)), "{uncork:#}");
    assert_eq!(report["connections"][0]["client"]["nagle"], "off");
    let errors = stderr(&output);
    assert!(errors.contains(&format!("looking at process {pid} for 1.50 s")), "{errors}");
    assert_eq!(report["command"], Value::Null);
}

#[test]
fn where_nothing_can_be_seen_it_ends_with_3_and_says_why() {
    let mut alien = Command::new("sleep");
    let root = nix::unistd::geteuid().is_root();
    if root {
        alien.uid(65534).gid(65534);
    }
    // An ordinary user needs no process of another one: init is that.
    let mut alien = alien.arg("60").stdin(Stdio::null()).spawn().unwrap();
    let pid = if root { alien.id().to_string() } else { "1".to_owned() };
    let output = output(&mut doctor(&["--pid", &pid, "--for", "1s"]));
    alien.kill().unwrap();
    alien.wait().unwrap();
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("nothing is left to look at: the descriptors of process"), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_signal_that_ends_the_command_is_in_the_report() {
    let line = ["--json", "--", "sh", "-c", "kill -KILL $$"];
    let report = json(&output(&mut doctor(&line)));
    assert_eq!(
        (&report["command"]["status"], &report["command"]["signal"]),
        (&Value::Null, &9.into())
    );
    assert_eq!(report["command"]["line"], "sh -c kill -KILL $$");
    let told = stdout(&output(&mut doctor(&["--", "sh", "-c", "kill -KILL $$"])));
    assert!(told.contains("The command was ended by signal SIGKILL."), "{told}");
}

#[test]
fn cap_bpf_and_cap_perfmon_suffice_to_trace_and_the_third_is_named() {
    let name = "cap_bpf_and_cap_perfmon_suffice_to_trace_and_the_third_is_named";
    if !common::needs_root(name) {
        return;
    }
    let (directory, _) = common::uncork_of_nobody();
    let line = client(pairs(), 12, "");
    let traced = |capabilities: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(format!("--inh-caps={capabilities}"));
        command.arg(format!("--ambient-caps={capabilities}"));
        command.arg(directory.path().join("uncork")).args(["doctor", "--json", "--"]).args(&line);
        output(&mut command)
    };
    let both = traced("+bpf,+perfmon");
    let report = json(&both);
    assert_eq!(report["sampling"], Value::Null, "{}", stderr(&both));
    assert!(report["connections"][0]["requests"].as_u64().unwrap() >= 11, "{report:#}");
    assert!(stderr(&both).contains("that needs CAP_NET_ADMIN"), "{}", stderr(&both));
    let three = traced("+bpf,+perfmon,+net_admin");
    assert!(!stderr(&three).contains("CAP_"), "{}", stderr(&three));
    for (one, missing) in [("+bpf", "needs CAP_PERFMON,"), ("+perfmon", "needs CAP_BPF,")] {
        let one = traced(one);
        assert!(stderr(&one).contains(missing), "{}", stderr(&one));
        assert!(json(&one)["sampling"].is_object());
    }
}

#[test]
fn a_process_in_another_network_namespace_is_not_said_to_have_no_connection() {
    let name = "a_process_in_another_network_namespace_is_not_said_to_have_no_connection";
    if !common::needs_root(name) {
        return;
    }
    // The namespace goes with its only process.
    let mut alien = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap();
    let pid = alien.id();
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    real::until(|| network(&pid.to_string()) != network("self"));
    // Only equals: a process with more capabilities than the doctor may not be inspected.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-bpf,-perfmon,-sys_admin", UNCORK, "doctor"]);
    let output = output(command.args(["--pid", &pid.to_string(), "--for", "1s"]));
    alien.kill().unwrap();
    alien.wait().unwrap();
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("is in another network namespace"), "{errors}");
    assert!(errors.contains(&format!("nsenter --net --target {pid} uncork doctor")), "{errors}");
}
