//! Where a test may change things: a network namespace, a journal and a bpffs of its own. All are
//! removed when it is dropped, and so also when the test fails.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use uncork_netns::{Namespace, PREFIX, clear_leftovers, own_mark};

use crate::common::{UNCORK, needs_root};

/// Programs attached to the machine's root cgroup are compared: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct Place {
    pub(crate) name: String,
    directory: tempfile::TempDir,
    _namespace: Namespace,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    /// Returns `None`, with the reason on standard error, to a user who may not make one.
    pub(crate) fn make(test: &str) -> Option<Self> {
        if !needs_root(test) {
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Clears up after killed tests: their pinned programs go with their directories.
        clear_leftovers().unwrap();
        let namespace = Namespace::new("tune").unwrap();
        // Addresses exist at once, and no route appears by itself while a test compares them.
        for which in ["all", "default"] {
            namespace.set(&format!("ipv6/conf/{which}/accept_dad"), 0).unwrap();
        }
        for line in [
            "link add veth0 type veth peer name veth1",
            "address add 192.0.2.1/24 dev veth0",
            "address add 2001:db8::1/64 dev veth0 nodad",
            "link set veth0 up",
            "link set veth1 up",
        ] {
            namespace.ip(line).unwrap();
        }
        settled(&namespace);
        let prefix = format!("{PREFIX}{}-tune", own_mark());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir().unwrap();
        let name = namespace.name().to_owned();
        let place = Self { name, directory, _namespace: namespace, _alone: alone };
        fs::create_dir(place.bpffs()).unwrap();
        Some(place)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn bpffs(&self) -> PathBuf {
        self.directory.path().join("bpf")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns `uncork tune` with these words, and the test's own journal and bpffs.
    pub(crate) fn tune(&self, words: &str) -> Command {
        let mut command = Command::new(UNCORK);
        command.arg("tune").args(words.split_whitespace());
        command.arg("--state").arg(self.state()).arg("--bpffs").arg(self.bpffs());
        command
    }

    /// Runs it; returns its output, and asserts the exit status.
    pub(crate) fn tuned(&self, words: &str, code: i32) -> (String, String) {
        ended(&mut self.tune(words), code)
    }

    /// Runs `uncork tune` with a journal, for a user who does not know the bpffs.
    pub(crate) fn tuned_by(&self, state: &Path, words: &str, code: i32) -> (String, String) {
        let mut command = Command::new(UNCORK);
        command.arg("tune").args(words.split_whitespace()).arg("--state").arg(state);
        ended(&mut command, code)
    }

    /// Runs `uncork tune` in the namespace, as root with these capabilities only.
    pub(crate) fn tuned_with(
        &self,
        capabilities: &str,
        words: &str,
        code: i32,
    ) -> (String, String) {
        let mut command = self.command("setpriv");
        command.args(["--bounding-set", capabilities, "--inh-caps", capabilities]);
        command.arg(UNCORK).arg("tune").args(words.split_whitespace());
        command.arg("--state").arg(self.state()).arg("--bpffs").arg(self.bpffs());
        ended(&mut command, code)
    }

    /// Runs ip(8) in the namespace.
    pub(crate) fn ip(&self, line: &str) -> String {
        ip(&format!("-n {} {line}", self.name))
    }

    /// Returns a command in the namespace, with the host's mounts.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program);
        command
    }

    /// Returns what a shell script prints in the namespace.
    pub(crate) fn shell(&self, script: &str) -> String {
        let output = self.command("sh").args(["-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Makes a connection over the namespace's loopback: both ends, and the listener.
    pub(crate) fn connection(&self) -> (TcpStream, TcpStream, TcpListener) {
        self.within(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0, listener)
        })
    }

    /// Runs `work` in a thread in the namespace.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }
}

/// Waits until both devices have their link-local addresses, which the kernel adds a little after
/// they come up, with the routes to these.
fn settled(namespace: &Namespace) {
    let patience = Instant::now() + Duration::from_secs(30);
    let script = format!("-n {} -6 route show table all", namespace.name());
    loop {
        let now = ip(&script);
        if ["local fe80::", "multicast ff00::", "fe80::/64 "]
            .iter()
            .all(|route| now.lines().filter(|line| line.starts_with(route)).count() == 2)
        {
            return;
        }
        assert!(Instant::now() < patience, "{now}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.tune("undo --all").output();
        let _ = Command::new("umount").args(["-l"]).arg(self.bpffs()).output();
    }
}

fn ended(command: &mut Command, code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (said(stdout), said(stderr));
    assert_eq!(status.code(), Some(code), "{command:?}: {stdout}{stderr}");
    (stdout, stderr)
}

fn ip(line: &str) -> String {
    let done = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}
