//! Network namespaces, and working inside them: iterators over sockets, `/proc/sys/net` and netlink all show that of the
//! calling thread.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The directory in which ip-netns(8) keeps named namespaces.
pub const NAMED: &str = "/run/netns";
/// The calling thread's own namespace.
pub const OWN: &str = "/proc/thread-self/ns/net";

/// Returns files of all namespaces that have a process or a name, with the names, this thread's first. A namespace may occur
/// more than once.
pub fn all() -> impl Iterator<Item = (PathBuf, Option<String>)> {
    let named = named().map(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        (path, name)
    });
    let of_processes = entries(Path::new("/proc")).map(|path| (path.join("ns/net"), None));
    std::iter::once((PathBuf::from(OWN), None)).chain(named).chain(of_processes)
}

/// Returns the files of named namespaces.
pub fn named() -> impl Iterator<Item = PathBuf> {
    entries(Path::new(NAMED))
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path())
}

/// Runs `work` in a network namespace, given by its file. It uses a thread of its own, which ends with the work: no later
/// work runs in the wrong namespace.
///
/// # Errors
///
/// If the namespace cannot be entered.
pub fn entered<T: Send>(file: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let same = fs::metadata(OWN)?.ino() == file.metadata()?.ino();
    if same {
        return Ok(work());
    }
    thread::scope(|scope| {
        let inside = scope.spawn(|| -> io::Result<T> {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        inside.join().unwrap_or_else(|_| Err(io::Error::other("the thread inside it panicked")))
    })
}

/// Collects what `ask` finds in each namespace that may be entered. Some end meanwhile, with their processes.
pub(crate) fn in_each<T: Send, E: Send>(
    ask: impl Fn() -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let mut seen = HashSet::new();
    let files = all().filter_map(|(path, _)| File::open(path).ok());
    let others = files.filter(|file| file.metadata().is_ok_and(|about| seen.insert(about.ino())));
    others.filter_map(|file| entered(&file, &ask).ok()).collect()
}
