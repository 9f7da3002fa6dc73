//! `uncork run --stack`: the program's guardian, what it needs, and what the program leaves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_guardian::{Client, Error};
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;

use crate::common::{self, UNCORK, library, output, refused, stderr, stdout};

const LONG: Duration = Duration::from_secs(20);
const OURS: &str = "10.94.0.1";
const PORT: u16 = 7300;

/// Makes two hosts joined by a link.
fn hosts(label: &str) -> (Namespace, Namespace) {
    let ours = Namespace::new(&format!("{label}-o")).unwrap();
    let theirs = Namespace::new(&format!("{label}-t")).unwrap();
    let pair = format!("link add eth0 type veth peer name eth0 netns {}", theirs.name());
    ours.ip(&pair).unwrap();
    for (host, address) in [(&ours, OURS), (&theirs, "10.94.0.2")] {
        host.ip(&format!("address add {address}/24 dev eth0")).unwrap();
        host.ip("link set eth0 up").unwrap();
    }
    (ours, theirs)
}

/// Returns `uncork run --stack` on a host.
fn run(host: &Namespace, uncork: &str, arguments: &[&str]) -> Command {
    let mut command = host.command(uncork);
    command.args(["run", "--stack"]).args(arguments).env("UNCORK_LIBRARY", library());
    command.env_remove("LD_PRELOAD").env_remove("UNCORK_STACK");
    command
}

/// Returns the guardian of a process, if there is one.
fn guardian_of(program: u32) -> Option<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let wanted = format!("uncork\0guardian\0serve\0{program}\0");
    let is_it = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(&wanted))
    };
    pids.into_iter().find(is_it).map(Pid::from_raw)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "not so for {LONG:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A program that says where its guardian is, and then waits for the end of its input.
struct Program {
    child: Child,
    place: String,
}

