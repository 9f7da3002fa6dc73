//! Stacks of other users, which root may query.
//!
//! Their directories belong to those users, and their content may change at any time: so a directory is only used if
//! nobody but its user can write into it, is held open while it is read, and symbolic links are not followed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{name_of, pid_in};

/// Mode bits of write permission for group and others.
const OTHERS_WRITE: u32 = 0o022;

/// Another user's directory.
#[derive(Debug)]
struct Theirs {
    directory: File,
    user: u32,
}

/// Opens a path, so that later changes of the name do not matter; symbolic links are not followed.
fn hold(path: impl AsRef<Path>, more: i32) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | more;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Returns the path by which an opened file is used again.
fn held(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl Theirs {
    /// Opens a user's directory; `None` if others can write into it.
    fn open(path: &Path, user: u32) -> Option<Self> {
        let directory = hold(path, libc::O_DIRECTORY).ok()?;
        let found = directory.metadata().ok()?;
        let is_theirs = found.uid() == user && found.mode() & OTHERS_WRITE == 0;
        is_theirs.then_some(Self { directory, user })
    }

    /// Opens the directories of a user, as `super::directory` names them.
    fn of(user: u32) -> impl Iterator<Item = Self> {
        let places = [format!("/run/user/{user}/uncork"), format!("/tmp/uncork-{user}")];
        places.into_iter().filter_map(move |place| Self::open(Path::new(&place), user))
    }

    fn connect(&self, pid: u32) -> io::Result<UnixStream> {
        let socket = hold(Path::new(&held(&self.directory)).join(name_of(pid)), 0)?;
        let found = socket.metadata()?;
        if !found.file_type().is_socket() || found.uid() != self.user {
            return Err(ErrorKind::NotFound.into());
        }
        UnixStream::connect(held(&socket))
    }

    /// Returns the processes of this user that can be queried.
    fn running(&self) -> Vec<u32> {
        let entries = fs::read_dir(held(&self.directory)).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| pid_in(&entry.file_name()));
        pids.filter(|&pid| user_of(pid) == Some(self.user) && self.connect(pid).is_ok()).collect()
    }
}

/// Returns a process's effective user.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the users that have, or may have, such a directory.
fn users() -> Vec<u32> {
    let names = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |name: &str| name.parse::<u32>().ok().filter(|user| *user != 0);
    let logged_in =
        names("/run/user").filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    let mut all: Vec<u32> = logged_in;
    all.extend(
        names("/tmp")
            .filter_map(|entry| number(entry.file_name().to_str()?.strip_prefix("uncork-")?)),
    );
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns process ids of other users' running stacks, only to root.
pub(super) fn running() -> Vec<u32> {
    if !nix::unistd::geteuid().is_root() {
        return Vec::new();
    }
    users().into_iter().flat_map(Theirs::of).flat_map(|theirs| theirs.running()).collect()
}

/// Connects to the stack of a process of another user, if this is root and there is one.
pub(super) fn connect(pid: u32) -> Option<UnixStream> {
    let user = user_of(pid).filter(|user| *user != 0 && nix::unistd::geteuid().is_root())?;
    Theirs::of(user).find_map(|theirs| theirs.connect(pid).ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_directory_is_its_user_s_alone_and_no_link_is_followed() {
        let user = nix::unistd::geteuid().as_raw();
        let pid = std::process::id();
        let place = std::env::temp_dir().join(format!("uncork-others-{pid}"));
        fs::create_dir(&place).unwrap();
        let may = |mode| fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
        may(0o700);
        assert!(Theirs::open(&place, user + 1).is_none());
        let link = place.join("link");
        symlink(&place, &link).unwrap();
        assert!(Theirs::open(&link, user).is_none());
        let listener = UnixListener::bind(place.join("real")).unwrap();
        symlink("real", place.join(name_of(7))).unwrap();
        fs::write(place.join(name_of(8)), "").unwrap();
        let theirs = Theirs::open(&place, user).unwrap();
        for pid in [7, 8, 9] {
            assert!(theirs.connect(pid).is_err(), "{pid}");
        }
        fs::rename(place.join("real"), place.join(name_of(pid))).unwrap();
        assert_eq!(theirs.running(), [pid]);
        drop(listener);
        assert_eq!(theirs.running(), [0; 0]);
        for mode in [0o770, 0o702] {
            may(mode);
            assert!(Theirs::open(&place, user).is_none(), "{mode:o}");
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
