//! Cleaning up after a process that may be killed at any moment.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// Tries while servers that are being ended still write: 50 times 100 ms.
const TRIES: u32 = 50;

/// Waits for the end of standard input, then removes `dir`.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let mut ignored = [0; 64];
    // The other end is never written to: this returns when the last holder of it is gone.
    while io::stdin().read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
    for _ in 1..TRIES {
        if fs::remove_dir_all(dir).is_ok() || !dir.exists() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}
