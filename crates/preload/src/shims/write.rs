//! Writing: write, send and the like.

use core::slice;
use std::io::IoSlice;

use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t,
};
use uncork_posix::{Call, Gather, Plan, Socketed, WriteFlags};

use crate::jump::descriptor_shim;
use crate::stacked::{self, on_stack};
use crate::{POSIX, linux, real};

descriptor_shim!(write => write_hook, when tcp);
descriptor_shim!(writev => writev_hook, when tcp);
descriptor_shim!(pwritev2 => pwritev2_hook, when tcp);
descriptor_shim!(send => send_hook, when tcp);
descriptor_shim!(sendto => sendto_hook, when tcp);

/// More vectors than this are passed through (UIO_MAXIOV; the kernel refuses more).
const MOST_VECTORS: usize = 1024;

pub(crate) unsafe extern "C-unwind" fn write_hook(
    fd: c_int,
    data: *const c_void,
    len: size_t,
) -> ssize_t {
    let Some(at) = POSIX.find(fd) else {
        // SAFETY: the program's own call.
        unsafe {
            on_stack!(fd => stacked::send(fd, data, len, 0));
            return real::write()(fd, data, len);
        }
    };
    // SAFETY: the program's own call, in one of the forms that are equivalent on a socket.
    unsafe { one_buffer::<false>(at, data, len, 0, || real::write()(fd, data, len)) }
}

pub(crate) unsafe extern "C-unwind" fn send_hook(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let Some(at) = POSIX.find(fd) else {
        // SAFETY: the program's own call.
        unsafe {
            stacked::needs_kernel(fd, flags);
            on_stack!(fd => stacked::send(fd, data, len, flags));
            return real::send()(fd, data, len, flags);
        }
    };
    // SAFETY: as above.
    unsafe { one_buffer::<true>(at, data, len, flags, || real::send()(fd, data, len, flags)) }
}

pub(crate) unsafe extern "C-unwind" fn sendto_hook(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: the program's own call. TCP ignores the address unless MSG_FASTOPEN is set, and that flag is passed
    // through where the stack does not handle it.
    unsafe {
        stacked::needs_kernel(fd, flags);
        let flags = match stacked::open_fast(fd, flags, to, to_len) {
            None => flags,
            Some(Ok(())) => flags & !libc::MSG_FASTOPEN,
            Some(Err(error)) => return failed(error, flags),
        };
        on_stack!(fd => stacked::send(fd, data, len, flags));
        let pass = || real::sendto()(fd, data, len, flags, to, to_len);
        match POSIX.find(fd) {
            Some(at) => one_buffer::<true>(at, data, len, flags, pass),
            None => pass(),
        }
    }
}

/// Fails a send whose connection could not be opened with the data.
#[cold]
fn failed(error: nix::errno::Errno, flags: c_int) -> ssize_t {
    linux::fail_send(uncork_posix::Errno(error as i32), flags)
}

pub(crate) unsafe extern "C-unwind" fn writev_hook(
    fd: c_int,
    vectors: *const iovec,
    number: c_int,
) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe {
        on_stack!(fd => stacked::write_vectors(fd, vectors, number as usize));
        let pass = || real::writev()(fd, vectors, number);
        match POSIX.find(fd) {
            Some(at) => many_buffers(at, vectors, number as usize, 0, pass),
            None => pass(),
        }
    }
}

pub(crate) unsafe extern "C-unwind" fn pwritev2_hook(
    fd: c_int,
    vectors: *const iovec,
    number: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own call. With offset -1 and no flags it is a writev; anything else is the kernel's to
    // refuse.
    unsafe {
        if offset == -1 && flags == 0 {
            on_stack!(fd => stacked::write_vectors(fd, vectors, number as usize));
        }
        let pass = || real::pwritev2()(fd, vectors, number, offset, flags);
        match POSIX.find(fd) {
            Some(at) if offset == -1 && flags == 0 => {
                many_buffers(at, vectors, number as usize, 0, pass)
            }
            Some(at) => match POSIX.plan_write(at, 0, SPECIAL) {
                Plan::Fail(error) => linux::fail_send(error, 0),
                _ => pass(),
            },
            None => pass(),
        }
    }
}

