use super::*;
use crate::doctor::samples;

const NARROW: u16 = 80;
const WIDE: u16 = 120;

fn plain(columns: u16) -> Width {
    Width::fixed(Some(columns), false)
}

/// Returns the lines that are not commands.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with(&" ".repeat(INDENT + 2)))
}

#[test]
fn an_evening_with_a_capture() {
    insta::assert_snapshot!("evening_80", render(&samples::evening(), plain(NARROW)));
    insta::assert_snapshot!("evening_120", render(&samples::evening(), plain(WIDE)));
}

#[test]
fn every_kind() {
    insta::assert_snapshot!("every_kind_80", render(&samples::every_kind(), plain(NARROW)));
}

#[test]
fn nothing_to_complain_about() {
    insta::assert_snapshot!("empty_80", render(&samples::empty(), plain(NARROW)));
    insta::assert_snapshot!("healthy_80", render(&samples::healthy(), plain(NARROW)));
    insta::assert_snapshot!("slow_program_80", render(&samples::slow_program(), plain(NARROW)));
}

#[test]
fn what_was_only_looked_at() {
    insta::assert_snapshot!("looked_at_80", render(&samples::looked_at(), plain(NARROW)));
}

#[test]
fn all_but_the_commands_fits_the_terminal() {
    for report in [samples::evening(), samples::every_kind(), samples::many()] {
        for columns in [40, 60, NARROW, WIDE] {
            let text = render(&report, plain(columns));
            for line in prose(&text) {
                // A word is not broken: wrapping a long address is left to the terminal.
                let one_word = line.trim_start_matches([' ', '→', '3']).split(' ').count() == 1;
                assert!(line.chars().count() <= columns.into() || one_word, "{columns}: {line}");
            }
        }
    }
}

#[test]
fn a_narrow_terminal_gets_whole_words() {
    insta::assert_snapshot!("evening_40", render(&samples::evening(), plain(40)));
    insta::assert_snapshot!("evening_60", render(&samples::evening(), plain(60)));
    for columns in [30, 40, 50, 60, 70, 76, NARROW] {
        let text = render(&samples::every_kind(), plain(columns));
        let words: Vec<&str> = text.split_whitespace().collect();
        let running = words.join(" ");
        for kind in samples::KINDS {
            let name = words::kind_name(kind);
            assert!(running.contains(name), "{columns}: {name} in {text}");
        }
        assert!(running.contains("5.56 s"), "{columns}: {text}");
    }
}

/// Time that a program took is not counted as lost.
#[test]
fn a_programs_own_time_is_in_no_column_of_losses() {
    let mut report = samples::slow_program();
    let own = words::time(report.connections[0].findings[0].lost);
    let text = render(&report, plain(NARROW));
    let row = text.lines().find(|line| line.trim_start().starts_with("slow program")).unwrap();
    assert!(row.ends_with(" -") && !row.contains(&own), "{text}");
    assert!(text.contains(&format!("to blame for; {own} of the program’s own")), "{text}");
    report.connections.push(report.connections[0].clone());
    let text = render(&report, plain(NARROW));
    let own = words::time(2 * report.connections[0].findings[0].lost);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("    ")).take(2).collect();
    assert!(rows[0].ends_with(" lost  not TCP"), "{text}");
    let cells: Vec<&str> = rows[1].rsplitn(3, "  ").map(str::trim).collect();
    assert_eq!(cells[..2], [&own, "-"], "{text}");
}

#[test]
fn a_command_is_one_whole_line_at_any_width() {
    let report = samples::every_kind();
    for columns in [20, 40, NARROW, WIDE] {
        let text = render(&report, plain(columns));
        for connection in &report.connections {
            for finding in &connection.findings {
                let Some(remedy) = finding.remedies.first() else { continue };
                assert!(text.lines().any(|line| line.trim() == remedy.line), "{}", remedy.line);
            }
        }
    }
}

#[test]
fn a_pipe_gets_no_colour_and_no_broken_sentence() {
    let report = samples::evening();
    let text = render(&report, Width::fixed(None, false));
    assert!(!text.contains('\x1b'));
    for connection in &report.connections {
        for finding in &connection.findings {
            assert!(text.contains(&finding.evidence));
        }
    }
}

#[test]
fn colour_changes_no_word() {
    let coloured = render(&samples::evening(), Width::fixed(Some(NARROW), true));
    let mut words = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        words += before;
        rest = after.split_once('m').unwrap().1;
    }
    words += rest;
    assert_ne!(words, coloured);
    assert_eq!(words, render(&samples::evening(), plain(NARROW)));
}

#[test]
fn what_a_process_is_called_cannot_drive_the_terminal() {
    let text = render(&samples::hostile(), plain(NARROW));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn five_hundred_connections_are_cut_and_counted() {
    let text = render(&samples::many(), plain(NARROW));
    assert!(text.contains("… and 480 connections that lost less"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("20 ")));
    assert!(!text.lines().any(|line| line.starts_with("21 ")));
}

#[test]
fn harmless_oddities_are_one_line_unless_they_are_listed() {
    let mut report = samples::evening();
    assert!(render(&report, plain(NARROW)).ends_with("3 harmless oddities; --all shows them\n"));
    for connection in &mut report.connections {
        connection.findings.truncate(1);
        connection.findings[0].severity = Severity::Harmless;
    }
    let text = render(&report, plain(NARROW));
    assert!(!text.contains("--all"), "{text}");
    assert!(text.contains("harmless: Nagle meets delayed ACK"), "{text}");
}
