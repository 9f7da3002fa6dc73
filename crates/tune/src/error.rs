//! Errors, each with a sentence that says what to do.

use std::io;
use std::path::PathBuf;

/// Why something was not changed, or not undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal could not be read.
    #[error("{}: the journal cannot be read: {error}", path.display())]
    Unread {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The journal could not be written.
    #[error("{}: {error}; the journal must be writable before anything is changed", path.display())]
    Journal {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// An entry of the journal is damaged.
    #[error(
        "{}: this entry is damaged ({why}) and was left as it is: restore the file from a backup, or \
         remove it and set what it changed by hand",
        path.display()
    )]
    Damaged {
        /// The entry's file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no entry of this number.
    #[error("there is no entry {0}: uncork tune list shows those that there are")]
    NoEntry(u32),
    /// A network namespace could not be read or entered.
    #[error("{}: this network namespace cannot be entered: {error}", path.display())]
    Namespace {
        /// Its file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A setting under /proc/sys could not be read or set.
    #[error("{name} cannot be {verb}: {error}")]
    Sysctl {
        /// Its name as in sysctl(8).
        name: String,
        /// `read` or `set`.
        verb: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A netlink request to the kernel's routing failed.
    #[error("{what}: {error}")]
    Netlink {
        /// What was requested.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// bpffs could not be found, mounted or written.
    #[error("{}: {what}: {error}", path.display())]
    BpfFs {
        /// Where it was expected.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The eBPF programs failed.
    #[error(transparent)]
    Programs(#[from] uncork_bpf::tune::Error),
    /// Something that was named is not there.
    #[error("{0}")]
    Absent(String),
    /// What was asked for cannot be done, and why.
    #[error("{0}")]
    Unable(String),
}

impl Error {
    /// Returns whether something that was named is not there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        match self {
            Self::NoEntry(_) | Self::Absent(_) => true,
            Self::Namespace { error, .. } => {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
            Self::Netlink { error, .. } => error.raw_os_error() == Some(libc::ENODEV),
            Self::Programs(uncork_bpf::tune::Error::NoProcess(_)) => true,
            _ => false,
        }
    }

    /// Returns whether a process with more privileges could do it.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        match self {
            Self::Unread { error, .. }
            | Self::Journal { error, .. }
            | Self::Namespace { error, .. }
            | Self::Sysctl { error, .. }
            | Self::Netlink { error, .. }
            | Self::BpfFs { error, .. } => denied(error),
            Self::Programs(error) => error.is_permission(),
            _ => false,
        }
    }
}
