//! Every cause is named live, and none that is absent: real programs in network namespaces, and
//! `uncork doctor` on them while they run, by `--pid` on the server or by `-- COMMAND` around the
//! client. What is to be found comes from the scenario's label, as for the captures.
//!
//! They test the `uncork` that was built in the same profile, as `cargo test --workspace` does;
//! `UNCORK_LIVE_PROGRAM=/path/to/uncork` names another.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use uncork_corpus::label::Label;
use uncork_corpus::make::{Watch, Workshop};
use uncork_corpus::scenario::{self, At, Scenario};

/// Namespaces are named after this process: one run at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The side from which the doctor looks.
#[derive(Debug, Clone, Copy)]
enum From {
    /// `uncork doctor --pid` on the servers, which run already.
    Servers,
    /// `uncork doctor -- CLIENT`.
    Client,
}

/// Where the runs are made; its scratch files are removed with it.
struct Place {
    workshop: Workshop,
    scratch: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Prints past the harness, which shows what a test prints only if it fails.
fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Returns none for an ordinary user, and says so; where everything is tested, that is a failure.
fn place(test: &str) -> Option<Place> {
    if uncork_netns::testing::is_skipped(test) {
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mark = uncork_netns::own_mark();
    let scratch = std::env::temp_dir().join(format!("{}{mark}", uncork_netns::PREFIX));
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir(&scratch).unwrap();
    let own = env!("CARGO_BIN_EXE_uncork-corpus").into();
    let workshop = Workshop::with_program(&scratch, &scratch, own).unwrap();
    Some(Place { workshop, scratch, _alone: alone })
}

/// Returns the program under test, which must not be older than its sources.
fn uncork() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(named) = std::env::var_os("UNCORK_LIVE_PROGRAM") {
            return named.into();
        }
        let program = Path::new(env!("CARGO_BIN_EXE_uncork-corpus")).with_file_name("uncork");
        let built = fs::metadata(&program).and_then(|program| program.modified());
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let newest =
            ["bpf", "cli", "doctor", "wire"].map(|name| newest(&crates.join(name).join("src")));
        assert!(
            built.is_ok_and(|built| newest.iter().all(|source| built >= *source)),
            "{} is missing or older than its sources: cargo build -p uncork",
            program.display()
        );
        program
    })
}

/// Returns when the last of the files below a directory was changed.
fn newest(directory: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        let time =
            if found.is_dir() { self::newest(&entry.path()) } else { found.modified().unwrap() };
        newest = newest.max(time);
    }
    newest
}

/// `uncork doctor --pid` on processes that run already.
#[derive(Default)]
struct Doctor {
    child: Option<Child>,
    /// Output after its beginning: a pipe that is not read any more would end it.
    rest: Option<JoinHandle<String>>,
    report: Option<Value>,
    code: Option<i32>,
    said: String,
}

