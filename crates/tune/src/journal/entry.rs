//! One run of `uncork tune`: what it changed, and since when.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::change::{Change, Sockets};

/// The version of the format that this program writes, and understands.
pub(super) const VERSION: u32 = 1;

/// The changes of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub(super) version: u32,
    /// Its number, by which it is undone.
    pub id: u32,
    /// The boot of the machine in which it was made: a reboot undoes it.
    pub boot_id: String,
    /// Seconds since 1970.
    pub since_unix: u64,
    /// What was asked for, in words.
    pub title: String,
    /// Whether the run was completed. If not, it was killed: any part of it may be in force.
    pub complete: bool,
    /// Its changes, in the order in which they were made.
    pub changes: Vec<Change>,
}

impl Entry {
    /// Creates an entry without changes.
    #[must_use]
    pub fn new(id: u32, title: String) -> Self {
        let since_unix =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let boot_id = boot_id();
        Self { version: VERSION, id, boot_id, since_unix, title, complete: false, changes: vec![] }
    }

    /// Returns what it does to sockets.
    #[must_use]
    pub fn sockets(&self) -> Option<&Sockets> {
        self.changes.iter().find_map(|change| match change {
            Change::Sockets(sockets) => Some(sockets),
            _ => None,
        })
    }

    /// Returns whether the machine was rebooted since: then nothing of it is in force.
    #[must_use]
    pub fn is_of_another_boot(&self) -> bool {
        self.boot_id != boot_id()
    }
}

/// Returns the boot's identifier, as random(4) describes it.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_end().to_owned()
}
