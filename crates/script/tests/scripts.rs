//! Every script holds on the stack, and on the kernel of this machine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use uncork_netns::testing::is_skipped;
use uncork_script::{Failure, HostError, Kernel, Ours, Script, Side, play};

/// Scripts that run on the kernel at one time: they mostly wait.
const AT_ONCE: usize = 12;
/// A player that was delayed for longer has not played what is written.
const HELD_UP: Duration = Duration::from_millis(15);
/// How often such a run is repeated.
const AGAIN: usize = 4;

/// Returns all scripts, by name.
fn scripts() -> Vec<(String, Script)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut found: Vec<(String, Script)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            assert!(path.extension().is_some_and(|end| end == "tcp"), "{path:?} is no script");
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let script = Script::parse(&fs::read_to_string(&path).unwrap());
            (name.clone(), script.unwrap_or_else(|error| panic!("{name}.tcp: {error}")))
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(found.len() > 30, "only {} scripts were found", found.len());
    found
}

fn is_for(script: &Script, side: Side) -> bool {
    script.only.as_ref().is_none_or(|(only, _)| *only == side)
}

/// Plays a script on the kernel. A run in which the player itself came too late proves nothing.
fn on_the_kernel(name: &str, script: &Script) -> Result<Result<String, Failure>, HostError> {
    // Names of namespaces must differ, and /run/netns allows long ones.
    let mut played = Kernel::play(name, script)?;
    for _ in 0..AGAIN {
        match &played {
            Err(failure) if failure.held_up > HELD_UP => {
                let late = failure.held_up.as_millis();
                let _ = writeln!(
                    std::io::stderr(),
                    "note: {name}.tcp: the machine kept the player for {late} ms; it plays anew"
                );
                played = Kernel::play(name, script)?;
            }
            _ => break,
        }
    }
    Ok(played)
}

#[test]
fn every_script_holds_on_the_stack() {
    let mut failures = Vec::new();
    for (name, script) in scripts() {
        if !is_for(&script, Side::Ours) {
            continue;
        }
        let mut host = Ours::new(&script.setup).unwrap();
        if let Err(failure) = play(&script, &mut host) {
            failures.push(format!("{name}.tcp, {failure}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_script_holds_on_the_kernel() {
    if is_skipped("every_script_holds_on_the_kernel") {
        return;
    }
    uncork_netns::clear_leftovers().unwrap();
    let left: Vec<_> =
        scripts().into_iter().filter(|(_, script)| is_for(script, Side::Kernel)).collect();
    let left = Mutex::new(left);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((name, script)) = left.lock().unwrap().pop() else { return };
                    let failure = match on_the_kernel(&name, &script) {
                        Ok(Ok(_)) => continue,
                        Ok(Err(failure)) => format!("{name}.tcp, {failure}"),
                        Err(error) => format!("{name}.tcp: {error}"),
                    };
                    failures.lock().unwrap().push(failure);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Wrong ends of a script that begins with a SYN and its answer, and what is said of each: on the
/// stack, and on the kernel, which may be later.
const WRONG: [(&str, &str, &str); 8] = [
    ("> . (0)", "nothing came in time", "nothing came in time"),
    ("< P. 1(10) ack 9\n> R 8(0)", "got a> R 9", "got a> R 9"),
    ("< . (0)\naccept b = EAGAIN", "it said 0", "it said 0"),
    ("+1.3s nothing", "not expected: a> S.", "not expected: a> S."),
    ("+500ms > S. 0(0)", "nothing came in time", "nothing came in time"),
    ("+1.5s > S. 0(0)", "came after 1000.0 ms", "came after 10"),
    ("+1s > S. 0(0) <mss 1400>", "expected a> S. 0:0(0)", "expected a> S. 0:0(0)"),
    ("< . (0)\naccept a\nclose b", "no socket b", "no socket b"),
];

fn wrong(end: &str) -> Script {
    let begin = "# A title\nlisten 5\n< S (0) <mss 1460>\n> S. (0) <mss 1460>\n";
    Script::parse(&format!("{begin}{end}\n")).unwrap()
}

#[test]
fn a_script_that_does_not_hold_says_where() {
    for (end, said, _) in WRONG {
        let script = wrong(end);
        let failure = play(&script, &mut Ours::new(&script.setup).unwrap()).unwrap_err();
        assert!(failure.message.contains(said), "{end}: {failure}");
        assert!(failure.line > 4, "{failure}");
    }
}

#[test]
fn a_script_that_does_not_hold_on_the_kernel_says_where() {
    if is_skipped("a_script_that_does_not_hold_on_the_kernel_says_where") {
        return;
    }
    std::thread::scope(|scope| {
        for (index, (end, _, said)) in WRONG.into_iter().enumerate() {
            scope.spawn(move || {
                let played = Kernel::play(&format!("wrong-{index}"), &wrong(end)).unwrap();
                let failure = played.unwrap_err();
                assert!(failure.message.contains(said), "{end}: {failure}");
            });
        }
    });
}

#[test]
fn the_page_names_every_script() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PACKETDRILL.md");
    let page = fs::read_to_string(page).unwrap();
    let words: Vec<&str> = page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    for (name, script) in scripts() {
        assert!(words.contains(&name.as_str()), "docs/PACKETDRILL.md does not name {name}");
        let differs = script.lines.iter().any(|line| line.side.is_some());
        let told = page.contains(&format!("\n| {name} |"));
        assert_eq!(differs, told, "whether {name} differs is not what docs/PACKETDRILL.md says");
    }
}
