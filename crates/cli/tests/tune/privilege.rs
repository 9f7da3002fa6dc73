//! Which action needs which capability, and what a caller without it is told.

use crate::place::Place;

const NONE: &str = "-all";
const SETTINGS: &str = "-all,+net_admin";
const PROGRAMS: &str = "-all,+net_admin,+bpf,+perfmon";

#[test]
fn what_was_set_with_a_capability_is_undone_with_it() {
    let Some(place) = Place::make("what_was_set_with_a_capability_is_undone_with_it") else {
        return;
    };
    place.tuned_with(SETTINGS, "small-queues --dev veth0 --rate 100mbit", 0);
    let (_, said) = place.tuned_with(NONE, "undo 1", 3);
    assert!(said.contains("needs CAP_NET_ADMIN, which") && said.contains("sudo "), "{said}");
    place.tuned_with(SETTINGS, "undo 1", 0);

    place.shell(&format!("mount -t bpf bpf {}", place.bpffs().display()));
    let (client, _server, listener) = place.connection();
    let port = listener.local_addr().unwrap().port();
    place.tuned_with(PROGRAMS, &format!("--nodelay --port {port}"), 0);
    assert!(client.nodelay().unwrap());
    let (_, said) = place.tuned_with(SETTINGS, "undo --all", 3);
    assert!(said.contains("needs CAP_PERFMON, CAP_BPF, which"), "{said}");
    place.tuned_with(PROGRAMS, "undo --all", 0);
    assert!(!client.nodelay().unwrap());
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

#[test]
fn another_namespace_takes_the_capability_to_enter_it() {
    let Some(place) = Place::make("another_namespace_takes_the_capability_to_enter_it") else {
        return;
    };
    let other = uncork_netns::Namespace::new("tune-other").unwrap();
    other.ip("link add veth0 type veth peer name veth1").unwrap();
    let words = format!("small-queues --dev veth0 --rate 100mbit --netns {}", other.name());
    let (_, said) = place.tuned_with(SETTINGS, &words, 3);
    for part in ["cannot be entered", "needs CAP_SYS_ADMIN, which", "sudo ", "--rate 100mbit"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    place.tuned(&words, 0);
    // An entry that cannot be seen is not therefore gone.
    let (list, _) = place.tuned_with(SETTINGS, "list", 0);
    assert!(list.contains("whether it is in force may not be seen"), "{list}");
    let (_, said) = place.tuned_with(SETTINGS, "undo --all", 3);
    assert!(said.contains("needs CAP_SYS_ADMIN, which"), "{said}");
    assert!(place.tuned("list", 0).0.contains("in force for"));
    place.tuned("undo --all", 0);
}

/// The journal is the first obstacle.
#[test]
fn a_journal_that_may_not_be_written_is_named_with_the_capability() {
    let name = "a_journal_that_may_not_be_written_is_named_with_the_capability";
    let Some(place) = Place::make(name) else { return };
    std::fs::create_dir(place.state()).unwrap();
    std::os::unix::fs::chown(place.state(), Some(65534), Some(65534)).unwrap();
    let (_, said) = place.tuned_with(SETTINGS, "small-queues --dev veth0 --rate 100mbit", 3);
    assert!(said.contains("needs CAP_DAC_OVERRIDE, which") && said.contains("sudo "), "{said}");
}
