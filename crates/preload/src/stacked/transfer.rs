//! Calls that send and receive.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use core::{ptr, slice};
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, sockaddr, socklen_t, ssize_t, timespec,
};
use nix::errno::Errno;
use uncork_sockets::End;

use super::faults::{self, Refused};
use super::{SOCKETS, calls, count, fail};
use crate::linux;
use crate::raw::raw;

/// The kernel refuses more vectors than this (UIO_MAXIOV).
const MOST_VECTORS: usize = 1024;
/// Most octets that one call with MSG_TRUNC discards.
const DISCARDED_BYTES: usize = 1 << 20;

/// Makes a slice of the program's octets.
///
/// # Safety
/// `data` has `len` octets, or is an address where nothing can be.
unsafe fn piece<'a>(data: *const c_void, len: usize) -> Result<IoSlice<'a>, Refused> {
    match faults::usable(data, len)? {
        0 => Ok(IoSlice::new(&[])),
        // SAFETY: as promised; it is not null, and not too long for a slice.
        len => Ok(IoSlice::new(unsafe { slice::from_raw_parts(data.cast(), len) })),
    }
}

/// Makes a mutable slice of the program's buffer.
///
/// # Safety
/// `data` has room for `len` octets, or is an address where nothing can be.
unsafe fn room<'a>(data: *mut c_void, len: usize) -> Result<IoSliceMut<'a>, Refused> {
    match faults::usable(data, len)? {
        0 => Ok(IoSliceMut::new(&mut [])),
        // SAFETY: as promised; it is not null, and not too long for a slice.
        len => Ok(IoSliceMut::new(unsafe { slice::from_raw_parts_mut(data.cast(), len) })),
    }
}

/// Makes slices of the program's vectors. The caller has checked that there are no more than [`MOST_VECTORS`].
///
/// # Safety
/// `vectors` has `number` of them, which describe memory as `convert` needs it.
unsafe fn pieces<T>(
    vectors: *const iovec,
    number: usize,
    convert: unsafe fn(*mut c_void, usize) -> Result<T, Refused>,
) -> Result<Vec<T>, Refused> {
    if number == 0 {
        return Ok(Vec::new());
    }
    if faults::is_nowhere(vectors) {
        return Err(Refused::AtOnce(Errno::EFAULT));
    }
    // SAFETY: as promised.
    let all = unsafe { slice::from_raw_parts(vectors, number) };
    let convert = |one: &iovec| {
        let (base, length) = (one.iov_base, one.iov_len);
        if isize::try_from(length).is_err() {
            return Err(Refused::AtOnce(Errno::EINVAL));
        }
        // With a single vector the kernel limits the length first.
        if number > 1 && faults::ends_nowhere(base, length) {
            return Err(Refused::AtOnce(Errno::EFAULT));
        }
        // SAFETY: as promised.
        unsafe { convert(base, length) }
    };
    all.iter().map(convert).collect()
}

/// # Safety
/// As for [`piece`].
unsafe fn piece_of<'a>(data: *mut c_void, len: usize) -> Result<IoSlice<'a>, Refused> {
    // SAFETY: as promised.
    unsafe { piece(data, len) }
}

fn sent(result: Result<usize, Errno>, flags: c_int) -> ssize_t {
    match result {
        Ok(sent) => sent as ssize_t,
        Err(error) => linux::fail_send(uncork_posix::Errno(error as i32), flags),
    }
}

