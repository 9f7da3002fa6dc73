//! Queries about the connections of a running stack (`uncork-stat`), over a Unix socket.

mod ask;
mod others;
mod responder;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

pub use ask::{ask, ask_process, running};
pub(crate) use responder::Responder;

const PREFIX: &str = "stack-";
const SUFFIX: &str = ".sock";

/// Returns the directory of the sockets of running stacks: root's is `/run/uncork`, another user's
/// is in its runtime directory, and where there is none, one of its own in `/tmp`.
#[must_use]
pub fn directory() -> PathBuf {
    let user = nix::unistd::geteuid();
    if user.is_root() {
        return "/run/uncork".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Path::new(&directory).join("uncork"),
        None => format!("/tmp/uncork-{user}").into(),
    }
}

/// Returns the path of a process's socket.
#[must_use]
pub fn socket_of(pid: u32) -> PathBuf {
    directory().join(name_of(pid))
}

fn name_of(pid: u32) -> String {
    format!("{PREFIX}{pid}{SUFFIX}")
}

/// Returns the process whose socket has this name.
fn pid_in(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Creates the directory, for this user alone. One of another user is not used.
fn make_directory(directory: &Path) -> io::Result<()> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(directory);
    let found = fs::symlink_metadata(directory).map_err(|error| made.err().unwrap_or(error))?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(())
}
