//! Connections that become the kernel's.

use core::time::Duration;

use libc::c_int;
use nix::errno::Errno;
use uncork_posix::kernel::state;
use uncork_sockets::{HandedOver, Setting, Watched};

use super::calls::is_unconnected;
use super::heritage::gives_duplicate;
use super::{SOCKETS, calls, chosen, disarmed, is_on, places, state_of};
use crate::POSIX;
use crate::raw::raw;

/// How long a child waits for its parent to let a connection go, at most, and how often it looks. One that has begun to is
/// waited for as long as it may wait itself, and a little longer.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_BEGUN: Duration = PATIENCE.saturating_mul(2 * uncork_guardian::INSISTENCE + 1);
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

/// Makes the connection of a descriptor the kernel's, and says why.
pub(super) fn hand_over(fd: c_int, why: &str) -> Result<(), Errno> {
    SOCKETS.hand_over(fd, why)
}

/// Does for children what they have asked for.
pub(super) fn answer_children() {
    SOCKETS.answer_children();
}

/// Sets options of a socket of the kernel's, as the program has set them.
pub(super) fn set_all(fd: c_int, settings: &[Setting]) {
    for (level, name, value) in settings {
        // SAFETY: a value of the length given.
        let _ = unsafe { raw!(SYS_setsockopt, fd, *level, *name, value.as_ptr(), value.len()) };
    }
}

/// The kernel's socket is what the program has made of the stack's; from now on its calls go there.
pub(super) fn settle(handed: &HandedOver) {
    let HandedOver { fds, non_blocking, options, watches, why } = handed;
    let Some(&fd) = fds.first() else { return };
    // A number that was closed, while duplicates live, may be somebody else's by now.
    let watches = || watches.iter().filter(|watched| fds.contains(&watched.fd));
    set_all(fd, options);
    // SAFETY: a flag.
    unsafe {
        let flags = if *non_blocking { libc::O_NONBLOCK } else { 0 };
        let _ = raw!(SYS_fcntl, fd, libc::F_SETFL, flags);
    }
    for watched in watches() {
        let Watched { set, fd, event } = watched;
        // The kernel's own are deaf then, to errors as well.
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
                places::kernels(fd, why);
            }
            // It was nobody else's when it was connected.
            None => {
                POSIX.returned(fd);
                chosen::returned(fd, options);
                places::is_new(fd);
            }
        }
    }
    for Watched { set, fd, .. } in watches() {
        // One that is connected again takes its membership along.
        POSIX.watched(*set, *fd);
    }
}

/// Makes a connection the kernel's, if the descriptor is one of the stack's, before something that only the
/// kernel can do.
pub(crate) fn hand_over_if_ours(fd: c_int, why: &str) {
    if super::has(fd) && is_on() && !SOCKETS.is_listener(fd) {
        let _ = hand_over(fd, why);
    }
    claim_if_parents(fd);
}

/// A descriptor is about to be duplicated. In a child that is how another program gets a connection (inetd's way), and the
/// duplicate would stand for nothing: so the connection becomes the kernel's.
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

/// In a child of vfork: has its parent, where all is known and nothing was closed, make connections the kernel's. One that
/// it does not is its alone, as before.
pub(super) fn give_by_keeper(fds: &[c_int]) {
    const WHY: &str = "a program that was started has it, too (vfork)";
    let asked: Vec<_> =
        fds.iter().copied().filter(|fd| SOCKETS.ask_keeper(*fd, WHY).is_ok()).collect();
    let begin = crate::linux::now();
    while asked.iter().any(|fd| SOCKETS.is_asked_for(*fd)) {
        if crate::linux::now().since(begin) >= PATIENCE {
            asked.iter().for_each(|fd| SOCKETS.ask_no_more(*fd));
            return;
        }
        pause();
    }
}

/// Has the parent make a connection that this process inherited the kernel's.
#[inline]
pub(crate) fn claim_if_parents(fd: c_int) {
    if state_of(fd) == Some(state::STACK_OF_PARENT) && is_on() {
        claim(fd);
    }
}

#[cold]
fn claim(fd: c_int) {
    let asked = SOCKETS.claim(fd);
    let begin = crate::linux::now();
    while asked.is_ok() {
        let patience = match stage_of(fd) {
            Stage::NotBegun => PATIENCE,
            Stage::Begun => PATIENCE_BEGUN,
            Stage::Live => break,
        };
        if crate::linux::now().since(begin) >= patience {
            break;
        }
        pause();
    }
    SOCKETS.forget(fd);
    calls::forget(fd);
    POSIX.inherited(fd);
    places::kernels(fd, "it was on the stack of the process that this one was forked from");
}

/// Lets another thread or process get on.
fn pause() {
    let pause = crate::linux::timespec(BETWEEN_LOOKS);
    // SAFETY: a time that lives as long as the call.
    let _ = unsafe { raw!(SYS_nanosleep, &raw const pause, 0) };
}

/// How far a socket of the kernel's is on its way to a connection of the stack's.
enum Stage {
    NotBegun,
    Begun,
    /// It has it, and all that was written to it before.
    Live,
}

fn stage_of(fd: c_int) -> Stage {
    let mut name = [0_u8; size_of::<libc::sockaddr_storage>()];
    let mut len = name.len() as libc::socklen_t;
    /// linux/tcp.h
    const TCP_REPAIR: c_int = 19;
    // Asked first: what has ends and is finished then has begun to be filled before.
    // SAFETY: the kernel writes at most the length given.
    let is_connected = unsafe { raw!(SYS_getpeername, fd, name.as_mut_ptr(), &raw mut len) }
        .is_ok()
        || was_reset(fd);
    let is_finished = is_off(fd, libc::SOL_TCP, TCP_REPAIR)
        && is_off(fd, libc::SOL_SOCKET, uncork_handover::UNFINISHED);
    match (is_finished, is_connected) {
        (false, _) => Stage::Begun,
        (true, false) => Stage::NotBegun,
        (true, true) => Stage::Live,
    }
}

/// Whether it had a connection, which is over: the kernel names no peer then.
fn was_reset(fd: c_int) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure and a time that live as long as the call, and no mask.
    let told = unsafe { raw!(SYS_ppoll, &raw mut one, 1, &raw const at_once, 0, 8) };
    told.is_ok() && one.revents & libc::POLLRDHUP != 0
}

fn is_off(fd: c_int, level: c_int, option: c_int) -> bool {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the length given.
    let told =
        unsafe { raw!(SYS_getsockopt, fd, level, option, &raw mut value, &raw mut len) }.is_ok();
    told && value == 0
}
