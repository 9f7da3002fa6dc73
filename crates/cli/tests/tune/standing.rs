//! Which settings the list reports in force, and to whom it ascribes them.

use std::fs;
use std::net::TcpStream;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use uncork_netns::Namespace;

use crate::place::Place;
use crate::sockets::Group;

const LAPSED: &str = "nothing of it is in force any more";
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the list contains this.
fn is_listed(place: &Place, what: &str) -> String {
    let begin = Instant::now();
    loop {
        let (list, _) = place.tuned("list", 0);
        if list.contains(what) {
            return list;
        }
        assert!(begin.elapsed() < PATIENCE, "no {what}: {list}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A process that ends with the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_has_ended_has_nothing_in_force() {
    let Some(place) = Place::make("a_process_that_has_ended_has_nothing_in_force") else { return };
    // With a zombie as its child.
    let mut command = place.command("sh");
    command.args(["-c", "true & exec sleep 600"]);
    let process = Sleeper(command.spawn().unwrap());
    let pid = process.0.id();
    let comm = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let begin = Instant::now();
    while comm().trim() != "sleep" {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    place.tuned(&format!("--nodelay --pid {pid}"), 0);
    assert!(place.tuned("list", 0).0.contains("in force for"));
    drop(process);
    let list = is_listed(&place, LAPSED);
    let ended = format!("(process {pid} and all that descended from it have ended)");
    assert!(list.contains(&ended), "{list}");
    place.tuned("undo 1", 0);
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn a_cgroup_that_was_removed_has_nothing_in_force() {
    let Some(place) = Place::make("a_cgroup_that_was_removed_has_nothing_in_force") else { return };
    let group = Group::make();
    let path = group.0.clone();
    place.tuned(&format!("--nodelay --cgroup {path}"), 0);
    assert!(place.tuned("list", 0).0.contains("in force for"));
    drop(group);
    let list = is_listed(&place, LAPSED);
    assert!(list.contains(&format!("(cgroup {path} was removed)")), "{list}");
    place.tuned("undo 1", 0);
}

#[test]
fn a_namespace_that_is_gone_has_nothing_in_force() {
    let Some(place) = Place::make("a_namespace_that_is_gone_has_nothing_in_force") else { return };
    let other = Namespace::new("tune-gone").unwrap();
    other.ip("link add veth0 type veth peer name veth1").unwrap();
    let name = other.name().to_owned();
    place.tuned(&format!("--nodelay --netns {name}"), 0);
    place.tuned(&format!("small-queues --dev veth0 --rate 100mbit --netns {name}"), 0);
    assert_eq!(place.tuned("list", 0).0.matches("in force for").count(), 2);
    drop(other);
    let list = is_listed(&place, "(its network namespace is gone)");
    assert_eq!(list.matches(LAPSED).count(), 2, "{list}");
    let (json, _) = place.tuned("list --json", 0);
    assert_eq!(json.matches("\"lapsed\"").count(), 2, "{json}");
    place.tuned("undo --all", 0);
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn settings_that_somebody_has_set_back_are_not_in_force() {
    let Some(place) = Place::make("settings_that_somebody_has_set_back_are_not_in_force") else {
        return;
    };
    place.tuned(&format!("small-queues --dev veth0 --rate 100mbit --netns {}", place.name), 0);
    place.shell("echo 4194304 >/proc/sys/net/ipv4/tcp_limit_output_bytes");
    let (list, _) = place.tuned("list", 0);
    assert!(list.contains("in force in part, for") && list.contains("(is as it was before)"));
    place.tuned("undo --all", 0);
}

#[test]
fn what_a_program_has_changed_since_is_told() {
    let Some(place) = Place::make("what_a_program_has_changed_since_is_told") else { return };
    let (client, server, _listener) = place.connection();
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    let (list, _) = place.tuned("list", 0);
    assert!(list.contains("TCP_NODELAY is set on 2 connections"), "{list}");
    // One existed before, and one was tuned when it was established.
    let (new, _peer, _its) = place.connection();
    for stream in [&client, &new] {
        stream.set_nodelay(false).unwrap();
    }
    let (list, _) = place.tuned("list", 0);
    assert!(list.contains("TCP_NODELAY is set on 2 connections"), "{list}");
    let changed = "TCP_NODELAY was set on 2 connections and changed by somebody since";
    assert!(list.contains(changed), "{list}");
    place.tuned("undo 1", 0);
    assert!(!client.nodelay().unwrap() && !server.nodelay().unwrap());
}

#[test]
fn every_option_s_later_change_is_told_and_stays() {
    let Some(place) = Place::make("every_option_s_later_change_is_told_and_stays") else { return };
    let all: [_; 3] = std::array::from_fn(|_| place.connection());
    let streams = || all.iter().map(|(client, ..)| client);
    let congestion = |stream: &TcpStream| tcp_congestion(stream).unwrap();
    let usual = congestion(&all[0].0);
    let other = if usual == "cubic" { "reno" } else { "cubic" };
    let words = format!(
        "--congestion {other} --delack-max 12ms --rto-min 20ms --pacing 80mbit --notsent-lowat 64k \
         --netns {} --peer 127.0.0.1",
        place.name
    );
    place.tuned(&words, 0);
    let (list, _) = place.tuned("list", 0);
    assert_eq!(list.matches("is set on 6 connections").count(), 5, "{list}");
    let [fails, keeps, declines] = [0, 1, 2].map(|which: usize| &all[which].0);
    assert!(set_tcp_congestion(fails, "nosuch").is_err());
    set_tcp_congestion(keeps, other).unwrap();
    set_tcp_congestion(declines, &usual).unwrap();
    let (list, _) = place.tuned("list", 0);
    let changed = "TCP_CONGESTION was set on 1 connection and changed by somebody since";
    assert!(list.contains(changed), "{list}");
    assert_eq!(list.matches("changed by somebody").count(), 1, "{list}");
    place.tuned("undo 1", 0);
    let now: Vec<String> = streams().map(congestion).collect();
    assert_eq!(now, [usual.as_str(), other, usual.as_str()], "fails, keeps, declines");
}

#[test]
fn an_entry_knows_its_bpffs_by_itself() {
    let Some(place) = Place::make("an_entry_knows_its_bpffs_by_itself") else { return };
    let (client, _server, _listener) = place.connection();
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    let (list, _) = place.tuned_by(&place.state(), "list", 0);
    assert!(list.contains("in force for"), "{list}");
    assert!(list.contains("TCP_NODELAY is set on 2 connections"), "{list}");
    place.tuned_by(&place.state(), "undo 1", 0);
    assert!(!client.nodelay().unwrap());
    assert_eq!(fs::read_dir(place.bpffs()).unwrap().count(), 0, "unmounted, or left in it");
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    place.tuned_by(&place.state(), "undo --all", 0);
    assert!(!client.nodelay().unwrap());
}

#[test]
fn two_journals_that_share_a_bpffs_leave_each_other_alone() {
    let Some(place) = Place::make("two_journals_that_share_a_bpffs_leave_each_other_alone") else {
        return;
    };
    let (a, b) = (place.state(), place.path("other"));
    let (first, _f, its) = place.connection();
    let (second, _s, others) = place.connection();
    let bpffs = place.bpffs();
    let words = |listener: &std::net::TcpListener| {
        let port = listener.local_addr().unwrap().port();
        format!("--nodelay --netns {} --port {port} --bpffs {}", place.name, bpffs.display())
    };
    place.tuned_by(&a, &words(&its), 0);
    place.tuned_by(&b, &words(&others), 0);
    assert!(first.nodelay().unwrap() && second.nodelay().unwrap());
    let (list, said) = place.tuned_by(&b, &format!("list --bpffs {}", bpffs.display()), 0);
    assert!(list.starts_with("2  ") && said.is_empty(), "{list}{said}");
    place.tuned_by(&b, &format!("undo --all --bpffs {}", bpffs.display()), 0);
    assert!(first.nodelay().unwrap() && !second.nodelay().unwrap());
    assert!(place.tuned_by(&a, "list", 0).0.contains("in force for"));

    // A user who has lost a journal learns its place from others that share the bpffs.
    place.tuned_by(&b, &words(&others), 0);
    fs::remove_dir_all(&a).unwrap();
    let (_, said) = place.tuned_by(&b, "list", 1);
    assert!(said.contains(&format!("undo --all --state {}", a.display())), "{said}");
    let (_, said) = place.tuned_by(&a, &format!("list --bpffs {}", bpffs.display()), 1);
    assert!(said.contains("entry 1 has programs in force and is not in the journal"), "{said}");
    place.tuned_by(&a, &format!("undo --all --bpffs {}", bpffs.display()), 0);
    assert!(!first.nodelay().unwrap() && second.nodelay().unwrap());
    place.tuned_by(&b, "undo --all", 0);
    assert!(!second.nodelay().unwrap());
}

#[test]
fn a_dry_run_names_what_it_would_mount_and_where_it_would_attach() {
    let name = "a_dry_run_names_what_it_would_mount_and_where_it_would_attach";
    let Some(place) = Place::make(name) else { return };
    let (said, _) = place.tuned("--nodelay --all --dry-run", 0);
    let bpffs = place.bpffs();
    for line in [
        "would set TCP_NODELAY on for all connections of this machine".to_owned(),
        format!("  bpffs mounted at {}", bpffs.display()),
        format!("  eBPF programs kept below {}/uncork", bpffs.display()),
        "  eBPF programs attached to cgroup /".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    let (said, _) = place.tuned("--nodelay --all --live --dry-run", 0);
    assert!(said.contains("all present connections of this machine"), "{said}");
    assert!(!said.contains("cgroup"), "{said}");
    // The exit status depends on the routes of this machine.
    let output = place.tune("--nodelay --quickack --all --dry-run").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let expected = "for all connections of this machine; quick ACKs on the routes of this network";
    assert!(said.contains(expected), "{said}");
    let quick = format!("--quickack --peer 127.0.0.0/8 --netns {} --dry-run", place.name);
    let (said, _) = place.tuned(&quick, 0);
    assert!(!said.contains("bpf"), "{said}");
    // What could not be done is reported, too.
    fs::write(bpffs.join("somebody's"), "").unwrap();
    let (_, said) = place.tuned("--nodelay --all --dry-run", 1);
    assert!(said.contains("which is not empty"), "{said}");
}

#[test]
fn what_the_kernel_takes_is_named_where_it_refuses_a_time() {
    let Some(place) = Place::make("what_the_kernel_takes_is_named_where_it_refuses_a_time") else {
        return;
    };
    for words in ["--delack-max 1us", "--delack-max 300ms", "--rto-min 1s"] {
        let (_, said) = place.tuned(&format!("{words} --netns {}", place.name), 1);
        assert!(said.contains("refuses it to eBPF: ") && said.contains(" to 200ms are possible"));
        let least = said.split_once("eBPF: ").unwrap().1.split_once("ms").unwrap().0;
        // Two ticks at 1000 to 100 Hz.
        assert!((2.0..=20.0).contains(&least.parse::<f64>().unwrap()), "{said}");
    }
}
