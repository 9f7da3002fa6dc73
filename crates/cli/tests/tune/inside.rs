//! uncork under `ip netns exec`, and devices that move from one network namespace to another.

use std::fs;
use std::process::{Command, Output};

use uncork_netns::Namespace;

use crate::common::UNCORK;
use crate::place::Place;
use crate::routes::routes;

/// `uncork tune` under `ip netns exec`, which gives it a mount namespace with a /sys of its own.
fn inside(place: &Place, words: &str, code: i32) -> (String, String) {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &place.name, UNCORK, "tune"]);
    command.args(words.split_whitespace()).arg("--state").arg(place.state());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (said(stdout), said(stderr));
    assert_eq!(status.code(), Some(code), "uncork tune {words}: {stdout}{stderr}");
    (stdout, stderr)
}

/// bpffs at its usual place; unmounted at the end if it was not mounted before.
struct Usual(bool);

const BPFFS: &str = "/sys/fs/bpf";

impl Usual {
    fn mount() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let there = mounts.lines().any(|line| line.split(' ').nth(1) == Some(BPFFS));
        if !there {
            let mut mount = Command::new("mount");
            assert!(mount.args(["-t", "bpf", "bpf", BPFFS]).status().unwrap().success());
        }
        Self(!there)
    }
}

impl Drop for Usual {
    fn drop(&mut self) {
        if self.0 {
            let _ = Command::new("umount").arg(BPFFS).output();
        }
    }
}

#[test]
fn programs_are_not_pinned_where_they_would_end_with_the_command() {
    let name = "programs_are_not_pinned_where_they_would_end_with_the_command";
    let Some(place) = Place::make(name) else { return };
    let (client, _server, _listener) = place.connection();
    let (_, said) = inside(&place, "--nodelay --peer 127.0.0.1", 1);
    for part in ["bpffs is not mounted at /sys/fs/bpf", "ip netns exec", "--netns NAME"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!client.nodelay().unwrap());
    assert!(!place.state().exists(), "what is refused leaves nothing");
    assert_eq!(inside(&place, "list", 0).0, "nothing is tuned\n");
}

/// Such an entry was taken for gone and struck from the journal, and stayed in force.
#[test]
fn an_entry_whose_programs_cannot_be_seen_is_left_to_be_undone_outside() {
    let name = "an_entry_whose_programs_cannot_be_seen_is_left_to_be_undone_outside";
    let Some(place) = Place::make(name) else { return };
    let (client, _server, _listener) = place.connection();
    let usual = Usual::mount();
    let outside = |words: &str, code: i32| {
        let mut command = Command::new(UNCORK);
        command.arg("tune").args(words.split_whitespace()).arg("--state").arg(place.state());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "uncork tune {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    outside(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    let (list, _) = inside(&place, "list", 0);
    assert!(list.contains("its programs cannot be seen from this mount namespace"), "{list}");
    let (json, _) = inside(&place, "list --json", 0);
    assert!(json.contains(r#""standing": "out_of_sight""#), "{json}");
    let (_, said) = inside(&place, "undo --all", 1);
    assert!(said.contains("undo it outside"), "{said}");
    assert!(client.nodelay().unwrap());
    assert!(outside("list", 0).contains("in force for"));
    outside("undo --all", 0);
    assert!(!client.nodelay().unwrap());
    drop(usual);
}

#[test]
fn routes_that_are_changed_inside_are_told_by_the_name_of_the_namespace() {
    let name = "routes_that_are_changed_inside_are_told_by_the_name_of_the_namespace";
    let Some(place) = Place::make(name) else { return };
    let before = routes(&place);
    inside(&place, "--quickack --peer 192.0.2.0/24", 0);
    assert!(routes(&place).contains("quickack 1"));
    let (list, _) = place.tuned("list", 0);
    let (title, changes) = list.split_once('\n').unwrap();
    let whose = format!("in network namespace {}", place.name);
    assert!(title.contains(&whose) && changes.contains(&whose), "{list}");
    place.tuned("undo 1", 0);
    assert_eq!(routes(&place), before);
    inside(&place, "--quickack --peer 192.0.2.0/24", 0);
    inside(&place, "undo --all", 0);
    assert_eq!(routes(&place), before);
}

#[test]
fn routes_over_a_device_that_was_moved_went_with_it() {
    let Some(place) = Place::make("routes_over_a_device_that_was_moved_went_with_it") else {
        return;
    };
    let other = Namespace::new("moved").unwrap();
    // One that is replaced, the host's own in table local, and a new one for the peer.
    place.tuned(&format!("--quickack --netns {} --peer 192.0.2.0/24", place.name), 0);
    place.tuned(&format!("--quickack --netns {} --peer 192.0.2.7", place.name), 0);
    place.ip(&format!("link set veth0 netns {}", other.name()));
    let gone = "it went with its device veth0, which was removed, or moved to another network \
                namespace";
    let (list, _) = place.tuned("list", 0);
    assert_eq!(list.matches(&format!("({gone})")).count(), 3, "{list}");
    let (undone, said) = place.tuned("undo --all", 0);
    assert_eq!(undone.matches(gone).count(), 3, "{undone}");
    assert_eq!(said, "");
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn a_device_that_was_moved_is_told_with_the_limits_that_it_took_along() {
    let name = "a_device_that_was_moved_is_told_with_the_limits_that_it_took_along";
    let Some(place) = Place::make(name) else { return };
    let other = Namespace::new("moved").unwrap();
    place.tuned(&format!("small-queues --dev veth0 --rate 100mbit --netns {}", place.name), 0);
    place.ip(&format!("link set veth0 netns {}", other.name()));
    let told = format!("veth0 is in network namespace {} now, where gso_max_size", other.name());
    let (list, _) = place.tuned("list", 0);
    assert!(list.contains(&told) && list.contains("(it was 65536/65536"), "{list}");
    let (_, said) = place.tuned("undo --all", 1);
    assert!(said.contains(&told), "{said}");
}
