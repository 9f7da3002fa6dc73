//! `uncork doctor --pid` on programs in several languages: its report on each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::live::{alone, ask, doctor, finding, kinds, may_trace, traced, traced_process};
use serde_json::Value;

/// A server, which is killed when this is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts it, and reads its port from its first line.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        Self { child, address: ([127, 0, 0, 1], port).into() }
    }

    /// Returns what the doctor reports while this many requests are sent to it.
    fn asked(&self, times: usize, arguments: &[&str]) -> (Duration, Value) {
        let exchange = || ask(self.address, times);
        let (took, report, _) = traced_process(self.child.id(), arguments, exchange);
        (took, report)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server of stall.c, and the directory that it is in.
fn stall(flags: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("stall");
    common::compile(include_str!("common/stall.c"), &program, flags);
    (directory, program)
}

fn python(manner: &str, flags: &[&str]) -> (tempfile::NamedTempFile, Command) {
    let script = tempfile::Builder::new().suffix(".py").tempfile().unwrap();
    std::fs::write(script.path(), include_str!("common/stall.py")).unwrap();
    let mut command = Command::new("/usr/bin/python3");
    command.args(flags).arg(script.path()).arg(manner);
    (script, command)
}

fn median_ms(finding: &Value) -> f64 {
    finding["each"]["p50_ms"].as_f64().unwrap()
}

fn lost_ms(finding: &Value) -> f64 {
    finding["lost_ms"].as_f64().unwrap()
}

#[test]
fn the_programs_own_time_is_told_to_within_three_percent() {
    let _alone = alone();
    uncork_calm::asserted("the_programs_own_time_is_told_to_within_three_percent", || {
        if !may_trace() {
            return;
        }
        let (_script, mut command) = python("late", &[]);
        let server = Server::start(&mut command);
        let (took, report) = server.asked(20, &[]);
        assert_eq!(kinds(&report), ["application"], "{report:#}");
        let told = lost_ms(finding(&report, "application")) / 20.0;
        // The client's own clock: all other waiting takes a tenth of a millisecond.
        let took = took.as_secs_f64() * 1e3 / 20.0;
        assert!((took * 0.97..took * 1.03).contains(&told), "{told} ms told, {took} ms taken");
        assert!((48.5..51.5).contains(&told) || took > 51.5, "{told} ms told of 50");
        let median = finding(&report, "application")["each"]["p50_ms"].as_f64().unwrap();
        assert!((48.5..51.5).contains(&median) || took > 51.5, "{median} ms told of 50");
    });
}

#[test]
fn the_stack_of_a_program_without_frame_pointers_names_its_functions() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    for flags in [&["-O2", "-fomit-frame-pointer"][..], &["-O2", "-fomit-frame-pointer", "-static"]]
    {
        let (_directory, program) = stall(flags);
        let server = Server::start(&mut Command::new(&program));
        let (_, report) = server.asked(8, &["--stacks"]);
        let evidence = finding(&report, "nagle_delayed_ack")["evidence"].as_str().unwrap();
        let inside_out =
            ["put_body (stall)", "put_answer (stall)", "serve_requests (stall)", "main (stall)"];
        assert!(evidence.contains(&inside_out.join(" < ")), "{flags:?}: {evidence}");
        let command = &report["connections"][0]["server"]["process"]["command"];
        assert_eq!(command, program.to_str().unwrap());
        let remedies = finding(&report, "nagle_delayed_ack")["remedies"].to_string();
        assert_eq!(remedies.contains("uncork run"), !flags.contains(&"-static"), "{remedies}");
    }
}

#[test]
fn a_go_program_is_told_with_its_functions() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let Some(program) = go() else { return };
    let server = Server::start(&mut Command::new(program.path().join("stall")));
    let (_, report) = server.asked(12, &["--stacks"]);
    // Go sets TCP_NODELAY on every connection; this program clears it.
    let astray = finding(&report, "nodelay_not_in_force")["evidence"].as_str().unwrap();
    assert!(astray.contains("took it off again"), "{astray}");
    let finding = finding(&report, "nagle_delayed_ack");
    let evidence = finding["evidence"].as_str().unwrap();
    let calls = "from main.putBody (stall) < main.putAnswer (stall) < main.main (stall)";
    assert!(evidence.contains(calls), "{evidence}");
    // A preloaded library would see none of its calls.
    assert!(!finding["remedies"].to_string().contains("uncork run"), "{finding:#}");
    assert!((38.0..50.0).contains(&median_ms(finding)), "{finding:#}");
}

