//! Bytes that enter a socket from a file or a pipe.

use core::time::Duration;

use libc::{c_int, c_uint, off_t, off64_t, size_t, ssize_t};
use uncork_posix::Call;

use crate::jump::descriptor_shim;
use crate::stacked::{self, on_stack};
use crate::{POSIX, linux, real};

descriptor_shim!(sendfile => sendfile_hook, when tcp);
descriptor_shim!(sendfile64 => sendfile64_hook, when tcp);

/// Bytes that a call moves from one descriptor to another.
#[derive(Clone, Copy)]
struct Moved {
    to: c_int,
    from: c_int,
    bytes: size_t,
    /// The program holds the end back by itself.
    more: bool,
    by: Call,
}

/// What is held goes along with what `call` sends.
fn filling(moved: Moved, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let Moved { to, from, bytes, more, by } = moved;
    let is_empty = || linux::poll_one(from, libc::POLLIN, Some(Duration::ZERO)) == Ok(false);
    let filling = match POSIX.filling(to, from, bytes, by, is_empty) {
        Ok(filling) => filling,
        Err(error) => return linux::fail_send(error, 0),
    };
    let sent = call();
    if let Some(filling) = filling {
        POSIX.filled(&filling, sent > 0, more);
    }
    sent
}

/// As for sendfile(2).
fn sending_file(to: c_int, from: c_int, bytes: size_t, call: impl FnOnce() -> ssize_t) -> ssize_t {
    filling(Moved { to, from, bytes, more: false, by: Call::Sendfile }, call)
}

pub(crate) unsafe extern "C-unwind" fn sendfile_hook(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    bytes: size_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe {
        on_stack!(at_once to => stacked::send_file(to, from, offset, bytes));
    }
    // SAFETY: the program's own call.
    sending_file(to, from, bytes, || unsafe { real::sendfile()(to, from, offset, bytes) })
}

pub(crate) unsafe extern "C-unwind" fn sendfile64_hook(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    bytes: size_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe {
        on_stack!(at_once to => stacked::send_file(to, from, offset, bytes));
    }
    // SAFETY: the program's own call.
    sending_file(to, from, bytes, || unsafe { real::sendfile64()(to, from, offset, bytes) })
}

const SPLICED: &str = "it is spliced, which only the kernel can do";

/// splice(2), into a socket or out of it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    bytes: size_t,
    flags: c_uint,
) -> ssize_t {
    stacked::hand_over_if_ours(from, SPLICED);
    stacked::hand_over_if_ours(to, SPLICED);
    // SAFETY: the program's own call.
    let call = || unsafe { real::splice()(from, from_offset, to, to_offset, bytes, flags) };
    if POSIX.find(to).is_none() {
        POSIX.before_read(from, Call::Splice);
        return call();
    }
    let more = flags & libc::SPLICE_F_MORE != 0;
    filling(Moved { to, from, bytes, more, by: Call::Splice }, call)
}
