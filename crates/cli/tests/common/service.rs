//! A service that `uncork stack` starts: instances, or a guardian.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_netns::Namespace;

use super::{UNCORK, library, stderr};

const LONG: Duration = Duration::from_secs(20);

/// Makes a host with a device that a stack can take.
pub(crate) fn host(label: &str) -> Namespace {
    let host = Namespace::new(label).unwrap();
    host.ip("link add eth0 type veth peer name eth1").unwrap();
    host.ip("address add 10.95.0.1/24 dev eth0").unwrap();
    for device in ["eth0", "eth1"] {
        host.ip(&format!("link set {device} up")).unwrap();
    }
    host
}

/// Returns a name that no other test uses.
pub(crate) fn name(label: &str) -> String {
    format!("test-{label}-{}", std::process::id())
}

pub(crate) fn on(host: &Namespace, program: impl AsRef<Path>) -> Command {
    let mut command = host.command(program.as_ref().to_str().unwrap());
    command.env("UNCORK_LIBRARY", library()).env_remove("LD_PRELOAD").env_remove("UNCORK_STACK");
    command
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "not so for {LONG:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A service that has reported readiness.
pub(crate) struct Service {
    child: Child,
    pub(crate) said: String,
}

impl Service {
    /// `uncork stack start` or `guard`.
    pub(crate) fn start(host: &Namespace, part: &str, name: &str, arguments: &[&str]) -> Self {
        let mut command = on(host, UNCORK);
        Self::begin(command.args(["stack", part, "--name", name]).args(arguments))
    }

    pub(crate) fn begin(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        Self { child, said }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    /// Waits for its end; returns its exit status and the rest of its standard error.
    pub(crate) fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill(self.pid(), signal).unwrap();
        drop(self.child.stdout.take());
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), stderr(&output))
    }
}

/// Returns the path of a service's file.
pub(crate) fn file(directory: &str, name: &str) -> PathBuf {
    Path::new("/run/uncork").join(directory).join(name)
}
