//! Network namespaces: the scope of a setting, and how to enter one.
//!
//! `/proc/sys/net`, netlink and the TCP iterators all show the namespace of the calling thread, so
//! all work on a namespace is done by a thread that has entered it.

mod cookie;

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uncork_bpf::namespaces::{self, NAMED, OWN, entered};

use crate::Error;
use crate::privilege::missing_after;

/// The identity of a namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NetNs {
    /// The kernel's number for it (`SO_NETNS_COOKIE`), valid until the machine is rebooted.
    pub cookie: u64,
    /// Its name when it was changed, as in ip-netns(8), if it had one.
    pub name: Option<String>,
}

impl PartialEq for NetNs {
    fn eq(&self, other: &Self) -> bool {
        self.cookie == other.cookie
    }
}

impl Eq for NetNs {}

/// A namespace that can be entered.
#[derive(Debug)]
pub struct Handle {
    file: File,
    /// Its identity.
    pub id: NetNs,
}

impl Handle {
    /// Returns the namespace of this process, with its name if it is not the machine's own (under
    /// ip-netns(8) exec).
    ///
    /// # Errors
    /// If /proc is not there, or the kernel is older than 5.14 and numbers no namespaces.
    pub fn own() -> Result<Self, Error> {
        Self::at(Path::new(OWN), name_of_own())
    }

    /// Returns a namespace by its name (ip-netns(8)) or by the path of its file.
    ///
    /// # Errors
    /// If there is none, or it may not be entered.
    pub fn named(name: &str) -> Result<Self, Error> {
        let path =
            if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMED).join(name) };
        Self::at(&path, Some(name.to_owned()))
    }

    fn at(path: &Path, name: Option<String>) -> Result<Self, Error> {
        let failed = |error| Error::Namespace { path: path.to_owned(), error };
        let file = File::open(path).map_err(failed)?;
        let cookie = entered(&file, cookie::of_this_thread).and_then(|cookie| cookie);
        let cookie = cookie.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Error::Absent(format!(
                "{} is no network namespace: ip netns list names those that there are",
                path.display()
            )),
            _ => failed(error),
        })?;
        Ok(Self { file, id: NetNs { cookie, name } })
    }

    /// Finds the namespace again; `None` if it is gone.
    ///
    /// # Errors
    /// If it may be one of those that may not be inspected.
    pub fn find(wanted: &NetNs) -> Result<Option<Self>, Error> {
        let own = Self::own()?;
        if own.id == *wanted {
            return Ok(Some(own));
        }
        // It usually has its old name: to search the namespaces of all processes takes long.
        let named = wanted.name.as_deref().and_then(|name| Self::named(name).ok());
        if let Some(named) = named.filter(|named| named.id == *wanted) {
            return Ok(Some(named));
        }
        let (all, closed) = Self::search();
        let found = all.into_iter().find(|handle| handle.id == *wanted);
        match closed {
            // A namespace that no privilege opens is not one that we have entered before.
            Some(error) if found.is_none() && !missing_after(&error).is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Returns all namespaces that have a process or a name and may be entered, this process's first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::search().0
    }

    /// Returns all that may be entered, and why another may not, if there is one.
    fn search() -> (Vec<Self>, Option<Error>) {
        let mut closed = None;
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for (path, name) in namespaces::all() {
            let inode = fs::metadata(&path).map(|meta| meta.ino());
            let handle = match inode {
                Ok(inode) if !seen.insert(inode) => continue,
                Ok(_) => Self::at(&path, name),
                Err(error) => Err(Error::Namespace { path, error }),
            };
            match handle {
                Ok(handle) => found.push(handle),
                Err(error) if error.is_permission() && is_there(&error) => closed = Some(error),
                // Processes end, and a name may exist before its namespace does.
                Err(_) => {}
            }
        }
        (found, closed)
    }

    /// Calls `work` in a thread that has entered the namespace.
    ///
    /// # Errors
    /// If it cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        entered(&self.file, work).map_err(|error| Error::Namespace { path: self.id.path(), error })
    }
}

impl NetNs {
    fn path(&self) -> PathBuf {
        self.name.as_ref().map_or_else(|| OWN.into(), |name| Path::new(NAMED).join(name))
    }

    /// Returns words for the end of a sentence: none for the machine's own namespace.
    #[must_use]
    pub fn words(&self) -> String {
        self.name.as_ref().map(|name| format!(" in network namespace {name}")).unwrap_or_default()
    }
}

/// Returns the name of this process's namespace; `None` if it is the first process's, or has none.
fn name_of_own() -> Option<String> {
    let inode = |path: &Path| fs::metadata(path).map(|meta| meta.ino()).ok();
    let own = inode(Path::new(OWN))?;
    if inode(Path::new("/proc/1/ns/net")) == Some(own) {
        return None;
    }
    let named = namespaces::named().find(|path| inode(path) == Some(own))?;
    Some(named.file_name()?.to_string_lossy().into_owned())
}

/// Returns whether it exists: the kernel says of an ended process, too, that it may not be inspected.
fn is_there(error: &Error) -> bool {
    let Error::Namespace { path, .. } = error else { return true };
    path.ancestors().nth(2).is_none_or(Path::exists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_namespace_is_found_by_its_number() {
        let own = Handle::own().unwrap();
        assert!(own.id.cookie > 0);
        let found = Handle::find(&own.id).unwrap().unwrap();
        assert_eq!(found.id, own.id);
        assert_eq!(found.within(|| 7).unwrap(), 7);
    }

    #[test]
    fn a_namespace_that_is_not_there_is_no_error_to_undo() {
        let gone = NetNs { cookie: u64::MAX, name: Some("gone".to_owned()) };
        assert!(Handle::find(&gone).unwrap().is_none());
        let error = Handle::named("uncork-is-not-there").unwrap_err().to_string();
        assert!(error.contains("/run/netns/uncork-is-not-there"), "{error}");
    }

    #[test]
    fn what_is_no_namespace_is_told() {
        for path in ["/etc/passwd", "/etc/passwd/x", "/proc/self/ns/mnt"] {
            let error = Handle::named(path).unwrap_err();
            assert!(error.is_absent() && error.to_string().contains(path), "{error}");
        }
    }
}
