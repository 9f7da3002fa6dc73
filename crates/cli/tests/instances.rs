//! `uncork stack start`, and how programs of `uncork run --stack=instance` find its instances.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_guardian::Client;
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;

use crate::common::service::{self, Service, host, name, on, wait_until};
use crate::common::{UNCORK, library, output, refused, stderr, stdout, uncork, uncork_of_nobody};

/// A group that no user is in.
const NOBODY: u32 = 65_534;

fn file(name: &str) -> PathBuf {
    service::file("stack", name)
}

fn start(host: &Namespace, name: &str, arguments: &[&str]) -> Service {
    Service::start(host, "start", name, arguments)
}

/// Returns the processes of its instances, ordered by instance number.
fn instances(stack: &Service, count: u32) -> Vec<Pid> {
    let children = format!("/proc/{0}/task/{0}/children", stack.pid());
    let children = fs::read_to_string(children).unwrap_or_default();
    let line = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cmdline"));
    let of = |number: u32| {
        let wanted = format!("uncork\0guardian\0instance\0{number}\0");
        let is_it = |pid: &&str| line(pid).is_ok_and(|line| line == wanted);
        children.split_whitespace().find(is_it)?.parse().ok().map(Pid::from_raw)
    };
    (0..count).filter_map(of).collect()
}

/// Returns one field of a process's status file (proc_pid_status(5)).
fn status(pid: Pid, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn instances_are_started_pinned_found_and_started_again_and_nothing_is_left_of_them() {
    const TEST: &str =
        "instances_are_started_pinned_found_and_started_again_and_nothing_is_left_of_them";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("inststart"), name("start"));
    let stack = start(&host, &name, &["--instances", "2", "--cpus", "0,1"]);
    let wanted = format!(
        "2 instances of the stack on eth0: uncork run --stack=instance --instance {name} -- COMMAND\n"
    );
    assert_eq!(stack.said, wanted);
    let begun = instances(&stack, 2);
    assert_eq!(begun.len(), 2);
    for (number, pid) in begun.iter().enumerate() {
        assert_eq!(status(*pid, "Cpus_allowed_list"), number.to_string());
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(*pid, set), "0000000000000000", "{set}");
        }
        assert_eq!(status(*pid, "NoNewPrivs"), "1");
        // Its secret is in nothing that other users may read.
        let place = fs::read_to_string(file(&name)).unwrap();
        let (_, token) = place.lines().next().unwrap().split_once(':').unwrap();
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains(token));
    }
    let of = format!("{name}:1");
    let mut command = on(&host, UNCORK);
    command.args(["run", "--stack=instance", "--instance", &of, "--", "sh", "-c"]);
    let script = "echo $UNCORK_STACK $UNCORK_STACK_INSTANCE; echo \"$LD_PRELOAD\"";
    let ran = output(command.arg(script));
    assert!(ran.status.success(), "{}", stderr(&ran));
    assert_eq!(stderr(&ran), "");
    let said = stdout(&ran);
    let (place, rest) = said.lines().next().unwrap().split_once(' ').unwrap();
    assert_eq!((rest, Path::new(said.lines().nth(1).unwrap())), ("1", library()));
    let place = place.to_owned();
    let mut client = host.within(move || Ok(Client::connect(&place)?)).unwrap();
    assert!(client.attaches());
    assert_eq!(client.attach(Some(1)).unwrap().0, 1);
    // One dies, and another takes its place.
    let dead = begun[0];
    kill(dead, Signal::SIGKILL).unwrap();
    let is_new = |all: Vec<Pid>| all.len() == 2 && all[0] != dead && all[1] == begun[1];
    wait_until("it is started again", || is_new(instances(&stack, 2)));
    let again = instances(&stack, 2)[0];
    wait_until("it is in its place", || status(again, "Cpus_allowed_list") == "0");
    let (code, complaints) = stack.end(Signal::SIGTERM);
    assert_eq!(code, Some(0), "{complaints}");
    let wanted =
        format!("uncork: instance 0 of the stack (process {dead}) was ended by a signal (SIGKILL)");
    assert!(complaints.starts_with(&wanted), "{complaints}");
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
    assert!(!file(&name).exists());
    for pid in [again, begun[1]] {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} is left");
    }
}

