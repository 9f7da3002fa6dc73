//! From records to reports: what is kept of closed sockets, what the process reports at its end,
//! and the lines of `--debug`.

use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeMap;

use crate::config::{Hold, Settings};
use crate::kernel::Kernel;
use crate::ledger::Ledger;
use crate::report::{ProcessReport, SCHEMA, SocketReport};
use crate::socket::{Socket, flag, held};
use crate::{Call, Origin, Posix, Socketed};

/// Largest number of closed sockets that are listed one by one.
const MOST_CLOSED: usize = 4096;

/// What is kept of closed sockets.
#[derive(Debug)]
pub(crate) struct Closed {
    sockets: Vec<SocketReport>,
    not_listed: u64,
}

impl Closed {
    pub(crate) const fn new() -> Self {
        Self { sockets: Vec::new(), not_listed: 0 }
    }
}

/// Smoothed average, least and greatest value of one figure (`AUTOCORK_DUMP_INTERVAL`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    samples: u64,
    average: u64,
    least: u64,
    most: u64,
}

impl Spread {
    fn add(&mut self, value: u64) {
        self.average = if self.samples == 0 { value } else { (self.average * 9 + value) / 10 };
        self.least = if self.samples == 0 { value } else { self.least.min(value) };
        self.most = self.most.max(value);
        self.samples += 1;
    }
}

/// What the library of 2007 dumps for a descriptor.
#[derive(Clone, Debug, Default)]
pub(crate) struct AutocorkDump {
    latency_us: Spread,
    writes: Spread,
    write_bytes: Spread,
    seen: (u64, u64),
}

impl AutocorkDump {
    /// Adds a push of what `socket` held for this long.
    pub(crate) fn push(&mut self, socket: &Socket, held_ns: Option<u64>) {
        let (writes, bytes) = (socket.writes.load(Relaxed), socket.bytes.load(Relaxed));
        let (new_writes, new_bytes) =
            (writes.wrapping_sub(self.seen.0), bytes.wrapping_sub(self.seen.1));
        self.seen = (writes, bytes);
        if let (Some(ns), true) = (held_ns, new_writes != 0) {
            self.latency_us.add(ns / 1000);
            self.writes.add(new_writes);
            self.write_bytes.add(new_bytes / new_writes);
        }
    }
}

/// A line of `--debug`, formatted without an allocation: the timer's thread writes some too.
struct Line {
    bytes: [u8; 128],
    len: usize,
}

