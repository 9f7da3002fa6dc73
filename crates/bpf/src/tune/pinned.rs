//! What of an entry is kept in bpffs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapCore as _, MapHandle};

use super::cure::NAMES;
use super::error::Error;
use super::object::{self, Loaded, MEMORY, NEW_SOCKETS};
use super::settings::Outcome;

/// What the file of a link begins with.
const LINK: &str = "link_";
const OUTCOMES: &str = "outcomes";
const MEMBERS: &str = "members";
/// What the name of a directory begins with that says whose an entry is.
const OWNER: &str = "of_";

/// Our own directory of bpffs.
#[derive(Debug, Clone)]
pub struct Pins {
    directory: PathBuf,
    owner: String,
}

impl Pins {
    /// Below this mount of bpffs, in the hands of one of those who share it: a name of letters,
    /// digits, `_` and `+`.
    #[must_use]
    pub fn below(bpffs: &Path, owner: &str) -> Self {
        Self { directory: bpffs.join("uncork"), owner: owner.to_owned() }
    }

    /// The mount of bpffs.
    #[must_use]
    pub fn bpffs(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// What whoever may not look into it is told.
    #[must_use]
    pub fn hidden(&self) -> Error {
        let error = io::ErrorKind::PermissionDenied.into();
        Error::Pinned { path: self.bpffs().to_owned(), error }
    }

    /// Whether somebody without the right to look into it asks.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        [self.bpffs(), &self.directory].into_iter().any(|directory| {
            fs::read_dir(directory).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
        })
    }

    /// Whose an entry is, if that is somebody else.
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

    /// Where a map of all entries is.
    pub(super) fn shared(&self, map: &str) -> PathBuf {
        self.directory.join(map)
    }

    /// Whether any socket can have been touched.
    pub(super) fn has_memory(&self) -> bool {
        MEMORY.iter().any(|map| self.shared(map).exists())
    }

    /// An entry's own.
    #[must_use]
    pub fn of(&self, entry: u32) -> PathBuf {
        self.directory.join(entry.to_string())
    }

    pub(super) fn link(&self, entry: u32, program: &str) -> PathBuf {
        self.of(entry).join(format!("{LINK}{program}"))
    }

    /// Makes an entry's directory. Its number is nobody else's: sockets know an entry by that.
    pub(super) fn prepare(&self, entry: u32) -> Result<(), Error> {
        let failed = |path: &Path, error| Error::Pinned { path: path.to_owned(), error };
        fs::create_dir_all(&self.directory).map_err(|error| failed(&self.directory, error))?;
        for path in [self.of(entry), self.mark(entry)] {
            fs::create_dir(&path).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }

    /// Before anything is attached; if `new`, with what new connections need, and if they are those
    /// of a process, with who is alive of its tree.
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

    /// How many processes are alive of those that an entry means; `None` if that is not told.
    ///
    /// # Errors
    /// The kernel's.
    pub fn living(&self, entry: u32) -> Result<Option<usize>, Error> {
        let path = self.of(entry).join(MEMBERS);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(MapHandle::from_pinned_path(&path)?.keys().count()))
    }

    /// The entries that have anything pinned.
    #[must_use]
    pub fn entries(&self) -> Vec<u32> {
        let found = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        found.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// How it went with an entry so far; nothing if it has nothing pinned.
    ///
    /// # Errors
    /// The kernel's.
    pub fn outcomes(&self, entry: u32) -> Result<Vec<(&'static str, Outcome)>, Error> {
        let path = self.of(entry).join(OUTCOMES);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let all = object::outcomes(&MapHandle::from_pinned_path(&path)?)?;
        Ok(NAMES.into_iter().zip(all).collect())
    }

    /// How many programs of an entry are attached.
    #[must_use]
    pub fn attached(&self, entry: u32) -> usize {
        self.links(entry).len()
    }

    /// Detaches an entry's programs: no socket is touched any more.
    ///
    /// # Errors
    /// If one cannot be detached.
    pub fn detach(&self, entry: u32) -> Result<(), Error> {
        for path in self.links(entry) {
            // At once, where the kernel can: what is merely unpinned ends a little later. Those
            // that it cannot detach so (tracepoints) touch no socket.
            let _ = Link::open(&path)?.detach();
            remove(&path)?;
        }
        Ok(())
    }

    /// Removes what is left of an entry, and all else with the last one.
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

/// What is not there need not be removed.
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

/// The root of the cgroup v2 hierarchy, wherever it is mounted.
///
/// # Errors
/// If it is not mounted.
pub fn cgroup_root() -> Result<PathBuf, Error> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    crate::load::cgroup2(&mounts).ok_or(Error::NoCgroups)
}
