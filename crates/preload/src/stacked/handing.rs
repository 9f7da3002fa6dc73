//! Connections that become the kernel's.

use core::time::Duration;

use libc::c_int;
use nix::errno::Errno;
use uncork_posix::kernel::state;
use uncork_sockets::{HandedOver, Setting, Watched};

use super::calls::is_unconnected;
use super::heritage::gives_duplicate;
use super::{SOCKETS, behind, calls, chosen, disarmed, is_on, places, state_of};
use crate::POSIX;
use crate::raw::raw;

/// How long a child waits for its parent to give up a connection, at most, and how often it looks. If the parent has begun
/// to, the child waits for as long as the parent may wait itself, and a little longer.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_BEGUN: Duration = PATIENCE.saturating_mul(uncork_guardian::INSISTENCE + 1);
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

/// Makes the connection of a descriptor the kernel's, and records why.
pub(super) fn hand_over(fd: c_int, why: &str) -> Result<(), Errno> {
    SOCKETS.hand_over(fd, why)
}

/// Does for children what they have asked for.
pub(super) fn answer_children() {
    SOCKETS.answer_children();
}

/// Sets options on a kernel socket, as the program has set them.
pub(super) fn set_all(fd: c_int, settings: &[Setting]) {
    for (level, name, value) in settings {
        // SAFETY: a value of the length given.
        let _ = unsafe { raw!(SYS_setsockopt, fd, *level, *name, value.as_ptr(), value.len()) };
    }
}

/// Completes a hand-over: the kernel's socket gets the state of the stack's, and from now on the program's calls go there.
pub(super) fn settle(handed: &HandedOver) {
    let HandedOver { fds, non_blocking, options, watches, why, cookie } = handed;
    let Some(&fd) = fds.first() else { return };
    // A number that was closed, while duplicates live, may belong to something else by now.
    let watches = || watches.iter().filter(|watched| fds.contains(&watched.fd));
    set_all(fd, options);
    // SAFETY: a flag.
    unsafe {
        let flags = if *non_blocking { libc::O_NONBLOCK } else { 0 };
        let _ = raw!(SYS_fcntl, fd, libc::F_SETFL, flags);
    }
    for watched in watches() {
        let Watched { set, fd, event } = watched;
        // A disarmed member reports nothing, not even errors; one that is added would.
        if watched.is_disarmed() && disarmed::note(*set, *fd) {
            continue;
        }
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: an event that lives as long as the call.
        let _ = unsafe { raw!(SYS_epoll_ctl, *set, add, *fd, &raw const *event) };
    }
    for &fd in fds {
        calls::forget(fd);
        match why {
            Some(why) => {
                POSIX.inherited(fd);
                behind::keep_cookie(fd, *cookie);
                places::kernels(fd, why);
            }
            // No other process had it when it was connected.
            None => {
                POSIX.returned(fd);
                chosen::returned(fd, options);
                places::is_new(fd);
            }
        }
    }
    for Watched { set, fd, .. } in watches() {
        // A socket that is connected again takes its membership along.
        POSIX.watched(*set, *fd);
    }
}

/// Makes a connection the kernel's, if the descriptor is on the stack, before something that only the kernel can do.
pub(crate) fn hand_over_if_ours(fd: c_int, why: &str) {
    if super::has(fd) && is_on() && !SOCKETS.is_listener(fd) {
        let _ = hand_over(fd, why);
    }
    claim_if_parents(fd);
}

/// Prepares for the duplication of a descriptor. In a child that is how another program gets a connection (as from inetd),
/// and the duplicate would stand for nothing: so the connection becomes the kernel's.
pub(crate) fn duplicating(fd: c_int) {
    match state_of(fd) {
        Some(state::STACK_OF_PARENT) if super::is_vfork_child() || is_on() => claim(fd),
        Some(state::STACK) if super::is_vfork_child() && is_unconnected(fd) => {
            give_by_keeper(&[fd]);
        }
        Some(state::STACK) if super::is_vfork_child() => gives_duplicate(fd),
        _ => {}
    }
}

/// Asks the parent of a vfork child, where all is known and nothing was closed, to make connections the kernel's. One that
/// it does not hand over stays its own, as before.
pub(super) fn give_by_keeper(fds: &[c_int]) {
    const WHY: &str = "a program that was started has it, too (vfork)";
    let asked: Vec<_> =
        fds.iter().copied().filter(|fd| SOCKETS.ask_keeper(*fd, WHY).is_ok()).collect();
    let begin = crate::linux::now();
    while asked.iter().any(|fd| SOCKETS.is_asked_for(*fd)) {
        if crate::linux::now().since(begin) >= PATIENCE {
            asked.iter().for_each(|fd| SOCKETS.ask_no_more(*fd));
            break;
        }
        pause();
    }
    for fd in asked {
        // The keeper has put it behind the parent's descriptor only, of which this one is a copy.
        if let Some(mailbox) = SOCKETS.vfork_mailbox(fd) {
            behind::take_own(fd, mailbox);
        }
    }
}

/// Asks the parent to make a connection that this process inherited the kernel's.
#[inline]
pub(crate) fn claim_if_parents(fd: c_int) {
    if state_of(fd) == Some(state::STACK_OF_PARENT) && is_on() {
        claim(fd);
    }
}

#[cold]
fn claim(fd: c_int) {
    let (mailbox, cookie) = (SOCKETS.mailbox(fd), behind::cookie_of(fd));
    let take = || mailbox.and_then(|mailbox| behind::take_left(fd, mailbox)).is_some();
    let asked = SOCKETS.claim(fd);
    let begin = crate::linux::now();
    // A parent that can no longer be asked may have left it before.
    while !take() && asked.is_ok() {
        let patience = if behind::has_begun(fd) { PATIENCE_BEGUN } else { PATIENCE };
        if crate::linux::now().since(begin) >= patience {
            break;
        }
        pause();
    }
    SOCKETS.forget(fd);
    calls::forget(fd);
    POSIX.inherited(fd);
    behind::keep_cookie(fd, cookie);
    places::kernels(fd, "it was on the stack of the process that this one was forked from");
}

/// Lets another thread or process run.
fn pause() {
    let pause = crate::linux::timespec(BETWEEN_LOOKS);
    // SAFETY: a time that lives as long as the call.
    let _ = unsafe { raw!(SYS_nanosleep, &raw const pause, 0) };
}
