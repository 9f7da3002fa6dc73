//! Network namespaces for tests and measurements: created, and removed whatever happens.
#![forbid(unsafe_code)]

pub mod testing;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Prefix of the names of our namespaces. The next run removes those that an earlier one left.
pub const PREFIX: &str = "uncork-";

/// A namespace; dropping it removes it, with all processes in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace with its loopback device up.
    ///
    /// # Errors
    /// Without the privilege, or if ip(8) is missing.
    pub fn new(label: &str) -> Result<Self> {
        let name = format!("{PREFIX}{}-{label}", own_mark());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Returns its name, as `ip netns` knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs ip(8) in the namespace.
    ///
    /// # Errors
    /// The error of ip(8).
    pub fn ip(&self, arguments: &str) -> Result<()> {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split_whitespace());
        ip(&all)
    }

    /// Writes a file under `/proc/sys/net` in the namespace, if the kernel has it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set(&self, name: &str, value: u32) -> Result<()> {
        let path = format!("/proc/sys/net/{name}");
        let script = format!("[ ! -e {path} ] || echo {value} >{path}");
        run(self.command("sh").args(["-c", &script]))
    }

    /// Returns a command that will run in the namespace. The process started is the program itself.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `work` on a thread in the namespace: what that opens belongs to the namespace.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or the error of `work`.
    pub fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let path = Path::new("/run/netns").join(&self.name);
        let thread = thread::spawn(move || {
            setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?;
            work()
        });
        thread.join().unwrap_or_else(|_| bail!("a thread in the namespace panicked"))
    }

    /// Whether some socket listens on this port.
    #[must_use]
    pub fn listens(&self, port: u16) -> bool {
        let found = self.command("cat").args(["/proc/net/tcp", "/proc/net/tcp6"]).output();
        let Ok(found) = found else { return false };
        let wanted = format!(":{port:04X}");
        // Second column: local address; fourth: state, 0A for LISTEN (proc_pid_net(5)).
        String::from_utf8_lossy(&found.stdout).lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&wanted))
                && fields.nth(1) == Some("0A")
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Returns the capabilities that this process lacks to create and set up namespaces, by the
/// kernel's names; empty if that cannot be determined.
#[must_use]
pub fn missing_capabilities() -> Vec<&'static str> {
    // Numbers of linux/capability.h.
    const NEEDED: [(u32, &str); 3] =
        [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (21, "CAP_SYS_ADMIN")];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(effective) = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()) else {
        return Vec::new();
    };
    let lacks = |(bit, _): &(u32, &str)| effective >> bit & 1 == 0;
    NEEDED.into_iter().filter(lacks).map(|(_, name)| name).collect()
}

/// Mark of a process that cannot determine its start time, because there is no /proc.
const UNKNOWN: u64 = 0;

/// Returns the mark of an owner: this process's id, and its start time. A later process with the
/// same id started later.
#[must_use]
pub fn own_mark() -> String {
    let pid = std::process::id();
    format!("{pid}-{}", began(pid).unwrap_or(UNKNOWN))
}

/// Returns a process's start time, in clock ticks since boot (field 22 of proc_pid_stat(5)).
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces and parentheses; the third field comes after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether the process that has marked a name like this is gone. `began` returns the start time of
/// a process; `None` if there is none.
fn is_left_over(name: &str, began: impl Fn(u32) -> Option<u64>) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.split('-');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (Some(pid), Some(then)) = (number().and_then(|pid| u32::try_from(pid).ok()), number())
    else {
        return false;
    };
    match began(pid) {
        // A mark without a start time may be of any process that has the id now.
        Some(now) => then != UNKNOWN && now != then,
        // If not even this process is visible, none is known to be gone.
        None => began(std::process::id()).is_some(),
    }
}

/// Removes what killed runs have left: namespaces with the processes in them, and scratch
/// directories.
///
/// # Errors
/// If ip(8) is missing.
pub fn clear_leftovers() -> Result<()> {
    let listed = Command::new("ip").args(["netns", "list"]).output().context("cannot run ip(8)")?;
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if is_left_over(name, began) {
            eprintln!("removing the namespace {name}, left by an earlier run");
            remove(name);
        }
    }
    clear_scratch();
    Ok(())
}

/// Removes the scratch directories that killed runs have left.
pub fn clear_scratch() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if is_left_over(&entry.file_name().to_string_lossy(), began) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Ends the processes in the namespace, and removes it.
fn remove(name: &str) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let pids = pids_in(name);
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            let _ = kill(pid, signal);
        }
        // Our own children are reaped by their owners; here it is enough that they end.
        for _ in 0..20 {
            if pids_in(name).is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    let _ = ip(&["netns", "del", name]);
}

fn pids_in(name: &str) -> Vec<Pid> {
    let Ok(found) = Command::new("ip").args(["netns", "pids", name]).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments))
}

/// Runs a command to its end; its standard error becomes the error.
///
/// # Errors
/// If it cannot be run or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        bail!("{command:?} failed: {said}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_runs_for_any_more_is_left_over() {
        let own = std::process::id();
        let mark = own_mark();
        assert!(!is_left_over(&format!("{PREFIX}{mark}-near"), began));
        assert!(is_left_over(&format!("{PREFIX}{own}-1-near"), began), "another had our number");
        let mut child = Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        for then in [0, 77] {
            assert!(is_left_over(&format!("{PREFIX}{gone}-{then}-near"), began), "{then}");
        }
        for other in ["uncork-near", "uncork-7", "uncork-7-x-near", "somebody-7-0-near"] {
            assert!(!is_left_over(other, began), "{other}");
        }
    }

    #[test]
    fn who_could_not_tell_when_it_began_is_not_robbed_while_it_lives() {
        let own = std::process::id();
        assert!(!is_left_over(&format!("{PREFIX}{own}-{UNKNOWN}-near"), began));
    }

    #[test]
    fn without_a_proc_to_look_into_nobody_is_gone() {
        let blind = |_: u32| None;
        for then in [UNKNOWN, 77] {
            assert!(!is_left_over(&format!("{PREFIX}4711-{then}-near"), blind), "{then}");
        }
    }
}