/// The server of stall.go; `None` where Go is missing.
fn go() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("stall.go");
    std::fs::write(&source, include_str!("common/stall.go")).unwrap();
    let test = "a_go_program_is_told_with_its_functions";
    common::compile_go(test, &source, &directory.path().join("stall")).then_some(directory)
}

#[test]
fn the_command_of_a_python_program_is_suggested_with_its_arguments() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let (script, mut command) = python("in two", &["-u"]);
    let server = Server::start(&mut command);
    let (_, report) = server.asked(8, &["--stacks"]);
    let finding = finding(&report, "nagle_delayed_ack");
    let path = script.path().display();
    let line = format!("uncork run -- /usr/bin/python3 -u {path} 'in two'");
    let remedies = finding["remedies"].as_array().unwrap();
    assert!(remedies.iter().any(|remedy| remedy["line"] == *line), "{remedies:#?}");
    // The interpreter itself is named: its symbol table has its own functions.
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(evidence.contains("Py") && !evidence.contains("from write"), "{evidence}");
}

#[test]
fn functions_that_a_program_makes_itself_have_the_names_that_it_tells_perf() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    // As `python -X perf` (3.12 and later) does.
    let (_directory, program) = stall(&["-O2"]);
    let server = Server::start(Command::new(&program).arg("made"));
    let (_, report) = server.asked(8, &["--stacks"]);
    let evidence = finding(&report, "nagle_delayed_ack")["evidence"].as_str().unwrap();
    assert!(evidence.contains("from py::put:/srv/app.py"), "{evidence}");
    let map = format!("/tmp/perf-{}.map", server.child.id());
    std::fs::remove_file(map).unwrap();
}

#[test]
fn nodelay_that_is_asked_for_in_vain_is_told_with_what_was_asked_where() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let (_directory, program) = stall(&["-O1"]);
    for (manner, said) in [
        ("wrong-level", "option 1 at level SOL_SOCKET"),
        ("short-value", "a value of 1 octet"),
        ("listener", "on the listening socket"),
        ("udp", "on a socket that is not TCP's"),
    ] {
        let server = Server::start(Command::new(&program).arg(manner));
        let (_, report) = server.asked(8, &[]);
        let evidence = finding(&report, "nodelay_not_in_force")["evidence"].as_str().unwrap();
        assert!(evidence.contains(said), "{manner}: {evidence}");
    }
    let server = Server::start(&mut Command::new(&program));
    let (_, report) = server.asked(8, &[]);
    assert_eq!(kinds(&report), ["nagle_delayed_ack"], "who never asked: {report:#}");
}

#[test]
fn what_the_program_holds_back_itself_is_not_put_down_to_nagle() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let (_directory, program) = stall(&["-O1"]);
    let told = |manner: &str, kind: &str| {
        let server = Server::start(Command::new(&program).arg(manner));
        let (_, report) = server.asked(10, &[]);
        assert_eq!(kinds(&report), [kind], "{manner}: {report:#}");
        median_ms(finding(&report, kind))
    };
    // An ACK is delayed for 40 ms, plus a tick at most.
    for (manner, kind) in
        [("more-at-the-end", "cork_timeout"), ("three-writes", "nagle_delayed_ack")]
    {
        let each = told(manner, kind);
        assert!((38.0..50.0).contains(&each), "{manner}: {each} ms");
    }
    // The first 10 of these are the program's own.
    for manner in ["more-then-last", "cork-taken-off"] {
        let each = told(manner, "nagle_delayed_ack");
        assert!((20.0..38.0).contains(&each), "{manner}: {each} ms");
    }
}

#[test]
fn a_reader_that_is_slow_is_told_as_that_and_nothing_is_called_lost() {
    let _alone = alone();
    uncork_calm::asserted(
        "a_reader_that_is_slow_is_told_as_that_and_nothing_is_called_lost",
        || {
            if !may_trace() {
                return;
            }
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (_, report, _) = traced(|| {
                let reader = thread::spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut octets = vec![0; 65_536];
                    while matches!(stream.read(&mut octets), Ok(1..)) {
                        thread::sleep(Duration::from_millis(50));
                    }
                });
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
                let began = std::time::Instant::now();
                while began.elapsed() < Duration::from_secs(3) {
                    if std::io::Write::write_all(&mut stream, &[b'z'; 65_536]).is_err() {
                        break;
                    }
                }
                stream.shutdown(std::net::Shutdown::Both).unwrap();
                drop(stream);
                reader.join().unwrap();
            });
            assert_eq!(kinds(&report), ["zero_window"], "{report:#}");
        },
    );
}

