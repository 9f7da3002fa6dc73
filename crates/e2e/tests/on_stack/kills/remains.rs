//! The kernel objects that a program's processes on the stack have, and whether they go with these.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
use uncork_e2e::Hosts;

/// How long the kernel may take to free what is no longer used: it does so after grace periods.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process of our host.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) line: String,
}

impl Process {
    /// Returns whether it is a guardian, of programs or of instances.
    pub(super) fn is_guardian(&self) -> bool {
        self.line.starts_with("uncork guardian serve ") || self.line.contains("uncork stack start ")
    }

    pub(super) fn is_instance(&self) -> bool {
        self.line.starts_with("uncork guardian instance ")
    }

    /// Returns whether it is the guardian's heir.
    pub(super) fn is_heir(&self) -> bool {
        self.line.starts_with("uncork guardian inherit")
    }

    pub(super) fn is_programs(&self) -> bool {
        !self.is_guardian() && !self.is_heir() && !self.is_instance()
    }

    pub(super) fn is_worker(&self) -> bool {
        self.line.starts_with("nginx: worker")
    }

    /// Returns the inodes of the memory that it shares with an instance, or with programs.
    pub(super) fn attachments(&self) -> BTreeSet<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let attached = maps.lines().filter(|line| line.contains("/memfd:uncork-attachment"));
        attached.filter_map(|line| line.split_whitespace().nth(4)?.parse().ok()).collect()
    }
}

/// Lists the live processes.
pub(super) fn processes(hosts: &Hosts) -> Result<Vec<Process>> {
    let listed = Command::new("ip").args(["netns", "pids", hosts.ours.name()]).output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let process = |pid: &str| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        // A zombie's command line is empty.
        let line = line.replace('\0', " ");
        (!line.is_empty()).then_some(Process { pid: pid.parse().ok()?, line })
    };
    Ok(listed.split_whitespace().filter_map(process).collect())
}

/// Kernel objects that must be gone, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
    /// Inodes of shared memory.
    tables: BTreeSet<u64>,
}

impl Remains {
    /// Adds what the processes of our host have at the moment.
    pub(crate) fn note(&mut self, hosts: &Hosts) -> Result<()> {
        for process in processes(hosts)? {
            for entry in fs::read_dir(format!("/proc/{}/fdinfo", process.pid))?.flatten() {
                let told = fs::read_to_string(entry.path()).unwrap_or_default();
                self.programs.extend(number(&told, "prog_id:"));
                self.maps.extend(number(&told, "map_id:"));
                self.links.extend(number(&told, "link_id:"));
            }
            self.tables.extend(tables_of(process.pid));
        }
        // Packet sockets' filters have no descriptor of their own: their maps identify them.
        for program in ProgInfoIter::default() {
            if program.map_ids.iter().any(|map| self.maps.contains(map)) {
                self.programs.insert(program.id);
            }
        }
        ensure!(!self.maps.is_empty() && !self.links.is_empty(), "the guardian has no filters");
        ensure!(!self.tables.is_empty(), "the guardian has no table of connections");
        Ok(())
    }

    /// Fails unless all of it is gone.
    pub(crate) fn check(&self, hosts: &Hosts, port: u16) -> Result<()> {
        hosts.check_nothing_left(port)?;
        let patience = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < patience, "left behind: {}", left.join(", "));
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn left(&self) -> Vec<String> {
        let programs = ProgInfoIter::default().map(|one| one.id);
        let maps = MapInfoIter::default().map(|one| one.id);
        let links = LinkInfoIter::default().map(|one| one.id);
        let programs = programs.filter(|id| self.programs.contains(id));
        let maps = maps.filter(|id| self.maps.contains(id));
        let links = links.filter(|id| self.links.contains(id));
        let tables = all_tables().filter(|(_, inode)| self.tables.contains(inode));
        let programs = programs.map(|id| format!("program {id}"));
        programs
            .chain(maps.map(|id| format!("map {id}")))
            .chain(links.map(|id| format!("link {id}")))
            .chain(tables.map(|(pid, inode)| format!("table {inode} in process {pid}")))
            .collect()
    }
}

/// Returns the number after a word in a file of fdinfo (proc_pid_fdinfo(5)).
fn number(told: &str, word: &str) -> Option<u32> {
    told.lines().find_map(|line| line.strip_prefix(word))?.trim().parse().ok()
}

/// Returns the inodes of the connection tables that a process has open.
fn tables_of(pid: u32) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_table = |entry: &fs::DirEntry| {
        let to = fs::read_link(entry.path()).unwrap_or_default();
        to.to_string_lossy().starts_with("/memfd:uncork-connections")
    };
    let inode = |entry: fs::DirEntry| Some(fs::metadata(entry.path()).ok()?.ino());
    entries.filter(is_table).filter_map(inode).collect()
}

/// Returns the same for all processes, each with its process id.
fn all_tables() -> impl Iterator<Item = (u32, u64)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.flat_map(|pid| tables_of(pid).into_iter().map(move |inode| (pid, inode)))
}
