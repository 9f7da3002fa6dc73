//! `uncork doctor --pcap`: its findings, its messages about broken input, and its exit statuses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::capture::Trace;
use crate::common::{needs_root, output, refused, stderr, stdout, uncork, uncork_of_nobody};

fn doctor(arguments: &[&str]) -> Command {
    let mut command = uncork();
    command.arg("doctor").args(arguments);
    command
}

/// Saves a capture to a file, and returns the file and its directory, which must be kept.
fn saved(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.pcap");
    fs::write(&file, bytes).unwrap();
    (directory, file)
}

fn examine(file: &Path, more: &[&str]) -> Output {
    output(doctor(&["--pcap", file.to_str().unwrap()]).args(more))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

/// Feeds a capture to standard input.
fn piped(bytes: &[u8], more: &[&str]) -> Output {
    let mut command = doctor(&["--pcap", "-"]);
    command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The doctor stops reading early when the input is no capture.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap()
}

#[test]
fn a_healthy_connection_is_nothing_found() {
    let (_directory, file) = saved(&Trace::healthy(10).pcap());
    let plain = examine(&file, &[]);
    assert_eq!((code(&plain), stderr(&plain).as_str()), (0, ""), "{}", stdout(&plain));
    let report = json(&examine(&file, &["--json"]));
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["summary"]["connections"], 1);
    assert_eq!(report["connections"].as_array().unwrap().len(), 0);
    let report = json(&examine(&file, &["--json", "--all"]));
    assert_eq!(report["connections"].as_array().unwrap().len(), 1);
}

#[test]
fn stalls_are_found_and_told_to_people_and_programs() {
    let (_directory, file) = saved(&Trace::nagle(10).pcap());
    let plain = examine(&file, &[]);
    assert_eq!((code(&plain), stderr(&plain).as_str()), (1, ""));
    assert!(stdout(&plain).contains("10.0.0.2:8080"), "{}", stdout(&plain));
    assert!(!stdout(&plain).contains('\x1b'), "no colour in a pipe");
    let machine = examine(&file, &["--json"]);
    assert_eq!(code(&machine), 1);
    let report = json(&machine);
    let finding = &report["connections"][0]["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["severity"]),
        (&"nagle_delayed_ack".into(), &"lost_time".into())
    );
    assert_eq!(finding["count"], 10);
    let lost = report["summary"]["lost_ms"].as_f64().unwrap();
    assert!((380.0..=420.0).contains(&lost), "{lost}");
}

#[test]
fn quiet_says_nothing_and_its_status_all() {
    for (trace, expected) in [(Trace::nagle(3), 1), (Trace::healthy(3), 0)] {
        let (_directory, file) = saved(&trace.pcap());
        let quiet = examine(&file, &["--quiet"]);
        assert_eq!(code(&quiet), expected);
        assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
    }
    refused_by_clap(&["--pcap", "x", "--quiet", "--json"], "cannot be used with");
}

#[test]
fn a_condition_decides_what_fails() {
    let (_directory, file) = saved(&Trace::nagle(10).pcap());
    for (conditions, expected) in [
        (&["stall>5ms"][..], 1),
        (&["stall>41ms"], 0),
        (&["lost>350ms"], 1),
        (&["lost>450ms"], 0),
        (&["share>50%"], 1),
        (&["nagle_delayed_ack"], 1),
        (&["zero_window"], 0),
        (&["zero_window", "lost>10s", "stall>39ms"], 1),
    ] {
        let conditions: Vec<_> = conditions.iter().flat_map(|c| ["--fail-on", c]).collect();
        let ended = examine(&file, &[&["-q"][..], &conditions].concat());
        assert_eq!(code(&ended), expected, "{conditions:?}");
    }
}

#[test]
fn how_slow_a_program_may_be_is_for_the_user_to_say() {
    let (_directory, file) = saved(&Trace::slow(5, Duration::from_millis(30)).pcap());
    let kinds = |more: &[&str]| {
        let report = json(&examine(&file, &[&["--json"], more].concat()));
        report["connections"][0]["findings"][0]["kind"].clone()
    };
    assert_eq!(kinds(&["--slow", "10ms"]), "application");
    assert_eq!(kinds(&["--slow", "100ms"]), Value::Null);
}