#[test]
fn a_name_is_one_s_at_a_time_and_what_was_left_behind_is_replaced() {
    const TEST: &str = "a_name_is_one_s_at_a_time_and_what_was_left_behind_is_replaced";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("instname"), name("name"));
    let stack = start(&host, &name, &[]);
    let mut second = on(&host, UNCORK);
    refused(second.args(["stack", "start", "--name", &name]), 2, "run already: end them");
    let run = |why: &str| {
        let mut command = on(&host, UNCORK);
        command.args(["run", "--stack=instance", "--instance", &name, "--", "echo", "ran"]);
        refused(&mut command, 125, why);
    };
    stack.end(Signal::SIGKILL);
    assert!(file(&name).exists());
    run(&format!("network namespace: sudo uncork stack start --name {name}"));
    let stack = start(&host, &name, &[]);
    assert!(stack.said.starts_with("1 instance of the stack on eth0: "), "{}", stack.said);
    assert_eq!(stack.end(Signal::SIGINT), (Some(0), String::new()));
    run(&format!("sudo uncork stack start --name {name} starts them"));
}

#[test]
fn who_is_in_the_group_may_attach_and_others_may_not() {
    const TEST: &str = "who_is_in_the_group_may_attach_and_others_may_not";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("instgroup"), name("group"));
    // Its own directory is not searchable by everybody.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let program = directory.path().join("uncork");
    fs::copy(UNCORK, &program).unwrap();
    let stack = start(&host, &name, &["--group", "4711"]);
    let found = fs::metadata(file(&name)).unwrap();
    assert_eq!((found.mode() & 0o777, found.uid(), found.gid()), (0o640, 0, 4711));
    let run = |group: u32| {
        let mut command = on(&host, "setpriv");
        command.arg(format!("--reuid={NOBODY}")).arg(format!("--regid={group}"));
        command.arg("--clear-groups").arg(&program);
        command.args(["run", "--stack=instance", "--instance", &name, "--", "id", "-g"]);
        command
    };
    let ran = output(&mut run(4711));
    assert_eq!((stdout(&ran).as_str(), stderr(&ran).as_str()), ("4711\n", ""));
    let why = "may not attach to the instances";
    refused(&mut run(NOBODY), 125, why);
    refused(&mut run(NOBODY), 125, "sudo uncork stack start --name");
    assert_eq!(stack.end(Signal::SIGTERM).0, Some(0));
}

#[test]
fn what_f_stack_s_adapter_was_told_is_what_there_is() {
    const TEST: &str = "what_f_stack_s_adapter_was_told_is_what_there_is";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("instfstack"), name("fstack"));
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(config.path(), format!("[stack]\nname = {name}\ndev = eth0\n")).unwrap();
    let mut command = on(&host, UNCORK);
    command.args(["stack", "start", "--config"]).arg(config.path());
    command.envs([("FF_NB_FSTACK_INSTANCE", "2"), ("FF_INITIAL_LCORE_ID", "1")]);
    let stack = Service::begin(&mut command);
    assert!(stack.said.starts_with("2 instances of the stack on eth0"), "{}", stack.said);
    let told = fs::read_to_string(file(&name)).unwrap();
    assert_eq!(told.lines().skip(1).collect::<Vec<_>>(), ["instances 2", "cpu 0 0", "cpu 1 1"]);
    let run = |process: &str| {
        let mut command = on(&host, UNCORK);
        command.args(["run", "--stack=instance", "--instance", &name, "--", "sh", "-c"]);
        command.arg("echo $UNCORK_STACK_INSTANCE,$UNCORK_STACK_THREADS").env("FF_PROC_ID", process);
        command
    };
    let ran = output(&mut run("1"));
    assert_eq!((stdout(&ran).as_str(), stderr(&ran).as_str()), ("1,\n", ""));
    refused(&mut run("2"), 125, &format!("no instance 2 of {name}, which has 2"));
    // A variable that concerns the instance, or nothing at all, is reported to set nothing.
    let says = |(variable, value): (&str, &str), told: &str, note: &str| {
        let ran = output(run("0").env(variable, value));
        assert_eq!(stdout(&ran), told);
        assert!(stderr(&ran).starts_with(note), "{}", stderr(&ran));
        assert_eq!(stderr(&ran).lines().count(), 1);
    };
    let note = "uncork: FF_INITIAL_LCORE_ID=1 sets nothing with --stack=instance: ";
    says(("FF_INITIAL_LCORE_ID", "1"), "0,\n", note);
    // A program whose threads have an instance each cannot choose one.
    let note = "uncork: FF_PROC_ID=0 sets nothing where each thread has an instance of its own";
    says(("FF_THREAD_SOCKET", "1"), ",1\n", note);
    let named = format!("{name}:1");
    let mut command = on(&host, UNCORK);
    command.args(["run", "--stack=instance", "--thread-sockets", "--instance", &named]);
    command.args(["--", "sh", "-c", "echo $UNCORK_STACK_INSTANCE,$UNCORK_STACK_THREADS"]);
    let ran = output(command.env("FF_PROC_ID", "0"));
    assert_eq!((stdout(&ran).as_str(), stderr(&ran).as_str()), ("1,1\n", ""));
    // An inherited number may name an instance of this name or of another one, and is removed.
    let mut command = on(&host, UNCORK);
    command.args(["run", "--stack=instance", "--instance", &name, "--", "sh", "-c"]);
    command.arg("echo ${UNCORK_STACK_INSTANCE-none}");
    let ran = output(command.env("UNCORK_STACK_INSTANCE", "7"));
    assert_eq!((stdout(&ran).as_str(), stderr(&ran).as_str()), ("none\n", ""));
    // Settings that belong to the instances have no effect on a program.
    let ran = output(command.env("UNCORK_MODERATION", "50us").env("UNCORK_SMALL_QUEUE", "6000"));
    let note = "uncork: UNCORK_MODERATION=50us sets nothing with --stack=instance: ";
    assert!(stderr(&ran).starts_with(note), "{}", stderr(&ran));
    assert_eq!(stderr(&ran).lines().count(), 2, "{}", stderr(&ran));
    // The program runs on its instance's processor.
    let mut command = on(&host, "taskset");
    command.args(["-c", "1", UNCORK, "run", "--stack=instance", "--instance"]);
    let ran = output(command.arg(format!("{name}:1")).args(["--", "true"]));
    assert!(stderr(&ran).contains("that is the processor of instance 1"), "{}", stderr(&ran));
    assert_eq!(stack.end(Signal::SIGHUP).0, Some(0));
}

