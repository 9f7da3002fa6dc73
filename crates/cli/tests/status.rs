//! `uncork status`, and what `--stats` reads from a process, with the library itself.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::real::{Writer, is_stopped, library, until};
use crate::common::{self, needs_root, output, run, stderr, stdout, uncork};

fn status(arguments: &[&str]) -> (i32, String, String) {
    let output = output(uncork().arg("status").args(arguments));
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

fn stop(mut writer: Writer) {
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
}

#[test]
fn a_socket_that_holds_shows_how_much_to_whom_and_why() {
    for hold in ["kernel", "user"] {
        let mut launch = run(&["--hold", hold, "--bound", "200ms"]);
        let writer = Writer::start(launch.env("UNCORK_LIBRARY", library()), "stop");
        let pid = writer.child.id();
        until(|| is_stopped(pid));
        let (code, json, _) = status(&["--json", &pid.to_string()]);
        assert_eq!(code, 0);
        let answers: Value = serde_json::from_str(&json).unwrap();
        let answer = &answers[0];
        assert_eq!(answer["pid"], pid);
        assert_eq!(answer["program"], "writer");
        assert_eq!(answer["loaded"], true);
        assert_eq!(answer["library"], library().to_str().unwrap());
        assert_eq!(answer["report"]["settings"]["hold"], hold);
        assert_eq!(answer["report"]["settings"]["bound"], "200ms");
        let socket = &answer["report"]["sockets"][0];
        assert_eq!(socket["peer"], writer.address);
        assert_eq!(socket["state"], "helped");
        assert_eq!(socket["writes"], 5);
        assert_eq!(socket["held_bytes"], 5);
        assert!(socket["why"].as_str().unwrap().starts_with("held"), "{socket}");

        let (code, table, _) = status(&[&pid.to_string()]);
        assert_eq!(code, 0);
        let heading = format!("{pid} (writer): {} is loaded\n", library().display());
        assert!(table.starts_with(&heading) && table.contains(&writer.address), "{table}");
        assert!(table.contains(&format!("hold {hold}, scope all, bound 200ms")), "{table}");
        stop(writer);
    }
}

#[test]
fn a_library_that_was_deleted_or_has_its_second_name_is_read_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("libautocork.so");
    fs::copy(library(), &copy).unwrap();
    let mut launch = run(&[]);
    launch.env("UNCORK_LIBRARY", &copy).env("UNCORK_HOLD", "perhaps");
    let mut writer = Writer::start(&mut launch, "pause");
    writer.arrive();
    fs::remove_file(&copy).unwrap();
    let (code, json, _) = status(&["--json", &writer.child.id().to_string()]);
    assert_eq!(code, 0);
    let answers: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answers[0]["library"], copy.to_str().unwrap());
    let report = &answers[0]["report"];
    assert_eq!(report["settings"]["scope"], "nodelay");
    let ignored = report["ignored"][0].as_str().unwrap();
    assert!(ignored.starts_with("UNCORK_HOLD is ignored"), "{ignored}");
    assert_eq!(report["sockets"][0]["state"], "passed: no TCP_NODELAY (scope nodelay)");
    stop(writer);
}

#[test]
fn of_two_copies_of_the_library_the_first_is_at_work() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("libautocork.so");
    fs::copy(library(), &copy).unwrap();
    for (first, second) in [(library(), copy.as_path()), (copy.as_path(), library())] {
        let mut launch = Command::new("env");
        launch.arg(format!("LD_PRELOAD={}:{}", first.display(), second.display()));
        let writer = Writer::start(launch.args(["UNCORK_BOUND=200ms", "UNCORK_SCOPE=all"]), "stop");
        let pid = writer.child.id();
        until(|| is_stopped(pid));
        let (code, json, _) = status(&["--json", &pid.to_string()]);
        let answers: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(code, 0, "{json}");
        assert_eq!(answers[0]["library"], first.to_str().unwrap(), "{json}");
        let name = first.file_stem().unwrap().to_str().unwrap();
        assert_eq!(answers[0]["report"]["settings"]["name"], name);
        assert_eq!(answers[0]["report"]["sockets"][0]["held_bytes"], 5);
        stop(writer);
    }
}

