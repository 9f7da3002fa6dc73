//! The final report: the JSON document and the text for people.

use std::collections::BTreeSet;

use serde::Serialize;
use uncork_posix::report::{ProcessReport, SCHEMA, StackReport};

use super::child::{Child, Ended};
use super::collect::Received;
use super::survivors::Survivor;
use crate::output::shown;
use crate::run::Program;
use crate::tables::{self, LISTED, Width};

/// Everything that is known when the program has ended.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    schema: u32,
    command: Vec<String>,
    exit: Exit,
    processes: Vec<Process>,
    /// Processes of which it is only known that they existed.
    without_report: Vec<Missing>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Exit {
    Code(i32),
    Signal(i32),
}

#[derive(Debug, Serialize)]
struct Process {
    #[serde(flatten)]
    report: ProcessReport,
    /// Why the report was read from the process instead of being its last word.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
}

#[derive(Debug, Serialize)]
struct Missing {
    pid: i32,
    program: Option<String>,
    why: String,
}

impl Outcome {
    /// Combines what was received, what was read from processes, and what is missing.
    pub(super) fn of(
        program: &Program,
        child: &Child,
        ended: Ended,
        received: Vec<Received>,
        left: Vec<Survivor>,
    ) -> Self {
        let command = program.arguments.iter().map(|word| word.to_string_lossy().into_owned());
        let exit = match ended {
            Ended::Code(code) => Exit::Code(code),
            Ended::Signal(signal) => Exit::Signal(signal),
        };
        let mut outcome = Self {
            schema: SCHEMA,
            command: command.collect(),
            exit,
            processes: Vec::new(),
            without_report: Vec::new(),
        };
        for Received { pid, report } in received {
            match report {
                Ok(report) => outcome.processes.push(Process { report, snapshot: None }),
                Err(why) => outcome.miss(pid, None, why),
            }
        }
        outcome.add_child(child, ended);
        for survivor in left {
            outcome.add_survivor(survivor);
        }
        outcome
    }

    fn miss(&mut self, pid: i32, program: Option<String>, why: String) {
        self.without_report.push(Missing { pid, program, why });
    }

    /// Adds the program's own report, what was read from it in time, or that it is missing.
    fn add_child(&mut self, child: &Child, ended: Ended) {
        let pid = child.pid.as_raw();
        let is_child = |process: &&Process| i64::from(process.report.pid) == i64::from(pid);
        let reported = self.processes.iter().filter(is_child).count();
        match &child.snapshot {
            Some(taken) if ended.is_by_signal() && reported <= taken.reported => {
                let age = taken.taken.elapsed().as_secs_f64();
                let when = match taken.signal {
                    Some(signal) => format!("just before {signal}"),
                    None if age < 0.05 => "just before".to_owned(),
                    None => format!("{age:.1} s before"),
                };
                let when = format!("it was ended by a signal; read {when}");
                let report = taken.report.clone();
                self.processes.push(Process { report, snapshot: Some(when) });
                return;
            }
            _ if reported > 0 || self.without_report.iter().any(|missing| missing.pid == pid) => {
                return;
            }
            _ => {}
        }
        let why = match ended {
            Ended::Signal(signal) => {
                format!("it was ended by signal {signal} before it could report")
            }
            Ended::Code(_) => "it ended without a report".to_owned(),
        };
        let name = self.command.first().cloned();
        self.miss(pid, name, why);
    }

    fn add_survivor(&mut self, survivor: Survivor) {
        let Survivor { pid, program, report } = survivor;
        match report {
            Some(report) => {
                let snapshot = Some("it is still running; read when the program ended".to_owned());
                self.processes.push(Process { report, snapshot });
            }
            None => self.miss(pid, Some(program), "it is still running".to_owned()),
        }
    }

    /// Returns the document of `--stats=FILE`.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns the text for standard error, the processes that wrote most first.
    pub(super) fn table(&self) -> String {
        self.text(Width::of_stderr())
    }

    fn text(&self, width: Width) -> String {
        let (mut busy, idle): (Vec<_>, Vec<_>) =
            self.processes.iter().partition(|process| process.is_busy());
        busy.sort_by_key(|process| core::cmp::Reverse(process.writes()));
        let mut text = String::new();
        for process in busy.iter().take(LISTED) {
            let report = &process.report;
            let title = format!("uncork: {} (process {})", shown(&report.program), report.pid);
            text += &format!("{}: {}\n", width.bold(&title), process.totals());
            if let Some(snapshot) = &process.snapshot {
                text += &format!("{snapshot}\n");
            }
            text += &tables::stats(report, width);
        }
        text += &tables::left_out(busy.len(), "process", "--stats=FILE");
        text += &without_sockets(&idle);
        for missing in self.without_report.iter().take(LISTED) {
            let program = missing.program.as_deref().map(|name| format!(" ({})", shown(name)));
            let program = program.unwrap_or_default();
            text += &format!("uncork: no report of process {}{program}: ", missing.pid);
            text += &format!("{}\n", shown(&missing.why));
        }
        if let more @ 1.. = self.without_report.len().saturating_sub(LISTED) {
            text += &format!("… and of {more} more\n");
        }
        text
    }
}

/// Reports processes without sockets in one line: a shell script starts many of them.
fn without_sockets(processes: &[&Process]) -> String {
    let names: BTreeSet<_> = processes.iter().map(|p| shown(&p.report.program)).collect();
    let names: Vec<_> = names.iter().map(AsRef::as_ref).take(LISTED).collect();
    match processes {
        [] => String::new(),
        [one] => {
            let (name, pid) = (shown(&one.report.program), one.report.pid);
            format!("uncork: {name} (process {pid}) wrote to no TCP socket\n")
        }
        _ => {
            let (number, names) = (processes.len(), names.join(", "));
            format!("uncork: {number} processes wrote to no TCP socket: {names}\n")
        }
    }
}

impl Process {
    fn sockets(&self) -> u64 {
        self.report.sockets.len() as u64 + self.report.sockets_not_listed
    }

    fn is_busy(&self) -> bool {
        let stack = self.report.stack.as_ref();
        self.sockets() > 0 || stack.is_some_and(StackReport::is_anything)
    }

    fn writes(&self) -> u64 {
        self.report.sockets.iter().map(|socket| socket.writes).sum()
    }

    fn totals(&self) -> String {
        let saved: u64 = self.report.sockets.iter().map(|socket| socket.packets_saved).sum();
        let number = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        // For sockets on the stack the stack itself counts what is saved.
        let whose = if self.report.stack.is_some() { "kernel TCP socket" } else { "TCP socket" };
        format!(
            "{}, {}, {} saved",
            number(self.sockets(), whose),
            number(self.writes(), "write"),
            number(saved, "packet")
        )
    }
}
