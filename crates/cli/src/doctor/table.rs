//! The report on a terminal.

use uncork_doctor::{Connection, Finding, Kind, Remedy, Report, Severity};

use super::words;
use crate::output::shown;
use crate::tables::{Columns, LISTED, Width, wrap};

/// Indentation of what belongs to a connection.
const INDENT: usize = 3;

/// Remedies shown for a finding: one at each end, as the page and the JSON have them all.
const REMEDIES: usize = 2;

/// Renders the findings: a sentence, then connection by connection, worst first.
pub(crate) fn render(report: &Report, style: Width) -> String {
    let mut text = Text { text: String::new(), style };
    text.wrapped(0, &words::verdict(report), |style, line| style.bold(line));
    let (ill, well): (Vec<_>, Vec<_>) = report.connections.iter().partition(|c| is_ill(c));
    if ill.len() > 1 {
        text.columns(INDENT, &by_kind(&ill));
    }
    for (index, connection) in ill.iter().take(LISTED).enumerate() {
        text.connection(index + 1, connection);
    }
    let more = ill.len().saturating_sub(LISTED);
    if more > 0 {
        let more = words::count(more as u64, "connection");
        text.blank();
        text.muted(&format!("… and {more} that lost less; --json has all, --html the worst"));
    }
    text.well(&well);
    text.remarks(report);
    text.text
}

/// Returns whether something is wrong with it.
fn is_ill(connection: &Connection) -> bool {
    connection.findings.iter().any(|finding| finding.severity > Severity::Harmless)
}

/// The text so far.
struct Text {
    text: String,
    style: Width,
}

impl Text {
    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Appends words, wrapped to the terminal's width, each line painted.
    fn wrapped(&mut self, indent: usize, words: &str, paint: impl Fn(Width, &str) -> String) {
        let room = self.style.columns().map(|columns| usize::from(columns).saturating_sub(indent));
        for line in wrap(&shown(words), room) {
            let line = paint(self.style, &line);
            self.text += &format!("{:indent$}{line}\n", "");
        }
    }

    fn muted(&mut self, words: &str) {
        self.wrapped(0, words, |style, line| style.muted(line));
    }

    /// Appends a table, as much of it as fits; where hardly anything does, a line for each row.
    fn columns(&mut self, indent: usize, columns: &Columns) {
        self.blank();
        match columns.fitting(self.style.less(indent)) {
            Some(lines) => {
                for line in lines.lines() {
                    self.text += &format!("{:indent$}{line}\n", "");
                }
            }
            None => {
                for row in columns.told() {
                    self.wrapped(INDENT, row, |_, line| line.to_owned());
                }
            }
        }
    }

    /// Appends words after a highlighted number on their left.
    fn numbered(&mut self, number: usize, words: &str) {
        let first = self.text.len();
        self.wrapped(INDENT, words, |style, line| style.bold(line));
        let number = format!("{number:<INDENT$}");
        // Painted lines begin with an escape, which the number must share.
        let bold = self.style.bold(&number);
        self.text.replace_range(first..first + INDENT, &bold);
    }

    fn connection(&mut self, number: usize, connection: &Connection) {
        self.blank();
        let ends = [&connection.client, &connection.server].map(words::party);
        let whole = format!("{number:<2} {} → {}", ends[0], ends[1]);
        let fits =
            self.style.columns().is_none_or(|columns| whole.chars().count() <= columns.into());
        if fits {
            self.wrapped(0, &whole, |style, line| style.bold(line));
        } else {
            self.numbered(number, &ends[0]);
            self.wrapped(INDENT, &format!("→ {}", ends[1]), |style, line| style.bold(line));
        }
        self.wrapped(INDENT, &words::cost(connection), |_, line| line.to_owned());
        for (role, party) in [("client", &connection.client), ("server", &connection.server)] {
            if let Some(uncork) = &party.uncork {
                let told = format!("uncork at the {role}: {}", words::uncork(uncork));
                self.wrapped(INDENT, &told, |_, line| line.to_owned());
            }
        }
        self.columns(INDENT - 1, &of_findings(connection));
        let mut told = Vec::new();
        for finding in &connection.findings {
            self.finding(finding, connection.findings.len() > 1, &mut told);
        }
    }

