//! What a running stack tells of its connections (`uncork-stat`), over a Unix socket.

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

/// Where the sockets of running stacks are: root's in `/run/uncork`, another user's in its own
/// runtime directory, and where there is none, in one of its own in `/tmp`.
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

/// The socket of a process.
#[must_use]
pub fn socket_of(pid: u32) -> PathBuf {
    directory().join(name_of(pid))
}

fn name_of(pid: u32) -> String {
    format!("{PREFIX}{pid}{SUFFIX}")
}

/// The process whose socket has this name.
fn pid_in(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Makes the directory, for this user alone. One that somebody else has made is not used.
fn make_directory(directory: &Path) -> io::Result<()> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(directory);
    let found = fs::symlink_metadata(directory).map_err(|error| made.err().unwrap_or(error))?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(())
}
