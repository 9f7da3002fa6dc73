//! Programs that the kernel starts with more privileges than the caller has: the loader then runs
//! in secure mode (ld.so(8)) and ignores LD_PRELOAD.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getgid, getuid};
use rustix::io::Errno;

/// What a program gains when it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gained {
    /// The user id of its owner.
    User(u32),
    /// The group id of the file.
    Group(u32),
    /// File capabilities.
    Capabilities,
}

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// Without group execution the bit means mandatory locking, not set-group-ID.
const GROUP_EXECUTE: u32 = 0o010;

/// Returns what starting `file` would add to the *real* ids of this process; `None` if the loader
/// will not be in secure mode for it (security/commoncap.c).
pub(super) fn gained(file: &Path, metadata: &Metadata) -> Option<Gained> {
    let gained = ids(metadata).or_else(|| capabilities(file))?;
    // Both take the privileges away, and with them the reason for secure mode.
    let no_new_privileges = prctl::get_no_new_privs().unwrap_or(false);
    let no_setuid_mount =
        statvfs(file).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NOSUID));
    let ignored = match gained {
        Gained::Capabilities => no_setuid_mount,
        _ => no_setuid_mount || no_new_privileges,
    };
    (!ignored).then_some(gained)
}

fn ids(metadata: &Metadata) -> Option<Gained> {
    let mode = metadata.mode();
    if mode & SET_USER_ID != 0 && metadata.uid() != getuid().as_raw() {
        return Some(Gained::User(metadata.uid()));
    }
    let set_group_id = mode & SET_GROUP_ID != 0 && mode & GROUP_EXECUTE != 0;
    (set_group_id && metadata.gid() != getgid().as_raw()).then_some(Gained::Group(metadata.gid()))
}

fn capabilities(file: &Path) -> Option<Gained> {
    // root gains nothing by file capabilities.
    if getuid().is_root() {
        return None;
    }
    let mut value = [0_u8; 64];
    match rustix::fs::getxattr(file, "security.capability", &mut value) {
        Ok(_) | Err(Errno::RANGE) => Some(Gained::Capabilities),
        // No attribute, or a file system without attributes.
        Err(_) => None,
    }
}

/// Returns the name of a user, or its number.
pub(super) fn user_name(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(uid.into());
    found.ok().flatten().map_or_else(|| format!("#{uid}"), |user| user.name)
}

/// Returns the name of a group, or its number.
pub(super) fn group_name(gid: u32) -> String {
    let found = nix::unistd::Group::from_gid(gid.into());
    found.ok().flatten().map_or_else(|| format!("#{gid}"), |group| group.name)
}
