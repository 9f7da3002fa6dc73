//! What is asked in each network namespace: an iterator over sockets shows those of the thread that reads it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const OWN: &str = "/proc/thread-self/ns/net";

/// Calls `ask` here and, in threads of their own, in the namespaces of all processes that may be entered.
///
/// # Errors
///
/// The first of `ask`, or that there is no /proc.
pub(crate) fn in_each<T: Send, E: From<io::Error> + Send>(
    ask: impl Fn() -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let mut seen = HashSet::from([fs::metadata(OWN)?.ino()]);
    let mut answers = vec![ask()?];
    for path in of_processes() {
        // Processes end meanwhile, and some may not be looked at.
        let Ok(file) = File::open(path) else { continue };
        if !seen.insert(file.metadata()?.ino()) {
            continue;
        }
        let asked = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), network).ok().map(|()| ask())
            });
            inside.join().ok().flatten()
        });
        answers.extend(asked.transpose()?);
    }
    Ok(answers)
}

fn of_processes() -> impl Iterator<Item = PathBuf> {
    let processes = fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
    processes.map(|process| process.path().join("ns/net"))
}
