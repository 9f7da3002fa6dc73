//! Child processes that are always ended.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use uncork_netns::Namespace;

/// How long a program has for an orderly exit.
const GRACE: Duration = Duration::from_secs(5);
/// How long a server has until it must accept connections.
const START: Duration = Duration::from_secs(20);

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
    end: Signal,
    log: Option<PathBuf>,
}

impl Running {
    /// Starts `command`, with its output in `name.log` in `dir`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut command: Command, name: &str, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { child, name: name.to_owned(), end: Signal::SIGTERM, log: Some(log) })
    }

    /// Starts `command` and returns its standard output to the caller.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_piped(mut command: Command, name: &str) -> Result<(Self, Lines)> {
        command.stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let stdout = child.stdout.take().context("the child has no standard output")?;
        let running = Self { child, name: name.to_owned(), end: Signal::SIGTERM, log: None };
        Ok((running, Lines { name: name.to_owned(), from: BufReader::new(stdout) }))
    }

    /// Sets the signal that ends it, instead of SIGTERM.
    #[must_use]
    pub fn ended_by(self, end: Signal) -> Self {
        let mut running = self;
        running.end = end;
        running
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until there is a listener on `port` of the loopback.
    ///
    /// # Errors
    /// If it ends before that, or takes too long.
    pub fn wait_for(&mut self, port: u16) -> Result<()> {
        let start = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        loop {
            if TcpStream::connect(address).is_ok() {
                return preloaded(&self.written());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once ({status}){}", self.name, self.last_words());
            }
            if start.elapsed() > START {
                bail!("{} does not listen after {START:?}{}", self.name, self.last_words());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until there is a listener on the port in a namespace.
    ///
    /// # Errors
    /// If it ends before that, or takes too long.
    pub fn listens_in(&mut self, namespace: &Namespace, port: u16) -> Result<()> {
        let start = Instant::now();
        while !namespace.listens(port) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once ({status}){}", self.name, self.last_words());
            }
            if start.elapsed() > START {
                bail!("{} does not listen after {START:?}{}", self.name, self.last_words());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until its output contains `words`.
    ///
    /// # Errors
    /// If it ends before that, or takes too long.
    pub fn wait_until_it_says(&mut self, words: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let text = self.written();
            if text.contains(words) {
                return preloaded(&text);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once ({status}){}", self.name, self.last_words());
            }
            if start.elapsed() > START {
                bail!("{} does not say {words:?}{}", self.name, self.last_words());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns all that it has written so far.
    fn written(&self) -> String {
        let text = self.log.as_ref().and_then(|log| fs::read_to_string(log).ok());
        text.unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let text = self.written();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        if lines.is_empty() {
            return String::new();
        }
        format!(": {}", lines.into_iter().rev().collect::<Vec<_>>().join(" / "))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.child.id()) else { return };
        let pid = Pid::from_raw(pid);
        let _ = kill(pid, self.end);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < GRACE {
            thread::sleep(Duration::from_millis(5));
        }
        // What is left of its process group: itself if it ignored the signal, or forgotten children.
        let _ = killpg(pid, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The standard output of a running program, line by line.
#[derive(Debug)]
pub struct Lines {
    name: String,
    from: BufReader<ChildStdout>,
}

impl Lines {
    /// Reads up to the first line for which `wanted` returns a value.
    ///
    /// # Errors
    /// If it ends before that.
    pub fn find<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.from.read_line(&mut line);
            if read.with_context(|| format!("reading what {} says", self.name))? == 0 {
                bail!("{} ended before it said what was expected of it", self.name);
            }
            if let Some(found) = wanted(line.trim_end()) {
                return Ok(found);
            }
        }
    }
}

/// Returns an error if the library was not preloaded: the loader starts a program without a library
/// that it cannot open, and only complains, so the figures would be those of the plain program.
fn preloaded(stderr: &str) -> Result<()> {
    match stderr.lines().find(|line| line.contains("cannot be preloaded")) {
        Some(line) => bail!("the library was not loaded: {line}"),
        None => Ok(()),
    }
}

/// Runs `command`, which leads a process group of its own, to its end, for at most `limit`, and
/// returns its standard output.
///
/// # Errors
/// If it cannot be started, fails, takes too long, or soon after `stop` was set.
pub fn run_to_end(
    mut command: Command,
    name: &str,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<String> {
    /// How long a program may go on after `stop` was set.
    const TURN: Duration = Duration::from_millis(50);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("starting {name}"))?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let (done, end) = mpsc::channel::<()>();
    let start = Instant::now();
    // Returns true if the program had to be ended.
    let watch = move || {
        loop {
            let left = limit.saturating_sub(start.elapsed());
            match end.recv_timeout(left.min(TURN)) {
                Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() || stop.load(Relaxed) => {
                    let _ = killpg(pid, Signal::SIGKILL);
                    return true;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => return false,
            }
        }
    };
    let (output, ended) = thread::scope(|scope| {
        let watchdog = scope.spawn(watch);
        let output = child.wait_with_output();
        drop(done);
        (output, watchdog.join().unwrap_or(false))
    });
    let output = output.with_context(|| format!("waiting for {name}"))?;
    if ended && stop.load(Relaxed) {
        bail!("interrupted");
    }
    if ended {
        bail!("{name} did not end within {limit:?}");
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    preloaded(&stderr)?;
    if !output.status.success() {
        let words = stderr.trim();
        let words = if words.is_empty() { stdout.trim() } else { words };
        bail!("{name} failed ({}): {words}", output.status);
    }
    Ok(stdout)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_all_it_started() {
        let error = run_to_end(sh("sleep 60 & sleep 60"), "sh", Duration::from_millis(200), &NEVER);
        assert!(error.unwrap_err().to_string().contains("did not end within"));
    }

    #[test]
    fn a_program_ends_soon_after_it_was_told_to_stop() {
        let (stop, start) = (AtomicBool::new(true), Instant::now());
        let error = run_to_end(sh("sleep 60"), "sh", Duration::from_secs(60), &stop);
        assert_eq!(error.unwrap_err().to_string(), "interrupted");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_failure_repeats_what_the_program_said() {
        let error =
            run_to_end(sh("echo no such luck >&2; exit 3"), "sh", Duration::from_secs(10), &NEVER);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no such luck") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_library_that_was_not_loaded_is_not_measured() {
        let mut command = sh("true");
        command.env("LD_PRELOAD", "/nonexistent/libuncork.so");
        let error = run_to_end(command, "sh", Duration::from_secs(10), &NEVER).unwrap_err();
        assert!(error.to_string().contains("was not loaded"), "{error}");
    }

    #[test]
    fn dropping_a_server_ends_its_children_too() {
        let (running, mut lines) =
            Running::start_piped(sh("trap '' TERM; sleep 60 & echo $!; wait; wait"), "sh").unwrap();
        let child: i32 = lines.find(|line| line.parse().ok()).unwrap();
        let running = running.ended_by(Signal::SIGKILL);
        drop(running);
        let gone = || kill(Pid::from_raw(child), None).is_err() || is_zombie(child);
        let start = Instant::now();
        while !gone() && start.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(gone());
    }

    fn is_zombie(pid: i32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z"))
    }
}
