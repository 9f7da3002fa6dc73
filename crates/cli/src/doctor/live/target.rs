//! What is watched, and until when.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use uncork_doctor as report;

use super::processes::{self, Standing};
use super::{LiveArguments, USUAL};
use crate::command;
use crate::doctor::words;
use crate::failure::Failure;
use crate::output::{complain, shown};

/// Running processes, or a command to be run.
pub(super) struct Target {
    /// The processes that were named.
    pub(super) pids: Vec<u32>,
    command: Vec<OsString>,
    json: bool,
    quiet: bool,
    /// How long processes are watched; a command is watched until it ends.
    duration: Option<Duration>,
    until: Option<Instant>,
    child: Option<Child>,
    ended: Option<ExitStatus>,
    interrupted: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
}

impl Target {
    pub(super) fn of(arguments: &LiveArguments, json: bool, quiet: bool) -> Result<Self, Failure> {
        for pid in &arguments.pid {
            stands(*pid)?;
        }
        let duration = arguments.duration.unwrap_or(USUAL);
        let target = Self {
            pids: arguments.pid.clone(),
            command: arguments.command.clone(),
            json,
            quiet,
            duration: arguments.command.is_empty().then_some(duration),
            until: None,
            child: None,
            ended: None,
            interrupted: Arc::default(),
            terminated: Arc::default(),
        };
        let flags = [
            (signal_hook::consts::SIGINT, &target.interrupted),
            (signal_hook::consts::SIGTERM, &target.terminated),
            (signal_hook::consts::SIGHUP, &target.terminated),
        ];
        for (signal, flag) in flags {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(|error| {
                Failure::unusable(format!("signals cannot be received: {error}"))
            })?;
        }
        Ok(target)
    }

    /// Checks that all the named processes still exist, now that they are watched.
    pub(super) fn still_stands(&self) -> Result<(), Failure> {
        self.pids.iter().try_for_each(|pid| stands(*pid))
    }

    /// Says what is being done (`tracing`, or less), on a terminal where a user may be waiting for
    /// the end of it.
    pub(super) fn announce(&self, what: &str) {
        let Some(duration) = self.duration.filter(|_| !self.quiet) else { return };
        let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let processes = if pids.len() == 1 { "process" } else { "processes" };
        complain(format_args!(
            "{what} {processes} {} for {}; Ctrl-C ends it sooner",
            pids.join(", "),
            words::time(duration)
        ));
    }

    /// Begins: starts the command, if there is one, with this variable in its environment. It is
    /// watched from its first instruction.
    pub(super) fn start(
        &mut self,
        variable: Option<(&'static str, OsString)>,
    ) -> Result<(), Failure> {
        // The time of the preparations does not count.
        self.until = self.duration.map(|duration| Instant::now() + duration);
        let Some((name, arguments)) = self.command.split_first() else { return Ok(()) };
        let file = command::find(name, std::env::var_os("PATH").as_deref())?;
        let mut command = Command::new(&file);
        command.args(arguments).envs(variable);
        std::os::unix::process::CommandExt::arg0(&mut command, name);
        if self.json {
            let errors = io::stderr().as_fd().try_clone_to_owned();
            command.stdout(errors.map_or_else(|_| Stdio::null(), Stdio::from));
        }
        let child = command.spawn().map_err(|error| {
            Failure::not_executable(format!("{} cannot be executed: {error}", file.display()))
        })?;
        self.pids.push(child.id());
        self.child = Some(child);
        Ok(())
    }

    /// Returns whether there is nothing more to wait for.
    pub(super) fn is_over(&mut self) -> bool {
        if self.terminated.load(Ordering::Relaxed) {
            self.end_command();
            return true;
        }
        let Some(child) = &mut self.child else {
            let late = self.until.is_some_and(|until| Instant::now() >= until);
            let gone = !self.pids.iter().any(|pid| processes::runs(*pid));
            if gone && !late {
                complain(match self.pids.as_slice() {
                    [pid] => format!("process {pid} has ended"),
                    _ => "the processes have ended".to_owned(),
                });
            }
            return late || gone || self.interrupted.load(Ordering::Relaxed);
        };
        // Ctrl-C reaches the command as well, which may take its time.
        match child.try_wait() {
            Ok(None) => false,
            Ok(Some(status)) => {
                self.ended = Some(status);
                if !status.success() {
                    let name = self.command[0].to_string_lossy();
                    complain(format_args!("{}: {status}", shown(&name)));
                }
                true
            }
            Err(_) => true,
        }
    }

    fn end_command(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Ok(pid) = i32::try_from(child.id()) {
            // It may be gone already.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let patience = Instant::now() + Duration::from_secs(2);
        while Instant::now() < patience {
            match child.try_wait() {
                Ok(None) => {}
                ended => {
                    self.ended = ended.ok().flatten();
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the command, and how it ended.
    pub(super) fn told(&self) -> Option<report::Command> {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        let status = self.ended.and_then(|ended| ended.code());
        let signal = self.ended.and_then(|ended| ended.signal());
        self.child.is_some().then(|| report::Command { line: words.join(" "), status, signal })
    }

    /// Returns whether a command is to be started.
    pub(super) fn is_command(&self) -> bool {
        !self.command.is_empty()
    }
}

/// Checks that this is the number of a running process; if not, the failure says what it is.
fn stands(pid: u32) -> Result<(), Failure> {
    let sentence = match processes::standing(pid) {
        Standing::Runs => return Ok(()),
        Standing::Gone => format!("there is no process {pid}"),
        Standing::Thread { of } => format!(
            "{pid} is not a process but a thread of process {of} ({}): give --pid {of}",
            shown(&processes::name(of))
        ),
        Standing::Zombie => format!(
            "process {pid} ({}) has ended, and its parent has not noticed yet (a zombie): it has no \
             connections any more",
            shown(&processes::name(pid))
        ),
    };
    Err(Failure::unusable(sentence))
}
