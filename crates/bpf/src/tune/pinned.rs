//! An entry's files in bpffs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapCore as _, MapHandle};

use super::cure::NAMES;
use super::error::Error;
use super::object::{self, Loaded, MEMORY, NEW_SOCKETS};
use super::settings::Outcome;

/// Prefix of a link's file name.
const LINK: &str = "link_";
const OUTCOMES: &str = "outcomes";
const MEMBERS: &str = "members";
/// Prefix of the directory whose name tells an entry's owner.
const OWNER: &str = "of_";

/// Uncork's directory in bpffs.
#[derive(Debug, Clone)]
pub struct Pins {
    directory: PathBuf,
    owner: String,
}

impl Pins {
    /// Uses the directory below this mount of bpffs, for `owner`, one of those who share it: a name
    /// of letters, digits, `_` and `+`.
    #[must_use]
    pub fn below(bpffs: &Path, owner: &str) -> Self {
        Self { directory: bpffs.join("uncork"), owner: owner.to_owned() }
    }

    /// Returns the mount of bpffs.
    #[must_use]
    pub fn bpffs(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// Returns the error for a user that may not read the directory.
    #[must_use]
    pub fn hidden(&self) -> Error {
        let error = io::ErrorKind::PermissionDenied.into();
        Error::Pinned { path: self.bpffs().to_owned(), error }
    }

    /// Whether this process lacks the permission to read the directory.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        [self.bpffs(), &self.directory].into_iter().any(|directory| {
            fs::read_dir(directory).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
        })
    }

    /// Returns the owner of an entry, if that is another one.
    #[must_use]
    pub fn other_owner(&self, entry: u32) -> Option<String> {
        let found = fs::read_dir(self.of(entry)).into_iter().flatten().flatten();
        let mut owners = found
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(OWNER).map(str::to_owned));
        owners.next().filter(|owner| *owner != self.owner)
    }

    fn mark(&self, entry: u32) -> PathBuf {
        self.of(entry).join(format!("{OWNER}{}", self.owner))
    }

    /// Returns the path of a map that all entries share.
    pub(super) fn shared(&self, map: &str) -> PathBuf {
        self.directory.join(map)
    }

    /// Whether any socket can have been touched.
    pub(super) fn has_memory(&self) -> bool {
        MEMORY.iter().any(|map| self.shared(map).exists())
    }

    /// Returns the directory of an entry.
    #[must_use]
    pub fn of(&self, entry: u32) -> PathBuf {
        self.directory.join(entry.to_string())
    }

    pub(super) fn link(&self, entry: u32, program: &str) -> PathBuf {
        self.of(entry).join(format!("{LINK}{program}"))
    }

    /// Creates an entry's directory. Its number must be unique: sockets know an entry by it.
    pub(super) fn prepare(&self, entry: u32) -> Result<(), Error> {
        let failed = |path: &Path, error| Error::Pinned { path: path.to_owned(), error };
        fs::create_dir_all(&self.directory).map_err(|error| failed(&self.directory, error))?;
        for path in [self.of(entry), self.mark(entry)] {
            fs::create_dir(&path).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }

    /// Pins the maps, before anything is attached: with `new` also that of new connections, and
    /// with `by_process` the living members of the process tree.
    pub(super) fn pin_maps(
        &self,
        entry: u32,
        loaded: &Loaded,
        (new, by_process): (bool, bool),
    ) -> Result<(), Error> {
        for name in MEMORY {
            let path = self.shared(name);
            if !path.exists() && (new || name != NEW_SOCKETS) {
                loaded.map(name)?.pin(path)?;
            }
        }
        if new && by_process {
            loaded.map(MEMBERS)?.pin(self.of(entry).join(MEMBERS))?;
        }
        Ok(loaded.map(OUTCOMES)?.pin(self.of(entry).join(OUTCOMES))?)
    }

    /// Returns how many of an entry's processes are alive; `None` if it selects none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn living(&self, entry: u32) -> Result<Option<usize>, Error> {
        let path = self.of(entry).join(MEMBERS);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(MapHandle::from_pinned_path(&path)?.keys().count()))
    }

    /// Returns the entries that have anything pinned.
    #[must_use]
    pub fn entries(&self) -> Vec<u32> {
        let found = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        found.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns an entry's results so far; empty if it has nothing pinned.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn outcomes(&self, entry: u32) -> Result<Vec<(&'static str, Outcome)>, Error> {
        let path = self.of(entry).join(OUTCOMES);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let all = object::outcomes(&MapHandle::from_pinned_path(&path)?)?;
        Ok(NAMES.into_iter().zip(all).collect())
    }

    /// Returns how many programs of an entry are attached.
    #[must_use]
    pub fn attached(&self, entry: u32) -> usize {
        self.links(entry).len()
    }

    /// Detaches an entry's programs: no further socket is touched.
    ///
    /// # Errors
    /// If one cannot be detached.
    pub fn detach(&self, entry: u32) -> Result<(), Error> {
        for path in self.links(entry) {
            // Detached at once where the kernel can: what is merely unpinned ends a little later.
            // Links that it cannot detach so (tracepoints) touch no socket.
            let _ = Link::open(&path)?.detach();
            remove(&path)?;
        }
        Ok(())
    }

    /// Removes what is left of an entry, and with the last one the shared maps and the directory.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(&self, entry: u32) -> Result<(), Error> {
        for map in [OUTCOMES, MEMBERS] {
            remove(&self.of(entry).join(map))?;
        }
        remove_directory(&self.mark(entry))?;
        remove_directory(&self.of(entry))?;
        if self.entries().is_empty() {
            for map in MEMORY {
                remove(&self.shared(map))?;
            }
            remove_directory(&self.directory)?;
        }
        Ok(())
    }

    fn links(&self, entry: u32) -> Vec<PathBuf> {
        let found = fs::read_dir(self.of(entry)).into_iter().flatten().flatten();
        let ours = found.filter(|entry| entry.file_name().to_string_lossy().starts_with(LINK));
        ours.map(|entry| entry.path()).collect()
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    tolerant(fs::remove_file(path), path)
}

fn remove_directory(path: &Path) -> Result<(), Error> {
    tolerant(fs::remove_dir(path), path)
}

/// Ignores that a file is missing.
fn tolerant(done: io::Result<()>, path: &Path) -> Result<(), Error> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Pinned { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

pub(super) fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| Error::Pinned { path: path.to_owned(), error })
}

/// Returns the root of the cgroup v2 hierarchy, wherever it is mounted.
///
/// # Errors
/// If it is not mounted.
pub fn cgroup_root() -> Result<PathBuf, Error> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    crate::load::cgroup2(&mounts).ok_or(Error::NoCgroups)
}
