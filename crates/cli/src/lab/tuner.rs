//! `uncork tune small-queues` at a place of the lab: what the command does, with a journal of its own.

use std::cell::Cell;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use uncork_lab::place::{DEVICE, Place};
use uncork_lab::tsq::Tuner;
use uncork_tune::netns::Handle;
use uncork_tune::small_queues::{Request, plan};
use uncork_tune::{Applied, Journal, apply, undo};

/// Changes go through a journal that nobody else has. All of them are in a namespace of the lab and go
/// with it; the journal goes with this, or, after a kill, with what the next run clears.
pub(super) struct InPlace {
    directory: PathBuf,
    applied: Cell<Option<u32>>,
}

impl InPlace {
    pub(super) fn new() -> Result<Self> {
        let name = format!("{}{}-tune", uncork_netns::PREFIX, uncork_netns::own_mark());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory)
            .with_context(|| format!("{}: it cannot be made", directory.display()))?;
        Ok(Self { directory, applied: Cell::new(None) })
    }

    fn journal(&self) -> Result<Journal> {
        Ok(Journal::open(&self.directory.join("journal"))?)
    }

    /// Where programs would be pinned. Nothing of this needs one.
    fn bpffs(&self) -> &Path {
        &self.directory
    }
}

impl Tuner for InPlace {
    fn tune(&self, place: &Place, target: Duration, senders: u32) -> Result<Vec<String>> {
        let request = Request {
            device: DEVICE.to_owned(),
            target,
            // As for a user: the device's shaper is asked.
            rate: None,
            senders: NonZeroU32::new(senders),
            pace: false,
            netns: Handle::named(place.near.name())?,
        };
        let Applied { id, changes, left, .. } =
            apply(&self.journal()?, plan(&request, &[])?, self.bpffs())?;
        self.applied.set(Some(id));
        ensure!(left.is_empty(), "uncork tune left something undone: {}", left.join("; "));
        Ok(changes)
    }

    fn undo(&self) -> Result<()> {
        let Some(id) = self.applied.take() else { return Ok(()) };
        let undone = undo(&self.journal()?, id)?;
        let failed = undone.failed.iter().map(ToString::to_string);
        let left: Vec<String> = undone.left.into_iter().chain(failed).collect();
        ensure!(left.is_empty(), "uncork tune undo left something: {}", left.join("; "));
        Ok(())
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        // An entry that is still there is of a namespace that is gone by now.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