/// Sends as [`uncork_sockets::Sockets::send`] does, all of it if the call waits: if another thread makes the connection the
/// kernel's in the middle, the rest is sent there.
fn send_all(fd: c_int, pieces: &mut [IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
    let all: usize = pieces.iter().map(|piece| piece.len()).sum();
    let sent = SOCKETS.send(fd, pieces, flags)?;
    if sent == all || !is_kernels_now(fd) {
        return Ok(sent);
    }
    // A call that has sent something must not raise SIGPIPE.
    let flags = flags & !libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
    let mut left = pieces;
    IoSlice::advance_slices(&mut left, sent);
    // IoSlice has the layout of iovec, as its documentation says; sendmsg(2) only reads.
    let message = message_of(left.as_mut_ptr().cast(), left.len());
    // SAFETY: pieces that live as long as the call.
    let rest = unsafe { raw!(SYS_sendmsg, fd, &raw const message, flags) };
    Ok(sent + rest.unwrap_or(0))
}

/// Receives as [`uncork_sockets::Sockets::receive`] does, and goes on as [`send_all`].
fn receive_all(fd: c_int, rooms: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
    let all: usize = rooms.iter().map(|room| room.len()).sum();
    let received = SOCKETS.receive(fd, rooms, flags)?;
    let is_all = received == all || received == 0;
    if is_all
        || flags & libc::MSG_WAITALL == 0
        || flags & libc::MSG_PEEK != 0
        || !is_kernels_now(fd)
    {
        return Ok(received);
    }
    let mut left = rooms;
    IoSliceMut::advance_slices(&mut left, received);
    // IoSliceMut has the layout of iovec, as its documentation says.
    let mut message = message_of(left.as_mut_ptr().cast(), left.len());
    // SAFETY: rooms that live as long as the call.
    let rest = unsafe { raw!(SYS_recvmsg, fd, &raw mut message, flags) };
    Ok(received + rest.unwrap_or(0))
}

/// Makes a message of `number` vectors, and nothing else.
const fn message_of(vectors: *mut iovec, number: usize) -> msghdr {
    msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: vectors,
        msg_iovlen: number,
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}

/// Returns whether a descriptor was on the stack, and its connection has become the kernel's.
fn is_kernels_now(fd: c_int) -> bool {
    !super::has(fd) && SOCKETS.is_handed_over(fd)
}

/// write(2), send(2).
///
/// # Safety
/// As for these.
pub(crate) unsafe fn send(fd: c_int, data: *const c_void, len: usize, flags: c_int) -> ssize_t {
    // In send(2) the kernel takes what it can read until it faults; no process has that much.
    if faults::ends_nowhere(data, len) {
        return fail(Errno::EFAULT);
    }
    // SAFETY: as promised.
    let result = match unsafe { piece(data, len) } {
        Ok(piece) => send_all(fd, &mut [piece], flags),
        Err(refused) => refused.write(fd, flags),
    };
    sent(result, flags)
}

/// Makes a connection the kernel's if a send has a flag that only the kernel knows: MSG_OOB for urgent data, MSG_ZEROCOPY after
/// SO_ZEROCOPY, or one that does not exist yet.
#[inline]
pub(crate) fn needs_kernel(fd: c_int, flags: c_int) {
    // MSG_FASTOPEN is known: to open a connection that is open is an error.
    const KNOWN: c_int = uncork_sockets::SENT_FLAGS | libc::MSG_FASTOPEN;
    if flags & !KNOWN != 0 {
        super::hand_over_if_ours(fd, "it sends with a flag that only the kernel knows (MSG_OOB)");
    } else if flags & libc::MSG_ZEROCOPY != 0
        && super::has(fd)
        && super::is_on()
        && SOCKETS.has_zero_copy(fd)
    {
        super::hand_over_if_ours(fd, "it sends without a copy (SO_ZEROCOPY, MSG_ZEROCOPY)");
    }
}

/// writev(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn write_vectors(fd: c_int, vectors: *const iovec, number: usize) -> ssize_t {
    if number > MOST_VECTORS {
        return fail(Errno::EINVAL);
    }
    // SAFETY: as promised.
    let result = match unsafe { pieces(vectors, number, piece_of) } {
        // The kernel does not even look at the socket then (vfs_writev).
        Ok(pieces) if pieces.iter().all(|piece| piece.is_empty()) => Ok(0),
        Ok(mut pieces) => send_all(fd, &mut pieces, 0),
        Err(refused) => refused.write(fd, 0),
    };
    sent(result, 0)
}

