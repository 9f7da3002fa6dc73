//! Setting options on other processes' sockets, and restoring them.
//!
//! Pinned below one directory of bpffs: `sockets` and `born`, the former values of sockets, which all
//! entries share, and for each entry a directory with its links, its `outcomes`, the
//! living `members` of the process tree that it selects, and the mark of its owner. However the process
//! that set it up ends, everything that was touched can be found there.

mod cure;
mod error;
mod object;
mod pinned;
mod settings;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

pub use cure::{Cure, LONGEST_NAME_BYTES};
pub use error::Error;
pub use pinned::{Pins, cgroup_root};
pub use settings::{Outcome, Scope};

use cure::NAMES;
use object::{Loaded, MEMORY};

use crate::namespaces;

/// The programs of one entry.
pub struct Programs {
    loaded: Loaded,
    cures: Vec<Cure>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("cures", &self.cures).finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads what is needed, pins it, and names the processes. If `new`, connections that are
    /// established from now on are caught, too.
    ///
    /// # Errors
    /// [`Error`] says what is missing.
    pub fn start(
        pins: &Pins,
        entry: u32,
        cures: &[Cure],
        scope: &Scope,
        new: bool,
    ) -> Result<Self, Error> {
        let mut names = vec!["living"];
        if scope.pid.is_some() {
            names.extend(["family", "descriptors"]);
        }
        let mut attached = Vec::new();
        if new {
            attached.extend(["wished", "established"]);
        }
        if new && scope.pid.is_some() {
            attached.splice(0..0, ["ended", "forked", "created"]);
        }
        names.extend(&attached);
        pins.prepare(entry)?;
        let loaded = Loaded::load(&names, (entry, cures, scope), Some(pins))?;
        pins.pin_maps(entry, &loaded, (new, scope.pid.is_some()))?;
        let root = if new { Some(cgroup_root()?) } else { None };
        let programs = Self { loaded, cures: cures.to_vec() };
        for name in attached {
            let of_scope = scope.cgroup.as_ref().filter(|_| name != "created");
            let cgroup = of_scope.map_or(root.as_deref(), |(path, _)| Some(path.as_path()));
            programs.attach(pins, entry, name, cgroup)?;
        }
        if let Some(pid) = scope.pid {
            programs.find_processes(pid)?;
        }
        Ok(programs)
    }

    /// Attaches a program and pins its link, one right after the other: until it is pinned, its effect
    /// would end with this process.
    fn attach(
        &self,
        pins: &Pins,
        entry: u32,
        name: &'static str,
        cgroup: Option<&Path>,
    ) -> Result<(), Error> {
        let mut link = match (name, cgroup) {
            ("forked" | "ended", _) | (_, None) => {
                self.loaded.with(name, |program| program.attach())?
            }
            (_, Some(path)) => {
                let directory = pinned::open(path)?;
                self.loaded.with(name, |program| program.attach_cgroup(directory.as_raw_fd()))?
            }
        };
        link.pin(pins.link(entry, name))?;
        Ok(())
    }

    /// Records the process tree as it is, and the sockets that it has. Between the forks that are traced
    /// already and those that this scan sees, none is missed.
    fn find_processes(&self, pid: u32) -> Result<(), Error> {
        let mut known = 0;
        loop {
            self.loaded.iterate("family")?;
            let now = self.loaded.count("members")?;
            if now == known {
                break;
            }
            known = now;
        }
        if known == 0 {
            return Err(Error::NoProcess(pid));
        }
        self.loaded.iterate("descriptors").map(drop)
    }

    /// Sets the options on the connections in this thread's network namespace.
    ///
    /// # Errors
    /// If the kernel does not run the iterator.
    pub fn apply_here(&self) -> Result<(), Error> {
        self.loaded.iterate("living").map(drop)
    }

    /// Returns the results so far.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn outcomes(&self) -> Result<Vec<(Cure, Outcome)>, Error> {
        let all = self.loaded.outcomes()?;
        Ok(self.cures.iter().map(|cure| (cure.clone(), all[cure.index()])).collect())
    }
}

/// Returns the length of the kernel's tick; `None` if it does not reveal its configuration.
///
/// # Errors
/// If the kernel refuses the programs altogether.
pub fn tick() -> Result<Option<Duration>, Error> {
    let loaded = Loaded::load(&["living"], (u32::MAX, &[], &Scope::default()), None)?;
    let hertz = loaded.ticks_per_second()?;
    Ok((hertz > 0).then(|| Duration::from_secs(1) / hertz))
}

