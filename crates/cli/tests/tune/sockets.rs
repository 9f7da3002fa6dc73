//! Running programs, cured without a restart.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use uncork_lab::stalling::PYTHON;

use crate::place::Place;
use crate::program::{self, Program};

/// Nagle meets delayed ACK, which takes 40 ms and more.
const STALLED: Duration = Duration::from_millis(30);
const CURED: Duration = Duration::from_micros(500);

/// Asserts for each scope in turn: stalled, cured, and stalled again once undone.
fn is_cured_by_each_scope(place: &Place, program: &Program) {
    let (pid, port, name) = (program.pid(), program.port, &place.name);
    for scope in [
        format!("--pid {pid}"),
        format!("--netns {name} --port {port}"),
        format!("--netns {name} --peer 127.0.0.0/8"),
    ] {
        let before = program.p50();
        assert!(before > STALLED, "{scope}: {before:?} before");
        place.tuned(&format!("--nodelay {scope}"), 0);
        let cured = program.p50();
        assert!(cured <= CURED, "{scope}: {cured:?} when cured");
        place.tuned("undo --all", 0);
        let after = program.p50();
        assert!(after > STALLED, "{scope}: {after:?} when undone");
    }
}

#[test]
fn a_python_program_is_cured_while_it_runs() {
    let Some(place) = Place::make("a_python_program_is_cured_while_it_runs") else { return };
    is_cured_by_each_scope(&place, &Program::python(&place));
}

#[test]
fn a_static_program_is_cured_while_it_runs() {
    let Some(place) = Place::make("a_static_program_is_cured_while_it_runs") else { return };
    let file = program::static_c(&place);
    is_cured_by_each_scope(&place, &Program::of(&place, &file));
}

#[test]
fn a_go_program_is_cured_while_it_runs() {
    const TEST: &str = "a_go_program_is_cured_while_it_runs";
    let Some(place) = Place::make(TEST) else { return };
    let Some(file) = program::go(&place, TEST) else { return };
    is_cured_by_each_scope(&place, &Program::of(&place, &file));
}

#[test]
fn a_cgroup_is_cured_and_what_is_outside_is_not() {
    let Some(place) = Place::make("a_cgroup_is_cured_and_what_is_outside_is_not") else { return };
    let (inside, outside) = (Group::make(), Program::python(&place));
    // The program joins the group before it makes its sockets.
    let script = format!("echo $$ >{}/cgroup.procs; exec \"$@\"", inside.0);
    let mut command = place.command("sh");
    command.args(["-c", &script, "sh", "/usr/bin/python3", "-c", PYTHON]);
    let program = Program::start(command);
    place.tuned(&format!("--nodelay --cgroup {}", inside.0), 0);
    let (cured, other) = (program.p50(), outside.p50());
    assert!(cured <= CURED && other > STALLED, "{cured:?} inside, {other:?} outside");
    place.tuned("undo --all", 0);
    assert!(program.p50() > STALLED);
}

/// A cgroup of the test's own.
pub(crate) struct Group(pub(crate) String);