#[test]
fn quick_acks_that_run_out_are_told_as_that() {
    let _alone = alone();
    uncork_calm::asserted("quick_acks_that_run_out_are_told_as_that", || {
        if !may_trace() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pid = std::process::id();
        let (_, report, _) = traced_process(pid, &["--all"], || {
            let reader = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // Reading sends ACKs, so it reads once all the data has arrived.
                thread::sleep(Duration::from_millis(40 * 60));
                let mut octets = [0; 1024];
                while matches!(stream.read(&mut octets), Ok(1..)) {}
            });
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            for _ in 0..40 {
                std::io::Write::write_all(&mut stream, &[b'z'; 1024]).unwrap();
                thread::sleep(Duration::from_millis(60));
            }
            drop(stream);
            reader.join().unwrap();
        });
        let finding = finding(&report, "quickack_exhausted");
        assert_eq!(finding["severity"], "harmless");
        assert_eq!(finding["ack_held_by"], "server");
        assert!(finding["count"].as_u64().unwrap() >= 15, "{finding:#}");
    });
}

/// Runs a shell script in a PID namespace of its own, with a /proc of its own.
fn in_pid_namespace(script: &str, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]);
    command.arg(program).arg(common::UNCORK);
    command
}

#[test]
fn a_process_in_a_container_is_traced_by_the_number_it_has_outside() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let (_directory, program) = stall(&["-O1"]);
    let mut server = Server::start(&mut in_pid_namespace("\"$1\" & wait", &program));
    let inner = common::live::descendant(server.child.id(), "stall");
    let exchange = || ask(server.address, 8);
    let (_, report, _) = traced_process(inner, &[], exchange);
    assert_eq!(kinds(&report), ["nagle_delayed_ack"], "{report:#}");
    assert_eq!(report["connections"][0]["server"]["process"]["pid"], inner);
    server.child.kill().unwrap();
}

#[test]
fn in_a_container_the_numbers_are_those_of_the_container() {
    let _alone = alone();
    if !may_trace() {
        return;
    }
    let (_directory, program) = stall(&["-O1"]);
    let client = "exec 3<>/dev/tcp/127.0.0.1/$0; for i in 1 2 3 4 5 6 7 8; do printf a >&3; \
                  dd bs=1 count=300 of=/dev/null <&3 2>/dev/null; done";
    let script = format!(
        "\"$1\" > \"$1.port\" & pid=$!; while ! [ -s \"$1.port\" ]; do sleep 0.05; done; \
         (until grep -q tracing \"$1.err\"; do sleep 0.05; done; bash -c '{client}' $(cat \"$1.port\")) & \
         \"$2\" doctor --pid $pid --for 60s --json 2> \"$1.err\"; echo $pid; kill $pid"
    );
    let output = in_pid_namespace(&script, &program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (report, pid) = text.trim_end().rsplit_once('\n').unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    assert_eq!(kinds(&report), ["nagle_delayed_ack"], "{report:#}");
    let process = &report["connections"][0]["server"]["process"];
    assert_eq!(process["pid"].to_string(), pid, "{process:#}");
    assert!(pid.parse::<u32>().unwrap() < 100, "{pid} is no number of a new namespace");
    // A /proc that belongs to another namespace.
    let unshared = Command::new("unshare")
        .args(["--pid", "--fork", common::UNCORK, "doctor", "--pid", "1", "--for", "1s"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&unshared.stderr);
    assert_eq!(unshared.status.code(), Some(2), "{errors}");
    assert!(errors.contains("another PID namespace"), "{errors}");
}

#[test]
fn what_is_no_process_that_runs_is_told_by_what_it_is() {
    let refused = |pid: String, said: &str| {
        let output = doctor(&["--pid", &pid, "--for", "1s"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said) && errors.lines().count() == 1, "{errors}");
    };
    // This thread is not the main thread of the process.
    let thread = nix::unistd::gettid();
    let own = std::process::id();
    assert_ne!(thread.as_raw().to_string(), own.to_string());
    refused(thread.to_string(), &format!("give --pid {own}"));
    refused("2147483647".to_owned(), "there is no process");
    let mut child = Command::new("true").spawn().unwrap();
    let zombie = || std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    while !zombie().contains("zombie") {
        thread::sleep(Duration::from_millis(5));
    }
    refused(child.id().to_string(), "(true) has ended");
    child.wait().unwrap();
}
