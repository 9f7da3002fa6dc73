//! Records that libuncork.so keeps of the sockets of watched processes that run under it.
//!
//! They are read from the processes' memory now and then, as `uncork status` does; that shows
//! sockets while they are open. A command that is started here is also asked to report at its end,
//! as under `uncork run --stats`: that shows all of them, with the time that bytes were held.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use uncork_doctor::live::{Ends, Preloaded};
use uncork_doctor::{Push, Report, Spread, Uncork};
use uncork_posix::config::variable;
use uncork_posix::report::{HeldTime, ProcessReport, SocketReport};
use uncork_sockdiag::SockDiag;
use uncork_wire::Endpoint;

use super::{ends, processes};
use crate::doctor::words;
use crate::output::shown;
use crate::stats::collect::Collector;
use crate::status;

/// Shortest time between two reads, and its least multiple of what a read takes.
const REST: Duration = Duration::from_millis(50);
const REST_SHARE: u32 = 20;
/// After an exec, a program has the library after that many reads, or never.
const LOOKS: u32 = 4;
/// How long to wait for reports after the command has ended.
const GRACE: Duration = Duration::from_millis(100);
/// How many processes are named in notes.
const TOLD: usize = 8;

/// The records so far.
#[derive(Default)]
pub(super) struct Records {
    collector: Option<Collector>,
    processes: HashMap<u32, Known>,
    next: Option<Instant>,
    kernel: Option<Option<SockDiag>>,
}

/// A process, and what is known of it.
#[derive(Default)]
struct Known {
    program: String,
    settings: String,
    hold: String,
    /// Records that were read from its memory, by descriptor and own end: the latest state.
    seen: HashMap<(i32, Endpoint), (Endpoint, SocketReport)>,
    /// Records that it reported itself.
    said: Vec<SocketReport>,
    /// The program that it executes, and how often the library was not found in it.
    executes: PathBuf,
    absent: u32,
    loaded: bool,
    /// Whether a socket of it was seen to send something, open or closed by now.
    has_written: bool,
}

impl Records {
    /// Creates the records of a command that is to be started with [`variable`](Self::variable).
    pub(super) fn of_command() -> Self {
        // If the caller has asked for the report, it goes to the caller.
        let asked = std::env::var_os(variable::STATS).is_some();
        Self { collector: (!asked).then(Collector::listen).and_then(Result::ok), ..Self::default() }
    }

    /// Returns what the command's environment needs.
    pub(super) fn variable(&self) -> Option<(&'static str, OsString)> {
        let collector = self.collector.as_ref()?;
        Some((variable::STATS, collector.address().into()))
    }

    /// Reads the records of these processes, if it is time.
    pub(super) fn look(&mut self, pids: &[u32]) {
        if let Some(collector) = &mut self.collector {
            collector.take_in();
        }
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return;
        }
        self.look_now(pids);
        self.next = Some(Instant::now() + REST.max(begin.elapsed() * REST_SHARE));
    }

    fn look_now(&mut self, pids: &[u32]) {
        let mut reports = Vec::new();
        for pid in pids {
            let executes = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            let known = self.processes.entry(*pid).or_default();
            if known.executes != executes {
                (known.executes, known.absent) = (executes, 0);
            }
            if known.absent >= LOOKS {
                continue;
            }
            match i32::try_from(*pid).ok().and_then(status::record) {
                Some(report) => reports.push((*pid, report)),
                None => known.absent += 1,
            }
        }
        if reports.is_empty() {
            return;
        }
        let kernel = self.kernel.get_or_insert_with(|| SockDiag::open().ok());
        let answers = kernel.as_mut().and_then(|kernel| kernel.connections().ok());
        let connections =
            answers.into_iter().flatten().map(|answer| (answer.inode, ends(&answer))).collect();
        for (pid, report) in reports {
            self.processes.entry(pid).or_default().seen(pid, report, &connections);
        }
    }

    /// Notes which of the processes have been seen to write.
    pub(super) fn wrote(&mut self, has_written: impl Fn(u32) -> bool) {
        for (pid, known) in &mut self.processes {
            known.has_written |= has_written(*pid);
        }
    }

    /// Adds the records to the report. These processes still exist.
    pub(super) fn finish(mut self, pids: &[u32], report: &mut Report) {
        self.look_now(pids);
        self.take_reports();
        let mut processes: Vec<_> =
            self.processes.into_iter().filter(|(_, known)| known.loaded).collect();
        processes.sort_by_key(|(pid, known)| (std::cmp::Reverse(known.writes()), *pid));
        let records = processes.iter().flat_map(|(pid, known)| known.records(*pid));
        report.preloaded(&records.collect::<Vec<_>>());
        report.notes.extend(processes.iter().take(TOLD).map(|(pid, known)| known.told(*pid)));
        if let more @ 1.. = processes.len().saturating_sub(TOLD) {
            let more = words::counted(more as u64, "more process runs", "more processes run");
            report.notes.push(format!("{more} under uncork."));
        }
    }

    fn take_reports(&mut self) {
        let Some(mut collector) = self.collector.take() else { return };
        let begin = Instant::now();
        collector.take_in();
        while collector.is_unfinished() && begin.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(2));
            collector.take_in();
        }
        for received in collector.into_reports() {
            let Ok(report) = received.report else { continue };
            self.processes.entry(report.pid).or_default().reported(report);
        }
    }
}

