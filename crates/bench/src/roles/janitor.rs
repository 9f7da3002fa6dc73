//! Clean-up after a process that may be killed at any moment.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

/// How often it is tried while servers that are being ended still write: 50 times 100 ms.
const TRIES: u32 = 50;

/// Waits for the end of standard input, then removes `dir`.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let mut ignored = [0; 64];
    // The other end is never written to: this returns when its last holder is gone.
    while io::stdin().read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
    unmount_below(dir);
    for _ in 1..TRIES {
        if fs::remove_dir_all(dir).is_ok() || !dir.exists() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}

/// Unmounts what a run has mounted there (bpffs, by `uncork tune`): it would keep the directory.
fn unmount_below(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // Fields as in fstab(5). The names below the directory are ours and need no escapes.
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
    for place in places.filter(|place| place.starts_with(dir)) {
        // It may be gone already.
        let _ = umount2(place, MntFlags::MNT_DETACH);
    }
}
