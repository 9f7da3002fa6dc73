//! Bytes that enter a socket from a file or a pipe, or that others write at the program's request.

use core::time::Duration;

use libc::{c_int, c_uint, off_t, off64_t, size_t, ssize_t};
use uncork_posix::Call;

use crate::jump::{descriptor_shim, passing_shim};
use crate::stacked::{self, on_stack};
use crate::{POSIX, linux, real};

descriptor_shim!(sendfile => sendfile_hook, when tcp);
descriptor_shim!(sendfile64 => sendfile64_hook, when tcp);

/// What a call moves from one descriptor to another.
#[derive(Clone, Copy)]
struct Moved {
    to: c_int,
    from: c_int,
    bytes: size_t,
    /// The program holds the end back itself.
    more: bool,
    by: Call,
}

/// Runs `call`, so that what is held goes along with what it sends.
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

/// As [`filling`], for sendfile(2).
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

/// An operation as the kernel is told of it (struct iocb of linux/aio_abi.h).
#[repr(C)]
struct Operation {
    _data: u64,
    _key: u32,
    _flags: u32,
    kind: u16,
    _priority: i16,
    fd: u32,
}

/// IOCB_CMD_PWRITE and IOCB_CMD_PWRITEV.
const WRITES: [u16; 2] = [1, 8];

/// Prepares for aio_write(3): libc writes in a thread of its own, where no shim sees it.
pub(crate) fn before_aio_write([operation, ..]: [usize; 6]) {
    let operation = operation as *const libc::aiocb;
    // SAFETY: the program's own call, which reads it, too.
    if let Some(operation) = unsafe { operation.as_ref() } {
        POSIX.given(operation.aio_fildes, Call::Aio);
    }
}

/// Prepares for lio_listio(3).
pub(crate) fn before_aio_list([_, list, number, ..]: [usize; 6]) {
    for operation in pointers(list, number) {
        let operation = operation as *const libc::aiocb;
        // SAFETY: the program's own call, which reads it, too; some may be null.
        if let Some(operation) = unsafe { operation.as_ref() }
            && operation.aio_lio_opcode == libc::LIO_WRITE
        {
            POSIX.given(operation.aio_fildes, Call::Aio);
        }
    }
}

/// Prepares for io_submit(2), which libaio calls by its number without a libc function.
pub(crate) fn before_io_submit([_, number, list, ..]: [usize; 6]) {
    for operation in pointers(list, number) {
        let operation = operation as *const Operation;
        // SAFETY: the program's own call, which reads it, too.
        if let Some(operation) = unsafe { operation.as_ref() }
            && WRITES.contains(&operation.kind)
        {
            POSIX.given(operation.fd as c_int, Call::Aio);
        }
    }
}

/// Iterates over a list of `number` pointers that a program has given.
fn pointers(list: usize, number: usize) -> impl Iterator<Item = usize> {
    let number = if list == 0 { 0 } else { usize::try_from(number as c_int).unwrap_or(0) };
    // SAFETY: the program says that there are so many, and the call reads them, too.
    (0..number).map(move |at| unsafe { (list as *const usize).add(at).read_unaligned() })
}

passing_shim! {
    aio_write => before_aio_write;
    aio_write64 => before_aio_write;
    lio_listio => before_aio_list;
    lio_listio64 => before_aio_list;
    io_submit => before_io_submit;
}
