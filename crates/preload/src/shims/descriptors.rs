//! Descriptors that are closed or duplicated.

use libc::{c_int, c_uint};
use uncork_posix::{Call, Errno};

use crate::jump::descriptor_shim;
use crate::raw::{self, raw};
use crate::{POSIX, real, stacked};

descriptor_shim!(close => close_hook, when known);

pub(crate) unsafe extern "C-unwind" fn close_hook(fd: c_int) -> c_int {
    if stacked::is_not_ours(fd) {
        return 0;
    }
    if !stacked::may_close(fd) {
        // The error that the kernel gives for a free number.
        return raw::fail(Errno(libc::EBADF)) as c_int;
    }
    stacked::closing(fd);
    POSIX.closing(fd, Call::Close);
    // SAFETY: the program's own call.
    unsafe { real::close()(fd) }
}

/// close_range(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    if !only_marks && first <= last {
        stacked::closing_range(first, last);
        POSIX.closing_range(first, last, Call::CloseRange);
        return close_all_but_ours(first, last, flags);
    }
    // SAFETY: the program's own call.
    unsafe { real::close_range()(first, last, flags) }
}

/// Makes a close_range(2) that skips the library's own descriptors.
fn close_all_but_ours(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut from = first;
    for kept in stacked::own_descriptors(first, last) {
        // SAFETY: the program's own call, in pieces.
        if kept > from && unsafe { real::close_range()(from, kept - 1, flags) } != 0 {
            return -1;
        }
        from = kept + 1;
    }
    // SAFETY: the program's own call, its last piece.
    if from > last { 0 } else { unsafe { real::close_range()(from, last, flags) } }
}

/// closefrom(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn closefrom(first: c_int) {
    stacked::closing_range(first.max(0) as c_uint, c_uint::MAX);
    POSIX.closing_range(first.max(0) as c_uint, c_uint::MAX, Call::Closefrom);
    if stacked::own_descriptors(first.max(0).unsigned_abs(), c_uint::MAX).is_empty() {
        // SAFETY: the program's own call.
        unsafe { real::closefrom()(first) }
    } else {
        close_all_but_ours(first.max(0).unsigned_abs(), c_uint::MAX, 0);
    }
}

/// dup(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    // SAFETY: the program's own call.
    duplicating(old, || unsafe { real::dup()(old) })
}

/// Runs `call`, which makes a duplicate of `old`.
pub(super) fn duplicating(old: c_int, call: impl FnOnce() -> c_int) -> c_int {
    stacked::duplicating(old);
    POSIX.sharing(old, Call::Dup);
    let new = call();
    if new >= 0 {
        duplicated(old, new);
    }
    new
}

fn duplicated(old: c_int, new: c_int) {
    if stacked::has(old) && stacked::is_on() {
        stacked::duplicated(old, new);
        if new <= libc::STDERR_FILENO {
            // stdio has streams on these without being asked.
            stacked::hand_over_if_ours(new, "it is standard input, output or error (dup)");
        }
    } else {
        POSIX.duplicated(old, new);
        stacked::places::is_like(new, old);
        stacked::duplicates::is_like(new, old);
    }
}

/// Runs `call`, which replaces `new` by a duplicate of `old`, if `old` is open.
fn replacing(old: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: no pointers.
    let open = unsafe { raw!(SYS_fcntl, old, libc::F_GETFD) }.is_ok();
    if open && old != new {
        if stacked::is_own(new) {
            // The error that the kernel gives for a number that it does not allow.
            return raw::fail(Errno(libc::EBADF)) as c_int;
        }
        stacked::duplicating(old);
        POSIX.sharing(old, Call::Dup2);
        stacked::closing(new);
        POSIX.closing(new, Call::Dup2);
    }
    let result = call();
    if result >= 0 && old != new {
        duplicated(old, new);
    }
    result
}

/// dup2(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the program's own call.
    replacing(old, new, || unsafe { real::dup2()(old, new) })
}

/// dup3(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    replacing(old, new, || unsafe { real::dup3()(old, new, flags) })
}

fn controlling(fd: c_int, command: c_int, argument: usize, call: impl FnOnce() -> c_int) -> c_int {
    stacked::claim_if_parents(fd);
    if stacked::has(fd)
        && stacked::is_on()
        && let Some(result) = stacked::unless_over(stacked::control(fd, command, argument))
    {
        return result;
    }
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        return duplicating(fd, call);
    }
    if command == libc::F_SETFD && argument & libc::FD_CLOEXEC as usize == 0 {
        POSIX.kept_by_child(fd);
    }
    call()
}

/// fcntl(2). Variadic in C; on x86-64 its third argument is where a fixed one would be.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own call.
    controlling(fd, command, argument, || unsafe { real::fcntl()(fd, command, argument) })
}

/// fcntl(2) of programs with 64-bit offsets.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl64(
    fd: c_int,
    command: c_int,
    argument: usize,
) -> c_int {
    // SAFETY: the program's own call.
    controlling(fd, command, argument, || unsafe { real::fcntl64()(fd, command, argument) })
}
