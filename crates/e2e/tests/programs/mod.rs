//! Real programs from Debian's packages, each plain and under the library in both ways of holding.
//! A test is named after the failure that a user would see.

mod curl;
mod echo;
mod git;
mod memcached;
mod nginx;
mod node;
mod postgres;
mod python;
mod redis;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;
use uncork_e2e::Mode;

/// A directory for the files of one run of a program.
struct Scratch {
    directory: TempDir,
}

impl Scratch {
    fn new() -> Result<Self> {
        Ok(Self { directory: tempfile::Builder::new().prefix("uncork-e2e-").tempdir()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Returns `mode` with the reports of its processes going to a file of this directory.
    fn reporting(&self, mode: &Mode) -> Mode {
        mode.clone().with("UNCORK_STATS", &self.path("stats").to_string_lossy())
    }

    fn check_helped(&self, mode: &Mode) -> Result<()> {
        mode.check_helped(&self.path("stats"))
    }

    /// Writes a file of `length` bytes that repeat nowhere near.
    fn file(&self, name: &str, length: usize) -> Result<PathBuf> {
        let path = self.path(name);
        let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ length as u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .take(length)
        .collect();
        fs::write(&path, bytes)?;
        Ok(path)
    }
}
