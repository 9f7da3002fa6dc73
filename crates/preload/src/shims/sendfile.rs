//! Bytes that enter a socket from a file or a pipe.

use libc::{c_int, c_uint, off_t, off64_t, size_t, ssize_t};
use uncork_posix::Call;

use crate::jump::descriptor_shim;
use crate::stacked::{self, on_stack};
use crate::{POSIX, linux, real};

descriptor_shim!(sendfile => sendfile_hook, when tcp);
descriptor_shim!(sendfile64 => sendfile64_hook, when tcp);

/// What is held goes along with what `call` sends.
fn filling(fd: c_int, bytes: usize, by: Call, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let at = match POSIX.filling(fd, bytes, by) {
        Ok(at) => at,
        Err(error) => return linux::fail_send(error, 0),
    };
    let sent = call();
    if let Some(at) = at
        && sent > 0
    {
        POSIX.after_send(at, false, true);
    }
    sent
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
    filling(to, bytes, Call::Sendfile, || unsafe { real::sendfile()(to, from, offset, bytes) })
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
    filling(to, bytes, Call::Sendfile, || unsafe { real::sendfile64()(to, from, offset, bytes) })
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
    if flags & libc::SPLICE_F_MORE != 0 {
        // The program holds the end back by itself.
        return match POSIX.filling(to, bytes, Call::Splice) {
            Ok(_) => call(),
            Err(error) => linux::fail_send(error, 0),
        };
    }
    filling(to, bytes, Call::Splice, call)
}
