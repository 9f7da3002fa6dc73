//! Tables for people.

mod columns;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use uncork_posix::report::{HeldTime, ProcessReport, SocketReport, StackReport, StackSocket};

use crate::output::shown;
pub(crate) use columns::Columns;

/// How many rows are listed before the rest is only counted.
pub(crate) const LISTED: usize = 20;

/// The width of the output, and whether it understands escape sequences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    /// Columns; `None` where lines may have any length (a file, a pipe).
    columns: Option<u16>,
    colour: bool,
}

impl Width {
    pub(crate) fn of_stdout() -> Self {
        Self::of(std::io::stdout())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::of(std::io::stderr())
    }

    fn of(stream: impl AsFd + IsTerminal) -> Self {
        if !stream.is_terminal() {
            return Self { columns: None, colour: false };
        }
        let size = rustix::termios::tcgetwinsize(stream).ok();
        let columns = size.map(|size| size.ws_col).filter(|&columns| columns > 0);
        // https://no-color.org: set, and not empty.
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { columns: columns.or(Some(80)), colour: !plain }
    }

    /// Returns `text` in bold, where that can be shown.
    pub(crate) fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    /// Returns `text` muted, as it is less important.
    pub(crate) fn muted(self, text: &str) -> String {
        self.painted("2", text)
    }

    /// Returns `text` highlighted, to be copied.
    pub(crate) fn command(self, text: &str) -> String {
        self.painted("36", text)
    }

