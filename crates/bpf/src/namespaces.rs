//! Network namespaces, and who looks in them: iterators over sockets, `/proc/sys/net` and netlink all show that of the thread
//! that looks.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where ip-netns(8) keeps the namespaces that have a name.
pub const NAMED: &str = "/run/netns";
/// The calling thread's own.
pub const OWN: &str = "/proc/thread-self/ns/net";

/// Files of all namespaces that have a process or a name, this thread's first, and the names. Those of one namespace may be
/// several.
pub fn all() -> impl Iterator<Item = (PathBuf, Option<String>)> {
    let named = named().map(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        (path, name)
    });
    let of_processes = entries(Path::new("/proc")).map(|path| (path.join("ns/net"), None));
    std::iter::once((PathBuf::from(OWN), None)).chain(named).chain(of_processes)
}

/// Files of those that have a name.
pub fn named() -> impl Iterator<Item = PathBuf> {
    entries(Path::new(NAMED))
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path())
}

/// Does something in a network namespace, by its file. A thread of its own, which ends with the work: none that comes
/// after is in the wrong place.
///
/// # Errors
///
/// If it cannot be entered.
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

/// What `ask` finds in each of them that may be entered. Processes end meanwhile, and theirs with them.
pub(crate) fn in_each<T: Send, E: Send>(
    ask: impl Fn() -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let mut seen = HashSet::new();
    let files = all().filter_map(|(path, _)| File::open(path).ok());
    let others = files.filter(|file| file.metadata().is_ok_and(|about| seen.insert(about.ino())));
    others.filter_map(|file| entered(&file, &ask).ok()).collect()
}
