//! Errors of tuning sockets.

use std::io;
use std::path::PathBuf;

use libbpf_rs::ErrorKind;

use crate::privilege::NO_SYS;

/// Why the programs cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Where the kernel has its type information is not mounted.
    #[error("{NO_SYS}")]
    NoSys,
    /// The kernel refuses a program.
    #[error("the kernel does not take the eBPF program {name}: {error:#}")]
    Refused {
        /// The program.
        name: &'static str,
        /// libbpf's error.
        error: libbpf_rs::Error,
    },
    /// There is no cgroup to attach them to.
    #[error(
        "no cgroup v2 hierarchy is mounted: new connections are met there; mount one (mount -t \
         cgroup2 none /sys/fs/cgroup) or give --live for those that there are"
    )]
    NoCgroups,
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// A file or directory of bpffs.
    #[error("{}: {error}", path.display())]
    Pinned {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another version has left its state.
    #[error(
        "{}: another version of uncork keeps there what sockets were before: undo with that one \
         first",
        .0.display()
    )]
    OtherVersion(PathBuf),
    /// Any other error of libbpf.
    #[error("eBPF: {0:#}")]
    Other(#[from] libbpf_rs::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}

impl Error {
    /// Whether a more privileged user could do it.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            // A program that the verifier rejects is refused with the same errno.
            Self::Other(error) => error.kind() == ErrorKind::PermissionDenied,
            Self::Pinned { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
