//! Processes, their descriptors and their ports, as shown by /proc.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};
use uncork_doctor::Process;

/// Returns whether there is such a process. With /proc mounted hidepid, those of other users look
/// as if they did not exist.
pub(super) fn exists(pid: u32) -> bool {
    let signal = |pid| kill(Pid::from_raw(pid), None);
    Path::new("/proc").join(pid.to_string()).exists()
        || i32::try_from(pid).is_ok_and(|pid| matches!(signal(pid), Ok(()) | Err(Errno::EPERM)))
}

/// Returns whether it belongs to another user.
pub(super) fn is_of_another(pid: u32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    owner.is_ok_and(|uid| uid != geteuid().as_raw())
}

/// Returns whether it has another network namespace than this process, as far as can be seen.
pub(super) fn is_elsewhere(pid: u32) -> bool {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let theirs = network(&pid.to_string());
    theirs.is_some() && theirs != network("self")
}

/// The meanings of a number given for a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// A process.
    Runs,
    /// One of the threads of this process.
    Thread { of: u32 },
    /// A process that has ended, and whose parent has not yet waited for it.
    Zombie,
    /// No process or thread.
    Gone,
}

/// Returns what the number stands for. A thread's, too, has a directory in /proc, which is only not listed.
pub(super) fn standing(pid: u32) -> Standing {
    match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => standing_by(&status, pid),
        // A /proc that hides other users' processes (hidepid).
        Err(_) if exists(pid) => Standing::Runs,
        Err(_) => Standing::Gone,
    }
}

/// Parses /proc/PID/status (proc_pid_status(5)).
fn standing_by(status: &str, pid: u32) -> Standing {
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = |name: &str| field(name).and_then(|text| text.trim().parse::<u32>().ok());
    let of = number("Tgid").unwrap_or(pid);
    if of != pid {
        return Standing::Thread { of };
    }
    // The first thread may have ended before the others.
    let ended = field("State").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
    if ended && number("Threads").unwrap_or(0) <= 1 { Standing::Zombie } else { Standing::Runs }
}

/// Returns whether there is such a process, and it has not ended.
pub(super) fn runs(pid: u32) -> bool {
    standing(pid) == Standing::Runs
}

/// Returns whether its descriptors may be read.
pub(super) fn may_see(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok()
}

/// Returns all process ids that can be seen.
fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the named processes and all their descendants.
pub(super) fn trees(roots: &[u32]) -> Vec<u32> {
    // Where the kernel lists children (CONFIG_PROC_CHILDREN), only these are read.
    if Path::new("/proc/thread-self/children").exists() {
        return descend(roots, children);
    }
    let mut all_children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all() {
        if let Some(parent) = parent(pid) {
            all_children.entry(parent).or_default().push(pid);
        }
    }
    descend(roots, |pid| all_children.remove(&pid).unwrap_or_default())
}

fn descend(roots: &[u32], mut children: impl FnMut(u32) -> Vec<u32>) -> Vec<u32> {
    let mut found = HashSet::new();
    let mut open = roots.to_vec();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children(pid));
        }
    }
    found.into_iter().collect()
}

/// Returns the children of all its threads.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let named = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    let numbers = named.flatten().flat_map(|text| {
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    numbers.collect()
}

/// Parses the fourth field of /proc/PID/stat; the second, in parentheses, may hold anything.
pub(super) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the name of a process.
pub(super) fn name(pid: u32) -> String {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim_end().to_owned()
}

/// Searching all processes takes a while: it is not done more often than this.
const BETWEEN_SEARCHES: Duration = Duration::from_millis(100);

/// The owners of sockets, looked up on demand and cached.
#[derive(Debug, Default)]
pub(super) struct Owners {
    by_inode: HashMap<u64, Process>,
    searched: Option<Instant>,
}

impl Owners {
    /// Returns the process that has the socket with this inode, as far as that was looked up.
    pub(super) fn known(&self, inode: u64) -> Option<Process> {
        self.by_inode.get(&inode).cloned()
    }

