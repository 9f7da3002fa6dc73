//! One run of `uncork tune`: what it changed, and since when.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::change::{Change, Sockets};

/// What this version writes, and understands.
pub(super) const VERSION: u32 = 1;

/// What one run has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub(super) version: u32,
    /// By which it is undone.
    pub id: u32,
    /// The boot of the machine in which it was made: with that it is gone.
    pub boot_id: String,
    /// Seconds since 1970.
    pub since_unix: u64,
    /// What was asked for, in words.
    pub title: String,
    /// Whether the run came to its end. If not, it was killed: anything of it may be in force.
    pub complete: bool,
    /// In the order in which they were made.
    pub changes: Vec<Change>,
}

impl Entry {
    /// An entry without changes yet.
    #[must_use]
    pub fn new(id: u32, title: String) -> Self {
        let since_unix =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let boot_id = boot_id();
        Self { version: VERSION, id, boot_id, since_unix, title, complete: false, changes: vec![] }
    }

    /// What it does to sockets.
    #[must_use]
    pub fn sockets(&self) -> Option<&Sockets> {
        self.changes.iter().find_map(|change| match change {
            Change::Sockets(sockets) => Some(sockets),
            _ => None,
        })
    }

    /// Whether the machine was booted since: then nothing of it is in force.
    #[must_use]
    pub fn is_of_another_boot(&self) -> bool {
        self.boot_id != boot_id()
    }
}

/// random(4) gives each boot a number.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_end().to_owned()
}