    /// Appends what was seen, and what to do about it.
    fn finding<'a>(&mut self, finding: &'a Finding, one_of_many: bool, told: &mut Vec<&'a Remedy>) {
        self.blank();
        let mut seen = shown(&finding.evidence).into_owned();
        if one_of_many {
            let name = words::name(finding);
            seen = format!("{}{}: {seen}", name[..1].to_uppercase(), &name[1..]);
        }
        self.wrapped(INDENT, &seen, |_, line| line.to_owned());
        for (index, remedy) in best(&finding.remedies).into_iter().enumerate() {
            if told.contains(&remedy) {
                let again = format!("The line for the {} above helps here, too.", remedy.at);
                self.wrapped(INDENT, &again, |_, line| line.to_owned());
                continue;
            }
            told.push(remedy);
            let or = if index == 0 { "At" } else { "Or at" };
            let how = format!("{or} the {}: {}:", words::role(remedy.at), shown(&remedy.why));
            self.wrapped(INDENT, &how, |_, line| line.to_owned());
            // A separate line, however long: it is meant to be copied.
            let line = self.style.command(&shown(&remedy.line));
            self.text += &format!("{:indent$}{line}\n", "", indent = INDENT + 2);
        }
    }

    /// Appends connections with nothing or something harmless: present only if they were asked for.
    fn well(&mut self, connections: &[&Connection]) {
        if connections.is_empty() {
            return;
        }
        self.blank();
        for connection in connections.iter().take(LISTED) {
            let ends = [&connection.client, &connection.server].map(words::party);
            let oddities: Vec<_> = connection.findings.iter().map(words::name).collect();
            let state = match oddities.as_slice() {
                [] => "well".to_owned(),
                some => format!("harmless: {}", some.join(", ")),
            };
            self.muted(&format!("{} → {}: {state}", ends[0], ends[1]));
        }
        let more = connections.len().saturating_sub(LISTED);
        if more > 0 {
            let more = words::count(more as u64, "connection");
            self.muted(&format!("… and {more} without a stall; --json has all"));
        }
    }

    /// Appends further remarks, in muted lines.
    fn remarks(&mut self, report: &Report) {
        let summary = &report.summary;
        let listed = report.connections.iter().flat_map(|connection| &connection.findings);
        let listed = listed.filter(|finding| finding.severity == Severity::Harmless).count();
        let hidden = summary.harmless.saturating_sub(listed as u64);
        let mut remarks = Vec::new();
        if summary.cut_short > 0 {
            let frames = words::count(summary.cut_short, "frame");
            remarks.push(format!(
                "{frames} cut too short to be read: capture with a snap length \
                                  of 128 or more"
            ));
        }
        if summary.malformed > 0 {
            remarks.push(format!(
                "{} with headers that contradict themselves",
                words::count(summary.malformed, "frame")
            ));
        }
        match hidden {
            0 => {}
            1 => remarks.push("1 harmless oddity; --all shows it".to_owned()),
            more => remarks
                .push(format!("{} harmless oddities; --all shows them", words::thousands(more))),
        }
        remarks.extend(report.command.as_ref().and_then(words::ended));
        remarks.extend(report.notes.iter().cloned());
        if !remarks.is_empty() {
            self.blank();
        }
        for remark in remarks {
            self.muted(&remark);
        }
    }
}

/// Returns the first remedy at each end, best first.
fn best(remedies: &[Remedy]) -> Vec<&Remedy> {
    let mut best: Vec<&Remedy> = Vec::new();
    for remedy in remedies {
        if best.len() < REMEDIES && best.iter().all(|known| known.at != remedy.at) {
            best.push(remedy);
        }
    }
    best
}