/// Prepares for passing a descriptor on: the other process could not use a connection on the stack.
fn passing(fd: c_int) {
    stacked::hand_over_if_ours(fd, "it was passed on over a Unix socket");
    POSIX.sharing(fd, Call::PassFd);
}

/// sendmsg(2): also passes descriptors.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own call; a null message is the kernel's to refuse.
    unsafe {
        stacked::needs_kernel(fd, flags);
        let flags = match stacked::open_fast_by_message(fd, flags, message) {
            None => flags,
            Some(Ok(())) => flags & !libc::MSG_FASTOPEN,
            Some(Err(error)) => return failed(error, flags),
        };
        on_stack!(fd => stacked::send_message(fd, message, flags));
        let pass = || real::sendmsg()(fd, message, flags);
        if message.is_null() {
            return pass();
        }
        let control = (*message).msg_controllen != 0;
        let Some(at) = POSIX.find(fd) else {
            if control {
                super::each_passed_fd(message, passing);
            }
            return pass();
        };
        if control {
            return match POSIX.plan_write(at, 0, SPECIAL) {
                Plan::Fail(error) => linux::fail_send(error, flags),
                _ => pass(),
            };
        }
        many_buffers(at, (*message).msg_iov, (*message).msg_iovlen, flags, pass)
    }
}

/// sendmmsg(2): on a stream socket its messages are writes, one after the other.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call; each message is one of its `number` ones.
    unsafe {
        stacked::needs_kernel(fd, flags);
        on_stack!(fd => stacked::send_messages(fd, messages, number, flags));
        if POSIX.find(fd).is_none() || messages.is_null() {
            for at in 0..number.min(MOST_VECTORS as c_uint) as usize {
                if !messages.is_null() && (*messages.add(at)).msg_hdr.msg_controllen != 0 {
                    let message = &raw const (*messages.add(at)).msg_hdr;
                    super::each_passed_fd(message, passing);
                }
            }
            return real::sendmmsg()(fd, messages, number, flags);
        }
        let mut sent = 0;
        while sent < number.min(MOST_VECTORS as c_uint) {
            let message = messages.add(sent as usize);
            let bytes = sendmsg(fd, &raw const (*message).msg_hdr, flags);
            if bytes < 0 {
                break;
            }
            (*message).msg_len = bytes as c_uint;
            sent += 1;
            if (bytes as usize) < stacked::length_of(&(*message).msg_hdr) {
                // The kernel stops here, too: the next message would follow a gap.
                break;
            }
        }
        if sent == 0 && number != 0 { -1 } else { sent as c_int }
    }
}

const SPECIAL: WriteFlags = WriteFlags { more: false, special: true, nonblocking: false };

/// Flags of a send that change nothing for bytes that are gathered.
const QUIET: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
/// Longer writes take the long way: copying them twice would be noticeable.
const SMALL: size_t = 1024;

/// Returns what the flags of a send mean.
fn meaning(flags: c_int) -> WriteFlags {
    const PLAIN: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE;
    WriteFlags {
        more: flags & libc::MSG_MORE != 0,
        special: flags & !PLAIN != 0,
        nonblocking: flags & libc::MSG_DONTWAIT != 0,
    }
}