#[test]
fn of_two_copies_of_the_library_one_reports() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("libuncork.so");
    fs::copy(library(), &copy).unwrap();
    let file = directory.path().join("report.json");
    let mut launch = run(&[&format!("--stats={}", file.display()), "--"]);
    launch.env("UNCORK_LIBRARY", library()).env("LD_PRELOAD", copy).stdout(Stdio::null());
    let mut writer = Writer::start(&mut launch, "daemon");
    assert_eq!(writer.child.wait().unwrap().code(), Some(0));
    let document = document(&directory);
    let processes = document["processes"].as_array().unwrap();
    let (running, ended): (Vec<_>, Vec<_>) =
        processes.iter().partition(|process| process["snapshot"].is_string());
    assert_eq!((running.len(), ended.len()), (1, 1), "{document:#}");
    let running = running[0]["pid"].as_i64().unwrap();
    kill(Pid::from_raw(running.try_into().unwrap()), Signal::SIGKILL).unwrap();
}

/// Returns what `uncork status` says of why the library is not in this child, which it ends.
fn absence(child: &mut Child) -> String {
    let pid = child.id().to_string();
    let (code, json, _) = status(&["--json", &pid]);
    let (_, text, _) = status(&[&pid]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(code, 1, "{json}");
    let answers: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answers[0]["loaded"], false);
    let why = answers[0]["absent_because"].as_str().unwrap().to_owned();
    assert!(text.ends_with(&format!("is not in this process: {why}\n")), "{text}");
    why
}

#[test]
fn why_the_library_is_not_there_is_told_where_it_can_be_seen() {
    let directory = tempfile::tempdir().unwrap();
    let sleeping = |program: &Path, library: &Path| {
        let mut sleeper = Command::new(program);
        sleeper.arg("60").env("LD_PRELOAD", library).stderr(Stdio::null()).spawn().unwrap()
    };
    let nowhere = directory.path().join("libuncork.so");
    let why = absence(&mut sleeping(Path::new("sleep"), &nowhere));
    let named = format!("it was started with {} in LD_PRELOAD", nowhere.display());
    assert!(why.starts_with(&named), "{why}");

    let program = directory.path().join("sleeper");
    let source = "#include <unistd.h>\nint main(void) { return sleep(60); }";
    common::compile(source, &program, &["-static"]);
    let why = absence(&mut sleeping(&program, library()));
    assert!(why.starts_with("it is statically linked"), "{why}");
}

#[test]
fn a_program_that_gains_privileges_is_told_to_have_taken_no_library() {
    if !needs_root("a_program_that_gains_privileges_is_told_to_have_taken_no_library") {
        return;
    }
    // As when squid executes itself: the effective user differs from the real one.
    let mut sleeper = Command::new("setpriv")
        .args(["--euid", "65534", "sleep", "60"])
        .env("LD_PRELOAD", library())
        .spawn()
        .unwrap();
    until(|| {
        let name = fs::read_to_string(format!("/proc/{}/comm", sleeper.id()));
        name.is_ok_and(|name| name == "sleep\n")
    });
    let why = absence(&mut sleeper);
    assert!(why.starts_with("it was executed with privileges that its caller lacks"), "{why}");
}

