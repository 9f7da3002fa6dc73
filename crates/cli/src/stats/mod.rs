//! `uncork run --stats`: stays as the program's parent, collects the reports of all its processes,
//! and ends as the program ended.

mod child;
pub(crate) mod collect;
mod document;
mod signals;
mod survivors;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uncork_posix::config::variable;

use crate::failure::Failure;
use crate::output;
use crate::run::Program;
use child::{Child, Ended};
use collect::Collector;
use document::Outcome;
use signals::Signals;

/// How long the other processes may take to report once the program itself has ended. A child that
/// ends together with its parent needs milliseconds; a daemon does not end at all.
const GRACE: Duration = Duration::from_millis(100);
/// How long an incomplete report may take to arrive in full.
const GRACE_OF_A_REPORT: Duration = Duration::from_secs(2);
/// How often the remaining processes are checked.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the program, shows or writes its report, and returns its exit status.
pub(crate) fn run(mut program: Program, file: Option<&Path>) -> Result<i32, Failure> {
    signals::refuse_ignored_children()?;
    let target = file.map(Target::open).transpose()?;
    let mut collector = Collector::listen()
        .map_err(|error| Failure::own(format!("no socket for the reports: {error}")))?;
    program.environment.set(variable::STATS, collector.address());
    let signals = Signals::take()
        .map_err(|error| Failure::own(format!("signals cannot be awaited: {error}")))?;
    let mut child = Child::start(&program, signals.before())?;
    let ended = attend(&signals, &mut child, &mut collector)
        .map_err(|error| Failure::own(format!("the program cannot be awaited: {error}")))?;
    let left = remain(&mut collector);
    let outcome = Outcome::of(&program, &child, ended, collector.into_reports(), left);
    // From here on nothing may change the exit status, which is the program's.
    let written = match target {
        Some(target) => target.write(&outcome),
        None => io::stderr().write_all(outcome.table().as_bytes()).or(Ok(())),
    };
    if let Err(sentence) = written {
        let sentence: String = sentence;
        output::complain(sentence);
    }
    Ok(ended.end_likewise())
}

/// Passes signals on and receives reports until the program has ended.
fn attend(signals: &Signals, child: &mut Child, collector: &mut Collector) -> io::Result<Ended> {
    loop {
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(collector.fds());
        wait(&mut fds, child.rest())?;
        collector.take_in();
        child.look_in(collector.reports_of(child.pid.as_raw()));
        for signal in signals.received()? {
            let reported = collector.reports_of(child.pid.as_raw());
            if let Some(ended) = child.handle(signal, reported)? {
                return Ok(ended);
            }
        }
    }
}

/// Receives the reports that are under way when the program has ended; returns the processes that
/// go on without it.
fn remain(collector: &mut Collector) -> Vec<survivors::Survivor> {
    let begun = Instant::now();
    loop {
        collector.take_in();
        let waited = begun.elapsed();
        let unfinished = collector.is_unfinished() && waited < GRACE_OF_A_REPORT;
        let left = if unfinished { Vec::new() } else { survivors::of(collector.address()) };
        if !unfinished && (left.is_empty() || waited >= GRACE) {
            // A process that ended between the two checks has already reported.
            collector.take_in();
            return left;
        }
        let mut fds: Vec<_> = collector.fds().collect();
        if wait(&mut fds, LOOK).is_err() {
            return left;
        }
    }
}

fn wait(fds: &mut [PollFd<'_>], limit: Duration) -> io::Result<()> {
    // In whole milliseconds: a rest of less must not become a busy loop.
    let limit = PollTimeout::try_from(limit + Duration::from_millis(1));
    match poll(fds, limit.unwrap_or(PollTimeout::NONE)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The FILE of `--stats=FILE`.
struct Target {
    path: PathBuf,
    file: File,
    /// Whether it was created here, and holds no whole report.
    is_new: bool,
}

impl Target {
    /// Opens the file before the program is started: that may run for days, and its report should
    /// not be lost to a wrong path. The file's content is kept until there is a report.
    fn open(path: &Path) -> Result<Self, Failure> {
        let is_new = path.symlink_metadata().is_err();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        match file {
            Ok(file) => Ok(Self { path: path.to_owned(), file, is_new }),
            Err(error) => {
                let path = path.display();
                Err(Failure::own(format!("{path}: the report cannot be written there: {error}")))
            }
        }
    }

    fn write(mut self, outcome: &Outcome) -> Result<(), String> {
        let failed = |error: io::Error| {
            format!("{}: the report could not be written: {error}", self.path.display())
        };
        let text = outcome.json().map_err(|error| failed(error.into()))?;
        // A pipe or a device has no length to set.
        if self.file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            self.file.set_len(0).map_err(failed)?;
        }
        let failed = |error: io::Error| {
            format!("{}: the report could not be written: {error}", self.path.display())
        };
        self.file.write_all(text.as_bytes()).map_err(failed)?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
