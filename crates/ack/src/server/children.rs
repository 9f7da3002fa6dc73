//! The processes of the connections.
//!
//! Each is this program again, with the same command line, the connection as its standard input and
//! a variable that says so: forking without exec is not possible in a safe program.

use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::FAILED;
use crate::error::Error;
use crate::output::complain;

/// The variable that tells a process that it serves a connection, and the connection's number.
pub(super) const CONNECTION: &str = "UNCORK_ACK_CONNECTION";

/// How long a child may take to print its verdict when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The running children, and the results of the others.
#[derive(Default)]
pub(super) struct Children {
    running: Vec<(u32, Child)>,
    started: u32,
    failed: bool,
}

impl Children {
    /// Starts the process of a connection.
    pub(super) fn start(&mut self, connection: OwnedFd) -> Result<(), Error> {
        self.started += 1;
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| "uncork".into());
        // Under this name it is found even if the file has been replaced or removed.
        let child = Command::new("/proc/self/exe")
            .arg0(name)
            .args(arguments)
            .env(CONNECTION, self.started.to_string())
            .stdin(Stdio::from(connection))
            .spawn()
            .map_err(Error::call("start a process for the connection"))?;
        self.running.push((self.started, child));
        Ok(())
    }

    /// Returns how many have been started.
    pub(super) fn started(&self) -> u32 {
        self.started
    }

    /// Returns whether none is running.
    pub(super) fn all_ended(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the exit status that results from all of them.
    pub(super) fn status(&self) -> i32 {
        if self.failed { FAILED } else { 0 }
    }

    /// Collects those that have ended.
    pub(super) fn reap(&mut self) {
        let mut failed = self.failed;
        self.running.retain_mut(|(number, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                failed |= !status.success();
                tell(*number, status);
                false
            }
            Err(_) => false,
        });
        self.failed = failed;
    }

    /// Asks all of them to pause.
    pub(super) fn pause(&self) {
        self.signal(Signal::SIGUSR1);
    }

    /// Ends all of them: first by a signal that lets each print its verdict, and after a while by force.
    pub(super) fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        let begun = Instant::now();
        while !self.running.is_empty() && begun.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(5));
            self.reap();
        }
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) {
        for (_, child) in &self.running {
            // It has not been waited for, so the number is still its own.
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    }
}

impl Drop for Children {
    /// Ends all children: however the server ends, it leaves no process behind.
    fn drop(&mut self) {
        self.end();
    }
}

/// Reports how a process ended: one that failed has said why; one that was killed could not.
fn tell(number: u32, status: ExitStatus) {
    if let Some(signal) = status.signal() {
        complain(&format_args!("the process of connection {number} was ended by signal {signal}"));
    }
}
