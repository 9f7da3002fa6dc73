//! All changes are set back exactly, in any order, whatever was killed.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::MapType;
use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};

use crate::common::{needs_root, uncork_of_nobody};
use crate::place::Place;

const LIMIT: &str = "/proc/sys/net/ipv4/tcp_limit_output_bytes";

/// All that uncork may change here, as other tools see it.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    sysctls: String,
    routes: String,
    links: String,
    disciplines: String,
    programs: Vec<String>,
    maps: Vec<String>,
    links_of_programs: usize,
    mounts: usize,
}

impl Snapshot {
    fn of(place: &Place) -> Self {
        let ours = |names: &[&str], found: &[u8]| {
            let text = String::from_utf8_lossy(found);
            let name = text.trim_end_matches('\0');
            names.contains(&name).then(|| name.to_owned())
        };
        let names = ["established", "created", "wished", "forked", "ended", "living", "undoing"];
        let maps = ["sockets", "born", "tags", "members", "outcomes"];
        // Other programs may trace on this machine meanwhile: only our names are compared.
        let programs: Vec<(u32, String)> = ProgInfoIter::default()
            .filter_map(|found| {
                Some((found.id, ours(&names, found.name.to_string_lossy().as_bytes())?))
            })
            .collect();
        let attached =
            |link: &libbpf_rs::query::LinkInfo| programs.iter().any(|(id, _)| *id == link.prog_id);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let bpffs = place.bpffs();
        Self {
            sysctls: place
                .shell("sysctl -a 2>/dev/null | grep '^net\\.' | grep -v nf_conntrack_count"),
            routes: place.ip("route show table all") + &place.ip("-6 route show table all"),
            links: place.ip("-d link"),
            disciplines: place.shell("tc qdisc; tc class show dev veth0"),
            // A guardian's `sockets` are AF_XDP maps.
            maps: MapInfoIter::default()
                .filter(|map| map.ty != MapType::Xskmap)
                .filter_map(|map| ours(&maps, map.name.to_string_lossy().as_bytes()))
                .collect(),
            links_of_programs: LinkInfoIter::default().filter(attached).count(),
            programs: programs.into_iter().map(|(_, name)| name).collect(),
            mounts: mounts.lines().filter(|line| line.contains(bpffs.to_str().unwrap())).count(),
        }
    }
}

impl Snapshot {
    /// Returns the lines in which two snapshots differ.
    fn differences(&self, expected: &Self) -> String {
        let lines = |snapshot: &Self| -> Vec<String> {
            let text = format!("{snapshot:#?}").replace("\\n", "\n");
            text.lines().map(str::to_owned).collect()
        };
        let (now, then) = (lines(self), lines(expected));
        let only = |mark: &str, these: &[String], those: &[String]| -> String {
            let lines = these.iter().filter(|line| !those.contains(line));
            lines.map(|line| format!("{mark} {line}\n")).collect()
        };
        only("+", &now, &then) + &only("-", &then, &now)
    }
}

/// The kernel frees programs and maps a little after the last reference is gone.
fn is_soon(place: &Place, expected: &Snapshot) {
    let patience = Instant::now() + Duration::from_secs(5);
    let mut now = Snapshot::of(place);
    while now != *expected && Instant::now() < patience {
        thread::sleep(Duration::from_millis(50));
        now = Snapshot::of(place);
    }
    assert!(now == *expected, "{}", now.differences(expected));
}

fn shape(place: &Place) {
    place.shell("tc qdisc add dev veth0 root tbf rate 100mbit burst 3000 latency 500ms");
}

/// Returns commands that change all that can be changed; quick ACKs leave out ::1, and say so.
fn everything(place: &Place) -> [(String, i32); 3] {
    let name = &place.name;
    [
        (format!("--nodelay --notsent-lowat 64k --netns {name} --peer 127.0.0.0/8"), 0),
        (format!("--quickack --netns {name}"), 1),
        (format!("small-queues --dev veth0 --netns {name}"), 0),
    ]
}