/// Tries each option on a connection of our own, over loopback; returns those that the kernel refuses, each with
/// its errno. Empty if there is no loopback here.
///
/// # Errors
/// If the kernel refuses the programs altogether.
pub fn refused(cures: &[Cure]) -> Result<Vec<(Cure, i32)>, Error> {
    let pair = || -> std::io::Result<(TcpListener, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        Ok((listener, stream))
    };
    let Ok((listener, _stream)) = pair() else { return Ok(Vec::new()) };
    let port = listener.local_addr().ok().map(|address| address.port());
    let scope = Scope { port, ..Scope::default() };
    // A number that no entry has; the maps of former values are discarded.
    let loaded = Loaded::load(&["living"], (u32::MAX, cures, &scope), None)?;
    loaded.iterate("living")?;
    let all = loaded.outcomes()?;
    let refused = cures.iter().filter(|cure| all[cure.index()].refused > 0);
    Ok(refused.map(|cure| (cure.clone(), all[cure.index()].errno)).collect())
}

/// The program that undoes an entry's changes to sockets.
pub struct Undoing {
    loaded: Loaded,
}

impl std::fmt::Debug for Undoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Undoing").finish_non_exhaustive()
    }
}

impl Undoing {
    /// Loads it; `None` if no socket was ever touched.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn start(pins: &Pins, entry: u32) -> Result<Option<Self>, Error> {
        if !pins.has_memory() {
            return Ok(None);
        }
        let what = (entry, &[][..], &Scope::default());
        let loaded = Loaded::load(&["undoing"], what, Some(pins))?;
        Ok(Some(Self { loaded }))
    }

    /// Restores the sockets in this thread's network namespace.
    ///
    /// # Errors
    /// If the kernel does not run the iterator.
    pub fn restore_here(&self) -> Result<(), Error> {
        self.loaded.iterate("undoing").map(drop)
    }

    /// Returns the results, by the names of the options.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn outcomes(&self) -> Result<Vec<(&'static str, Outcome)>, Error> {
        Ok(NAMES.into_iter().zip(self.loaded.outcomes()?).collect())
    }
}

/// Numbers of sockets that have an option as an entry has set it, and of those where it has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Sockets that have the value that was set.
    pub set: u64,
    /// Sockets whose value was changed by their program, or by somebody else.
    pub changed: u64,
}

/// Numbers of sockets of an entry, by option.
pub type Counts = BTreeMap<&'static str, Count>;

/// Returns how many sockets each entry has set, by entry and option.
///
/// # Errors
/// If the kernel does not report it.
pub fn in_force(pins: &Pins) -> Result<BTreeMap<u32, Counts>, Error> {
    let mut counts: BTreeMap<u32, Counts> = BTreeMap::new();
    if !pins.has_memory() {
        return Ok(counts);
    }
    for told in touched(pins)?.chunks_exact(12) {
        let number = |at: usize| {
            told.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_ne_bytes)
        };
        let (Some(entry), Some(option), Some(changed)) = (number(0), number(4), number(8)) else {
            continue;
        };
        if let Some(name) = NAMES.get(option as usize) {
            let count = counts.entry(entry).or_default().entry(name).or_default();
            *(if changed == 0 { &mut count.set } else { &mut count.changed }) += 1;
        }
    }
    Ok(counts)
}

/// Returns the programs' reports on touched sockets, twelve octets for each option.
fn touched(pins: &Pins) -> Result<Vec<u8>, Error> {
    let load =
        |looks: &[&'static str]| Loaded::load(looks, (0, &[], &Scope::default()), Some(pins));
    let looks = ["touched", "touched_new"];
    match load(&looks) {
        Ok(loaded) => {
            let each = looks.into_iter().zip(MEMORY);
            let each = each.map(|(program, map)| loaded.iterate_map(program, map));
            Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
        }
        // Some kernels have iterators over maps, and refuse them (EPERM): then sockets of each namespace are iterated.
        Err(Error::Refused { .. }) => {
            let look = "touched_in";
            let loaded = load(&[look])?;
            let link = loaded.with(look, |program| program.attach())?;
            Ok(namespaces::in_each(|| object::read_all(look, &link))?.concat())
        }
        Err(error) => Err(error),
    }
}