#[test]
fn of_several_processes_the_largest_code_counts() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let without = sleeper.id().to_string();
    // The kernel wakes the parent from vfork before it has written the new program's name.
    let named = format!("/proc/{without}/comm");
    while fs::read_to_string(&named).unwrap() != "sleep\n" {
        std::thread::yield_now();
    }
    let (code, text, _) = status(&[&without]);
    assert_eq!(code, 1);
    assert_eq!(text, format!("{without} (sleep): libuncork.so is not in this process\n"));
    let (code, text, errors) = status(&[&without, "2147483647"]);
    assert_eq!(code, 4);
    assert!(text.contains("(sleep)"));
    assert_eq!(errors, "uncork: no process 2147483647\n");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn another_user_may_not_look_and_is_told_what_would_help() {
    if !needs_root("another_user_may_not_look_and_is_told_what_would_help") {
        return;
    }
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let (_directory, mut as_user) = common::uncork_of_nobody();
    let output = output(as_user.args(["status", &pid]));
    assert_eq!(output.status.code(), Some(3));
    let sentence = stderr(&output);
    assert!(sentence.contains("sudo uncork status") && sentence.contains("ptrace_scope=0"));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

/// Starts a writer under `--stats=FILE`; returns it and the file.
fn with_stats(how: &str) -> (Writer, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let option = format!("--stats={}", directory.path().join("report.json").display());
    let mut launch = run(&[&option, "--"]);
    let launch = launch.env("UNCORK_LIBRARY", library()).stdout(Stdio::null());
    let mut writer = Writer::start(launch, how);
    writer.arrive();
    (writer, directory)
}

fn document(directory: &tempfile::TempDir) -> Value {
    let text = fs::read_to_string(directory.path().join("report.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_program_that_a_signal_ends_is_reported_as_it_was_just_before() {
    let (mut writer, directory) = with_stats("pause");
    kill(Pid::from_raw(writer.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(writer.child.wait().unwrap().signal(), Some(15));
    let document = document(&directory);
    assert_eq!(document["exit"]["signal"], 15);
    let process = &document["processes"][0];
    assert_eq!(process["program"], "writer");
    assert!(process["snapshot"].as_str().unwrap().contains("SIGTERM"), "{process}");
    assert_eq!(process["sockets"][0]["writes"], 5);
    assert_eq!(process["sockets"][0]["peer"], writer.address);
    assert_eq!(document["without_report"].as_array().unwrap().len(), 0);
}

#[test]
fn a_daemon_is_reported_as_it_is_when_its_parent_has_ended() {
    let (mut writer, directory) = with_stats("daemon");
    assert_eq!(writer.child.wait().unwrap().code(), Some(0));
    let document = document(&directory);
    let processes = document["processes"].as_array().unwrap();
    let running = processes.iter().find(|process| process["snapshot"].is_string()).unwrap();
    assert!(running["snapshot"].as_str().unwrap().contains("still running"));
    assert_eq!(running["sockets"][0]["writes"], 5);
    kill(Pid::from_raw(running["pid"].as_i64().unwrap().try_into().unwrap()), Signal::SIGKILL)
        .unwrap();
}

#[test]
fn a_program_reports_for_itself_and_not_for_a_child_that_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let option = format!("--stats={}", file.display());
    let mut launch = run(&[&option, "--", "timeout", "--signal=TERM", "1"]);
    // `timeout` is the program, and ends by itself; the writer is killed, and cannot report.
    let mut writer = Writer::start(launch.env("UNCORK_LIBRARY", library()), "pause");
    writer.arrive();
    assert_eq!(writer.child.wait().unwrap().code(), Some(124));
    let document: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let names: Vec<_> =
        document["processes"].as_array().unwrap().iter().map(|p| &p["program"]).collect();
    assert_eq!(names, ["timeout"]);
}

/// What a terminal sends on ^C goes to the program as well, which is gone before anybody can look into it; and of
/// `kill -9` nobody hears.
#[test]
fn a_program_that_ends_without_notice_is_reported_as_it_was_a_moment_before() {
    let (mut writer, directory) = with_stats("pause");
    // It is read once a second at the least, if the processors have time for that.
    std::thread::sleep(Duration::from_secs(4));
    let uncork = writer.child.id();
    let children = fs::read_to_string(format!("/proc/{uncork}/task/{uncork}/children")).unwrap();
    let program = Pid::from_raw(children.trim().parse().unwrap());
    kill(program, Signal::SIGKILL).unwrap();
    assert_eq!(writer.child.wait().unwrap().signal(), Some(9));
    let document = document(&directory);
    assert_eq!(document["exit"]["signal"], 9);
    let process = &document["processes"][0];
    let told = process["snapshot"].as_str().unwrap();
    assert!(
        told.starts_with("it was ended by a signal; read ") && told.ends_with("before"),
        "{told}"
    );
    assert_eq!(process["sockets"][0]["writes"], 5);
    assert_eq!(process["sockets"][0]["peer"], writer.address);
    assert_eq!(document["without_report"].as_array().unwrap().len(), 0);
}
