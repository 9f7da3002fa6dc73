//! Members of epoll sets that have reported (EPOLLONESHOT), and whose connection became the kernel's while disarmed.
//!
//! The kernel arms what is added, for errors at least (`do_epoll_ctl`): a second thread could be told of a connection that the
//! first one is still working on. So these are added only when the program arms them.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};

use libc::{c_int, epoll_event};

use super::outside::inode;
use crate::real;

/// Number of such members; further ones are added at once.
const MOST: usize = 256;
const FREE: u64 = 0;
/// The place is taken, and its key is about to be written.
const TAKEN: u64 = u64::MAX;

struct Disarmed {
    /// Set and descriptor; [`FREE`] if none.
    key: AtomicU64,
    /// Inode of the socket: the number may be another socket's by the time of the lookup.
    inode: AtomicU64,
}

static ALL: [Disarmed; MOST] =
    [const { Disarmed { key: AtomicU64::new(FREE), inode: AtomicU64::new(0) } }; MOST];

/// Number of places that are taken.
static NOTED: AtomicUsize = AtomicUsize::new(0);

fn key(set: c_int, fd: c_int) -> u64 {
    (u64::from(set.cast_unsigned()) << 32) | (u64::from(fd.cast_unsigned()) + 1)
}

fn set_of(key: u64) -> c_int {
    ((key >> 32) as u32).cast_signed()
}

fn fd_of(key: u64) -> c_int {
    (key as u32).wrapping_sub(1).cast_signed()
}

/// Notes a descriptor that is no longer a member, to be added when it is armed; returns whether there was room.
pub(super) fn note(set: c_int, fd: c_int) -> bool {
    let Some(inode) = inode(fd) else { return false };
    let taken =
        ALL.iter().find(|one| one.key.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok());
    if let Some(one) = taken {
        NOTED.fetch_add(1, Relaxed);
        one.inode.store(inode, Relaxed);
        one.key.store(key(set, fd), Release);
    }
    taken.is_some()
}

/// Forgets what is noted of a descriptor, be it a set or a member of one: it is about to be closed.
pub(super) fn closing(fd: c_int) {
    if NOTED.load(Relaxed) == 0 {
        return;
    }
    for one in &ALL {
        let key = one.key.load(Acquire);
        if !matches!(key, FREE | TAKEN) && (set_of(key) == fd || fd_of(key) == fd) {
            forget(one, key);
        }
    }
}

fn forget(one: &Disarmed, key: u64) -> bool {
    let is_forgotten = one.key.compare_exchange(key, FREE, Relaxed, Relaxed).is_ok();
    if is_forgotten {
        NOTED.fetch_sub(1, Relaxed);
    }
    is_forgotten
}

/// Repeats a call that the kernel has answered with ENOENT, if the member is one of these. None if it is not.
///
/// # Safety
/// As for epoll_ctl(2).
pub(crate) unsafe fn control(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> Option<c_int> {
    let key = key(super::duplicates::number_of(set), fd);
    let inode = inode(fd)?;
    // The number may have been closed past the library, and be another socket's by now.
    let is_it = |one: &&Disarmed| one.inode.load(Relaxed) == inode;
    let mut noted = ALL.iter().filter(|one| one.key.load(Acquire) == key);
    let one = noted.find(is_it)?;
    match operation {
        _ if !forget(one, key) => None,
        libc::EPOLL_CTL_MOD => {
            // SAFETY: as promised.
            Some(unsafe { real::epoll_ctl()(set, libc::EPOLL_CTL_ADD, fd, event) })
        }
        libc::EPOLL_CTL_DEL => Some(0),
        _ => None,
    }
}
