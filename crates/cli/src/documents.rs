//! Tests that no document shows a command line that the parser would refuse.

use clap::CommandFactory as _;

use crate::arguments::Uncork;
use examples::{Shown, commands};

#[path = "../tests/common/examples.rs"]
mod examples;

/// The programs whose command-line definitions this test can see.
fn programs() -> Vec<(&'static str, clap::Command)> {
    vec![
        ("uncork", Uncork::command()),
        ("tcp_nodelay_client", uncork_nodelay::client::command()),
        ("tcp_nodelay_server", uncork_nodelay::server::command()),
    ]
}

/// Returns our programs that are called in a command, each with its arguments: one may start another.
fn calls(words: &[String]) -> Vec<(clap::Command, Vec<String>)> {
    let mut calls = Vec::new();
    for (name, command) in programs() {
        for (at, word) in words.iter().enumerate() {
            // In the first place, after `--`, or after a program that starts others.
            let before = &words[..at];
            let starts = before.last().is_none_or(|last| last == "--")
                || ["env", "sudo", "nice", "timeout"].contains(&before[0].as_str());
            let is_it = word == name || word.ends_with(&format!("/{name}"));
            if starts && is_it {
                calls
                    .push((command.clone(), words[at..].iter().map(|w| standing_for(w)).collect()));
            }
        }
    }
    calls
}

/// Returns what a reader would put in the place of a word in capitals.
fn standing_for(word: &str) -> String {
    match word {
        "PID" => "4711".to_owned(),
        "DURATION" => "1s".to_owned(),
        "…" => "more".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns why the parser refuses a line, if it does.
fn refused(command: clap::Command, mut words: Vec<String>) -> Option<String> {
    // `uncork run --` leaves the command to the reader.
    if words.last().is_some_and(|last| last == "--") {
        words.push("COMMAND".to_owned());
    }
    command.try_get_matches_from(words).err().and_then(|error| {
        (error.exit_code() != 0)
            .then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
    })
}

/// Returns the first option in a line that its command does not have.
fn unknown_option(command: &clap::Command, words: &[String]) -> Option<String> {
    let mut command = command;
    for word in words.iter().skip(1).take_while(|word| *word != "--") {
        if let Some(sub) = command.find_subcommand(word) {
            command = sub;
            continue;
        }
        let known = if let Some(long) = word.strip_prefix("--") {
            let long = long.split('=').next().unwrap_or_default();
            ["help", "version"].contains(&long) || has_long(command, long)
        } else if let Some(short) = word.strip_prefix('-') {
            let short = short.chars().next();
            short.is_none_or(|short| {
                short == 'h'
                    || command.get_arguments().any(|known| known.get_short() == Some(short))
            })
        } else {
            true
        };
        if !known {
            return Some(format!("{} has no {word}", command.get_name()));
        }
    }
    None
}

fn has_long(command: &clap::Command, long: &str) -> bool {
    command.get_arguments().any(|known| {
        known.get_long() == Some(long)
            || known.get_all_aliases().is_some_and(|others| others.contains(&long))
    })
}

fn complaints(shown: &[Shown]) -> (usize, Vec<String>) {
    let (mut seen, mut wrong) = (0, Vec::new());
    for Shown { place, line, whole } in shown {
        for words in commands(line) {
            for (command, words) in calls(&words) {
                seen += 1;
                let why =
                    if *whole { refused(command, words) } else { unknown_option(&command, &words) };
                wrong.extend(why.map(|why| format!("{place}: {line}\n    {why}")));
            }
        }
    }
    (seen, wrong)
}

#[test]
fn every_command_line_in_the_documents_is_accepted() {
    let shown = examples::all();
    let (seen, wrong) = complaints(&shown);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let whole = shown.iter().filter(|shown| shown.whole).count();
    assert!(seen > 60 && whole > 60, "only {seen} were looked at, of {whole} lines");
}

#[test]
fn every_command_line_in_the_help_is_accepted() {
    fn visit(command: &clap::Command, shown: &mut Vec<Shown>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter(|line| line.starts_with("  ")) {
            // The description follows in a second column.
            let line = line.trim().split("   ").next().unwrap_or_default().to_owned();
            let place = format!("{} --help", command.get_name());
            shown.push(Shown { place, line, whole: true });
        }
        command.get_subcommands().for_each(|sub| visit(sub, shown));
    }
    let mut shown = Vec::new();
    programs().iter().for_each(|(_, command)| visit(command, &mut shown));
    let (seen, wrong) = complaints(&shown);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 15, "only {seen} were looked at");
}

/// Options of other programs that our pages mention.
const OF_OTHERS: [&str; 6] = ["default-signal", "init-groups", "no-pie", "once", "port", "reuid"];

#[test]
fn no_page_speaks_of_an_option_that_does_not_exist() {
    fn longs(command: &clap::Command, all: &mut Vec<String>) {
        for known in command.get_arguments() {
            all.extend(known.get_long().map(str::to_owned));
            all.extend(known.get_all_aliases().into_iter().flatten().map(str::to_owned));
        }
        command.get_subcommands().for_each(|sub| longs(sub, all));
    }
    let mut known: Vec<String> = ["help", "version"].map(str::to_owned).to_vec();
    programs().iter().for_each(|(_, command)| longs(command, &mut known));
    let mut wrong = Vec::new();
    for path in examples::files() {
        if path.extension().is_some_and(|extension| extension == "md") {
            continue;
        }
        let text = examples::plain(&std::fs::read_to_string(&path).unwrap());
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c))) {
            let Some(long) = word.strip_prefix("--").filter(|long| !long.is_empty()) else {
                continue;
            };
            if !known.iter().any(|known| known == long) && !OF_OTHERS.contains(&long) {
                wrong.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_the_documents_tell_to_make_can_be_made() {
    let makefile = std::fs::read_to_string(examples::repository().join("Makefile")).unwrap();
    let mut seen = 0;
    for Shown { place, line, .. } in examples::all() {
        // With -C it is another project's Makefile.
        let own = |words: &&Vec<String>| words[0] == "make" && words.iter().all(|it| it != "-C");
        for words in commands(&line).iter().filter(own) {
            for target in
                words[1..].iter().filter(|word| word.chars().all(|c| c.is_ascii_lowercase()))
            {
                seen += 1;
                let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
                assert!(is_there, "{place}: the Makefile has no {target}");
            }
        }
    }
    assert!(seen > 10, "only {seen} were looked at");
}

#[test]
fn a_shell_line_is_taken_apart_as_a_shell_would() {
    let line = "A_1=b tcpdump -w - port 8080 2>/dev/null | uncork doctor --pcap - --fail-on 'a>5 b' # x | y";
    let found = commands(line);
    assert_eq!(found[0], ["tcpdump", "-w", "-", "port", "8080", "2"]);
    assert_eq!(found[1], ["uncork", "doctor", "--pcap", "-", "--fail-on", "a>5 b"]);
    assert_eq!(
        commands("P=$(uncork library) ./x"),
        [["uncork", "library"].to_vec(), ["./x"].to_vec()]
    );
    let (_, wrong) = complaints(&[
        Shown { place: "a".to_owned(), line: "uncork doctor --pcpa x".to_owned(), whole: true },
        Shown { place: "b".to_owned(), line: "uncork ack client --trace".to_owned(), whole: false },
        Shown {
            place: "c".to_owned(),
            line: "uncork run -- uncork status".to_owned(),
            whole: true,
        },
    ]);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
