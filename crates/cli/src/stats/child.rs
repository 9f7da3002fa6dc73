//! The program as a child process.

use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::{Pid, getpid};
use rustix::process::{WaitOptions, waitpid};
use uncork_posix::report::ProcessReport;

use super::signals::Received;
use crate::failure::Failure;
use crate::run::Program;
use crate::status;

/// The ways in which the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It exited by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// The running program.
pub(super) struct Child {
    pub(super) pid: Pid,
    /// The library's state when it was read last: now and then, and when a signal was passed on that may have
    /// ended the program.
    pub(super) snapshot: Option<Snapshot>,
    /// When it is read again.
    next: Instant,
    /// How long to wait then.
    rest: Duration,
}

/// The first reading of the program's state comes after this time, and each next one after twice as long, up to
/// a longest rest, so that reading takes a hundredth of the time at most.
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(1);
const REST_SHARE: u32 = 100;

/// The program's state at some moment before its end.
pub(super) struct Snapshot {
    pub(super) taken: Instant,
    /// The signal that was passed on then.
    pub(super) signal: Option<Signal>,
    pub(super) report: ProcessReport,
    /// Reports of the program that had arrived by then: those of programs that it was before it
    /// executed another.
    pub(super) reported: usize,
}

impl Child {
    /// Starts the program with `mask` as its signal mask.
    pub(super) fn start(program: &Program, mask: &SigSet) -> Result<Self, Failure> {
        let prepare = || {
            let mut attributes = PosixSpawnAttr::init()?;
            attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK)?;
            attributes.set_sigmask(mask)?;
            Ok((attributes, PosixSpawnFileActions::init()?))
        };
        let (attributes, actions) = prepare().map_err(|error: Errno| {
            Failure::own(format!("no process could be prepared: {}", error.desc()))
        })?;
        let pid = program.attempt(|call| {
            let (file, words) = (call.file.as_c_str(), &call.arguments);
            posix_spawn(file, &actions, &attributes, words, &call.environment)
        })?;
        Ok(Self { pid, snapshot: None, next: Instant::now() + FIRST_REST, rest: FIRST_REST })
    }

    /// Returns how long it is until the program's state is to be read.
    pub(super) fn rest(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Reads the program's state if it is time: what a terminal, the kernel or `kill -9` ends leaves nothing to be
    /// read. `reported` is the number of its reports so far.
    pub(super) fn look_in(&mut self, reported: usize) {
        let begun = Instant::now();
        if begun >= self.next {
            self.note(None, reported);
            self.rest = LONGEST_REST.min(self.rest * 2);
            let now = Instant::now();
            self.next = now + self.rest.max(now.duration_since(begun) * REST_SHARE);
        }
    }

    fn note(&mut self, signal: Option<Signal>, reported: usize) {
        if let Some(mut report) = status::snapshot(self.pid.as_raw()) {
            // A process that is ending has closed its sockets by then.
            let before = self.snapshot.iter().flat_map(|snapshot| &snapshot.report.sockets);
            for socket in report.sockets.iter_mut().filter(|socket| socket.peer.is_none()) {
                let same =
                    before.clone().find(|one| one.fd == socket.fd && one.writes <= socket.writes);
                socket.peer = same.and_then(|one| one.peer.clone());
            }
            self.snapshot = Some(Snapshot { taken: Instant::now(), signal, report, reported });
        }
    }

    /// Does what a signal asks for; returns how the program ended, once it has. `reported` is the
    /// number of its reports so far.
    pub(super) fn handle(
        &mut self,
        received: Received,
        reported: usize,
    ) -> io::Result<Option<Ended>> {
        if received.signal == Signal::SIGCHLD {
            return self.look();
        }
        match received.sender {
            // The terminal has sent it to the program as well, which may still be there to be read.
            None => self.note(None, reported),
            // The program meant its parent, but not uncork: never send it back.
            Some(sender) if sender == self.pid => {}
            Some(_) => self.pass_on(received.signal, reported)?,
        }
        Ok(None)
    }

    fn pass_on(&mut self, signal: Signal, reported: usize) -> io::Result<()> {
        if signal != Signal::SIGWINCH {
            // It may be the last chance: a default action leaves no time for a report.
            self.note(Some(signal), reported);
        }
        match kill(self.pid, signal) {
            // It has just ended, or belongs to another user now; SIGCHLD tells.
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Collects the child's state changes. Signals of one kind merge, so all of them are read.
    fn look(&self) -> io::Result<Option<Ended>> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        loop {
            let status = match waitpid(rustix::process::Pid::from_raw(self.pid.as_raw()), options) {
                Ok(Some((_, status))) => status,
                Ok(None) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Some(code) = status.exit_status() {
                return Ok(Some(Ended::Code(code)));
            }
            if let Some(signal) = status.terminating_signal() {
                return Ok(Some(Ended::Signal(signal)));
            }
            if let Some(signal) = status.stopping_signal() {
                self.stop_likewise(signal)?;
            }
        }
    }

    /// Stops this process like the program: a program may stop itself for the shell's job control,
    /// as pagers do on ^Z, and the shell waits for uncork to stop. Where no shell does job control
    /// the kernel ignores these signals, and uncork goes on waiting. SIGSTOP is left alone: its
    /// sender will continue the program.
    fn stop_likewise(&self, number: i32) -> io::Result<()> {
        let signal = match Signal::try_from(number) {
            Ok(signal @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU)) => signal,
            _ => return Ok(()),
        };
        raise(signal)?;
        // The shell continues the process group; `kill -CONT` of uncork alone is passed on.
        if is_stopped(self.pid) {
            let _ = kill(self.pid, Signal::SIGCONT);
        }
        Ok(())
    }
}

/// Returns whether a process is stopped by a signal (proc(5): the state follows the name in brackets).
fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.iter().rposition(|&byte| byte == b')').map(|at| &stat[at..]);
    after_name.is_some_and(|rest| rest.get(2) == Some(&b'T'))
}

impl Ended {
    pub(super) fn is_by_signal(self) -> bool {
        matches!(self, Self::Signal(_))
    }

    /// Returns the program's code, or ends this process by the same signal.
    pub(super) fn end_likewise(self) -> i32 {
        let number = match self {
            Self::Code(code) => return code,
            Self::Signal(number) => number,
        };
        if getpid() == Pid::from_raw(1) {
            // The first process of a container is not ended by default actions.
            return 128 + number;
        }
        // The program has left its core dump, if any; another one of uncork would hide it.
        let _ = prctl::set_dumpable(false);
        // This restores the default action and unblocks, for the signals that it knows; we do not
        // block the others.
        let _ = signal_hook::low_level::emulate_default_handler(number);
        let _ = signal_hook::low_level::raise(number);
        // The status that a shell gives, if the signal is ignored.
        128 + number
    }
}