    /// Finds the process that has the socket with this inode; these processes are searched first.
    pub(super) fn of(&mut self, inode: u64, first: &[u32]) -> Option<Process> {
        let idle = self.searched.is_none_or(|last| last.elapsed() >= BETWEEN_SEARCHES);
        if inode != 0 && idle && !self.by_inode.contains_key(&inode) {
            first.iter().for_each(|pid| self.look_into(*pid));
            if !self.by_inode.contains_key(&inode) {
                all().for_each(|pid| self.look_into(pid));
            }
            self.searched = Some(Instant::now());
        }
        self.known(inode)
    }

    /// Notes all sockets of a process. The first process that has a socket keeps it: a child that
    /// has inherited it comes later.
    pub(super) fn look_into(&mut self, pid: u32) {
        let sockets = sockets(pid);
        if sockets.is_empty() {
            return;
        }
        let name = name(pid);
        for (inode, fd) in sockets {
            let process =
                || Process { pid, name: name.clone(), fd: Some(fd), ..Process::default() };
            self.by_inode.entry(inode).or_insert_with(process);
        }
    }
}

/// Returns inodes and descriptors of a process's sockets.
pub(super) fn sockets(pid: u32) -> Vec<(u64, i32)> {
    let directory = fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = directory.into_iter().flatten().flatten();
    let socket = |entry: fs::DirEntry| {
        let link = fs::read_link(entry.path()).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((inode, entry.file_name().to_str()?.parse().ok()?))
    };
    entries.filter_map(socket).collect()
}

/// Returns the ports with a listener in the network namespace of a process.
pub(super) fn listening(pid: u32) -> Vec<u16> {
    let mut ports = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        ports.extend(text.lines().skip(1).filter_map(listener));
    }
    ports
}

/// Returns the local port of a line of /proc/PID/net/tcp whose state is LISTEN (proc_net_tcp in the
/// kernel's documentation): slot, local, remote, state.
fn listener(line: &str) -> Option<u16> {
    let mut fields = line.split_ascii_whitespace();
    let (_, port) = fields.nth(1)?.rsplit_once(':')?;
    (fields.nth(1)? == "0A").then(|| u16::from_str_radix(port, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn our_own_socket_is_found_by_its_inode() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let own = std::process::id();
        let sockets = sockets(own);
        let (inode, _) = sockets.iter().find(|(_, fd)| *fd == stream.as_raw_fd()).unwrap();
        let process = Owners::default().of(*inode, &[own]).unwrap();
        assert_eq!((process.pid, process.fd), (own, Some(stream.as_raw_fd())));
        assert!(listening(own).contains(&port));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = trees(&[own]);
        let slowly = all().filter(|pid| parent(*pid) == Some(own)).any(|pid| pid == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree.contains(&own) && tree.contains(&child.id()) && slowly, "{tree:?}");
    }

    #[test]
    fn a_number_is_told_by_what_it_stands_for() {
        let of = |text: &str| standing_by(text, 7);
        assert_eq!(of("Name:\ta\nState:\tS (sleeping)\nTgid:\t7\nThreads:\t2\n"), Standing::Runs);
        assert_eq!(of("State:\tS (sleeping)\nTgid:\t5\n"), Standing::Thread { of: 5 });
        assert_eq!(of("State:\tZ (zombie)\nTgid:\t7\nThreads:\t1\n"), Standing::Zombie);
        // Its first thread has ended, another one has not.
        assert_eq!(of("State:\tZ (zombie)\nTgid:\t7\nThreads:\t2\n"), Standing::Runs);
        assert_eq!(standing(u32::MAX), Standing::Gone);
    }

    #[test]
    fn only_listeners_are_taken_from_the_table() {
        let of = |state: &str| listener(&format!("0: 0100007F:1F90 00000000:0000 {state} 0 0"));
        assert_eq!(of("0A"), Some(8080));
        assert_eq!(of("01"), None);
        assert_eq!(listener("sl local_address"), None);
    }
}
