//! Several descriptors, or processes, that have shared a socket since before the stack knew of it.
//!
//! The descriptors of this process come along when it is connected or listens. Another process would not see the stack's
//! connection: what it may have, too, is connected by the kernel.

use core::sync::atomic::Ordering::Relaxed;

use libc::c_int;
use uncork_posix::Call;
use uncork_posix::kernel::state;
use uncork_posix::socket::flag;

use super::{SOCKETS, many, mark, outside, places};
use crate::{POSIX, table};

/// Reason why the kernel connects a socket that another process may have.
pub(super) const ELSEWHERE: &str =
    "another process may have had it before it was connected (fork, exec, or over a Unix socket)";

/// Reason why the kernel has a socket that stdio reads and writes inside libc.
pub(crate) const STDIO: &str = "it is read and written by stdio (fdopen)";

/// Returns whether another process may have a socket that is not connected.
pub(super) fn is_elsewhere(fd: c_int) -> bool {
    POSIX.find(fd).is_some_and(|at| at.socket.is(flag::ELSEWHERE))
}

/// Returns whether one of these is standard input, output or error, on which stdio has a stream without being asked.
pub(super) fn are_standard(fds: &[c_int]) -> bool {
    fds.iter().any(|fd| *fd <= libc::STDERR_FILENO)
}

/// Returns whether a stdio stream is open on a socket: by its descriptor, or by one of these others of it, as for
/// `fdopen(dup(fd), "w")`.
pub(super) fn has_stream(fd: c_int, others: &[c_int]) -> bool {
    let is_one = |fd: &c_int| POSIX.find(*fd).is_some_and(|at| at.socket.is(flag::STDIO));
    [fd].iter().chain(others).any(is_one)
}

/// Returns the other descriptors of this one's kernel socket. Only those are looked at that were duplicated, or are
/// duplicates: hardly ever any.
pub(super) fn others(fd: c_int) -> Vec<c_int> {
    let is_copied = |fd: c_int| POSIX.find(fd).is_some_and(|at| at.socket.is(flag::SHARED));
    if !is_copied(fd) {
        return Vec::new();
    }
    let Some(socket) = outside::inode(fd) else { return Vec::new() };
    let known = 0..=table::HIGHEST.load(Relaxed);
    let others = known.filter(|&other| other != fd && is_copied(other));
    others.filter(|&other| outside::inode(other) == Some(socket)).collect()
}

/// Moves descriptors to the stack after the first one, `fd`, whose kernel socket they share. Memberships in epoll sets
/// from before come along.
pub(super) fn go_over(fd: c_int, others: &[c_int], call: Call) {
    for &other in others {
        let _ = SOCKETS.duplicated(fd, other);
        places::is_like(other, fd);
    }
    for &fd in [fd].iter().chain(others) {
        let sets = many::sets_of(fd);
        POSIX.closing(fd, call);
        mark(fd, state::STACK);
        for set in sets {
            many::move_to_stack(set, fd);
        }
    }
}
