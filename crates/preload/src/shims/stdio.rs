//! stdio on a socket: its reads and writes happen inside libc, where no shim sees them.

use libc::{FILE, c_char, c_int, c_void};
use uncork_posix::Call;

use crate::{POSIX, real, stacked};

/// fdopen(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    stacked::hand_over_if_ours(fd, stacked::STDIO);
    POSIX.uses_stdio(fd);
    // SAFETY: the program's own call.
    unsafe { real::fdopen()(fd, mode) }
}

/// Notes that the descriptor of a stream is about to be closed.
///
/// # Safety
/// `stream` is null or an open stream.
unsafe fn closing(stream: *mut c_void) {
    if !stream.is_null() {
        // SAFETY: as promised; fileno may set errno for a stream without a descriptor, which
        // closing it may do as well.
        let fd = unsafe { libc::fileno(stream.cast::<FILE>()) };
        if POSIX.find(fd).is_some() {
            // What stdio has buffered is sent before the socket is forgotten.
            // SAFETY: as promised.
            unsafe { libc::fflush(stream.cast::<FILE>()) };
            POSIX.closing(fd, Call::Fclose);
        }
    }
}

/// fclose(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fclose(stream: *mut c_void) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        closing(stream);
        real::fclose()(stream)
    }
}

/// freopen(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the program's own call.
    unsafe {
        closing(stream);
        real::freopen()(path, mode, stream)
    }
}

/// freopen(3) of programs with 64-bit offsets.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the program's own call.
    unsafe {
        closing(stream);
        real::freopen64()(path, mode, stream)
    }
}
