//! Running a program to its end, with a time limit.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The result of a program.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Time from start to end.
    pub took: Duration,
    what: String,
}

impl Finished {
    /// Returns the result, or an error if it did not exit with 0.
    pub fn successful(self) -> Result<Self> {
        ensure!(
            self.status.success(),
            "{} ended with {}\n{}{}",
            self.what,
            self.status,
            tail(&self.stdout),
            tail(&self.stderr)
        );
        Ok(self)
    }
}

/// Runs `command` and collects its output. A program that is not done within `limit` is killed with
/// all its children, and that is an error that shows what it had printed.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    // Files, because a full pipe without a reader would block the program under test.
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let what = format!("{:?}", command.get_program());
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let started = Instant::now();
    let mut child = command.process_group(0).spawn().with_context(|| format!("running {what}"))?;
    let ended = wait(&mut child, limit);
    let took = started.elapsed();
    if !matches!(ended, Ok(Some(_))) {
        kill_group(&mut child);
    }
    let (stdout, stderr) = (read_back(&mut stdout)?, read_back(&mut stderr)?);
    let Some(status) = ended? else {
        let lines = format!("{}{}", tail(&stdout), tail(&stderr));
        bail!("{what} had not ended after {limit:?}; its last lines:\n{lines}");
    };
    Ok(Finished { status, stdout, stderr, took, what })
}

/// Waits for a child, at most for `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills a child and what it started, all of which is in its process group.
pub fn kill_group(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // Fails if all are gone already, which is the aim.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.wait();
}

fn read_back(file: &mut fs::File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last lines of an output, for an error message.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(30);
    lines[from..].iter().map(|line| format!("  {line}\n")).collect()
}
