//! Reading: read, recv and the like. The program waits for the peer's answer.

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t};
use libc::{sockaddr, socklen_t, ssize_t, timespec};
use uncork_posix::{Call, Errno, Socketed};

use crate::jump::descriptor_shim;
use crate::raw::{fail, raw};
use crate::stacked::{self, on_stack};
use crate::{POSIX, linux, real, spin};

descriptor_shim!(read => read_hook, when tcp or held);
descriptor_shim!(readv => readv_hook, when tcp or held);
descriptor_shim!(preadv2 => preadv2_hook, when tcp or held);
descriptor_shim!(recv => recv_hook, when tcp or held);
descriptor_shim!(recvfrom => recvfrom_hook, when tcp or held);
descriptor_shim!(__read_chk => read_chk_hook, when tcp or held);
descriptor_shim!(__recv_chk => recv_chk_hook, when tcp or held);
descriptor_shim!(__recvfrom_chk => recvfrom_chk_hook, when tcp or held);

/// Ends the burst, then makes the call: first `try_now(flags)` for as long as spinning is worthwhile, then `call`.
#[inline]
fn reading(
    fd: c_int,
    by: Call,
    flags: c_int,
    mut try_now: impl FnMut(c_int) -> Result<usize, Errno>,
    call: impl FnOnce(Option<Socketed<'_>>) -> ssize_t,
) -> ssize_t {
    if POSIX.is_disabled() {
        return call(None);
    }
    let Some(at) = POSIX.before_read(fd, by) else { return call(None) };
    if POSIX.has_read_error(at) {
        // What was received before the error can still be read.
        if let Ok(received @ 1..) = try_now(flags | libc::MSG_DONTWAIT) {
            return received as ssize_t;
        }
        if let Some(number) = POSIX.read_error(at) {
            return fail(Errno(number));
        }
    }
    if spin::is_off() {
        return call(Some(at));
    }
    if POSIX.has_low_water(at) {
        return spin::receive_enough(fd, flags, try_now, || call(Some(at)));
    }
    spin::receive(fd, flags, try_now, || call(Some(at)))
}

/// Ends the burst, and returns whether nothing else has to be done for a read on a kernel socket: then the call can be
/// a tail call, which is a jump, and the kernel returns to the program.
#[inline(always)]
fn goes_straight_on(fd: c_int, by: Call) -> bool {
    let Some(at) = POSIX.find(fd) else { return false };
    if !spin::is_off() || POSIX.is_disabled() {
        return false;
    }
    POSIX.before_reading(at, by);
    !POSIX.has_read_error(at)
}

pub(crate) unsafe extern "C-unwind" fn read_hook(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: the program's own call, in one of the forms that are equivalent on a socket.
    unsafe {
        on_stack!(fd => stacked::read(fd, data, len));
        reading(
            fd,
            Call::Read,
            0,
            |flags| raw!(SYS_recvfrom, fd, data, len, flags, 0, 0),
            |at| read_by_recv(at, fd, data, len),
        )
    }
}

/// Reads by recv(2), which does the same on a socket and costs less, except for an empty read, on which recv(2) waits.
///
/// # Safety
/// As for read(2).
unsafe fn read_by_recv(
    at: Option<Socketed<'_>>,
    fd: c_int,
    data: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: as promised.
    unsafe {
        if at.is_some() && len != 0 {
            let received = real::recv()(fd, data, len, 0);
            if received >= 0 || linux::errno() != libc::ENOTSOCK {
                return received;
            }
            // The descriptor was closed and reused without our knowing.
            POSIX.forget(fd);
        }
        real::read()(fd, data, len)
    }
}

pub(crate) unsafe extern "C-unwind" fn recv_hook(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        if goes_straight_on(fd, Call::Recv) {
            real::recv()(fd, data, len, flags)
        } else {
            recv_otherwise(fd, data, len, flags)
        }
    }
}

#[inline(never)]
unsafe fn recv_otherwise(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        on_stack!(fd => stacked::receive(fd, data, len, flags));
        reading(
            fd,
            Call::Recv,
            flags,
            |flags| raw!(SYS_recvfrom, fd, data, len, flags, 0, 0),
            |_| real::recv()(fd, data, len, flags),
        )
    }
}