#[test]
fn everything_is_as_it_was() {
    let Some(place) = Place::make("everything_is_as_it_was") else { return };
    shape(&place);
    let (client, _server, _listener) = place.connection();
    let before = Snapshot::of(&place);
    for (words, code) in everything(&place) {
        place.tuned(&words, code);
    }
    let now = Snapshot::of(&place);
    assert_ne!(now.sysctls, before.sysctls);
    assert_ne!(now.routes, before.routes);
    assert_ne!(now.links, before.links);
    assert!(now.programs.contains(&"established".to_owned()), "{:?}", now.programs);
    assert!(now.links_of_programs > 0 && now.mounts == 1);
    assert!(client.nodelay().unwrap());
    place.tuned("undo --all", 0);
    assert!(!client.nodelay().unwrap());
    is_soon(&place, &before);
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn a_dry_run_says_it_and_changes_nothing() {
    let Some(place) = Place::make("a_dry_run_says_it_and_changes_nothing") else { return };
    shape(&place);
    let before = Snapshot::of(&place);
    for (words, code) in everything(&place) {
        let (planned, _) = place.tuned(&format!("{words} --dry-run"), code);
        assert_eq!(Snapshot::of(&place), before);
        let (done, _) = place.tuned(&words, code);
        for line in
            planned.lines().filter(|line| line.starts_with("  ") && !line.contains("left: "))
        {
            assert!(done.contains(line), "{line} is not in {done}");
        }
        place.tuned("undo --all", 0);
        is_soon(&place, &before);
    }
    assert!(!place.path("state").join("1.json").exists());
}

/// The instants are not random, but cover the whole run, by a ratio that meets no rhythm.
#[test]
fn a_run_that_is_killed_at_any_point_is_undone() {
    let Some(place) = Place::make("a_run_that_is_killed_at_any_point_is_undone") else { return };
    shape(&place);
    let (client, _server, _listener) = place.connection();
    let before = Snapshot::of(&place);
    let soak = std::env::var_os("UNCORK_E2E_SOAK").is_some_and(|value| value == "1");
    let rounds: u32 = if soak { 100 } else { 15 };
    let mut broken_off = 0;
    let by_pid = (format!("--nodelay --pid {}", std::process::id()), 0);
    for (words, code) in everything(&place).into_iter().chain([by_pid]) {
        let begin = Instant::now();
        place.tuned(&words, code);
        let whole = begin.elapsed();
        place.tuned("undo --all", 0);
        for round in 0..rounds.div_ceil(4) {
            let part = (f64::from(round) * 0.618_034).fract();
            let mut command = place.tune(&words);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            thread::sleep(whole.mul_f64(part));
            child.kill().unwrap();
            broken_off += u32::from(child.wait().unwrap().code().is_none());
            place.tuned("undo --all", 0);
            assert!(!client.nodelay().unwrap(), "killed after {part:.2} of {words}");
            is_soon(&place, &before);
        }
    }
    assert!(broken_off > rounds / 4, "only {broken_off} of {rounds} were killed in time");
}

#[test]
fn two_entries_over_one_setting_are_undone_in_any_order() {
    let Some(place) = Place::make("two_entries_over_one_setting_are_undone_in_any_order") else {
        return;
    };
    let limit = || place.shell(&format!("cat {LIMIT}"));
    let before = Snapshot::of(&place);
    for order in [["1", "2"], ["2", "1"], ["--all", ""]] {
        let small = |rate| format!("small-queues --dev veth0 --rate {rate} --netns {}", place.name);
        // A fresh journal each time, so that entry numbers start anew.
        let _ = fs::remove_dir_all(place.state());
        place.tuned(&small("100mbit"), 0);
        let first = limit();
        place.tuned(&small("1gbit"), 0);
        let second = limit();
        assert_ne!(first, second);
        place.tuned(&format!("undo {}", order[0]), 0);
        match order[0] {
            "1" => assert_eq!(limit(), second, "the younger one stands"),
            "2" => assert_eq!(limit(), first, "the older one stands"),
            _ => {}
        }
        if !order[1].is_empty() {
            place.tuned(&format!("undo {}", order[1]), 0);
        }
        is_soon(&place, &before);
    }
}

#[test]
fn what_somebody_has_changed_since_is_told_and_left() {
    let Some(place) = Place::make("what_somebody_has_changed_since_is_told_and_left") else {
        return;
    };
    let before = Snapshot::of(&place);
    let name = &place.name;
    place.tuned(&format!("small-queues --dev veth0 --rate 100mbit --netns {name}"), 0);
    place.shell(&format!("echo 777777 >{LIMIT}"));
    let (list, _) = place.tuned("list", 0);
    assert!(list.contains("net.ipv4.tcp_limit_output_bytes is 777777 now"), "{list}");
    let (_, said) = place.tuned("undo 1", 1);
    assert!(said.contains("tcp_limit_output_bytes is 777777 now: changed by somebody"), "{said}");
    assert_eq!(place.shell(&format!("cat {LIMIT}")), "777777");
    let limit = before.sysctls.lines().find_map(|line| line.split_once("limit_output_bytes = "));
    place.shell(&format!("echo {} >{LIMIT}", limit.unwrap().1));
    is_soon(&place, &before);
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn a_damaged_entry_is_named_and_keeps_nothing_else_from_being_undone() {
    let Some(place) = Place::make("a_damaged_entry_is_named_and_keeps_nothing_else") else {
        return;
    };
    let (client, _server, _listener) = place.connection();
    let name = &place.name;
    place.tuned(&format!("--nodelay --netns {name} --peer 127.0.0.1"), 0);
    let small = format!("small-queues --dev veth0 --rate 100mbit --netns {name}");
    let (said, _) = place.tuned(&small, 0);
    let undo = format!("\nuncork tune undo 2 --state {} takes it back\n", place.state().display());
    assert!(said.ends_with(&undo), "{said}");
    let file = place.state().join("1.json");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let (list, said) = place.tuned("list", 1);
    assert!(said.contains("1.json") && said.contains("damaged"), "{said}");
    assert!(list.contains("small queues on veth0"), "{list}");
    let (_, said) = place.tuned("undo 1", 1);
    assert!(said.contains("damaged"), "{said}");
    let (_, said) = place.tuned("undo --all", 1);
    assert!(said.contains("1.json"), "{said}");
    // Each socket keeps its own previous state.
    assert!(!client.nodelay().unwrap());
    assert_eq!(place.shell(&format!("cat {LIMIT}")), "4194304");
    assert!(file.exists(), "nothing is lost");
    assert_eq!(place.tuned("list", 1).0, "", "who knows what is tuned?");
}

#[test]
fn sockets_are_set_back_when_the_journal_is_lost() {
    let Some(place) = Place::make("sockets_are_set_back_when_the_journal_is_lost") else { return };
    let (client, _server, _listener) = place.connection();
    place.tuned(&format!("--nodelay --netns {} --peer 127.0.0.1", place.name), 0);
    fs::remove_dir_all(place.state()).unwrap();
    let (_, said) = place.tuned("list", 1);
    assert!(said.contains("entry 1 has programs in force and is not in the journal"), "{said}");
    place.tuned("undo --all", 0);
    assert!(!client.nodelay().unwrap());
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn nothing_is_changed_that_the_journal_has_no_room_for() {
    let Some(place) = Place::make("nothing_is_changed_that_the_journal_has_no_room_for") else {
        return;
    };
    let full = Full::mount(&place);
    let before = Snapshot::of(&place);
    let words = format!("small-queues --dev veth0 --rate 100mbit --netns {}", place.name);
    let (_, said) = place.tuned(&words, 1);
    assert!(said.contains("No space left") && said.contains("journal"), "{said}");
    assert_eq!(Snapshot::of(&place), before);
    drop(full);
}

/// A journal on a file system without a free block.
struct Full(std::path::PathBuf);

impl Full {
    fn mount(place: &Place) -> Self {
        let path = place.state();
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8k", "none"]).arg(&path);
        assert!(mount.status().unwrap().success());
        // Room for the number of the last entry, and none for the entry.
        fs::write(path.join("last"), "0\n").unwrap();
        let _ = fs::write(path.join("filler"), vec![0; 4096]);
        Self(path)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn after_a_reboot_the_list_says_so_and_undo_only_clears() {
    let Some(place) = Place::make("after_a_reboot_the_list_says_so_and_undo_only_clears") else {
        return;
    };
    let words = format!("small-queues --dev veth0 --rate 100mbit --netns {}", place.name);
    place.tuned(&words, 0);
    let limit = place.shell(&format!("cat {LIMIT}"));
    let file = place.state().join("1.json");
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let entry = fs::read_to_string(&file).unwrap();
    let other = "00000000-0000-0000-0000-000000000000";
    fs::write(&file, entry.replace(boot_id.trim(), other)).unwrap();
    assert!(place.tuned("list", 0).0.contains("booted since"));
    place.tuned("undo 1", 0);
    assert_eq!(place.shell(&format!("cat {LIMIT}")), limit, "it is of another boot");
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn without_the_privilege_it_names_the_capabilities_and_the_command() {
    if !needs_root("without_the_privilege_it_names_the_capabilities_and_the_command") {
        return;
    }
    let (_keep, mut command) = uncork_of_nobody();
    let output =
        command.args(["tune", "--nodelay", "--all", "--state", "/nowhere"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    for part in ["CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON", "sudo ", "tune --nodelay --all"] {
        assert!(said.contains(part), "{said}");
    }
}

/// A mount there would hide these files, and everybody's if it were /proc.
#[test]
fn a_directory_with_files_is_mounted_over() {
    let Some(place) = Place::make("a_directory_with_files_is_mounted_over") else { return };
    let file = place.bpffs().join("somebody's");
    fs::write(&file, "").unwrap();
    let (_, said) = place.tuned(&format!("--nodelay --netns {}", place.name), 1);
    assert!(said.contains("which is not empty"), "{said}");
    assert!(file.exists());
    place.tuned("undo --all", 0);
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}