impl Group {
    pub(crate) fn make() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
        let path =
            format!("{}/uncork-tune-{}", root.split(' ').nth(1).unwrap(), std::process::id());
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have been killed, and are gone soon.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn new_connections_of_a_process_and_of_its_children_are_met() {
    let Some(place) = Place::make("new_connections_of_a_process_and_of_its_children_are_met")
    else {
        return;
    };
    let own = std::process::id();
    let (before, _peer, listener) = place.connection();
    place.tuned(&format!("--nodelay --new --pid {own}"), 0);
    let (client, server, _listener) = place.connection();
    assert!(client.nodelay().unwrap() && server.nodelay().unwrap());
    // This connection existed before.
    assert!(!before.nodelay().unwrap());
    // An existing listener gives its new connections to processes outside the scope …
    let port = listener.local_addr().unwrap().port();
    let asks = format!(
        "import socket; s = socket.create_connection(('127.0.0.1', {port})); \
         print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))"
    );
    let child = place.command("/usr/bin/python3").args(["-c", &asks]).output().unwrap();
    // … and the child is inside it.
    assert_eq!(String::from_utf8_lossy(&child.stdout).trim(), "1");
    assert!(listener.accept().unwrap().0.nodelay().unwrap());
    place.tuned("undo --all", 0);
    assert!(!client.nodelay().unwrap() && !server.nodelay().unwrap());
    let (client, server, _listener) = place.connection();
    assert!(!client.nodelay().unwrap() && !server.nodelay().unwrap());
}

#[test]
fn a_port_and_a_peer_mean_no_other_connections() {
    let Some(place) = Place::make("a_port_and_a_peer_mean_no_other_connections") else { return };
    let (meant, _a, listener) = place.connection();
    let (other, _b, _other) = place.connection();
    let port = listener.local_addr().unwrap().port();
    let name = &place.name;
    place.tuned(&format!("--nodelay --netns {name} --port {port} --peer 127.0.0.1"), 0);
    assert!(meant.nodelay().unwrap() && !other.nodelay().unwrap());
    place.tuned(&format!("--nodelay --netns {name} --peer 192.0.2.0/24"), 0);
    assert!(!other.nodelay().unwrap());
}

#[test]
fn bytes_that_wait_for_an_ack_leave_at_once_when_they_are_cured() {
    let name = "bytes_that_wait_for_an_ack_leave_at_once_when_they_are_cured";
    let Some(place) = Place::make(name) else { return };
    let (mut client, mut server, _listener) = place.connection();
    server.set_nonblocking(true).unwrap();
    // The first few are acknowledged at once, and a later segment after 40 ms. Every packet passes
    // a device that the test stops: while the link is down, no ACK can come.
    let stop = |on: &str| place.ip(&format!("link set lo {on}"));
    client.write_all(b"first").unwrap();
    thread::sleep(Duration::from_millis(300));
    stop("down");
    client.write_all(b"lost").unwrap();
    client.write_all(b"waits").unwrap();
    let unsent = || {
        let table = place.shell("ss -tinH state established");
        table.contains("notsent:5")
    };
    assert!(unsent());
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    let left = !unsent();
    stop("up");
    assert!(left, "five octets still wait");
    let mut got = [0; 14];
    thread::sleep(Duration::from_secs(2));
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"firstlostwaits");
}

#[test]
fn every_option_is_set_and_set_back() {
    let Some(place) = Place::make("every_option_is_set_and_set_back") else { return };
    let (client, _server, listener) = place.connection();
    let port = listener.local_addr().unwrap().port();
    let see = || Seen::of(&place, &client);
    let before = see();
    let other = if before.congestion == "cubic" { "reno" } else { "cubic" };
    place.tuned(
        &format!(
            "--nodelay --delack-max 12ms --notsent-lowat 128k --rto-min 20ms --pacing 80mbit \
             --congestion {other} --netns {} --port {port}",
            place.name
        ),
        0,
    );
    let tuned = see();
    assert!(tuned.nodelay);
    assert_eq!(tuned.congestion, other);
    assert_eq!(tuned.notsent_lowat, 128 * 1024);
    assert!(tuned.pacing == 10_000_000 && before.pacing == u32::MAX, "{before:?} {tuned:?}");
    let (list, _) = place.tuned("list --json", 0);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    for option in ["TCP_NODELAY", "TCP_BPF_DELACK_MAX", "TCP_BPF_RTO_MIN", "TCP_CONGESTION"] {
        assert_eq!(list[0]["connections"][option], 2, "{list:#}");
    }
    place.tuned("undo 1", 0);
    assert_eq!(see(), before);
}

/// A connection's options as its own process sees them.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    nodelay: bool,
    congestion: String,
    notsent_lowat: u32,
    pacing: u32,
}

impl Seen {
    fn of(place: &Place, stream: &TcpStream) -> Self {
        // A child has the same socket.
        let script = "import socket; s = socket.socket(fileno=0); g = s.getsockopt; \
                      print(g(6, 1), g(6, 13, 16).rstrip(b'\\0').decode(), g(6, 25) & 0xffffffff, \
                      g(1, 47) & 0xffffffff)";
        let fd = std::os::fd::OwnedFd::from(stream.try_clone().unwrap());
        let mut command = place.command("/usr/bin/python3");
        let output = command.args(["-c", script]).stdin(fd).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words: Vec<_> = text.split_whitespace().collect();
        let [nodelay, congestion, lowat, pacing] = words[..] else { panic!("{text}") };
        Self {
            nodelay: nodelay == "1",
            congestion: congestion.to_owned(),
            notsent_lowat: lowat.parse().unwrap(),
            pacing: pacing.parse().unwrap(),
        }
    }
}