/// # Safety
/// As for sendmsg(2).
unsafe fn send_vectors(fd: c_int, vectors: *const iovec, number: usize, flags: c_int) -> ssize_t {
    // SAFETY: as promised.
    let result = match unsafe { pieces(vectors, number, piece_of) } {
        Ok(mut pieces) => send_all(fd, &mut pieces, flags),
        Err(refused) => refused.write(fd, flags),
    };
    sent(result, flags)
}

/// sendmsg(2). The only control data for TCP asks for timestamps, which the stack does not have.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn send_message(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if faults::is_nowhere(message) {
        return fail(Errno::EFAULT);
    }
    // SAFETY: as promised.
    unsafe {
        if (*message).msg_iovlen > MOST_VECTORS {
            return fail(Errno::EMSGSIZE);
        }
        if (*message).msg_controllen > 0 && faults::is_nowhere((*message).msg_control) {
            return fail(Errno::EFAULT);
        }
        send_vectors(fd, (*message).msg_iov, (*message).msg_iovlen, flags)
    }
}

/// Returns how many octets a message has to send.
///
/// # Safety
/// As for sendmsg(2).
pub(crate) unsafe fn length_of(message: &msghdr) -> usize {
    if message.msg_iovlen == 0 {
        return 0;
    }
    // SAFETY: as promised.
    let all = unsafe { slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
    all.iter().fold(0, |bytes: usize, one| bytes.saturating_add(one.iov_len))
}

/// sendmmsg(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn send_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
) -> c_int {
    let number = (number as usize).min(MOST_VECTORS);
    if number > 0 && faults::is_nowhere(messages) {
        return fail(Errno::EFAULT) as c_int;
    }
    for at in 0..number {
        // SAFETY: as promised.
        let sent = unsafe {
            let message = messages.add(at);
            let sent = send_message(fd, &raw const (*message).msg_hdr, flags);
            if sent >= 0 {
                (*message).msg_len = sent as c_uint;
            }
            sent
        };
        if sent >= 0 {
            // SAFETY: as promised; it has just been read.
            let wanted = unsafe { length_of(&(*messages.add(at)).msg_hdr) };
            if (sent as usize) < wanted {
                // The next message must not overtake the rest of this one.
                return at as c_int + 1;
            }
            continue;
        }
        // If the connection has become the kernel's in the middle, the rest is sent there.
        let rest = if at > 0 && super::went_over() {
            let (left, flags) = ((number - at) as c_uint, flags | libc::MSG_NOSIGNAL);
            // SAFETY: as promised.
            unsafe { raw!(SYS_sendmmsg, fd, messages.add(at), left, flags) }.unwrap_or(0)
        } else {
            0
        };
        return if at == 0 { -1 } else { at as c_int + rest as c_int };
    }
    number as c_int
}

/// read(2), which does not even look at the socket if it has nothing to read.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn read(fd: c_int, data: *mut c_void, len: usize) -> ssize_t {
    if len == 0 {
        return 0;
    }
    if faults::ends_nowhere(data, len) {
        return fail(Errno::EFAULT);
    }
    // SAFETY: as promised.
    unsafe { receive(fd, data, len, 0) }
}

/// recv(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn receive(fd: c_int, data: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    if flags & libc::MSG_TRUNC != 0 {
        return discard(fd, len, flags);
    }
    // SAFETY: as promised.
    count(match unsafe { room(data, len) } {
        Ok(room) => receive_all(fd, &mut [room], flags),
        Err(refused) => refused.read(fd, flags),
    })
}

/// recv(2) with MSG_TRUNC: octets are consumed, and nothing is written to the program's buffer (tcp(7)).
fn discard(fd: c_int, len: usize, flags: c_int) -> ssize_t {
    let mut nowhere = vec![0; len.min(DISCARDED_BYTES)];
    count(receive_all(fd, &mut [IoSliceMut::new(&mut nowhere)], flags))
}