impl Known {
    /// Notes what is in its memory now.
    fn seen(&mut self, pid: u32, report: ProcessReport, connections: &HashMap<u64, Ends>) {
        self.about(&report);
        let inodes: HashMap<i32, u64> =
            processes::sockets(pid).into_iter().map(|(inode, fd)| (fd, inode)).collect();
        for socket in report.sockets {
            let inode = inodes.get(&socket.fd);
            let Some(ends) = inode.and_then(|inode| connections.get(inode)) else { continue };
            self.seen.insert((socket.fd, ends.local), (ends.remote, socket));
        }
    }

    fn reported(&mut self, report: ProcessReport) {
        self.about(&report);
        self.said.extend(report.sockets);
    }

    fn about(&mut self, report: &ProcessReport) {
        let setting = |name: &str| report.settings.get(name).cloned().unwrap_or_default();
        self.loaded = true;
        self.program.clone_from(&report.program);
        self.hold = setting("hold");
        let named = ["hold", "scope", "bound"].map(|name| format!("{name} {}", setting(name)));
        self.settings = named.join(", ");
    }

    /// Returns all records that it reported; those that it has not, as they were read.
    fn sockets(&self) -> Vec<&SocketReport> {
        if self.said.is_empty() {
            return self.seen.values().map(|(_, socket)| socket).collect();
        }
        self.said.iter().collect()
    }

    fn writes(&self) -> u64 {
        self.sockets().iter().map(|socket| socket.writes).sum()
    }

    fn records(&self, pid: u32) -> impl Iterator<Item = Preloaded> {
        let said = self.said.iter().filter_map(move |socket| {
            let peer: std::net::SocketAddr = socket.peer.as_ref()?.parse().ok()?;
            let (local, uncork) = (None, self.uncork(socket, true));
            Some(Preloaded { process: pid, fd: socket.fd, local, peer: peer.into(), uncork })
        });
        let seen = self.seen.iter().map(move |((fd, local), (peer, socket))| {
            let uncork = self.uncork(socket, false);
            Preloaded { process: pid, fd: *fd, local: Some(*local), peer: *peer, uncork }
        });
        said.chain(seen)
    }

    fn uncork(&self, socket: &SocketReport, complete: bool) -> Uncork {
        Uncork {
            hold: self.hold.clone(),
            state: socket.state.clone(),
            writes: socket.writes,
            bytes: socket.bytes,
            pushes: packets(socket),
            packets_saved: socket.packets_saved,
            pushed_by: pushes(socket),
            held: socket.held.map(spread),
            complete,
        }
    }

    /// Describes the process in a sentence or two.
    fn told(&self, pid: u32) -> String {
        let sockets = self.sockets();
        let wrote: Vec<_> = sockets.iter().filter(|socket| socket.writes > 0).collect();
        let mut text = format!(
            "{} (process {pid}) runs under uncork ({}): ",
            shown(&self.program),
            self.settings
        );
        if wrote.is_empty() && self.has_written {
            return text
                + "the sockets that it wrote to are closed by now, and what was counted for them is gone.";
        }
        if wrote.is_empty() {
            return text + "it was not seen to write to a TCP socket.";
        }
        let packets: u64 = wrote.iter().map(|socket| packets(socket)).sum();
        text += &format!(
            "{} on {} left as {}",
            words::counted(self.writes(), "write", "writes"),
            words::counted(wrote.len() as u64, "socket", "sockets"),
            words::counted(packets, "packet", "packets"),
        );
        if packets > 0 {
            let each = self.writes() as f64 / packets as f64;
            text += &format!(", {each:.1} writes each");
        }
        let held = wrote.iter().filter_map(|socket| socket.held).max_by_key(|held| held.samples);
        if let Some(held) = held {
            let [typical, most] = [held.p50_ns, held.max_ns].map(Duration::from_nanos);
            text += &format!(
                ", held for {} typically and {} at most",
                words::time(typical),
                words::time(most)
            );
        }
        let passed: Vec<_> =
            wrote.iter().filter_map(|socket| socket.state.strip_prefix("passed: ")).collect();
        text += match passed.first() {
            None => ". Stalls of its small writes are cured already.".to_owned(),
            Some(why) => format!(
                ". {} not helped ({why}).",
                words::counted(passed.len() as u64, "socket is", "sockets are")
            ),
        }
        .as_str();
        text
    }
}

/// Returns the packets of a socket: those that were pushed, and those that left as they were written.
fn packets(socket: &SocketReport) -> u64 {
    socket.writes.saturating_sub(socket.packets_saved)
}

fn pushes(socket: &SocketReport) -> Vec<Push> {
    let mut pushes: Vec<_> = socket
        .pushed_by
        .iter()
        .map(|(call, count)| Push { call: call.clone(), count: *count })
        .collect();
    pushes.sort_by_key(|push| std::cmp::Reverse(push.count));
    pushes
}

fn spread(held: HeldTime) -> Spread {
    let [p50, p99, max] = [held.p50_ns, held.p99_ns, held.max_ns].map(Duration::from_nanos);
    Spread { count: held.samples, p50, p99, max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_sockets_that_are_closed_are_not_denied() {
        let mut records = Records::default();
        let report = ProcessReport { program: "web".to_owned(), ..ProcessReport::default() };
        records.processes.entry(7).or_default().seen(7, report.clone(), &HashMap::new());
        records.processes.entry(8).or_default().seen(8, report, &HashMap::new());
        records.wrote(|pid| pid == 7);
        let told = |pid| records.processes[&pid].told(pid);
        assert!(told(7).contains("the sockets that it wrote to are closed by now"), "{}", told(7));
        assert!(told(8).ends_with("it was not seen to write to a TCP socket."), "{}", told(8));
    }
}
