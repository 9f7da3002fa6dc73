//! The file system in which eBPF programs are pinned (bpffs): found, or mounted and unmounted.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::journal::{Entry, Journal};

/// The standard mount point.
pub const DIRECTORY: &str = "/sys/fs/bpf";
/// Name of the note that says that we have mounted it.
const NOTE: &str = "mounted";

/// What a kernel with CONFIG_BPF_PRELOAD puts into each bpffs.
const KERNELS_OWN: [&str; 2] = ["maps.debug", "progs.debug"];

#[derive(Serialize, Deserialize)]
struct Mounted {
    path: String,
    boot_id: String,
}

/// Returns whether a bpffs is mounted there.
#[must_use]
pub fn is_mounted(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}

/// Locks it against the other processes that use it, until the lock is dropped.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, Error> {
    let failed = |error| Error::BpfFs { path: path.to_owned(), what: "cannot be locked", error };
    let directory = File::open(path).map_err(failed)?;
    Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, errno)| failed(errno.into()))
}

/// Returns an error if it is not mounted there and could not be, in a way that outlives this process.
pub(crate) fn may_be_mounted(path: &Path) -> Result<(), Error> {
    if is_out_of_sight(path) {
        return Err(Error::Unable(format!(
            "bpffs is not mounted at {}, and this process has a mount namespace of its own (as under \
             ip netns exec): programs pinned there would end with it; run uncork outside, with \
             --netns NAME",
            path.display()
        )));
    }
    if is_mounted(path) {
        return Ok(());
    }
    let failed =
        |error| Error::BpfFs { path: path.to_owned(), what: "bpffs cannot be mounted", error };
    if fs::read_dir(path).map_err(failed)?.next().is_some() {
        return Err(Error::Unable(format!(
            "bpffs is not mounted over {}, which is not empty: name an empty directory with --bpffs, \
             or where bpffs is",
            path.display()
        )));
    }
    Ok(())
}

/// Returns whether it may be mounted there for other processes, and cannot be seen from here: then
/// what was pinned is not known to be gone.
pub(crate) fn is_out_of_sight(path: &Path) -> bool {
    !is_mounted(path) && in_a_mount_namespace_of_its_own()
}

/// Mounts it if it is missing. That is noted first: undoing the last entry unmounts it.
pub(crate) fn ensure(journal: &Journal, path: &Path) -> Result<(), Error> {
    if is_mounted(path) {
        return Ok(());
    }
    may_be_mounted(path)?;
    let failed = |what, error| Error::BpfFs { path: path.to_owned(), what, error };
    let boot_id = Entry::new(0, String::new()).boot_id;
    let note = Mounted { path: path.to_string_lossy().into_owned(), boot_id };
    let note =
        serde_json::to_string(&note).map_err(|e| failed("the note of the mount", e.into()))?;
    journal.set_note(NOTE, &note)?;
    let nothing: Option<&str> = None;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), path, Some("bpf"), flags, Some("mode=700"))
        .or_else(|_| mount(nothing, path, Some("bpf"), flags, nothing))
        .map_err(|errno| failed("bpffs cannot be mounted", errno.into()))
}

/// Returns whether undoing may unmount it.
pub(crate) fn is_ours(journal: &Journal) -> bool {
    journal.note(NOTE).is_some()
}

/// Unmounts it if we have mounted it and nothing else is pinned in it; returns whether it did.
pub(crate) fn tidy(journal: &Journal) -> Result<bool, Error> {
    let Some(text) = journal.note(NOTE) else { return Ok(false) };
    let this_boot = Entry::new(0, String::new()).boot_id;
    let ours = serde_json::from_str::<Mounted>(&text).ok().filter(|m| m.boot_id == this_boot);
    let Some(ours) = ours else {
        journal.remove_note(NOTE);
        return Ok(false);
    };
    let path = Path::new(&ours.path);
    if is_out_of_sight(path) {
        return Ok(false);
    }
    let mut undone = false;
    if is_mounted(path) {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        if entries
            .map(|entry| entry.file_name())
            .any(|name| !KERNELS_OWN.iter().any(|own| name == *own))
        {
            return Ok(false);
        }
        umount(path).map_err(|errno| Error::BpfFs {
            path: path.to_owned(),
            what: "bpffs cannot be unmounted",
            error: io::Error::from(errno),
        })?;
        undone = true;
    }
    journal.remove_note(NOTE);
    Ok(undone)
}

/// Returns whether this process's mount namespace is another than that of the first process, which
/// is not visible everywhere, or of an ancestor: such a namespace ends with the last process in it.
fn in_a_mount_namespace_of_its_own() -> bool {
    let of = |process: u32| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let own = of(std::process::id());
    let others = std::iter::once(1).chain(ancestors());
    own.is_some() && others.filter_map(of).any(|other| Some(other) != own)
}

/// Returns the ancestors of this process, as far as they exist and can be seen.
fn ancestors() -> impl Iterator<Item = u32> {
    let parent = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().filter(|parent| *parent > 0)
    };
    std::iter::successors(parent(&std::process::id()), parent)
}
