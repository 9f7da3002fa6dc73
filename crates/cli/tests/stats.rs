//! `uncork run --stats`: the report at the end, and that nothing else changes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{self, needs_root, output, refused, run, stderr, stdout};

/// Runs with `--stats=FILE` and returns the document and the exit status.
fn document(command: &[&str], how: &str) -> (Value, std::process::ExitStatus) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    fs::write(&file, "what was there before, and is longer than the new report\n".repeat(100))
        .unwrap();
    let option = format!("--stats={}", file.display());
    let output = output(run(&[&option, "--"]).args(command).env("FAKE_REPORT", how));
    assert!(!stderr(&output).contains("uncork:"), "{}", stderr(&output));
    let text = fs::read_to_string(&file).unwrap();
    (serde_json::from_str(&text).unwrap(), output.status)
}

fn programs(document: &Value) -> Vec<&str> {
    let processes = document["processes"].as_array().unwrap();
    let mut programs: Vec<_> = processes.iter().map(|p| p["program"].as_str().unwrap()).collect();
    programs.sort_unstable();
    programs
}

#[test]
fn the_document_names_the_command_its_exit_and_every_process() {
    let (document, status) = document(&["bash", "-c", "cat /dev/null; env true; exit 3"], "1");
    assert_eq!(status.code(), Some(3));
    assert_eq!(document["schema"], 1);
    assert_eq!(document["command"][0], "bash");
    assert_eq!(document["exit"]["code"], 3);
    // `env` became `true`: one process, one report.
    assert_eq!(programs(&document), ["bash", "cat", "true"]);
    assert_eq!(document["processes"][0]["sockets"][0]["packets_saved"], 14);
    assert_eq!(document["without_report"].as_array().unwrap().len(), 0);
}

#[test]
fn the_document_tells_a_signal_and_uncork_dies_of_the_same() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR1", 10), ("RTMIN", 34)] {
        let (document, status) = document(&["sh", "-c", &format!("kill -{name} $$")], "1");
        assert_eq!(status.signal(), Some(number), "{name}");
        assert!(!status.core_dumped());
        assert_eq!(document["exit"]["signal"], number);
        let missing = &document["without_report"][0];
        assert_eq!(missing["program"], "sh");
        assert!(missing["why"].as_str().unwrap().contains(&format!("signal {number}")));
    }
}

#[test]
fn the_table_goes_to_standard_error_and_leaves_the_program_s_output_alone() {
    let output = output(&mut run(&["--stats", "echo", "hello"]));
    assert_eq!(stdout(&output), "hello\n");
    let table = stderr(&output);
    assert!(table.starts_with("uncork: echo (process "), "{table}");
    for part in
        ["1 TCP socket, 15 writes, 14 packets saved", "127.0.0.1:5001", "pushed by", "read 1"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!table.contains('\x1b'));
}

#[test]
fn processes_without_sockets_share_a_line() {
    let script = "true; cat /dev/null; cat /dev/null; exit 0";
    let output = output(run(&["--stats", "bash", "-c", script]).env("FAKE_REPORT", "0"));
    let expected = "uncork: 3 processes wrote to no TCP socket: bash, cat\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn the_busiest_twenty_sockets_are_listed_and_the_rest_counted() {
    let output = output(run(&["--stats", "true"]).env("FAKE_REPORT", "50"));
    let table = stderr(&output);
    assert!(table.contains("… and 30 sockets with fewer writes; --stats=FILE has all"), "{table}");
    let rows = table.lines().filter(|line| line.contains("127.0.0.1:5001")).count();
    assert_eq!(rows, 20);
}