impl Watch for Doctor {
    fn begin(&mut self, servers: &[u32]) -> Result<()> {
        let mut command = Command::new(uncork());
        command.args(["doctor", "--json", "--all", "--for", "100s"]);
        for server in servers {
            command.arg("--pid").arg(server.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stderr = child.stderr.take().context("it was piped")?;
        self.child = Some(child);
        let mut octet = [0];
        while !self.said.contains("Ctrl-C") {
            ensure!(stderr.read(&mut octet)? == 1, "it did not begin: {}", self.said);
            self.said.push(char::from(octet[0]));
        }
        self.rest = Some(thread::spawn(move || {
            let mut rest = Vec::new();
            let _ = stderr.read_to_end(&mut rest);
            String::from_utf8_lossy(&rest).into_owned()
        }));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let child = self.child.take().context("it has begun")?;
        kill(Pid::from_raw(child.id().try_into()?), Signal::SIGINT)?;
        let output = child.wait_with_output()?;
        self.said += &self.rest.take().and_then(|rest| rest.join().ok()).unwrap_or_default();
        self.code = output.status.code();
        self.report = Some(
            serde_json::from_slice(&output.stdout)
                .with_context(|| format!("it reported no JSON, and said {}", self.said))?,
        );
        Ok(())
    }
}

impl Drop for Doctor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Wraps a client: what the doctor reports and says goes to files beside `$0`, and what the
/// client prints (the doctor has it on its standard error) to standard output. ip-netns(8) has
/// mounted another /sys, which lacks the control groups that tell which options programs ask for:
/// the doctor gets that of process $2.
const AROUND: &str = r#"
uncork=$1 mounts=$2; shift 2
nsenter --target "$mounts" --mount --wd="$PWD" "$uncork" doctor --json --all -- "$@" >"$0.json" 2>"$0.said"
echo $? >"$0.code"
grep -v '^uncork: ' "$0.said" || true
"#;

/// Makes one run; returns the label, the doctor's report, its exit status and what it said.
fn run(place: &Place, scenario: &Scenario, from: From) -> (Label, Value, i32, String) {
    match from {
        From::Servers => {
            let mut doctor = Doctor::default();
            let label = place.workshop.watched(scenario, &mut doctor).unwrap();
            let report = doctor.report.take().unwrap();
            (label, report, doctor.code.unwrap(), std::mem::take(&mut doctor.said))
        }
        From::Client => {
            let base = place.scratch.join("doctor");
            let (own, program) = (std::process::id().to_string(), uncork().to_str().unwrap());
            let around = ["sh", "-c", AROUND, base.to_str().unwrap(), program, &own];
            let label =
                place.workshop.live(scenario, At::Client, &around.map(str::to_owned)).unwrap();
            let read = |ending| fs::read_to_string(base.with_extension(ending)).unwrap();
            let said = read("said");
            let report = serde_json::from_str(&read("json"))
                .unwrap_or_else(|error| panic!("the report is no JSON ({error}): {said}"));
            (label, report, read("code").trim().parse().unwrap(), said)
        }
    }
}

/// How often a scenario is run again if only its milliseconds are wrong; none of these runs may be
/// wrong. The client times one run here, without the several runs that tell the corpus how noisy
/// the machine was: what else the machine did in that run is in the client's time, and is no stall.
/// So the median of three has to be right.
const MORE: usize = 2;

/// Runs a scenario, and compares what the doctor says with its label. `fails` is for a known fault:
/// the run is made all the same, and once the fault is gone the mark has to go, too.
fn named(test: &str, scenario: &str, from: From, fails: Option<&str>) {
    let Some(place) = place(test) else { return };
    let scenario = scenario::all().into_iter().find(|one| one.name == scenario).unwrap();
    let mut ran = run(&place, &scenario, from);
    let (names, sums) = (common::wrong_names(&ran.0, &ran.1), common::wrong_sums(&ran.0, &ran.1));
    if names.is_empty() && !sums.is_empty() {
        say(format_args!("note: {test} is run twice more: {}", sums.join("; ")));
        for _ in 0..MORE {
            ran = run(&place, &scenario, from);
            if !common::complaints(&ran.0, &ran.1).is_empty() {
                break;
            }
        }
    }
    let (label, report, code, said) = ran;
    let complaints = common::complaints(&label, &report);
    if let Some(fault) = fails {
        assert!(!complaints.is_empty(), "this is mended, take its mark away: {fault}");
        say(format_args!("note: {test} fails: {fault} ({})", complaints.join("; ")));
        return;
    }
    assert!(
        complaints.is_empty(),
        "{} ({from:?}): {}\n{said}\n{report:#}",
        scenario.name,
        complaints.join("\n")
    );
    let findings = report["connections"].as_array().unwrap().iter();
    let is_bad = findings
        .flat_map(|connection| connection["findings"].as_array().unwrap())
        .any(|finding| finding["severity"] != "harmless");
    assert_eq!(code, i32::from(is_bad), "{said}");
}

/// Makes one test for each: its name, the scenario, from which side, and the fault that fails it.
macro_rules! live {
    ($($name:ident: $scenario:expr, $from:ident $(, fails: $fault:literal)?;)*) => {$(
        #[test]
        fn $name() {
            let faults: &[&str] = &[$($fault)?];
            uncork_calm::asserted(stringify!($name), || {
                named(stringify!($name), $scenario, From::$from, faults.first().copied());
            });
        }
    )*};
}

live! {
    http_server_in_two_writes_meets_the_delayed_ack: "nagle-python-http-1ms", Servers;
    a_static_client_in_two_writes_meets_the_delayed_ack: "nagle-static-client-0.05ms", Client;
    nodelay_that_was_undone_is_not_in_force: "nagle-nodelay-undone-0.3ms", Client;
    nodelay_at_the_wrong_level_is_not_in_force: "nagle-nodelay-wrong-level-0.3ms", Client;
    the_second_segment_of_a_request_waits_for_a_delayed_ack: "delayed-ack-window-of-one-1ms", Client;
    a_cork_that_is_forgotten_costs_its_timeout: "cork-forgotten-0.05ms", Servers;
    msg_more_on_the_last_piece_costs_the_corks_timeout: "cork-more-5ms", Servers;
    a_request_in_a_hundred_writes_is_a_storm_of_tiny_packets: "tiny-packets-c-0.05ms", Client;
    a_runt_behind_a_full_segment_waits_for_the_headers_ack: "runt-5ms", Servers;
    an_upload_waits_in_its_own_queue: "sender-queue-alone-1ms", Client;
    an_upload_meets_a_window_that_is_shut: "zero-window-0.05ms", Client;
    the_server_of_an_upload_sees_its_own_window_shut: "zero-window-0.05ms", Servers;
    a_reply_whose_end_is_lost_is_sent_again: "loss-tail-1ms", Servers;
    a_slow_server_is_told_from_tcp: "slow-program-0.05ms", Servers;
    a_slow_server_is_told_from_tcp_at_the_client: "slow-program-0.05ms", Client;
    a_server_that_is_slow_and_writes_twice_is_both: "nagle-and-slow-program-1ms", Servers;
    quick_acks_run_out_at_a_reader_that_reads_late: "quickack-exhausted-0.05ms", Client;
    quick_acks_run_out_and_meet_nagle: "quickack-exhausted-nagle-1ms", Client;
    redis_is_healthy: "healthy-redis-0.05ms", Servers;
    nginx_is_healthy: "healthy-nginx-curl-5ms", Servers;
    curl_is_healthy: "healthy-nginx-curl-0.05ms", Client;
    somebody_who_types_is_healthy: "healthy-typing-40ms", Servers;
    a_client_that_pauses_is_healthy: "healthy-one-write-80ms", Client;
    a_cork_that_is_taken_off_is_healthy: "healthy-corked-well-10ms", Servers;
    uploads_in_segment_trains_are_healthy: "healthy-bulk-0.05ms", Client;
}

/// Where Go is not installed, a static C program takes its place: no library can be preloaded into
/// either.
#[test]
fn a_go_program_in_two_writes_meets_the_delayed_ack() {
    let go = Command::new("go").arg("version").stdout(Stdio::null()).status();
    let (scenario, from) = if go.is_ok_and(|done| done.success()) {
        ("nagle-go-server-0.3ms", From::Servers)
    } else {
        ("nagle-static-client-20ms", From::Client)
    };
    uncork_calm::asserted("a_go_program_in_two_writes_meets_the_delayed_ack", || {
        named("a_go_program_in_two_writes_meets_the_delayed_ack", scenario, from, None);
    });
}