#[test]
fn the_page_is_a_file_of_its_own() {
    let (directory, file) = saved(&Trace::nagle(3).pcap());
    let page = directory.path().join("page.html");
    let ended = examine(&file, &["-q", "--html", page.to_str().unwrap()]);
    assert_eq!(code(&ended), 1);
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!doctype html>"));
    let nowhere = directory.path().join("missing/page.html");
    let mut command = doctor(&["--pcap", file.to_str().unwrap(), "-q"]);
    refused(command.arg("--html").arg(&nowhere), 2, "cannot be written");
}

#[test]
fn a_page_that_cannot_be_written_costs_no_report_and_no_tracing() {
    let (directory, file) = saved(&Trace::nagle(3).pcap());
    let ended = examine(&file, &["--html", "/dev/full"]);
    assert_eq!(code(&ended), 125, "{ended:?}");
    assert!(stdout(&ended).contains("Nagle"), "{ended:?}");
    assert!(stderr(&ended).contains("/dev/full: it cannot be written"), "{ended:?}");
    let traced = directory.path().join("traced");
    let nowhere = directory.path().join("missing/page.html");
    let mut command = doctor(&["--html", nowhere.to_str().unwrap(), "--", "touch"]);
    refused(command.arg(&traced), 2, "cannot be written");
    assert!(!traced.exists());
}