#[test]
fn what_cannot_be_started_is_one_sentence_and_leaves_nothing() {
    const TEST: &str = "what_cannot_be_started_is_one_sentence_and_leaves_nothing";
    if is_skipped(TEST) {
        return;
    }
    let (host, name) = (host("instmissing"), name("missing"));
    let start = |arguments: &[&str], code: i32, why: &str| {
        let mut command = on(&host, UNCORK);
        refused(command.args(["stack", "start", "--name", &name]).args(arguments), code, why);
        assert!(!file(&name).exists());
    };
    start(&["--dev", "none0"], 2, "there is no network device none0 here");
    start(&["--group", "no-such-group"], 2, "there is no group no-such-group");
    start(&["--cpus", "8191"], 2, "there is no processor 8191, or it is off");
    start(&["--instances", "2", "--cpus", "0"], 2, "2 instances need a processor each");
    let mut command = on(&host, "setpriv");
    command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", UNCORK]);
    command.args(["stack", "start", "--name", &name]);
    refused(&mut command, 3, "need CAP_NET_RAW: run uncork as root (sudo uncork stack start)");
    assert!(!file(&name).exists());
    // The directory exists by now, and belongs to another user.
    fs::create_dir_all("/run/uncork/stack").unwrap();
    let (_kept, mut nobody) = uncork_of_nobody();
    nobody.args(["stack", "start", "--name", &name]);
    refused(&mut nobody, 3, "need CAP_NET_ADMIN and CAP_NET_RAW and CAP_BPF: run uncork as root");
}

#[test]
fn options_that_make_no_sense_together_are_told() {
    let run = |arguments: &[&str], why: &str| {
        let mut command = uncork();
        refused(command.arg("run").args(arguments).args(["--", "echo", "ran"]), 125, why);
    };
    let why = "--dev, --port, --driver and --queues are said to uncork stack start";
    run(&["--stack=instance", "--dev", "eth0"], why);
    run(&["--stack=instance", "--port", "80"], why);
    run(&["--stack=instance", "--driver=xdp"], why);
    run(&["--stack=instance", "--queues=2"], why);
    let why = "--moderation is said to uncork stack start, whose instances take the frames in";
    run(&["--stack=instance", "--moderation", "50us"], why);
    let why =
        "--moderation 50us would do nothing, as with --spin auto each frame is taken in at once";
    run(&["--stack", "--moderation", "50us", "--spin", "auto"], why);
    run(&["--stack", "--queues=2"], "--queues is for AF_XDP: give --driver=xdp beside it");
    run(&["--stack", "--instance", "web"], "--instance names what --stack=instance attaches to");
    let why =
        "no instances no-such-name of the stack run: sudo uncork stack start --name no-such-name";
    run(&["--stack=instance", "--instance", "no-such-name"], why);
    // An inherited setting is refused like one on the command line.
    let inherits = |arguments: &[&str], (name, value): (&str, &str), why: &str| {
        let mut command = uncork();
        command.arg("run").args(arguments).args(["--", "echo", "ran"]).env(name, value);
        refused(&mut command, 125, why);
    };
    let why =
        "as with UNCORK_SPIN=50us each frame is taken in at once: give --spin off, or unset that";
    inherits(&["--stack", "--moderation", "50us"], ("UNCORK_SPIN", "50us"), why);
    let why = "UNCORK_STACK_INSTANCE=first is no number";
    inherits(&["--stack=instance"], ("UNCORK_STACK_INSTANCE", "first"), why);
}