impl Line {
    fn say<K: Kernel>(kernel: &K, arguments: core::fmt::Arguments<'_>) {
        let mut line = Self { bytes: [0; 128], len: 0 };
        let _ = line.write_fmt(arguments);
        kernel.say(&String::from_utf8_lossy(&line.bytes[..line.len]));
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let free = &mut self.bytes[self.len..];
        let taken = text.len().min(free.len());
        free[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}

impl<K: Kernel> Posix<K> {
    /// Makes the report of one socket.
    fn describe(&self, at: Socketed<'_>, ledger: Option<&Ledger>) -> SocketReport {
        let mut report = describe_record(at.fd, at.socket, self.settings().hold);
        report.peer = self.kernel.peer(at.fd).map(|peer| peer.to_string());
        if let Some(ledger) = ledger {
            for (call, number) in Call::ALL.iter().zip(ledger.pushed_by) {
                if number != 0 {
                    report.pushed_by.insert(call.name().to_owned(), u64::from(number));
                }
            }
            report.pushes = report.pushed_by.values().sum();
            report.passed = ledger.passed().map(|(reason, n)| (reason.to_owned(), n)).collect();
            report.held = ledger.held_time();
        }
        let packets = report.pushes + report.passed.values().sum::<u64>();
        if ledger.is_some() {
            report.packets_saved = report.writes.saturating_sub(packets);
        }
        report
    }

    /// Keeps the report of a socket that is about to be closed, if reports are asked for.
    pub(crate) fn report_closed(&self, at: Socketed<'_>) {
        if !self.keeps_ledger() || at.socket.is(flag::LISTENER) {
            return;
        }
        let ledger = at.socket.ledger.try_lock().ok().and_then(|mut ledger| ledger.take());
        let Ok(mut closed) = self.closed.try_lock() else { return };
        if closed.sockets.len() >= MOST_CLOSED {
            closed.not_listed += 1;
            return;
        }
        let report = self.describe(at, ledger.as_deref());
        if report.writes != 0 {
            closed.sockets.push(report);
        }
    }

    /// Starts the counts anew in a child of fork: the parent reports what came before.
    pub(crate) fn report_restart(&self) {
        if let Ok(mut closed) = self.closed.try_lock() {
            *closed = Closed::new();
        }
        self.each_tracked(|at| {
            at.socket.writes.store(0, Relaxed);
            at.socket.bytes.store(0, Relaxed);
            at.socket.bursts.store(0, Relaxed);
            at.socket.predicted.store(0, Relaxed);
            if let Ok(mut ledger) = at.socket.ledger.try_lock() {
                *ledger = None;
            }
        });
    }

    /// Makes the report of the process.
    pub fn report(&self, program: String) -> ProcessReport {
        let mut report = ProcessReport {
            schema: SCHEMA,
            pid: self.kernel.pid(),
            program,
            settings: describe_settings(self.settings()),
            ignored: self.settings().ignored.clone(),
            ..ProcessReport::default()
        };
        if let Ok(closed) = self.closed.try_lock() {
            report.sockets.clone_from(&closed.sockets);
            report.sockets_not_listed = closed.not_listed;
        }
        self.each_tracked(|at| {
            let ledger = at.socket.ledger.try_lock().ok();
            let ledger = ledger.as_ref().and_then(|ledger| ledger.as_deref());
            let mut socket = self.describe(at, ledger);
            if socket.writes != 0 || ledger.is_some() {
                socket.open = true;
                report.sockets.push(socket);
            }
        });
        report
    }

    /// Returns the statistics of each descriptor as the library of 2007 dumps them, a line each.
    pub fn autocork_dump(&self) -> String {
        let mut text = String::new();
        self.each_tracked(|at| {
            let Ok(ledger) = at.socket.ledger.try_lock() else { return };
            let Some(ledger) = ledger.as_deref() else { return };
            let Some(dump) = ledger.autocork.as_deref() else { return };
            let pushed_by: Vec<_> = Call::ALL
                .iter()
                .zip(ledger.pushed_by)
                .filter(|(_, n)| *n != 0)
                .map(|(call, _)| call.name())
                .collect();
            let _ = write!(text, "{}:", at.fd);
            let _ = write!(text, " {}", dump.latency_us.samples);
            for spread in [dump.latency_us, dump.writes] {
                let _ = write!(text, " {} {} {}", spread.average, spread.least, spread.most);
            }
            let bytes = dump.write_bytes;
            let _ =
                write!(text, " {} {} {} {}", bytes.samples, bytes.average, bytes.least, bytes.most);
            let _ = writeln!(text, " {} {}", pushed_by.join(","), self.settings().max_qlen);
        });
        text
    }

    pub(crate) fn say_opened(&self, at: Socketed<'_>, origin: Origin) {
        let from = match origin {
            Origin::Made => "made",
            Origin::Accepted(_) => "accepted",
            Origin::Inherited => "inherited",
        };
        Line::say(&self.kernel, format_args!("uncork: helping fd {} ({from})\n", at.fd));
    }

    #[cold]
    pub(crate) fn say_passed(&self, at: Socketed<'_>) {
        if self.settings().debug >= 1
            && !self.settings().autocork
            && let Some(reason) = flag::reason(at.socket.flags())
        {
            Line::say(
                &self.kernel,
                format_args!("uncork: passing fd {} through: {reason}\n", at.fd),
            );
        }
    }

    #[cold]
    pub(crate) fn say_pushed(&self, at: Socketed<'_>, call: Call) {
        let name = call.name();
        if self.settings().autocork {
            Line::say(
                &self.kernel,
                format_args!("libautocork: autocorking fd {} on {name}\n", at.fd),
            );
        } else {
            Line::say(&self.kernel, format_args!("uncork: pushed fd {} on {name}\n", at.fd));
        }
    }
}

/// Makes a report of a record, without what only its own process can know.
pub(crate) fn describe_record(fd: i32, socket: &Socket, hold: Hold) -> SocketReport {
    let flags = socket.flags();
    let place = socket.held.load(Relaxed);
    let state = match flag::reason(flags) {
        Some(reason) => format!("passed: {reason}"),
        None if hold == Hold::User && flags & flag::SHARED != 0 => {
            "helped (in the kernel: shared)".to_owned()
        }
        None => "helped".to_owned(),
    };
    let latest = Call::from_number(socket.why.load(Relaxed)).map_or("", Call::name);
    let why = match place {
        0 if socket.writes.load(Relaxed) == 0 => "nothing written yet".to_owned(),
        0 => format!("nothing held; left on {latest}"),
        held::KERNEL => "held in the kernel: the burst goes on".to_owned(),
        _ if flags & flag::BACKLOG != 0 => "held: the connection is full".to_owned(),
        _ => "held in the process: the burst goes on".to_owned(),
    };
    let bursts = socket.bursts.load(Relaxed);
    let writes = socket.writes.load(Relaxed);
    SocketReport {
        fd,
        state,
        why,
        held_bytes: if place == 0 { 0 } else { u64::from(socket.cork().bytes()) },
        writes,
        bytes: socket.bytes.load(Relaxed),
        pushes: bursts,
        packets_saved: if flags & flag::PASSED & !flag::OVER == 0 {
            writes.saturating_sub(bursts)
        } else {
            0
        },
        predicted: socket.predicted.load(Relaxed),
        ..SocketReport::default()
    }
}

pub(crate) fn describe_settings(settings: &Settings) -> BTreeMap<String, String> {
    [
        ("hold", settings.hold.to_string()),
        ("scope", settings.scope.to_string()),
        ("bound", settings.bound.to_string()),
        ("spin", settings.spin.to_string()),
        ("debug", settings.debug.to_string()),
        ("name", if settings.autocork { "libautocork" } else { "libuncork" }.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
