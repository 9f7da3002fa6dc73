//! `uncork tune small-queues` at a place of the lab: as the command does it, with a journal of its own.

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

/// Makes changes with a journal that no other process uses. All changes are in a namespace of the lab
/// and end with it; the journal is removed on drop or, after a kill, by the next run's clean-up.
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

    /// Returns where programs would be pinned. None is needed here.
    fn bpffs(&self) -> &Path {
        &self.directory
    }
}

impl Tuner for InPlace {
    fn tune(&self, place: &Place, target: Duration, senders: u32) -> Result<Vec<String>> {
        let request = Request {
            device: DEVICE.to_owned(),
            target,
            // The device's shaper is asked, as for a user.
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
        // An entry that is still there belongs to a namespace that is gone by now.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