#[test]
fn a_page_is_replaced_only_by_another() {
    let (directory, file) = saved(&Trace::nagle(3).pcap());
    let page = directory.path().join("page.html");
    let no_process = ["--pid", "4194304", "--html", page.to_str().unwrap()];
    refused(&mut doctor(&no_process), 2, "no process");
    assert!(!page.exists());
    let before = "x".repeat(1 << 20);
    fs::write(&page, &before).unwrap();
    refused(&mut doctor(&no_process), 2, "no process");
    assert_eq!(fs::read_to_string(&page).unwrap(), before);
    examine(&file, &["-q", "--html", page.to_str().unwrap()]);
    assert!(fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
}

/// Asserts a usage error: a message on standard error, and exit status 2.
fn refused_by_clap(arguments: &[&str], what: &str) {
    let ended = output(&mut doctor(arguments));
    assert_eq!(code(&ended), 2, "{ended:?}");
    assert!(stderr(&ended).contains(what) && ended.stdout.is_empty(), "{ended:?}");
}

#[test]
fn options_that_mean_nothing_together_are_refused() {
    for (line, what) in [
        (&["--pcap", "x", "--for", "3s"][..], "--for"),
        (&["--pcap", "x", "--stacks"], "--stacks"),
        (&["--pcap", "x", "--pid", "1"], "--pid"),
        (&["--pcap", "x", "--", "true"], "COMMAND"),
        (&["--pid", "1", "--", "true"], "COMMAND"),
        (&["--for", "3s", "--", "true"], "--for"),
        (&["--for", "3s"], "--pid"),
        (&["--pcap", "x", "--pcap", "y"], "multiple times"),
    ] {
        refused_by_clap(line, what);
    }
}

#[test]
fn who_does_not_say_which_of_the_three_is_told_how() {
    let (_directory, file) = saved(&Trace::healthy(1).pcap());
    let file = file.to_str().unwrap();
    for (line, what) in [
        (&[][..], "`--pcap FILE` for a capture, `--pid PID` for a process that runs, `-- COMMAND`"),
        (&["--json"], "say what to look at"),
        (&[file], &*format!("say `uncork doctor --pcap {file}`")),
        (&["4711"], "say `uncork doctor --pid 4711`"),
        (&["curl"], "say `uncork doctor -- curl …`"),
        (&["--pcap", file, "b.pcap"], "one capture at a time; `cat A B | uncork doctor --pcap -`"),
    ] {
        refused(&mut doctor(line), 2, what);
    }
}

#[test]
fn captures_behind_each_other_are_one() {
    let both = [Trace::nagle(3).pcap(), Trace::healthy(2).pcap()].concat();
    let read = piped(&both, &["--json"]);
    assert_eq!(
        stderr(&read),
        "uncork: standard input: a second file begins in it, and was read as well\n"
    );
    let report = json(&read);
    let [one, other] = [Trace::nagle(3), Trace::healthy(2)].map(|trace| {
        let report = json(&piped(&trace.pcap(), &["--json"]));
        report["summary"]["segments"].as_u64().unwrap()
    });
    assert_eq!(report["summary"]["segments"], one + other);
    // The second header does not count as a frame.
    assert_eq!(
        (&report["summary"]["not_tcp"], &report["summary"]["cut_short"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn a_clock_that_was_set_back_is_told_and_nobody_waited_for_it() {
    let mut trace = Trace::healthy(3);
    trace.set_clock_back(Duration::from_secs(3600));
    trace.more(3);
    let (_directory, file) = saved(&trace.pcap());
    let report = json(&examine(&file, &["--json", "--all"]));
    assert_eq!(report["summary"]["stalls"], 0, "{report:#}");
    assert!(report["summary"]["duration_ms"].as_f64().unwrap() < 1000.0, "{report:#}");
    let told = report["notes"][0].as_str().unwrap();
    assert!(told.starts_with("The capture's clock jumped back once, by 3600"), "{told}");
    assert!(stdout(&examine(&file, &["--all"])).contains("jumped back once"));
}

#[test]
fn a_command_line_that_is_not_understood_ends_with_2() {
    refused_by_clap(&["--pcap", "x", "--fail-on", "stall>soon"], "\"soon\" is not a duration");
    refused_by_clap(&["--pcap", "x", "--fail-on", "nagel"], "nor a kind of finding");
    refused_by_clap(&["--pcap", "x", "--slow", "7"], "is not a duration");
    refused_by_clap(&["--pcap", "x", "--faster"], "--faster");
}

#[test]
fn input_that_is_no_capture_is_one_sentence_and_2() {
    let zeros = vec![0; 1 << 20];
    for (bytes, sentence) in [
        (&b""[..], "it is empty"),
        (b"#!/bin/sh\n", "it is no capture"),
        (&zeros, "it is no capture: pcap and pcapng do not begin with 00 00 00 00"),
        (b"\x1f\x8b\x08\x00rest", "zcat FILE | uncork doctor --pcap -"),
        (&Trace::nagle(1).pcap()[..20], "cut off"),
    ] {
        let (_directory, file) = saved(bytes);
        refused(&mut doctor(&["--pcap", file.to_str().unwrap()]), 2, sentence);
        let ended = piped(bytes, &[]);
        assert_eq!(code(&ended), 2);
        assert!(stderr(&ended).starts_with("uncork: standard input: "), "{ended:?}");
        assert!(stderr(&ended).contains(sentence) && ended.stdout.is_empty(), "{ended:?}");
    }
    refused(&mut doctor(&["--pcap", "/nonexistent/file"]), 2, "No such file");
    refused(&mut doctor(&["--pcap", "/"]), 2, "Is a directory");
    refused(&mut doctor(&["--pcap", "/dev/zero"]), 2, "it is no capture");
}

#[test]
fn a_link_type_that_is_not_known_is_named() {
    let mut trace = Trace::nagle(1).pcap();
    trace[20] = 127;
    let (_directory, file) = saved(&trace);
    let mut command = doctor(&["--pcap", file.to_str().unwrap()]);
    refused(&mut command, 2, "127 (802.11 with radiotap) cannot be read; those that can: Ethernet");
}

#[test]
fn what_could_be_read_of_a_broken_file_is_reported() {
    let whole = Trace::nagle(10).pcap();
    let mut lies = whole.clone();
    lies.extend([[1; 4], [0; 4], [0xff; 4], [0xff; 4]].concat());
    let zeros = [&whole[..], &[0; 4096]].concat();
    for (bytes, sentence) in [
        (&whole[..whole.len() - 7], "cut off in the middle of a record, at byte"),
        (&lies, "contradicts itself at byte"),
        (&zeros, "a record of zeros"),
    ] {
        let (_directory, file) = saved(bytes);
        let ended = examine(&file, &["--json"]);
        assert_eq!(code(&ended), 2);
        let told = stderr(&ended);
        assert!(told.contains(sentence) && told.lines().count() == 1, "{told}");
        assert!(told.contains("frames before it stand"), "{told}");
        assert_eq!(json(&ended)["connections"][0]["findings"][0]["kind"], "nagle_delayed_ack");
        // The condition makes no difference, whether it holds or not.
        assert_eq!(code(&examine(&file, &["-q", "--fail-on", "stall>1ms"])), 2);
    }
}

#[test]
fn ten_gigabytes_of_zeros_behind_a_good_beginning_end_at_once() {
    let (_directory, file) = saved(&Trace::nagle(2).pcap());
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(10 << 30).unwrap();
    let begun = Instant::now();
    let ended = examine(&file, &["--json"]);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(code(&ended), 2);
    assert!(stderr(&ended).contains("a record of zeros"), "{}", stderr(&ended));
    assert_eq!(json(&ended)["summary"]["connections"], 1);
}

#[test]
fn headers_and_options_that_lie_are_counted_and_passed_over() {
    let mut trace = Trace::nagle(10);
    trace.lie_in_option();
    trace.lie_in_length();
    let (_directory, file) = saved(&trace.pcap());
    let ended = examine(&file, &["--json"]);
    assert_eq!(code(&ended), 1, "{}", stderr(&ended));
    let report = json(&ended);
    assert_eq!(report["summary"]["malformed"], 2);
    assert_eq!(report["connections"][0]["findings"][0]["kind"], "nagle_delayed_ack");
}

#[test]
fn a_capture_without_tcp_says_so() {
    let (_directory, file) = saved(&Trace::arp().pcap());
    let ended = examine(&file, &[]);
    assert_eq!(code(&ended), 0);
    assert!(stderr(&ended).contains("there is no TCP segment in it (frames: 1)"), "{ended:?}");
}

#[test]
fn pcapng_and_standard_input_give_the_same_report() {
    let trace = Trace::nagle(4);
    let (_directory, file) = saved(&trace.pcap());
    let expected = json(&examine(&file, &["--json"]));
    assert_eq!(json(&piped(&trace.pcap(), &["--json"])), expected);
    let (_directory, file) = saved(&trace.pcapng());
    assert_eq!(json(&examine(&file, &["--json"])), expected);
    let ended = piped(&trace.pcapng(), &["--json"]);
    assert_eq!((code(&ended), json(&ended)), (1, expected));
}

#[test]
fn frames_of_interfaces_that_cannot_be_read_are_mentioned() {
    let (_directory, file) = saved(&Trace::nagle(4).pcapng_with_usb());
    let ended = examine(&file, &["--json"]);
    assert_eq!(code(&ended), 1);
    assert!(stderr(&ended).contains("1 frame was left out: link type 189 (USB)"), "{ended:?}");
    assert_eq!(json(&ended)["summary"]["stalls"], 4);
}

#[test]
fn a_file_that_may_not_be_read_ends_with_3() {
    if !needs_root("a_file_that_may_not_be_read_ends_with_3") {
        return;
    }
    let (directory, file) = saved(&Trace::healthy(1).pcap());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (_kept, mut command) = uncork_of_nobody();
    refused(command.args(["doctor", "--pcap"]).arg(&file), 3, "Permission denied");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let page = directory.path().join("page.html");
    let (_kept, mut command) = uncork_of_nobody();
    command.args(["doctor", "-q", "--pcap"]).arg(&file).arg("--html").arg(&page);
    refused(&mut command, 3, "Permission denied");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (_directory, file) = saved(&Trace::many(2000).pcap());
    let mut command = doctor(&["--pcap", file.to_str().unwrap(), "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((code(&ended), stderr(&ended).as_str()), (1, ""));
}

#[test]
fn an_output_that_is_full_ends_with_125() {
    let (_directory, file) = saved(&Trace::nagle(3).pcap());
    for more in [&[][..], &["--json"]] {
        let mut command = doctor(&["--pcap", file.to_str().unwrap()]);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let child = command.args(more).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(code(&ended), 125);
        assert!(stderr(&ended).contains("standard output cannot be written"), "{ended:?}");
    }
}

#[test]
fn a_pipe_that_stays_open_is_ended_by_a_signal_with_a_report() {
    let whole = Trace::nagle(10).pcap();
    // Also cut in the middle of a frame, as a stopped writer may leave it.
    for bytes in [&whole[..], &whole[..whole.len() - 5]] {
        let mut command = doctor(&["--pcap", "-", "--json"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(bytes).unwrap();
        thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "it waits for more");
        kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        let ended = child.wait_with_output().unwrap();
        drop(stdin);
        assert_eq!((code(&ended), stderr(&ended).as_str()), (1, ""));
        assert_eq!(json(&ended)["summary"]["connections"], 1);
    }
}

#[test]
fn what_the_writer_still_has_after_the_signal_is_read() {
    let whole = Trace::nagle(10).pcap();
    let (early, late) = whole.split_at(whole.len() / 2);
    let mut command = doctor(&["--pcap", "-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(early).unwrap();
    thread::sleep(Duration::from_millis(300));
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    thread::sleep(Duration::from_millis(100));
    stdin.write_all(late).unwrap();
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(json(&ended)["summary"]["stalls"], 10);
}