/// recvfrom(2): a connection reports no sender.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn receive_from(
    fd: c_int,
    data: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as promised.
    unsafe {
        let received = receive(fd, data, len, flags);
        if received >= 0 && !from.is_null() {
            // As in the kernel: what was received is lost.
            if faults::is_nowhere(from_len) {
                return fail(Errno::EFAULT);
            }
            if c_int::try_from(*from_len).is_err() {
                return fail(Errno::EINVAL);
            }
            *from_len = 0;
        }
        received
    }
}

/// readv(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn read_vectors(fd: c_int, vectors: *const iovec, number: usize) -> ssize_t {
    if number > MOST_VECTORS {
        return fail(Errno::EINVAL);
    }
    // SAFETY: as promised.
    match unsafe { pieces(vectors, number, room) } {
        Ok(rooms) if rooms.iter().all(|room| room.is_empty()) => 0,
        Ok(mut rooms) => count(receive_all(fd, &mut rooms, 0)),
        Err(refused) => count(refused.read(fd, 0)),
    }
}

/// # Safety
/// As for recvmsg(2).
pub(crate) unsafe fn receive_vectors(
    fd: c_int,
    vectors: *const iovec,
    number: usize,
    flags: c_int,
) -> ssize_t {
    if number > MOST_VECTORS {
        return fail(Errno::EMSGSIZE);
    }
    if flags & libc::MSG_TRUNC != 0 && !faults::is_nowhere(vectors) {
        // SAFETY: as promised.
        let all = unsafe { slice::from_raw_parts(vectors, number) };
        let bytes = all.iter().fold(0, |bytes: usize, one| bytes.saturating_add(one.iov_len));
        return discard(fd, bytes, flags);
    }
    // SAFETY: as promised.
    count(match unsafe { pieces(vectors, number, room) } {
        Ok(mut rooms) => receive_all(fd, &mut rooms, flags),
        Err(refused) => refused.read(fd, flags),
    })
}

/// recvmsg(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if faults::is_nowhere(message) {
        return fail(Errno::EFAULT);
    }
    // SAFETY: as promised.
    unsafe {
        let received = receive_vectors(fd, (*message).msg_iov, (*message).msg_iovlen, flags);
        if received >= 0 {
            (*message).msg_namelen = 0;
            (*message).msg_flags = 0;
            let left = if (*message).msg_controllen > 0 { SOCKETS.left_to_tell(fd) } else { None };
            match left {
                Some(left) => tell_left(&mut *message, left),
                None => (*message).msg_controllen = 0,
            }
        }
        received
    }
}