    fn painted(self, how: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{how}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns the columns; `None` where lines may have any length.
    pub(crate) fn columns(self) -> Option<u16> {
        self.columns
    }

    /// Returns a copy where lines may have any length.
    pub(crate) fn endless(self) -> Self {
        Self { columns: None, ..self }
    }

    /// Returns a copy with `columns` fewer.
    pub(crate) fn less(self, columns: usize) -> Self {
        let taken = u16::try_from(columns).unwrap_or(u16::MAX);
        Self { columns: self.columns.map(|columns| columns.saturating_sub(taken)), ..self }
    }

    #[cfg(test)]
    pub(crate) fn fixed(columns: Option<u16>, colour: bool) -> Self {
        Self { columns, colour }
    }
}

const OPTIONS: [&str; 4] = ["hold", "scope", "bound", "spin"];

/// Returns the settings in force, in one line, and those that were not understood.
pub(crate) fn settings(report: &ProcessReport) -> String {
    // The options first, in the order of the help; then the others.
    let place = |name: &str| OPTIONS.iter().position(|option| *option == name);
    let mut settings: Vec<_> = report.settings.iter().collect();
    settings.sort_by_key(|(name, _)| place(name).unwrap_or(OPTIONS.len()));
    let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut text = shown(&settings.join(", ")).into_owned();
    text.push('\n');
    for sentence in &report.ignored {
        text += &format!("{}\n", shown(sentence));
    }
    text
}

/// Says what became of sockets under `--stack`: how many were on it, and why the others are the kernel's.
fn stack(report: &ProcessReport) -> String {
    let lines = report.stack.iter().flat_map(StackReport::lines);
    lines.map(|line| shown(&line).into_owned() + "\n").collect()
}

/// Renders `uncork status` for a process: the open sockets and what is held in them.
pub(crate) fn status(report: &ProcessReport, width: Width) -> String {
    let text = settings(report) + &stack(report);
    let mut open: Vec<_> = report.sockets.iter().filter(|socket| socket.open).collect();
    open.sort_by_key(|socket| {
        (core::cmp::Reverse((socket.held_bytes > 0, socket.writes)), socket.fd)
    });
    // Those that are on the stack have no record of writes here.
    let is_listed = |fd: i32| open.iter().any(|socket| socket.fd == fd);
    let stacked = report.stack.iter().flat_map(|stack| &stack.sockets);
    let stacked: Vec<_> = stacked.filter(|one| !is_listed(one.fd)).collect();
    if open.is_empty() && stacked.is_empty() {
        return text + "no open TCP sockets\n";
    }
    let header = vec!["fd", "peer", "state", "held", "why", "writes", "pushes", "saved", "bytes"];
    let mut table = Columns::new(header, &[0, 3, 5, 6, 7, 8], &[4, 6, 7, 8, 5]);
    for socket in open.iter().take(LISTED) {
        let (cells, told) = of_status(socket);
        table.add(cells, told);
    }
    for one in stacked.iter().take(LISTED.saturating_sub(open.len())) {
        let (cells, told) = of_stack(one);
        table.add(cells, told);
    }
    text + &table.text(width, "--json")
        + &left_out(open.len() + stacked.len(), "open socket", "--json")
}

/// Returns the cells of a socket in `uncork status`, and the same as a sentence.
fn of_status(socket: &SocketReport) -> (Vec<String>, String) {
    let (peer, state) = (peer(socket), shown(&socket.state).into_owned());
    let (held, why) = (socket.held_bytes, shown(&socket.why).into_owned());
    let (writes, pushes, saved) = (socket.writes, socket.pushes, socket.packets_saved);
    let bytes = bytes(socket.bytes);
    let told = format!(
        "fd {}, peer {peer}: {state}; {held} held ({why}); {}, {}, {saved} saved, {bytes} bytes",
        socket.fd,
        counted(writes, "write", "writes"),
        counted(pushes, "push", "pushes"),
    );
    let [held, writes, pushes, saved] = [held, writes, pushes, saved].map(|n| n.to_string());
    (vec![socket.fd.to_string(), peer, state, held, why, writes, pushes, saved, bytes], told)
}

/// Returns the same of a socket that is not the kernel's.
fn of_stack(one: &StackSocket) -> (Vec<String>, String) {
    let peer = one.peer.as_deref().map_or_else(|| "-".to_owned(), |peer| shown(peer).into_owned());
    let state = if one.place == "stack" { "on the stack" } else { "undecided" }.to_owned();
    let why = shown(&one.why).into_owned();
    let told = format!("fd {}, peer {peer}: {state} ({why})", one.fd);
    let mut cells = vec![one.fd.to_string(), peer, state, "-".to_owned(), why];
    cells.extend(vec!["-".to_owned(); 4]);
    (cells, told)
}

/// Renders `uncork run --stats` for a process: all its sockets, the busiest first.
pub(crate) fn stats(report: &ProcessReport, width: Width) -> String {
    let mut text = settings(report) + &stack(report);
    if report.sockets.is_empty() {
        return text;
    }
    let mut sockets: Vec<_> = report.sockets.iter().collect();
    sockets.sort_by_key(|socket| core::cmp::Reverse(socket.writes));
    let header = vec![
        "fd",
        "peer",
        "state",
        "writes",
        "pushes",
        "saved",
        "bytes",
        "held p50/p99/max",
        "pushed by",
        "passed through",
    ];
    let mut table = Columns::new(header, &[0, 3, 4, 5, 6], &[9, 8, 7, 6, 4]);
    for socket in sockets.iter().take(LISTED) {
        let (cells, told) = of_stats(socket);
        table.add(cells, told);
    }
    text += &table.text(width, "--stats=FILE");
    text += &left_out(sockets.len(), "socket", "--stats=FILE");
    if report.sockets_not_listed > 0 {
        let closed = counted(report.sockets_not_listed, "closed socket was", "closed sockets were");
        text += &format!("{closed} only counted\n");
    }
    text
}

/// Returns the cells of a socket in `uncork run --stats`, and the same as a sentence.
fn of_stats(socket: &SocketReport) -> (Vec<String>, String) {
    let (peer, state) = (peer(socket), shown(&socket.state).into_owned());
    let (writes, pushes, saved) = (socket.writes, socket.pushes, socket.packets_saved);
    let (bytes, held) = (bytes(socket.bytes), socket.held.as_ref().map(held).unwrap_or_default());
    let (pushed, passed) = (counts(&socket.pushed_by), counts(&socket.passed));
    let part = |what: &str, text: &str| match text {
        "" => String::new(),
        text => format!("; {what} {text}"),
    };
    let told = format!(
        "fd {}, peer {peer}: {state}; {}, {}, {saved} saved, {bytes} bytes{}{}{}",
        socket.fd,
        counted(writes, "write", "writes"),
        counted(pushes, "push", "pushes"),
        part("held (p50/p99/max)", &held),
        part("pushed by", &pushed),
        part("passed through", &passed),
    );
    let fd = socket.fd.to_string();
    let [writes, pushes, saved] = [writes, pushes, saved].map(|n| n.to_string());
    (vec![fd, peer, state, writes, pushes, saved, bytes, held, pushed, passed], told)
}

/// Formats a number with what it counts.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Returns the line below a truncated list.
pub(crate) fn left_out(length: usize, what: &str, how: &str) -> String {
    match length.saturating_sub(LISTED) {
        0 => String::new(),
        1 => format!("… and 1 {what} with fewer writes; {how} has all\n"),
        more => format!("… and {more} {}s with fewer writes; {how} has all\n", plural(what)),
    }
}

/// Returns the word before the "s" of the plural: processes take "es".
fn plural(what: &str) -> &str {
    if what == "process" { "processe" } else { what }
}

pub(crate) fn table(header: &[&str], right: &[usize], width: Width) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    match width.columns {
        Some(columns) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns the table as lines without trailing blanks.
pub(crate) fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Wraps to lines of at most `room` characters; longer words stay whole.
pub(crate) fn wrap(text: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > room {
            lines.push(word.to_owned());
        } else {
            if length > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn peer(socket: &SocketReport) -> String {
    socket.peer.as_deref().map_or_else(|| "-".to_owned(), |peer| shown(peer).into_owned())
}

/// Lists counts, the most frequent first: `read 9998, timer 2`.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by_key(|(_, count)| core::cmp::Reverse(**count));
    let counts: Vec<_> = counts.iter().map(|(name, n)| format!("{} {n}", shown(name))).collect();
    counts.join(", ")
}

fn held(held: &HeldTime) -> String {
    format!("{}/{}/{}", time(held.p50_ns), time(held.p99_ns), time(held.max_ns))
}

/// Formats a time with three digits and a unit: `870ns`, `12.3us`, `1.02ms`.
pub(crate) fn time(nanoseconds: u64) -> String {
    scaled(nanoseconds, 1000.0, &["ns", "us", "ms", "s"])
}

/// Formats a size with three digits and a unit: `900`, `1.46kB`, `12.3MB`.
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes, 1000.0, &["", "kB", "MB", "GB", "TB", "PB"])
}

fn scaled(value: u64, step: f64, units: &[&str]) -> String {
    let mut scaled = value as f64;
    let mut unit = 0;
    // 999.5 would be shown as 1000 of the smaller unit.
    while scaled >= step - 0.5 && unit + 1 < units.len() {
        scaled /= step;
        unit += 1;
    }
    let decimals = match scaled {
        _ if unit == 0 => 0,
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Width = Width { columns: None, colour: false };

    fn socket(fd: i32, writes: u64) -> SocketReport {
        SocketReport {
            fd,
            peer: Some("127.0.0.1:5001".to_owned()),
            state: "helped".to_owned(),
            open: true,
            writes,
            pushes: writes / 15,
            packets_saved: writes - writes / 15,
            bytes: writes * 2,
            pushed_by: [("read".to_owned(), 9998), ("timer".to_owned(), 2)].into(),
            passed: [("sendfile".to_owned(), 7)].into(),
            held: Some(HeldTime { samples: 10, p50_ns: 870, p99_ns: 12_345, max_ns: 1_020_000 }),
            ..SocketReport::default()
        }
    }

    fn report(sockets: Vec<SocketReport>) -> ProcessReport {
        let settings = [("hold".to_owned(), "kernel".to_owned())].into();
        ProcessReport { settings, sockets, ..ProcessReport::default() }
    }

    #[test]
    fn three_digits_and_a_unit() {
        for (value, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1000, "1.00us"),
            (12_345, "12.3us"),
            (999_499, "999us"),
            (999_600, "1.00ms"),
            (1_000_000_000, "1.00s"),
        ] {
            assert_eq!(time(value), text);
        }
        assert_eq!(bytes(1460), "1.46kB");
        assert_eq!(bytes(900), "900");
    }

    #[test]
    fn a_socket_shows_what_held_it_what_pushed_it_and_what_passed() {
        let text = stats(&report(vec![socket(7, 150_000)]), FILE);
        let [settings, header, row] = text.lines().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(settings, "hold kernel");
        let columns: Vec<_> = header.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let cells: Vec<_> = row.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let expected = [
            ("fd", "7"),
            ("peer", "127.0.0.1:5001"),
            ("state", "helped"),
            ("writes", "150000"),
            ("pushes", "10000"),
            ("saved", "140000"),
            ("bytes", "300kB"),
            ("held p50/p99/max", "870ns/12.3us/1.02ms"),
            ("pushed by", "read 9998, timer 2"),
            ("passed through", "sendfile 7"),
        ];
        assert_eq!(columns.into_iter().zip(cells).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn long_lists_keep_the_twenty_busiest_and_count_the_rest() {
        let text = stats(&report((0..50).map(|fd| socket(fd, 1000 + fd as u64)).collect()), FILE);
        let rows: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), LISTED + 1);
        assert!(rows[0].trim().starts_with("49 "), "{text}");
        assert_eq!(rows[LISTED], "… and 30 sockets with fewer writes; --stats=FILE has all");
        assert_eq!(left_out(LISTED, "socket", "x"), "");
        assert_eq!(
            left_out(LISTED + 2, "process", "x"),
            "… and 2 processes with fewer writes; x has all\n"
        );
    }

    #[test]
    fn a_table_fits_the_terminal() {
        for columns in [24, 40, 60, 80] {
            let narrow = Width { columns: Some(columns), colour: false };
            for text in [stats, status].map(|say| say(&report(vec![socket(7, 150_000)]), narrow)) {
                let fits = |line: &str| line.chars().count() <= columns.into();
                assert!(text.lines().all(fits), "{columns}: {text}");
                // No cell is cut in two.
                assert!(text.contains("127.0.0.1:5001"), "{columns}: {text}");
            }
        }
        let narrow = Width { columns: Some(80), colour: false };
        let text = stats(&report(vec![socket(7, 150_000)]), narrow);
        assert!(
            text.ends_with("… and more columns than fit here; --stats=FILE has all\n"),
            "{text}"
        );
    }

    #[test]
    fn sockets_on_the_stack_and_listeners_are_open_sockets() {
        let on_stack = |fd, place: &str| StackSocket {
            fd,
            place: place.to_owned(),
            why: "it was accepted there".to_owned(),
            ..StackSocket::default()
        };
        let sockets = vec![on_stack(8, "stack"), on_stack(7, "kernel"), on_stack(9, "undecided")];
        let stack = StackReport { sockets, ..StackReport::default() };
        let some = ProcessReport { stack: Some(stack), ..report(vec![socket(7, 900)]) };
        let text = status(&some, FILE);
        let rows: Vec<_> = text.lines().skip(3).map(str::trim).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows[0].starts_with("7 ") && rows[0].contains("helped"), "{text}");
        assert!(rows[1].starts_with("8 ") && rows[1].contains("on the stack"), "{text}");
        assert!(rows[2].starts_with("9 ") && rows[2].contains("undecided"), "{text}");
        let listener =
            SocketReport { state: "passed: listens".to_owned(), peer: None, ..socket(3, 0) };
        assert!(status(&report(vec![listener]), FILE).contains("passed: listens"));
    }

    #[test]
    fn status_lists_what_is_held_first_and_closed_sockets_not_at_all() {
        let mut holding = socket(4, 10);
        holding.held_bytes = 30;
        holding.why = "waits for more".to_owned();
        let mut closed = socket(5, 10_000);
        closed.open = false;
        let text = status(&report(vec![closed, socket(3, 900), holding]), FILE);
        let rows: Vec<_> = text.lines().skip(2).map(str::trim).collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert!(rows[0].starts_with("4 ") && rows[0].contains("30  waits for more"), "{text}");
        assert!(rows[1].starts_with("3 "), "{text}");
        assert!(status(&report(vec![]), FILE).ends_with("no open TCP sockets\n"));
    }

    #[test]
    fn bold_only_where_it_can_be_shown() {
        assert_eq!(FILE.bold("x"), "x");
        assert_eq!(Width { columns: None, colour: true }.bold("x"), "\x1b[1mx\x1b[0m");
    }
}