pub(crate) unsafe extern "C-unwind" fn recvfrom_hook(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        if goes_straight_on(fd, Call::Recvfrom) {
            real::recvfrom()(fd, data, len, flags, from, from_len)
        } else {
            recvfrom_otherwise(fd, data, len, flags, from, from_len)
        }
    }
}

#[inline(never)]
unsafe fn recvfrom_otherwise(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        on_stack!(fd => stacked::receive_from(fd, data, len, flags, from, from_len));
        reading(
            fd,
            Call::Recvfrom,
            flags,
            |flags| raw!(SYS_recvfrom, fd, data, len, flags, from, from_len),
            |_| real::recvfrom()(fd, data, len, flags, from, from_len),
        )
    }
}

/// The fortified forms check the buffer's size before the call; their real functions report a bad one.
pub(crate) unsafe extern "C-unwind" fn read_chk_hook(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        if len > room {
            return real::__read_chk()(fd, data, len, room);
        }
        read_hook(fd, data, len)
    }
}

pub(crate) unsafe extern "C-unwind" fn recv_chk_hook(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        if len > room {
            return real::__recv_chk()(fd, data, len, room, flags);
        }
        recv_hook(fd, data, len, flags)
    }
}

pub(crate) unsafe extern "C-unwind" fn recvfrom_chk_hook(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        if len > room {
            return real::__recvfrom_chk()(fd, data, len, room, flags, from, from_len);
        }
        recvfrom_hook(fd, data, len, flags, from, from_len)
    }
}

/// Makes a message that receives into the program's vectors.
fn message_of(vectors: *const iovec, number: c_int) -> msghdr {
    // SAFETY: an all-zero msghdr is valid.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vectors.cast_mut();
    message.msg_iovlen = usize::try_from(number).unwrap_or(usize::MAX);
    message
}

pub(crate) unsafe extern "C-unwind" fn readv_hook(
    fd: c_int,
    vectors: *const iovec,
    number: c_int,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        on_stack!(fd => stacked::read_vectors(fd, vectors, number as usize));
        let mut message = message_of(vectors, number);
        reading(
            fd,
            Call::Readv,
            0,
            |flags| raw!(SYS_recvmsg, fd, &raw mut message, flags),
            |_| real::readv()(fd, vectors, number),
        )
    }
}

pub(crate) unsafe extern "C-unwind" fn preadv2_hook(
    fd: c_int,
    vectors: *const iovec,
    number: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if offset == -1 && flags & !(libc::RWF_HIPRI | libc::RWF_NOWAIT) == 0 {
        let waits = flags & libc::RWF_NOWAIT == 0;
        // SAFETY: the program's own call: it is a readv, which may wait or not.
        unsafe {
            on_stack!(fd => if waits {
                stacked::read_vectors(fd, vectors, number as usize)
            } else {
                stacked::receive_vectors(fd, vectors, number as usize, libc::MSG_DONTWAIT)
            });
        }
    }
    POSIX.before_read(fd, Call::Preadv2);
    // SAFETY: the program's own call.
    unsafe { real::preadv2()(fd, vectors, number, offset, flags) }
}

/// Notes a descriptor that has come over a Unix socket.
fn came(fd: c_int) {
    stacked::places::is_new(fd);
    POSIX.inherited(fd);
    stacked::inherited(fd);
}

/// recvmsg(2): also receives descriptors.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own call. After success the control data is the kernel's.
    unsafe {
        on_stack!(fd => stacked::receive_message(fd, message, flags));
        let received = reading(
            fd,
            Call::Recvmsg,
            flags,
            |flags| raw!(SYS_recvmsg, fd, message, flags),
            |_| real::recvmsg()(fd, message, flags),
        );
        if received >= 0 && (*message).msg_controllen != 0 {
            super::each_passed_fd(message, came);
        }
        received
    }
}

/// recvmmsg(2): also receives descriptors.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    POSIX.before_read(fd, Call::Recvmmsg);
    // SAFETY: as above.
    unsafe {
        on_stack!(fd => stacked::receive_messages(fd, messages, number, flags, limit));
        let received = real::recvmmsg()(fd, messages, number, flags, limit);
        for at in 0..usize::try_from(received).unwrap_or(0) {
            let message = &raw const (*messages.add(at)).msg_hdr;
            if (*message).msg_controllen != 0 {
                super::each_passed_fd(message, came);
            }
        }
        received
    }
}
