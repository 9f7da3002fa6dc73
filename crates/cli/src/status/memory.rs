//! Another process's memory, through /proc/PID/mem.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use uncork_posix::published::Memory;

/// The memory of a process, opened once: an id that is reused by another process meanwhile cannot
/// be read by mistake.
pub(super) struct ProcessMemory(File);

impl ProcessMemory {
    pub(super) fn open(pid: i32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, address).map_err(|error| match error.kind() {
            // The kernel has nothing to read once the process has ended.
            io::ErrorKind::UnexpectedEof => Errno::ESRCH.into(),
            _ => error,
        })
    }
}
