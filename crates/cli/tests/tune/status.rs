//! Exit statuses, as the manual gives them.

use std::fs::OpenOptions;
use std::process::Command;

use crate::common::{UNCORK, needs_root};
use crate::place::Place;

/// A named thing that does not exist is a usage error, whatever it is.
#[test]
fn what_is_not_there_ends_with_2() {
    if !needs_root("what_is_not_there_ends_with_2") {
        return;
    }
    let Some(place) = Place::make("what_is_not_there_ends_with_2") else { return };
    let thread = std::thread::spawn(nix::unistd::gettid).join().unwrap();
    // A living thread: it waits for the end of the test.
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        tell.send(nix::unistd::gettid()).unwrap();
        let _ = wait.recv();
    });
    let alive = told.recv().unwrap();
    for (words, what) in [
        (format!("--nodelay --pid {thread}"), format!("there is no process {thread}")),
        (
            format!("--nodelay --pid {alive}"),
            format!("{alive} is a thread of process {}", std::process::id()),
        ),
        ("--nodelay --cgroup /no/such".to_owned(), "there is no such cgroup".to_owned()),
        ("--nodelay --netns no-such".to_owned(), "/run/netns/no-such".to_owned()),
        ("--quickack --netns no-such".to_owned(), "/run/netns/no-such".to_owned()),
        ("small-queues --dev no-such".to_owned(), "network device no-such".to_owned()),
        ("small-queues --dev no-such --verify".to_owned(), "network device no-such".to_owned()),
        ("undo 7".to_owned(), "there is no entry 7".to_owned()),
    ] {
        let (_, said) = place.tuned(&words, 2);
        assert!(said.contains(&what), "{words}: {said}");
    }
    // Also with an existing journal.
    place.tuned(&format!("--quickack --netns {} --peer 192.0.2.7", place.name), 0);
    place.tuned("undo 7", 2);
    drop(end);
    waiting.join().unwrap();
}

#[test]
fn a_standard_output_that_is_full_ends_with_125_and_undoes_nothing() {
    let name = "a_standard_output_that_is_full_ends_with_125_and_undoes_nothing";
    let Some(place) = Place::make(name) else { return };
    let full = |words: &str| {
        let mut command = place.tune(words);
        let device = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stdout(device).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{words}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = full(&format!("--quickack --netns {} --peer 192.0.2.7", place.name));
    assert!(said.contains("entry 1 was made all the same"), "{said}");
    assert!(place.tuned("list", 0).0.contains("a route of its own to 192.0.2.7/32"));
    full("list");
    full("undo 1");
    assert_eq!(place.tuned("list", 0).0, "nothing is tuned\n");
}

/// The journal cannot be written: the disk is full, or its place is no directory.
#[test]
fn a_journal_that_cannot_be_written_ends_with_1_and_changes_nothing() {
    let name = "a_journal_that_cannot_be_written_ends_with_1_and_changes_nothing";
    let Some(place) = Place::make(name) else { return };
    let before = crate::routes::routes(&place);
    let mut command = Command::new(UNCORK);
    command.args(["tune", "--quickack", "--netns", &place.name, "--peer", "192.0.2.7"]);
    let output = command.args(["--state", "/dev/full"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/dev/full") && said.contains("journal must be writable"), "{said}");
    assert_eq!(crate::routes::routes(&place), before);
}
