//! The command itself: what a user types and what is left behind.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncork-bench"));
    command.env_remove("UNCORK_BIN_DIR").env_remove("CI");
    command
}

/// A directory of its own for one test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bench-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Makes one with a `libuncork.so` that changes nothing: libc itself, once more.
    fn with_idle_library(name: &str) -> Self {
        let dir = Self::new(name);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
        fs::copy(libc, dir.0.join("libuncork.so")).unwrap();
        dir
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns whether it is gone, or dead and not yet reaped by its new parent.
fn is_dead(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z"))
}

fn not_ours(dir: &Path, more: &[&str]) -> Output {
    let mut command = bench();
    command.env("UNCORK_BIN_DIR", dir).args(["run", "--only", "not-ours", "--quick"]).args(more);
    command.output().unwrap()
}

#[test]
fn a_benchmark_that_does_not_exist_is_refused_with_those_that_do() {
    let output = bench().args(["run", "--only", "telepathy"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("small-writes") && error.contains("idle-spin"), "{error}");
}

#[test]
fn without_the_library_the_benchmark_fails_and_says_what_to_do() {
    let dir = Dir::new("empty");
    let output = not_ours(&dir.0, &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("failed: not-ours") && said.contains("libuncork.so is not in"), "{said}");
    assert!(said.contains("UNCORK_BIN_DIR"), "{said}");
}

#[test]
fn a_directory_that_is_not_there_is_told_from_a_missed_bar() {
    let output = not_ours(Path::new("/nonexistent"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nonexistent"));
}

#[test]
fn figures_are_measured_shown_and_written() {
    let dir = Dir::with_idle_library("figures");
    let json = dir.0.join("figures.json");
    let output = not_ours(&dir.0, &["--rounds", "2", "--json", json.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(said.contains("of 2 bars kept; 2 rows"), "{said}{}", text(&output.stderr));
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    let row = &report["rows"][0];
    assert_eq!((&row["bench"], &row["rounds"]), (&"not-ours".into(), &2.into()));
    assert!(row["measured"]["median"].as_f64().unwrap() > 1.0, "{row}");
    assert_eq!(row["bar"], "≤ 1.03");
    let kept = row["figure"]["median"].as_f64().unwrap() <= 1.03;
    assert_eq!(row["pass"], kept);
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let dir = Dir::new("nowhere");
    let output = not_ours(&dir.0, &["--json", dir.0.join("none/figures.json").to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""));
    assert!(text(&output.stderr).contains("writing"), "{}", text(&output.stderr));
}

/// Checks that the stack of the same profile is built, beside the program under test.
fn uncork_is_built() {
    let uncork = Path::new(env!("CARGO_BIN_EXE_uncork-bench")).with_file_name("uncork");
    assert!(uncork.exists(), "{} is missing: cargo build -p uncork", uncork.display());
}

#[test]
fn our_sender_and_the_kernels_are_measured_over_the_same_kind_of_link() {
    if uncork_netns::testing::is_skipped("our_sender_and_the_kernels_are_measured") {
        return;
    }
    uncork_is_built();
    let dir = Dir::new("stack");
    let json = dir.0.join("stack.json");
    let output = bench()
        .args(["run", "--only", "stack-ping,stack-bulk", "--quick", "--rounds", "1", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    let report = fs::read_to_string(&json).unwrap_or_else(|error| panic!("{error}: {said}"));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["failed"], serde_json::json!([]), "{said}");
    let skipped = report["skipped"].as_array().unwrap();
    // One core is not enough for a server and its client.
    assert!(skipped.iter().all(|one| one["bench"] == "stack-bulk"), "{said}");
    let rows = report["rows"].as_array().unwrap();
    let median = |what: &str, side: &str| {
        let row = rows.iter().find(|row| row["what"].as_str().unwrap().ends_with(what));
        row.unwrap_or_else(|| panic!("{what}: {said}"))[side]["median"].as_f64().unwrap()
    };
    // What holds on the busiest machine: octets arrive, and no faster than the shaper lets them.
    for side in ["measured", "against"] {
        let rate = median("throughput", side);
        assert!((1.0..97.0).contains(&rate), "{side}: {rate} Mbit/s: {said}");
        assert!(median("ping p50", side) > 0.0, "{said}");
    }
}

#[test]
fn what_was_started_ends_with_its_parent_even_if_that_is_killed() {
    let script = format!(
        "'{}' role exec --parent $$ --end SIGKILL -- sleep 60 & echo $!; wait",
        env!("CARGO_BIN_EXE_uncork-bench")
    );
    let mut shell =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(shell.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let child: i32 = line.trim().parse().unwrap();
    wait_until("the helper becomes the program", Duration::from_secs(10), || {
        fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
    });
    shell.kill().unwrap();
    shell.wait().unwrap();
    wait_until("the program ends", Duration::from_secs(10), || is_dead(child));
}

#[test]
fn a_killed_run_leaves_neither_processes_nor_files() {
    let dir = Dir::with_idle_library("killed");
    let mut run = bench()
        .env("UNCORK_BIN_DIR", &dir.0)
        .env("TMPDIR", &dir.0)
        .args(["run", "--only", "not-ours", "--rounds", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let scratch = dir.0.join(format!("uncork-bench-{}", run.id()));
    let children = || -> Vec<i32> {
        let path = format!("/proc/{0}/task/{0}/children", run.id());
        let list = fs::read_to_string(path).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    // The helper that cleans up, and the reader.
    wait_until("it is at work", Duration::from_secs(10), || children().len() >= 2);
    let started = children();
    assert!(scratch.is_dir());
    kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), Signal::SIGKILL).unwrap();
    run.wait().unwrap();
    wait_until("all processes end", Duration::from_secs(10), || {
        started.iter().all(|&pid| is_dead(pid))
    });
    assert!(!scratch.exists());
}

#[test]
fn the_janitor_waits_for_the_end_of_its_input() {
    let dir = Dir::new("janitor");
    let room = dir.0.join("room");
    fs::create_dir(&room).unwrap();
    fs::write(room.join("litter"), "x").unwrap();
    let mut janitor =
        bench().args(["role", "janitor"]).arg(&room).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = janitor.stdin.take().unwrap();
    stdin.write_all(b"not yet").unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(room.is_dir());
    drop(stdin);
    assert!(janitor.wait().unwrap().success());
    assert!(!room.exists());
}

#[test]
fn f_stack_is_compared_with_only_where_its_user_has_built_it() {
    let run = |more: &[&str]| {
        bench().args(["run", "--only", "inline-fstack", "--quick"]).args(more).output().unwrap()
    };
    let none = run(&[]);
    let said = text(&none.stdout);
    assert_eq!(none.status.code(), Some(0), "{said}");
    assert!(said.contains("skipped: inline-fstack: give --fstack DIR"), "{said}");
    let dir = Dir::new("fstack");
    let unbuilt = run(&["--fstack", dir.0.to_str().unwrap()]);
    assert_eq!((unbuilt.status.code(), text(&unbuilt.stdout).as_str()), (Some(2), ""));
    let said = text(&unbuilt.stderr);
    assert!(said.contains("no built F-Stack") && said.lines().count() == 1, "{said}");
}

#[test]
fn huge_pages_are_mounted_for_one_program_and_for_who_is_beside_it() {
    if uncork_netns::testing::is_skipped("huge_pages_are_mounted_for_one_program") {
        return;
    }
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("hugetlbfs") {
        eprintln!("skipped: huge_pages_are_mounted_for_one_program: this kernel has no hugetlbfs");
        return;
    }
    let mounts = || {
        let all = fs::read_to_string("/proc/self/mounts").unwrap();
        // Network namespaces come and go with other tests.
        let stays = |line: &&str| !line.contains(" /run/netns");
        all.lines().filter(stays).map(str::to_owned).collect::<Vec<_>>()
    };
    let dir = Dir::new("huge");
    let (before, place) = (mounts(), dir.0.to_str().unwrap());
    let parent = std::process::id().to_string();
    let exec = |more: &[&str], script: &str| {
        let mut command = bench();
        command.args(["role", "exec", "--parent", &parent]).args(more);
        command.args(["--", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let list = "awk '$3 == \"hugetlbfs\" { print $2 }' /proc/self/mounts";
    let mut first = exec(&["--huge-pages", place], &format!("{list}; read line"));
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(first.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let beside = exec(&["--beside", &first.id().to_string()], list).wait_with_output().unwrap();
    drop(first.stdin.take());
    first.wait().unwrap();
    // Its own mount, and not one that was there before: what is left in that one stays.
    assert_eq!((line.trim(), text(&beside.stdout).trim()), (place, place));
    assert_eq!(mounts(), before);
}

#[test]
fn what_a_killed_run_has_changed_is_put_right_and_what_it_had_stopped_ends() {
    let dir = Dir::new("keeper");
    let file = dir.0.join("setting");
    fs::write(&file, "2").unwrap();
    let mut stopped = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
    let group = Pid::from_raw(i32::try_from(stopped.id()).unwrap());
    kill(group, Signal::SIGSTOP).unwrap();
    let mut keeper = bench().args(["role", "keeper"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = keeper.stdin.take().unwrap();
    writeln!(stdin, "write 1 {}", file.display()).unwrap();
    writeln!(stdin, "end {group}").unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(!is_dead(group.as_raw()), "not before the end of its input");
    assert_eq!(fs::read_to_string(&file).unwrap(), "2");
    drop(stdin);
    assert!(keeper.wait().unwrap().success());
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    assert!(!stopped.wait().unwrap().success());
}