impl Program {
    fn start(host: &Namespace, arguments: &[&str]) -> Self {
        let mut command = run(host, UNCORK, arguments);
        command.args(["--", "sh", "-c", "echo $UNCORK_STACK; read line"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut place = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut place).unwrap();
        Self { child, place: place.trim().to_owned() }
    }

    fn client(&self, host: &Namespace) -> Client {
        let place = self.place.clone();
        host.within(move || Ok(Client::connect(&place)?)).unwrap()
    }

    fn guardian(&self) -> Pid {
        guardian_of(self.child.id()).unwrap()
    }

    fn end(mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

fn knock(host: &Namespace) -> Result<(), ErrorKind> {
    let to: SocketAddr = format!("{OURS}:{PORT}").parse().unwrap();
    let connect = move || {
        let connect = TcpStream::connect_timeout(&to, Duration::from_millis(200));
        Ok(connect.map(drop).map_err(|error| error.kind()))
    };
    host.within(connect).unwrap()
}

#[test]
fn the_program_is_who_was_started_and_knows_of_no_child() {
    const TEST: &str = "the_program_is_who_was_started_and_knows_of_no_child";
    if is_skipped(TEST) {
        return;
    }
    let (ours, _theirs) = hosts("guardprocess");
    // The guardian must not keep the pipes that its starter has open.
    let script = "echo $$ $PPID; echo \"$UNCORK_STACK\"; echo \"$LD_PRELOAD\"; \
                  cat /proc/$$/task/*/children; echo; exit 3";
    let begun = Instant::now();
    let mut command = run(&ours, UNCORK, &["--", "sh", "-c", script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    // The output ends with the program: the guardian, which stays a while, has closed the pipe.
    let output = child.wait_with_output().unwrap();
    assert!(guardian_of(id).is_some(), "gone after {:?}", begun.elapsed());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let said = stdout(&output);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], format!("{id} {}", std::process::id()));
    assert!(lines[1].starts_with("@uncork-"), "{said}");
    assert_eq!(Path::new(lines[2]), library());
    // The only child is the cat that prints the list.
    assert_eq!(lines[3].split_whitespace().count(), 1, "{said}");
    wait_until("the guardian ends", || guardian_of(id).is_none());
}

#[test]
fn the_guardian_is_of_a_session_of_its_own_and_holds_nothing_of_the_callers() {
    const TEST: &str = "the_guardian_is_of_a_session_of_its_own_and_holds_nothing_of_the_callers";
    if is_skipped(TEST) {
        return;
    }
    let (ours, _theirs) = hosts("guardsession");
    let mut outer = ours.command("sh");
    outer
        .args(["-c", "exec 7</dev/zero; exec \"$0\" run --stack -- sh -c 'echo ready; read line'"])
        .arg(UNCORK)
        .env("UNCORK_LIBRARY", library());
    let mut child = outer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let guardian = guardian_of(child.id()).unwrap();
    let stat = fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
    // Parent, group and session (proc_pid_stat(5)).
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!(
        fields[2..4].iter().map(|field| field.parse().unwrap()).collect::<Vec<i32>>(),
        [guardian.as_raw(); 2]
    );
    assert_ne!(fields[1], child.id().to_string());
    // The descriptors from which it loads its programs are closed again.
    wait_until("it has nothing but its own", || foreign(guardian.as_raw()).is_empty());
    // A signal to the whole group does not reach it, nor does a polite request to end.
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        kill(guardian, signal).unwrap();
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(guardian_of(child.id()), Some(guardian));
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Lists the guardian's open descriptors that are not its own.
fn foreign(guardian: i32) -> Vec<PathBuf> {
    let is_own = |to: &PathBuf| {
        let to = to.to_str().unwrap();
        to == "/dev/null" || to.starts_with("socket:") || to.starts_with("anon_inode:")
    };
    let open = fs::read_dir(format!("/proc/{guardian}/fd")).unwrap().flatten();
    // Skips those that it has closed meanwhile.
    let to = open.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    to.filter(|to| !is_own(to)).collect()
}

#[test]
fn what_is_missing_is_one_sentence_and_nothing_runs() {
    const TEST: &str = "what_is_missing_is_one_sentence_and_nothing_runs";
    if is_skipped(TEST) {
        return;
    }
    let (ours, _theirs) = hosts("guardmissing");
    let refused = |arguments: &[&str], what: &str| {
        refused(run(&ours, UNCORK, arguments).args(["--", "echo", "ran"]), 125, what);
    };
    refused(&["--dev", "none0"], "there is no network device none0 here: ip -brief link");
    refused(&["--dev", "lo"], "lo is not an Ethernet one");
    ours.ip("address flush dev eth0").unwrap();
    ours.set("ipv6/conf/eth0/disable_ipv6", 1).unwrap();
    refused(&["--dev", "eth0"], "eth0 has no address: ip address add ADDRESS/PREFIX dev eth0");
    refused(&[], "no Ethernet device is up and has an address");
    ours.ip("link set eth0 down").unwrap();
    refused(&["--dev", "eth0"], "eth0 is down: ip link set eth0 up");
    // Without any privilege, and with all but one.
    for (dropped, missing) in [
        ("-all", "needs CAP_NET_ADMIN and CAP_NET_RAW and CAP_BPF"),
        ("-net_raw", "needs CAP_NET_RAW: "),
    ] {
        let mut command = ours.command("setpriv");
        let sets = [format!("--bounding-set={dropped}"), format!("--inh-caps={dropped}")];
        command.args(sets).args([UNCORK, "run", "--stack", "--", "echo", "ran"]);
        command.env("UNCORK_LIBRARY", library());
        ours.ip("link set eth0 up").unwrap();
        ours.ip(&format!("address replace {OURS}/24 dev eth0")).unwrap();
        common::refused(&mut command, 125, missing);
    }
}

#[test]
fn a_guardian_that_is_killed_leaves_the_kernel_with_all_that_was_the_stacks() {
    const TEST: &str = "a_guardian_that_is_killed_leaves_the_kernel_with_all_that_was_the_stacks";
    if is_skipped(TEST) {
        return;
    }
    let (ours, theirs) = hosts("guardkilled");
    let program = Program::start(&ours, &["--port", "7300"]);
    let mut client = program.client(&ours);
    let at: SocketAddr = format!("{OURS}:{PORT}").parse().unwrap();
    let listener = ours.within(move || Ok(TcpListener::bind(at)?)).unwrap();
    client.own(at, listener.as_fd()).unwrap();
    assert_eq!(knock(&theirs), Err(ErrorKind::TimedOut));
    client.check().unwrap();
    kill(program.guardian(), Signal::SIGKILL).unwrap();
    wait_until("the port is the kernel's", || knock(&theirs) == Ok(()));
    // The kernel gets the port before anything can learn of the guardian's end.
    wait_until("its end is heard of", || client.check().is_err());
    for _ in 0..2 {
        let error = client.check().unwrap_err();
        assert!(matches!(error, Error::Gone), "{error}");
    }
    let error = client.disown(at).unwrap_err();
    assert!(matches!(error, Error::Gone), "{error}");
    let place = program.place.clone();
    let error = ours.within(move || Ok(Client::connect(&place).unwrap_err())).unwrap();
    assert!(matches!(error, Error::Gone), "{error}");
    program.end();
}

#[test]
fn the_guardian_stays_for_a_daemon_that_the_program_leaves_behind() {
    const TEST: &str = "the_guardian_stays_for_a_daemon_that_the_program_leaves_behind";
    if is_skipped(TEST) {
        return;
    }
    let (ours, _theirs) = hosts("guarddaemon");
    let script = "setsid sleep 600 >/dev/null 2>&1 & echo $!";
    let mut command = run(&ours, UNCORK, &["--dev", "eth0", "--", "sh", "-c", script]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    let daemon: i32 = stdout(&output).trim().parse().unwrap();
    thread::sleep(Duration::from_secs(4));
    let guardian = guardian_of(id);
    kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    assert!(guardian.is_some(), "the daemon has nobody");
    wait_until("the guardian ends", || guardian_of(id).is_none());
}

/// Gives a file capabilities (struct vfs_ns_cap_data, capabilities(7)), as setcap(8) does.
fn set_capabilities(file: &Path) -> bool {
    const VERSION_2_EFFECTIVE: u32 = 0x0200_0001;
    // CAP_NET_ADMIN, CAP_NET_RAW; CAP_BPF is in the upper half.
    let words = [VERSION_2_EFFECTIVE, 1 << 12 | 1 << 13, 0, 1 << (39 - 32), 0];
    let value: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(file, "security.capability", &value, flags).is_ok()
}

#[test]
fn a_user_who_may_nothing_runs_it_where_uncork_has_the_capabilities() {
    const TEST: &str = "a_user_who_may_nothing_runs_it_where_uncork_has_the_capabilities";
    if is_skipped(TEST) {
        return;
    }
    let (ours, _theirs) = hosts("guardcaps");
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let uncork = directory.path().join("uncork");
    fs::copy(UNCORK, &uncork).unwrap();
    fs::copy(library(), directory.path().join("libuncork.so")).unwrap();
    if !set_capabilities(&uncork) {
        eprintln!("skipped: {TEST}: files here cannot have capabilities");
        return;
    }
    let start = |script: &str| {
        let mut command = ours.command("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&uncork)
            .args(["run", "--stack", "--", "sh", "-c", script])
            .env_remove("LD_PRELOAD")
            .env_remove("UNCORK_LIBRARY");
        command
    };
    let output = output(&mut start("id -u; grep CapEff /proc/$$/status; echo $UNCORK_STACK"));
    assert_eq!(stderr(&output), "");
    let said = stdout(&output);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..2], ["65534", "CapEff:\t0000000000000000"], "{said}");
    assert!(lines[2].starts_with("@uncork-"), "{said}");
    // With those capabilities, it loads no code but its own.
    refused(start("true").env("UNCORK_LIBRARY", library()), 125, "UNCORK_LIBRARY is not for");
}
