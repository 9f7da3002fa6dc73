//! `uncork stack guard`, and how programs of unprivileged users find it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use uncork_guardian::Client;
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;

use crate::common::service::{Service, file, host, name, on};
use crate::common::{UNCORK, output, refused, stderr, stdout, uncork, uncork_of_nobody};

/// A group without members.
const GROUP: u32 = 4711;

fn guard(host: &Namespace, name: &str, arguments: &[&str]) -> Service {
    Service::start(host, "guard", name, arguments)
}

/// Returns a directory to be kept, and `uncork run --stack` by an unprivileged user of a group.
fn run_of(group: u32, host: &Namespace, arguments: &[&str]) -> (tempfile::TempDir, Command) {
    let (kept, _) = uncork_of_nobody();
    let mut command = on(host, "setpriv");
    command.args(["--reuid=65534", &format!("--regid={group}"), "--clear-groups"]);
    command.arg(kept.path().join("uncork")).args(["run", "--stack"]).args(arguments);
    (kept, command)
}

#[test]
fn who_has_no_privilege_runs_a_program_by_a_guardian_that_has() {
    const TEST: &str = "who_has_no_privilege_runs_a_program_by_a_guardian_that_has";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("servrun"), name("run"));
    let service = guard(&host, &name, &["--group", &GROUP.to_string()]);
    let wanted =
        format!("guardian of stacks on eth0: uncork run --stack --guardian {name} -- COMMAND\n");
    assert_eq!(service.said, wanted);
    let found = fs::metadata(file("guard", &name)).unwrap();
    assert_eq!((found.mode() & 0o777, found.uid(), found.gid()), (0o640, 0, GROUP));
    let by = ["--guardian", &name];
    let ask = ["--", "sh", "-c", "echo $UNCORK_STACK; cat /proc/$$/task/*/children"];
    let (_kept, mut command) = run_of(GROUP, &host, &[&by[..], &ask].concat());
    let ran = output(&mut command);
    assert!(ran.status.success(), "{}", stderr(&ran));
    let said = stdout(&ran);
    let place = said.lines().next().unwrap().to_owned();
    assert!(fs::read_to_string(file("guard", &name)).unwrap().starts_with(&place), "{said}");
    // It has a stack of its own there.
    let client = host.within(move || Ok(Client::connect(&place)?)).unwrap();
    assert!(!client.attaches());
    assert_eq!(client.devices().len(), 1);
    let (_kept, mut command) = run_of(65_534, &host, &[&by[..], &["--", "true"]].concat());
    let why = format!(
        "this user may not use the guardian {name} of stacks: sudo uncork stack guard --name {name} --group GROUP"
    );
    refused(&mut command, 125, &why);
    assert_eq!(service.end(Signal::SIGTERM), (Some(0), String::new()));
    assert!(!file("guard", &name).exists());
}

#[test]
fn a_guardian_that_was_killed_is_told_from_one_that_lives() {
    const TEST: &str = "a_guardian_that_was_killed_is_told_from_one_that_lives";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("servkill"), name("kill"));
    let service = guard(&host, &name, &[]);
    let mut second = on(&host, UNCORK);
    let why = format!("a guardian {name} of stacks runs already: end it, or give this one another");
    refused(second.args(["stack", "guard", "--name", &name]), 2, &why);
    let run = |why: &str| {
        let mut command = on(&host, UNCORK);
        command.args(["run", "--stack", "--guardian", &name, "--", "echo", "ran"]);
        refused(&mut command, 125, why);
    };
    kill(service.pid(), Signal::SIGKILL).unwrap();
    service.end(Signal::SIGKILL);
    assert!(file("guard", &name).exists());
    run(&format!("network namespace: sudo uncork stack guard --name {name}"));
    let service = guard(&host, &name, &[]);
    assert_eq!(service.end(Signal::SIGINT), (Some(0), String::new()));
    run(&format!(
        "no guardian {name} of stacks runs: sudo uncork stack guard --name {name} starts"
    ));
}

#[test]
fn what_cannot_be_is_one_sentence_and_leaves_nothing() {
    const TEST: &str = "what_cannot_be_is_one_sentence_and_leaves_nothing";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("servmissing"), name("missing"));
    let guard = |arguments: &[&str], code: i32, why: &str| {
        let mut command = on(&host, UNCORK);
        refused(command.args(["stack", "guard", "--name", &name]).args(arguments), code, why);
        assert!(!file("guard", &name).exists());
    };
    guard(&["--dev", "none0"], 2, "there is no network device none0 here");
    guard(&["--group", "no-such-group"], 2, "there is no group no-such-group");
    guard(&["--queues", "2"], 2, "--queues is for AF_XDP");
    let mut command = on(&host, "setpriv");
    command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", UNCORK]);
    command.args(["stack", "guard", "--name", &name]);
    refused(&mut command, 3, "needs CAP_NET_RAW: run uncork as root (sudo uncork stack guard)");
    let run = |arguments: &[&str], why: &str| {
        let mut command = uncork();
        refused(command.arg("run").args(arguments).args(["--", "echo", "ran"]), 125, why);
    };
    let devices = "--dev, --port, --driver and --queues are said to uncork stack guard";
    run(&["--stack", "--guardian", "web", "--dev", "eth0"], devices);
    run(&["--stack", "--guardian", "web", "--driver=xdp"], devices);
    run(
        &["--stack=instance", "--guardian", "web"],
        "--guardian is for a stack on the program's own",
    );
}

#[test]
fn who_has_neither_a_privilege_nor_a_guardian_is_told_of_both() {
    const TEST: &str = "who_has_neither_a_privilege_nor_a_guardian_is_told_of_both";
    if is_skipped(TEST) || file("guard", "default").exists() {
        return;
    }
    let host = host("servnone");
    let (_kept, mut command) = run_of(GROUP, &host, &["--", "echo", "ran"]);
    refused(
        &mut command,
        125,
        "a stack in user space needs CAP_NET_ADMIN and CAP_NET_RAW and CAP_BPF",
    );
    refused(
        &mut command,
        125,
        "or have the service run that needs it instead: sudo uncork stack guard",
    );
}