/// Writes how many octets are left as control data, as far as there is room for it (put_cmsg).
///
/// # Safety
/// As for recvmsg(2).
unsafe fn tell_left(message: &mut msghdr, left: c_int) {
    const HEAD_BYTES: usize = size_of::<libc::cmsghdr>();
    const BYTES: usize = HEAD_BYTES + size_of::<c_int>();
    let room = message.msg_controllen;
    if room < BYTES {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
    if faults::is_nowhere(message.msg_control) || room < HEAD_BYTES {
        message.msg_controllen = 0;
        return;
    }
    let bytes = BYTES.min(room);
    let header = libc::cmsghdr {
        cmsg_len: bytes,
        cmsg_level: libc::SOL_TCP,
        cmsg_type: uncork_sockets::TCP_INQ,
    };
    let left = left.to_ne_bytes();
    // SAFETY: there is room for the header and so much of the number, as checked above; it need not be aligned.
    unsafe {
        let to = message.msg_control.cast::<u8>();
        to.cast::<libc::cmsghdr>().write_unaligned(header);
        ptr::copy_nonoverlapping(left.as_ptr(), to.add(HEAD_BYTES), bytes - HEAD_BYTES);
    }
    // Includes the padding up to the next header (CMSG_SPACE).
    message.msg_controllen = room.min(BYTES.next_multiple_of(align_of::<libc::cmsghdr>()));
}

/// recvmmsg(2): waits for each message, or for the first and takes what else is there (MSG_WAITFORONE). The time limit is checked
/// after each, and ends no wait: so it is in the kernel, too (recvmmsg(2), BUGS). An error of the connection comes before all
/// that could be read (do_recvmmsg); one that comes after a message is reported by the next call.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    mut flags: c_int,
    limit: *mut timespec,
) -> c_int {
    if number > 0 && faults::is_nowhere(messages) || faults::is_bad(limit) {
        return fail(Errno::EFAULT) as c_int;
    }
    // SAFETY: as promised.
    let left = match unsafe { limit.as_ref() }.map(linux::duration) {
        Some(None) => return fail(Errno::EINVAL) as c_int,
        limit => limit.flatten(),
    };
    if let Err(error) = SOCKETS.take_error(fd) {
        return fail(error) as c_int;
    }
    let begun = linux::now();
    let wait_for_one = flags & libc::MSG_WAITFORONE != 0;
    flags &= !libc::MSG_WAITFORONE;
    let number = (number as usize).min(MOST_VECTORS);
    for at in 0..number {
        // SAFETY: as promised.
        let received = unsafe {
            let message = messages.add(at);
            let received = receive_message(fd, &raw mut (*message).msg_hdr, flags);
            if received >= 0 {
                (*message).msg_len = received as c_uint;
            }
            received
        };
        if received < 0 && at > 0 && super::went_over() {
            // If the connection has become the kernel's in the middle, the rest is received there.
            let left = (number - at) as c_uint;
            // SAFETY: as promised.
            let rest = unsafe { raw!(SYS_recvmmsg, fd, messages.add(at), left, flags, limit) };
            return at as c_int + rest.unwrap_or(0) as c_int;
        }
        if received < 0 && at > 0 {
            SOCKETS.put_back_error(fd, Errno::from_raw(linux::errno()));
            return at as c_int;
        }
        if received < 0 {
            return -1;
        }
        if wait_for_one {
            flags |= libc::MSG_DONTWAIT;
        }
        if let Some(left) = left {
            let left = left.saturating_sub(linux::now().since(begun));
            // SAFETY: as promised; the pointer is not null, or there would be no limit.
            unsafe { *limit = linux::timespec(left) };
            if left.is_zero() {
                return at as c_int + 1;
            }
        }
    }
    number as c_int
}

/// sendfile(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn send_file(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    bytes: usize,
) -> ssize_t {
    if from < 0 {
        return fail(Errno::EBADF);
    }
    if faults::is_bad(offset) {
        return fail(Errno::EFAULT);
    }
    // SAFETY: as promised; the file stays open for the length of the call, or reading says that it is not.
    unsafe {
        let begin = if offset.is_null() { libc::lseek(from, 0, libc::SEEK_CUR) } else { *offset };
        if begin < 0 {
            let error = if offset.is_null() { Errno::last() } else { Errno::EINVAL };
            // A pipe has no position to read from (sendfile(2)).
            return fail(if error == Errno::ESPIPE { Errno::EINVAL } else { error });
        }
        let file = BorrowedFd::borrow_raw(from);
        let mut result = SOCKETS.send_file(to, file, begin, bytes);
        if let Ok(sent) = &mut result {
            let end = begin + *sent as off_t;
            if offset.is_null() {
                libc::lseek(from, end, libc::SEEK_SET);
            } else {
                *offset = end;
            }
            // As for send(2).
            if *sent < bytes && is_kernels_now(to) {
                let rest = raw!(SYS_sendfile, to, from, offset, bytes - *sent);
                *sent += rest.unwrap_or(0);
            }
        }
        sent(result, 0)
    }
}

/// getsockname(2), getpeername(2).
///
/// # Safety
/// As for these.
pub(crate) unsafe fn name(fd: c_int, end: End, into: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match SOCKETS.name(fd, end) {
        // SAFETY: as promised.
        Ok(name) => unsafe { calls::tell(&name, into, len) },
        Err(error) => fail(error) as c_int,
    }
}
