//! Delivery of the process's report.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::fmt::Write;

use libc::c_char;
use uncork_posix::config::StatsTo;
use uncork_posix::kernel::Kernel;
use uncork_posix::report::{ProcessReport, SocketReport, StackReport};

use crate::raw::raw;
use crate::stacked::places;
use crate::{POSIX, linux};

/// Whether the report has been made.
static DONE: AtomicBool = AtomicBool::new(false);
/// No more reports, by a child of fork either: the program may have forbidden itself the calls.
static FOR_GOOD: AtomicBool = AtomicBool::new(false);
/// This process is a fork of the one that was started: it reports only if it used any socket.
static FORKED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

fn program() -> String {
    // SAFETY: glibc sets it before any constructor runs, to a C string that stays.
    unsafe { core::ffi::CStr::from_ptr(program_invocation_short_name) }
        .to_string_lossy()
        .into_owned()
}

/// Starts anew in a child of fork.
pub(crate) fn restart() {
    DONE.store(false, SeqCst);
    FORKED.store(true, SeqCst);
    places::restart();
}

/// Makes the report, once, to where the settings say.
pub(crate) fn emit() {
    let is_over = FOR_GOOD.load(SeqCst) || !POSIX.started() || POSIX.is_vfork_child();
    if is_over || DONE.swap(true, SeqCst) {
        return;
    }
    dump();
    if POSIX.settings().stats == StatsTo::Nowhere {
        return;
    }
    let mut report = POSIX.report(program());
    report.stack = places::report();
    if FORKED.load(SeqCst) && !is_worth_telling(&report) {
        return;
    }
    match &POSIX.settings().stats {
        StatsTo::Nowhere => {}
        StatsTo::Stderr => linux::write_quietly(2, human(&report).as_bytes()),
        StatsTo::File(path) => {
            if let (Some(fd), Some(line)) = (append_to(path), json_line(&report)) {
                linux::write_quietly(fd, line.as_bytes());
                close(fd);
            }
        }
        StatsTo::Socket(name) => {
            if let (Some(fd), Some(line)) = (connect(name), json_line(&report)) {
                linux::write_quietly(fd, line.as_bytes());
                close(fd);
            }
        }
    }
}

/// Makes the last report of this process and its children.
pub(crate) fn emit_for_good() {
    if !POSIX.is_vfork_child() {
        emit();
        FOR_GOOD.store(true, SeqCst);
    }
}

/// Returns whether the report mentions any socket.
fn is_worth_telling(report: &ProcessReport) -> bool {
    !report.sockets.is_empty() || report.stack.as_ref().is_some_and(StackReport::is_anything)
}

/// Makes the report before an exec, if there is anything to report. Another one may follow if the exec
/// fails.
pub(crate) fn emit_before_exec() {
    let is_asked = POSIX.settings().stats != StatsTo::Nowhere && !FOR_GOOD.load(SeqCst);
    if !is_asked || POSIX.is_vfork_child() {
        return;
    }
    let report = ProcessReport { stack: places::report(), ..POSIX.report(String::new()) };
    if is_worth_telling(&report) {
        emit();
        DONE.store(false, SeqCst);
    }
}

fn json_line(report: &ProcessReport) -> Option<String> {
    let mut line = serde_json::to_string(report).ok()?;
    line.push('\n');
    Some(line)
}

/// Formats a line for each socket, for people who preload the library by hand.
fn human(report: &ProcessReport) -> String {
    let mut text = format!("uncork: {} ({})\n", report.program, report.pid);
    for socket in &report.sockets {
        text.push_str(&human_socket(socket));
    }
    for line in report.stack.iter().flat_map(StackReport::lines) {
        let _ = writeln!(text, "uncork:   {line}");
    }
    text
}

fn human_socket(socket: &SocketReport) -> String {
    let mut text = format!("uncork:   fd {}", socket.fd);
    if let Some(peer) = &socket.peer {
        let _ = write!(text, " to {peer}");
    }
    let _ = write!(
        text,
        ": {}; {} writes, {} bytes, {} pushes, {} packets saved",
        socket.state, socket.writes, socket.bytes, socket.pushes, socket.packets_saved
    );
    if let Some(held) = socket.held {
        let us = |ns: u64| ns as f64 / 1000.0;
        let _ = write!(
            text,
            "; held p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
            us(held.p50_ns),
            us(held.p99_ns),
            us(held.max_ns)
        );
    }
    for (title, counts) in [("pushed by", &socket.pushed_by), ("passed", &socket.passed)] {
        if !counts.is_empty() {
            let list: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
            let _ = write!(text, "; {title}: {}", list.join(", "));
        }
    }
    text.push('\n');
    text
}

/// Reports a setting that was not understood, if debug output was asked for.
pub(crate) fn say_ignored(line: &str) {
    if POSIX.settings().debug >= 1 {
        POSIX.kernel.say(&format!("uncork: {line}\n"));
    }
}

/// Writes the dump of the library of 2007, if its interval has passed.
pub(crate) fn dump_if_due() {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let Some(interval) = POSIX.settings().dump_interval else { return };
    let now = POSIX.kernel.now().0;
    let last = LAST.load(Relaxed);
    if last == 0 {
        LAST.store(now, Relaxed);
    } else if now - last >= interval.as_nanos() as u64 {
        LAST.store(now, Relaxed);
        dump();
    }
}

/// Appends the statistics of each descriptor to ~/libautocork.PID.debug.
fn dump() {
    const HEADER: &str = "# fd: corklat_us:samples avg min max qlen:avg min max \
                          pktsz:samples avg min max uncorkers envmaxqlen\n";
    if POSIX.settings().dump_interval.is_none() {
        return;
    }
    let Ok(home) = std::env::var("HOME") else { return };
    let path = format!("{home}/libautocork.{}.debug", POSIX.kernel.pid());
    let Some(fd) = append_to(&path) else { return };
    linux::write_quietly(fd, format!("{HEADER}{}", POSIX.autocork_dump()).as_bytes());
    close(fd);
}

fn append_to(path: &str) -> Option<i32> {
    let path = std::ffi::CString::new(path).ok()?;
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let fd = unsafe { raw!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) };
    fd.ok().map(|fd| fd as i32)
}

/// Connects to an abstract Unix socket.
fn connect(name: &str) -> Option<i32> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { raw!(SYS_socket, libc::AF_UNIX, kind, 0) }.ok()? as i32;
    // SAFETY: an all-zero sockaddr_un is valid.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let room = &mut address.sun_path[1..];
    if name.len() > room.len() {
        close(fd);
        return None;
    }
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    // SAFETY: `len` bytes of `address` are set.
    let connected = unsafe { raw!(SYS_connect, fd, &raw const address, len) };
    if connected.is_err() {
        close(fd);
        return None;
    }
    Some(fd)
}

fn close(fd: i32) {
    // SAFETY: a descriptor that was opened here.
    let _ = unsafe { raw!(SYS_close, fd) };
}