#[test]
fn a_process_without_a_report_is_told() {
    for (how, what) in [
        ("none", "it ended without a report"),
        ("empty", "it ended before it could report"),
        ("broken", "its report cannot be understood"),
    ] {
        let output = output(run(&["--stats", "true"]).env("FAKE_REPORT", how));
        assert!(output.status.success());
        let text = stderr(&output);
        assert!(text.starts_with("uncork: no report of process ") && text.contains(what), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_program_starts() {
    let directory = tempfile::tempdir().unwrap();
    let witness = directory.path().join("witness");
    for file in ["/no/such/directory/report", "/"] {
        let option = format!("--stats={file}");
        refused(run(&[&option, "touch"]).arg(&witness), 125, "the report cannot be written there");
        assert!(!witness.exists());
    }
}

#[test]
fn a_full_disk_is_one_sentence_and_the_exit_status_stays_the_program_s() {
    let output = output(&mut run(&["--stats=/dev/full", "sh", "-c", "exit 3"]));
    assert_eq!(output.status.code(), Some(3));
    let text = stderr(&output);
    assert!(text.starts_with("uncork: /dev/full: the report could not be written"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn nobody_to_read_the_table_does_not_change_the_exit_status() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = run(&["--stats", "sh", "-c", "exit 3"]);
    assert_eq!(command.stderr(writer).status().unwrap().code(), Some(3));
}

#[test]
fn a_program_that_cannot_be_started_leaves_no_file_and_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let option = format!("--stats={}", file.display());
    refused(&mut run(&[&option, "no-such-command-here"]), 127, "not found");
    assert!(!file.exists());
}

/// Starts a shell script under `--stats=/dev/null` and waits for its line "ready".
fn started(script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    // A shell cannot trap signals that were ignored when it started, as HUP is by nohup, and INT
    // and QUIT in the background of another shell.
    let plain = run(&["--stats=/dev/null", "sh", "-c", script]);
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT").arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, lines)
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

fn rest(mut lines: BufReader<impl std::io::Read>) -> String {
    let mut text = String::new();
    lines.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn signals_sent_to_uncork_reach_the_program() {
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"] {
        let script = format!(
            "trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.01; done"
        );
        let (mut child, lines) = started(&script);
        kill(pid(&child), format!("SIG{name}").parse::<Signal>().unwrap()).unwrap();
        assert_eq!(rest(lines), format!("got {name}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(9));
    }
}

#[test]
fn a_signal_that_the_program_does_not_expect_ends_both() {
    let (mut child, _lines) = started("echo ready; exec sleep 60");
    kill(pid(&child), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

#[test]
fn what_the_program_sends_to_its_parent_does_not_come_back() {
    let script = "trap 'echo came back' USR1; echo ready; kill -USR1 $PPID; sleep 0.2; exit 4";
    let (mut child, lines) = started(script);
    assert_eq!(rest(lines), "");
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

#[test]
fn uncork_stops_and_goes_on_with_the_program() {
    let (mut child, lines) = started("echo ready; kill -TSTP $$; echo resumed; exit 5");
    let stopped = waitpid(pid(&child), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid(&child), Signal::SIGTSTP));
    // As `kill -CONT` does to the process that the shell shows as its job.
    kill(pid(&child), Signal::SIGCONT).unwrap();
    assert_eq!(rest(lines), "resumed\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn job_control_of_the_whole_group_works() {
    let (mut child, lines) = started("echo ready; sleep 0.3; echo done; exit 6");
    killpg(pid(&child), Signal::SIGTSTP).unwrap();
    let stopped = waitpid(pid(&child), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid(&child), Signal::SIGTSTP));
    killpg(pid(&child), Signal::SIGCONT).unwrap();
    assert_eq!(rest(lines), "done\n");
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn an_interrupt_from_the_terminal_reaches_the_program_once() {
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let program = format!(
        "trap \"echo got >> {0}\" INT; echo ready; i=0; \
         while [ ! -s {0} ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done; sleep 0.2; exit 7",
        seen.display()
    );
    let line = format!(
        "exec env --default-signal=INT {} run --stats=/dev/null sh -c '{program}'",
        common::UNCORK
    );
    // script(1) runs the line on a terminal of its own.
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.env("UNCORK_LIBRARY", common::library()).env("SHELL", "/bin/sh");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut ready = String::new();
    lines.read_line(&mut ready).unwrap();
    assert_eq!(ready.trim(), "ready");
    let mut keyboard = child.stdin.take().unwrap();
    keyboard.write_all(b"\x03").unwrap();
    keyboard.flush().unwrap();
    rest(lines);
    drop(keyboard);
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(fs::read_to_string(&seen).unwrap(), "got\n");
}

#[test]
fn a_table_on_a_terminal_fits_it_and_is_bold_unless_no_color_is_set() {
    for (no_color, escapes) in [("", true), ("1", false)] {
        let line = format!("stty cols 60; {} run --stats true", common::UNCORK);
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.env("UNCORK_LIBRARY", common::library()).env("SHELL", "/bin/sh");
        script.env("NO_COLOR", no_color).env("TERM", "xterm").stdin(Stdio::null());
        let table = stdout(&output(&mut script));
        assert_eq!(table.contains("\x1b[1m"), escapes, "{table}");
        let plain = table.replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert!(plain.contains("writes"), "{plain}");
        let rows = plain.lines().skip_while(|line| !line.contains("hold")).map(str::trim_end);
        assert!(rows.clone().count() > 2, "{plain}");
        assert!(rows.into_iter().all(|row| row.chars().count() <= 60), "{plain}");
    }
}

#[test]
fn what_goes_on_without_the_program_is_told_and_not_waited_for() {
    let begun = Instant::now();
    let script = "sleep 30 > /dev/null 2>&1 & \
        until grep -q sleep /proc/$!/comm; do :; done; echo $!";
    let output = output(&mut run(&["--stats", "sh", "-c", script]));
    assert!(begun.elapsed() < Duration::from_secs(10));
    let sleeper: i32 = stdout(&output).trim().parse().unwrap();
    kill(Pid::from_raw(sleeper), Signal::SIGKILL).unwrap();
    let text = stderr(&output);
    let expected = format!("no report of process {sleeper} (sleep): it is still running");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn with_ignored_children_the_way_out_is_told() {
    let mut command = Command::new("env");
    command.args(["--ignore-signal=CHLD", common::UNCORK, "run", "--stats", "true"]);
    let output = output(command.env("UNCORK_LIBRARY", common::library()));
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("env --default-signal=CHLD"));
}

#[test]
fn the_address_is_abstract_and_leaves_nothing_behind() {
    let output = output(&mut run(&["--stats", "sh", "-c", "echo $UNCORK_STATS"]));
    let address = stdout(&output);
    let name = address.trim().strip_prefix("unix:@uncork-").unwrap();
    assert!(!Path::new(name).exists());
    assert_ne!(
        address,
        stdout(&common::output(&mut run(&["--stats", "sh", "-c", "echo $UNCORK_STATS"])))
    );
}

#[test]
fn as_the_first_process_of_a_container_uncork_tells_a_signal_as_a_shell_does() {
    if !needs_root("as_the_first_process_of_a_container_uncork_tells_a_signal_as_a_shell_does") {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", common::UNCORK, "run", "--stats=/dev/null"]);
    command.args(["sh", "-c", "kill -TERM $$"]).env("UNCORK_LIBRARY", common::library());
    assert_eq!(command.status().unwrap().code(), Some(128 + 15));
}