#[test]
fn what_the_program_asks_for_itself_is_not_undone() {
    let Some(place) = Place::make("what_the_program_asks_for_itself_is_not_undone") else { return };
    let (asks, does_not, _listener) = place.connection();
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    asks.set_nodelay(true).unwrap();
    place.tuned("undo --all", 0);
    assert!(asks.nodelay().unwrap(), "it was its own wish");
    assert!(!does_not.nodelay().unwrap());
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    does_not.set_nodelay(false).unwrap();
    place.tuned("undo --all", 0);
    assert!(!does_not.nodelay().unwrap() && asks.nodelay().unwrap());
}

#[test]
fn a_connection_that_was_reset_keeps_no_entry_in_force() {
    let Some(place) = Place::make("a_connection_that_was_reset_keeps_no_entry_in_force") else {
        return;
    };
    let (mut client, server, _listener) = place.connection();
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    // A close with unread octets resets the connection.
    client.write_all(b"unread").unwrap();
    thread::sleep(Duration::from_millis(50));
    drop(server);
    assert!(client.read(&mut [0]).is_err(), "it was not reset");
    let (list, _) = place.tuned("list", 0);
    assert!(!list.contains("TCP_NODELAY is set on"), "{list}");
    place.tuned("undo 1", 0);
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn the_first_of_two_entries_keeps_a_socket() {
    let Some(place) = Place::make("the_first_of_two_entries_keeps_a_socket") else { return };
    let (client, _server, _listener) = place.connection();
    let scope = format!("--netns {} --peer 127.0.0.1", place.name);
    place.tuned(&format!("--nodelay {scope}"), 0);
    let (_, said) = place.tuned(&format!("--nodelay --rto-min 20ms {scope}"), 1);
    assert!(said.contains("2 sockets left to another entry"), "{said}");
    place.tuned("undo 2", 0);
    assert!(client.nodelay().unwrap());
    place.tuned("undo 1", 0);
    assert!(!client.nodelay().unwrap());
}

#[test]
fn what_the_kernel_refuses_is_named_with_its_version() {
    let Some(place) = Place::make("what_the_kernel_refuses_is_named_with_its_version") else {
        return;
    };
    let (client, _server, _listener) = place.connection();
    let scope = format!("--netns {} --peer 127.0.0.1", place.name);
    let (_, said) = place.tuned(&format!("--nodelay --congestion nosuch {scope}"), 1);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for part in ["TCP_CONGESTION nosuch", release.trim(), "refuses"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(client.nodelay().unwrap(), "the rest was done");
    place.tuned("undo --all", 0);
    let (_, said) = place.tuned(&format!("--congestion nosuch {scope}"), 1);
    assert!(said.contains("nothing was changed"), "{said}");
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn connections_of_ipv6_are_met_as_well() {
    let Some(place) = Place::make("connections_of_ipv6_are_met_as_well") else { return };
    let connect = || {
        place.within(|| {
            let listener = TcpListener::bind("[::1]:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        })
    };
    let (live, _a) = connect();
    place.tuned(&format!("--nodelay --netns {} --peer ::1", place.name), 0);
    let (new, _b) = connect();
    assert!(live.nodelay().unwrap() && new.nodelay().unwrap());
    place.tuned("undo --all", 0);
    assert!(!live.nodelay().unwrap() && !new.nodelay().unwrap());
}

#[test]
fn a_process_that_is_not_there_and_scopes_that_do_not_fit_are_refused() {
    let uncork = |words: &str| {
        let mut command = Command::new(crate::common::UNCORK);
        command.arg("tune").args(words.split_whitespace()).output().unwrap()
    };
    for words in [
        "--nodelay --pid 2147483647",
        "--nodelay",
        "--quickack --pid 1",
        "--quickack --port 80",
        "--quickack --peer 10.0.0.1 --new",
        "--nodelay --peer 10.0.0.1/8",
    ] {
        let output = uncork(words);
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
    }
}
