//! Why sockets could not be tuned.

use std::io;
use std::path::PathBuf;

use libbpf_rs::ErrorKind;

/// Why the programs do not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not take them.
    #[error("the kernel does not take the eBPF program {name}: {error:#}")]
    Refused {
        /// Which.
        name: &'static str,
        /// What libbpf said.
        error: libbpf_rs::Error,
    },
    /// There is nothing to attach them to.
    #[error(
        "no cgroup v2 hierarchy is mounted: new connections are met there; mount one (mount -t \
         cgroup2 none /sys/fs/cgroup) or give --live for those that there are"
    )]
    NoCgroups,
    /// The process is not there.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// A file or directory of bpffs.
    #[error("{}: {error}", path.display())]
    Pinned {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// What another version has left.
    #[error(
        "{}: another version of uncork keeps there what sockets were before: undo with that one \
         first",
        .0.display()
    )]
    OtherVersion(PathBuf),
    /// Something else of libbpf's.
    #[error("eBPF: {0:#}")]
    Other(#[from] libbpf_rs::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}

impl Error {
    /// Whether somebody with more rights could do it.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            // A program that the verifier does not take is refused by the same errno.
            Self::Other(error) => error.kind() == ErrorKind::PermissionDenied,
            Self::Pinned { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