/// Writes one buffer to a tracked socket.
///
/// A send that needs nothing afterwards ([`Plan::Alone`]) is the program's own call if that `SENDS`: as a tail call
/// it is a jump, and the kernel returns to the program. write(2) takes longer than send(2).
///
/// # Safety
/// `data` and `len` as for send(2); `pass` is the program's own call.
#[inline]
unsafe fn one_buffer<const SENDS: bool>(
    at: Socketed<'_>,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    pass: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if at.gathers() && flags & !QUIET == 0 && (1..=SMALL).contains(&len) {
        // SAFETY: the program says that `len` bytes are there. Where they are not, the kernel would answer EFAULT;
        // a fault here is in the manual's list of differences.
        let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), len) };
        if POSIX.gather_another(at.fd, bytes) {
            return len as ssize_t;
        }
    }
    let more = match POSIX.plan_write(at, len, meaning(flags)) {
        Plan::Pass => return pass(),
        Plan::Alone if SENDS => return pass(),
        Plan::Alone => false,
        Plan::Fail(error) => return linux::fail_send(error, flags),
        Plan::Send { more } => more,
        Plan::Gather => {
            // SAFETY: as above.
            let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), len) };
            match gather(at, &[IoSlice::new(bytes)], len, flags) {
                Ok(more) => more,
                Err(done) => return done,
            }
        }
    };
    // SAFETY: the program's bytes.
    let sent = unsafe { real::send()(at.fd, data, len, with_more(flags, more)) };
    after(at, more, sent, pass)
}

/// Writes several buffers to a tracked socket.
///
/// # Safety
/// `vectors` and `number` as for writev(2); `pass` is the program's own call.
unsafe fn many_buffers(
    at: Socketed<'_>,
    vectors: *const iovec,
    number: usize,
    flags: c_int,
    pass: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if number > MOST_VECTORS || (vectors.is_null() && number != 0) {
        return pass();
    }
    let list: &[IoSlice<'_>] = if number == 0 {
        &[]
    } else {
        // SAFETY: IoSlice is guaranteed to have the layout of iovec; the program says that `number` of them are
        // there.
        unsafe { slice::from_raw_parts(vectors.cast::<IoSlice<'_>>(), number) }
    };
    let total = list.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
    if total > isize::MAX as usize {
        return pass();
    }
    let more = match POSIX.plan_write(at, total, meaning(flags)) {
        Plan::Pass => return pass(),
        Plan::Alone => false,
        Plan::Fail(error) => return linux::fail_send(error, flags),
        Plan::Send { more } => more,
        Plan::Gather => match gather(at, list, total, flags) {
            Ok(more) => more,
            Err(done) => return done,
        },
    };
    // SAFETY: an all-zero msghdr is valid; it points to the program's vectors.
    let sent = unsafe {
        let mut message: msghdr = core::mem::zeroed();
        message.msg_iov = vectors.cast_mut();
        message.msg_iovlen = number;
        real::sendmsg()(at.fd, &raw const message, with_more(flags, more))
    };
    after(at, more, sent, pass)
}

fn with_more(flags: c_int, more: bool) -> c_int {
    if more { flags | libc::MSG_MORE } else { flags }
}

/// Offers bytes to the socket's buffer. `Ok`: the caller must send them, with MSG_MORE if true; `Err`: the call is
/// over, with this result.
#[inline]
fn gather(
    at: Socketed<'_>,
    data: &[IoSlice<'_>],
    total: usize,
    flags: c_int,
) -> Result<bool, ssize_t> {
    match POSIX.gather(at, data, total, flags & libc::MSG_DONTWAIT != 0) {
        Ok(Gather::Taken) => Err(total as ssize_t),
        Ok(Gather::Send { more }) => Ok(more),
        Err(error) => Err(linux::fail_send(error, flags)),
    }
}

/// Handles the result of our send in place of the program's call.
#[inline]
fn after(at: Socketed<'_>, more: bool, sent: ssize_t, pass: impl FnOnce() -> ssize_t) -> ssize_t {
    if sent < 0 && linux::errno() == libc::ENOTSOCK {
        // The descriptor was closed and reused without our knowing.
        POSIX.forget(at.fd);
        return pass();
    }
    POSIX.after_send(at, more, sent >= 0);
    sent
}