/// Returns the findings of all connections: a row for each kind.
fn by_kind(connections: &[&Connection]) -> Columns {
    let rows = kinds(connections);
    let mut header = vec!["finding", "connections", "times", "lost"];
    // A program's own time is not lost: it has a column of its own.
    let by_programs = rows.iter().any(|row| row.kind == Kind::Application);
    if by_programs {
        header.push("not TCP");
    }
    let mut columns = Columns::new(header, &[1, 2, 3, 4], &[1]);
    for row in rows {
        let (lost, own) = words::lost_and_own(row.kind, row.lost);
        let [connections, times] = [row.connections, row.times].map(words::thousands);
        let name = words::kind_name(row.kind).to_owned();
        let told = format!(
            "{name}: {} on {}{}",
            words::count(row.times, "time"),
            words::count(row.connections, "connection"),
            words::cost_of(row.kind, row.lost),
        );
        let mut cells = vec![name, connections, times, lost];
        if by_programs {
            cells.push(own);
        }
        columns.add(cells, told);
    }
    columns
}

/// What connections with one kind of finding have in common.
pub(crate) struct OfKind {
    pub(crate) kind: Kind,
    pub(crate) severity: Severity,
    pub(crate) connections: u64,
    pub(crate) times: u64,
    pub(crate) lost: std::time::Duration,
}

/// Returns the kinds that are not harmless, worst first.
pub(crate) fn kinds(connections: &[&Connection]) -> Vec<OfKind> {
    let mut rows: Vec<OfKind> = Vec::new();
    for connection in connections {
        let mut of_this: Vec<Kind> = Vec::new();
        for finding in &connection.findings {
            if finding.severity == Severity::Harmless {
                continue;
            }
            let kind = finding.kind;
            let at = rows.iter().position(|row| row.kind == kind).unwrap_or_else(|| {
                rows.push(OfKind {
                    kind,
                    severity: finding.severity,
                    connections: 0,
                    times: 0,
                    lost: std::time::Duration::ZERO,
                });
                rows.len() - 1
            });
            let row = &mut rows[at];
            row.severity = row.severity.max(finding.severity);
            row.times += finding.count;
            row.lost += finding.lost;
            row.connections += u64::from(!of_this.contains(&kind));
            of_this.push(kind);
        }
    }
    // The program's own time is no fault of TCP: it comes last of what was waited for.
    rows.sort_by_key(|row| {
        let program = row.kind == Kind::Application;
        std::cmp::Reverse((row.severity, !program, row.lost, row.times))
    });
    rows
}

fn of_findings(connection: &Connection) -> Columns {
    let header = vec!["finding", "bytes at", "ACK at", "times", "p50", "max", "lost"];
    // The evidence below names both ends and the longest; the median is missed least.
    let mut columns = Columns::new(header, &[3, 4, 5, 6], &[4, 5, 2, 1]);
    for finding in &connection.findings {
        // Nothing is held where the program is slow, or sends at once and in pieces.
        let held = !matches!(finding.kind, Kind::Application | Kind::TinyPackets);
        let role = |role: Option<_>| role.filter(|_| held).map_or("-", words::role).to_owned();
        let time = |time| if finding.each.count == 0 { "-".to_owned() } else { words::time(time) };
        let name = words::name(finding);
        let times = words::count(finding.count, "time");
        let told = format!("{name}: {times}{}", words::cost_of(finding.kind, finding.lost));
        let cells = vec![
            name.to_owned(),
            role(finding.bytes_held_by),
            role(finding.ack_held_by),
            words::thousands(finding.count),
            time(finding.each.p50),
            time(finding.each.max),
            words::lost_and_own(finding.kind, finding.lost).0,
        ];
        columns.add(cells, told);
    }
    columns
}

#[cfg(test)]
mod tests;
