//! The C side: `packetdrill_interface_init` and what it fills in. Pointers become slices and values
//! here, results become errno, and nothing is decided.
//!
//! packetdrill guarantees this, on which every block below relies: `userdata` is what `init` returned,
//! until `free`; a pointer is null or points to as many octets as the length beside it says, for the
//! duration of the call, and to nothing that anybody else writes meanwhile.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulong, c_void};
use std::ptr;
use std::time::Duration;

use libc::{epoll_event, iovec, msghdr, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval};
use nix::errno::Errno;

use crate::address;
use crate::table::{Address, Kind};
use crate::world::{Shared, since_beginning};

type User = *mut c_void;
type Name = *const sockaddr;

/// The functions that packetdrill calls, in the order of its header (packetdrill.h, 2015).
#[repr(C)]
pub(crate) struct Interface {
    userdata: User,
    free: unsafe extern "C" fn(User),
    socket: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    bind: unsafe extern "C" fn(User, c_int, Name, socklen_t) -> c_int,
    listen: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    accept: unsafe extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    connect: unsafe extern "C" fn(User, c_int, Name, socklen_t) -> c_int,
    read: unsafe extern "C" fn(User, c_int, *mut c_void, size_t) -> ssize_t,
    readv: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    recv: unsafe extern "C" fn(User, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    recvfrom: unsafe extern "C" fn(
        User,
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    write: unsafe extern "C" fn(User, c_int, *const c_void, size_t) -> ssize_t,
    writev: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    send: unsafe extern "C" fn(User, c_int, *const c_void, size_t, c_int) -> ssize_t,
    sendto:
        unsafe extern "C" fn(User, c_int, *const c_void, size_t, c_int, Name, socklen_t) -> ssize_t,
    sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    fcntl: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    ioctl: unsafe extern "C" fn(User, c_int, c_ulong, *mut c_int) -> c_int,
    close: unsafe extern "C" fn(User, c_int) -> c_int,
    shutdown: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    getsockopt:
        unsafe extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    setsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    poll: unsafe extern "C" fn(User, *mut pollfd, c_ulong, c_int) -> c_int,
    netdev_send: unsafe extern "C" fn(User, *const c_void, size_t) -> c_int,
    netdev_receive: unsafe extern "C" fn(User, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    usleep: unsafe extern "C" fn(User, c_uint) -> c_int,
    gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut c_void) -> c_int,
    epoll_create: unsafe extern "C" fn(User, c_int) -> c_int,
    epoll_ctl: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    epoll_wait: unsafe extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pipe: unsafe extern "C" fn(User, *mut c_int) -> c_int,
    splice: unsafe extern "C" fn(
        User,
        c_int,
        *mut c_longlong,
        c_int,
        *mut c_longlong,
        size_t,
        c_uint,
    ) -> ssize_t,
}

/// Fills in the interface: the one symbol that packetdrill looks up. `flags` are `address=IP/PREFIX`, separated by commas.
///
/// # Safety
///
/// `flags` is null or a C string; `interface` has room for an [`Interface`].
#[unsafe(no_mangle)]
unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: it is a C string, as this function demands.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    let addresses = match address::from_flags(&flags) {
        Ok(addresses) => addresses,
        Err(message) => {
            eprintln!("{message}");
            std::process::exit(1);
        }
    };
    let userdata = Box::into_raw(Box::new(Shared::new(addresses, None))).cast();
    let filled = Interface {
        userdata,
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: there is room for it, as this function demands.
    unsafe { interface.write(filled) };
}

fn shared<'a>(user: User) -> &'a Shared {
    // SAFETY: `user` is what `packetdrill_interface_init` made, and lives until `free`.
    unsafe { &*user.cast::<Shared>() }
}

/// Converts a result to C: -1 and errno, or the value.
fn answer<T: Into<i64>>(result: Result<T, Errno>) -> ssize_t {
    match result {
        Ok(value) => value.into() as ssize_t,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "descriptors and counts are small")]
fn answer_int<T: Into<i64>>(result: Result<T, Errno>) -> c_int {
    answer(result) as c_int
}

fn none(result: Result<(), Errno>) -> c_int {
    answer_int(result.map(|()| 0))
}

fn count(result: Result<usize, Errno>) -> ssize_t {
    answer(result.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)))
}

fn octets<'a>(start: *const c_void, bytes: usize) -> Result<&'a [u8], Errno> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not null, so it points to `bytes` octets that nobody writes (see the module).
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), bytes) })
}

fn room<'a>(start: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Errno> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    if start.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not null, so it points to `bytes` octets that are ours for the call (see the module).
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) })
}

fn pieces<'a>(start: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not null, so it points to `count` of them (see the module).
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Copies the content of several pieces into one buffer.
fn gather(pieces: &[iovec]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(octets(piece.iov_base, piece.iov_len)?);
    }
    Ok(bytes)
}

fn scatter(pieces: &[iovec], mut bytes: &[u8]) -> Result<(), Errno> {
    for piece in pieces {
        let (first, rest) = bytes.split_at(piece.iov_len.min(bytes.len()));
        room(piece.iov_base, first.len())?.copy_from_slice(first);
        bytes = rest;
    }
    Ok(())
}

fn named(name: Name, bytes: socklen_t) -> Result<Address, Errno> {
    address::read(octets(name.cast(), bytes as usize)?)
}

/// Copies `bytes` to `start`, as many as `length` has room for, and stores their number there.
fn put(start: *mut c_void, length: *mut socklen_t, bytes: &[u8]) -> Result<(), Errno> {
    if start.is_null() || length.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not null, and ours for the call (see the module).
    let length = unsafe { &mut *length };
    let fits = bytes.len().min(*length as usize);
    room(start, fits)?.copy_from_slice(&bytes[..fits]);
    *length = socklen_t::try_from(fits).unwrap_or(0);
    Ok(())
}

unsafe extern "C" fn free(user: User) {
    // SAFETY: made by `Box::into_raw` in `init`, and packetdrill calls this once, at the end.
    drop(unsafe { Box::from_raw(user.cast::<Shared>()) });
}

unsafe extern "C" fn socket(user: User, domain: c_int, kind: c_int, _protocol: c_int) -> c_int {
    answer_int(shared(user).call(|world| world.socket(domain, kind)))
}

unsafe extern "C" fn bind(user: User, fd: c_int, name: Name, bytes: socklen_t) -> c_int {
    none(named(name, bytes).and_then(|name| shared(user).call(|world| world.bind(fd, name))))
}

unsafe extern "C" fn listen(user: User, fd: c_int, backlog: c_int) -> c_int {
    none(shared(user).call(|world| world.listen(fd, backlog)))
}

unsafe extern "C" fn accept(
    user: User,
    fd: c_int,
    name: *mut sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    let accepted = shared(user).accept(fd).and_then(|(accepted, remote)| {
        if !name.is_null() {
            put(name.cast(), bytes, &address::write(remote))?;
        }
        Ok(accepted)
    });
    answer_int(accepted)
}

unsafe extern "C" fn connect(user: User, fd: c_int, name: Name, bytes: socklen_t) -> c_int {
    none(named(name, bytes).and_then(|name| shared(user).connect(fd, name)))
}

unsafe extern "C" fn read(user: User, fd: c_int, start: *mut c_void, bytes: size_t) -> ssize_t {
    count(room(start, bytes).and_then(|into| shared(user).receive(fd, into, 0)))
}

unsafe extern "C" fn readv(user: User, fd: c_int, start: *const iovec, count_: c_int) -> ssize_t {
    count(receive_pieces(user, fd, start, usize::try_from(count_).unwrap_or(0), 0))
}

fn receive_pieces(
    user: User,
    fd: c_int,
    start: *const iovec,
    number: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    let pieces = pieces(start, number)?;
    let mut bytes = vec![0; pieces.iter().map(|piece| piece.iov_len).sum()];
    let received = shared(user).receive(fd, &mut bytes, flags)?;
    scatter(pieces, &bytes[..received])?;
    Ok(received)
}

unsafe extern "C" fn recv(
    user: User,
    fd: c_int,
    start: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    count(room(start, bytes).and_then(|into| shared(user).receive(fd, into, flags)))
}

unsafe extern "C" fn recvfrom(
    user: User,
    fd: c_int,
    start: *mut c_void,
    bytes: size_t,
    flags: c_int,
    _name: *mut sockaddr,
    _name_bytes: *mut socklen_t,
) -> ssize_t {
    // For a connection the sender's name is not filled in (recv(2)).
    count(room(start, bytes).and_then(|into| shared(user).receive(fd, into, flags)))
}

unsafe extern "C" fn recvmsg(user: User, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if message.is_null() {
        return answer::<i64>(Err(Errno::EFAULT));
    }
    // SAFETY: not null, and ours for the call (see the module).
    let message = unsafe { &mut *message };
    message.msg_flags = 0;
    message.msg_controllen = 0;
    count(receive_pieces(user, fd, message.msg_iov, message.msg_iovlen, flags))
}

unsafe extern "C" fn write(user: User, fd: c_int, start: *const c_void, bytes: size_t) -> ssize_t {
    count(octets(start, bytes).and_then(|from| shared(user).transmit(fd, from, 0, None)))
}

unsafe extern "C" fn writev(user: User, fd: c_int, start: *const iovec, number: c_int) -> ssize_t {
    let bytes = pieces(start, usize::try_from(number).unwrap_or(0)).and_then(gather);
    count(bytes.and_then(|from| shared(user).transmit(fd, &from, 0, None)))
}

unsafe extern "C" fn send(
    user: User,
    fd: c_int,
    start: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    count(octets(start, bytes).and_then(|from| shared(user).transmit(fd, from, flags, None)))
}

unsafe extern "C" fn sendto(
    user: User,
    fd: c_int,
    start: *const c_void,
    bytes: size_t,
    flags: c_int,
    name: Name,
    name_bytes: socklen_t,
) -> ssize_t {
    let sent = octets(start, bytes).and_then(|from| {
        let to = if name.is_null() { None } else { Some(named(name, name_bytes)?) };
        shared(user).transmit(fd, from, flags, to)
    });
    count(sent)
}

unsafe extern "C" fn sendmsg(
    user: User,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    if message.is_null() {
        return answer::<i64>(Err(Errno::EFAULT));
    }
    // SAFETY: not null, and nobody writes it meanwhile (see the module).
    let message = unsafe { &*message };
    let sent = pieces(message.msg_iov, message.msg_iovlen).and_then(|pieces| {
        let from = gather(pieces)?;
        let name = message.msg_name.cast_const().cast();
        let to =
            if message.msg_name.is_null() { None } else { Some(named(name, message.msg_namelen)?) };
        shared(user).transmit(fd, &from, flags, to)
    });
    count(sent)
}

/// In C this is variadic. packetdrill passes at most one argument, an int, and
/// the calling conventions of Linux put it where this declares it.
unsafe extern "C" fn fcntl(user: User, fd: c_int, command: c_int, argument: c_int) -> c_int {
    let result = shared(user).call(|world| match command {
        libc::F_GETFL => world.status_flags(fd, None),
        libc::F_SETFL => world.status_flags(fd, Some(argument)),
        _ => Err(Errno::EINVAL),
    });
    answer_int(result)
}

/// As with `fcntl`: the one argument is passed where a number would be.
unsafe extern "C" fn ioctl(user: User, fd: c_int, request: c_ulong, into: *mut c_int) -> c_int {
    let result = shared(user).call(|world| world.ioctl(fd, request)).and_then(|value| {
        if into.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: not null, and ours for the call (see the module).
        unsafe { into.write(value) };
        Ok(())
    });
    none(result)
}

unsafe extern "C" fn close(user: User, fd: c_int) -> c_int {
    none(shared(user).call(|world| world.close(fd)))
}

unsafe extern "C" fn shutdown(user: User, fd: c_int, how: c_int) -> c_int {
    none(shared(user).call(|world| world.shutdown(fd, how)))
}

unsafe extern "C" fn getsockopt(
    user: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    let option = shared(user).call(|world| world.option(fd, level, name));
    none(option.and_then(|option| put(value, bytes, &option)))
}

unsafe extern "C" fn setsockopt(
    user: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    let value = octets(value, bytes as usize);
    none(
        value.and_then(|value| shared(user).call(|world| world.set_option(fd, level, name, value))),
    )
}

unsafe extern "C" fn poll(user: User, set: *mut pollfd, number: c_ulong, millis: c_int) -> c_int {
    if set.is_null() && number > 0 {
        return answer_int::<i64>(Err(Errno::EFAULT));
    }
    let set: &mut [pollfd] = match number {
        0 => &mut [],
        // SAFETY: not null, so it points to `number` of them that are ours for the call.
        number => unsafe { std::slice::from_raw_parts_mut(set, number as usize) },
    };
    let wanted: Vec<(c_int, i16)> = set.iter().map(|one| (one.fd, one.events)).collect();
    let result = shared(user).poll(&wanted, millis);
    for (one, ready) in set.iter_mut().zip(&result) {
        one.revents = *ready;
    }
    c_int::try_from(result.iter().filter(|&&ready| ready != 0).count()).unwrap_or(c_int::MAX)
}

unsafe extern "C" fn netdev_send(user: User, start: *const c_void, bytes: size_t) -> c_int {
    none(octets(start, bytes).map(|packet| shared(user).arrive(packet)))
}

unsafe extern "C" fn netdev_receive(
    user: User,
    start: *mut c_void,
    bytes: *mut size_t,
    micros: *mut c_longlong,
) -> c_int {
    let sent = shared(user).next_sent();
    // SAFETY: packetdrill passes all three, ours for the call.
    let (bytes, micros) = unsafe { (&mut *bytes, &mut *micros) };
    // Nothing will ever be sent: packetdrill takes that for an unreadable packet, and fails.
    let Some(sent) = sent else {
        *bytes = 0;
        return 0;
    };
    let fits = sent.bytes.len().min(*bytes);
    *bytes = fits;
    let time = since_beginning(sent.at).as_micros();
    *micros = c_longlong::try_from(time).unwrap_or(c_longlong::MAX);
    none(room(start, fits).map(|into| into.copy_from_slice(&sent.bytes[..fits])))
}

unsafe extern "C" fn usleep(user: User, micros: c_uint) -> c_int {
    shared(user).sleep(Duration::from_micros(micros.into()));
    0
}

unsafe extern "C" fn gettimeofday(user: User, into: *mut timeval, _zone: *mut c_void) -> c_int {
    let time = shared(user).time_of_day();
    let value = timeval {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: time.subsec_micros().into(),
    };
    // SAFETY: packetdrill passes room for one.
    unsafe { into.write(value) };
    0
}

unsafe extern "C" fn epoll_create(user: User, _size: c_int) -> c_int {
    answer_int(shared(user).call(|world| world.table.add(Kind::Epoll(Default::default()))))
}

unsafe extern "C" fn epoll_ctl(
    user: User,
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let (events, data) = if event.is_null() {
        (0, 0)
    } else {
        // SAFETY: not null, and ours for the call; packed on some machines, so copied.
        let event = unsafe { ptr::read_unaligned(event) };
        (event.events, event.u64)
    };
    none(shared(user).call(|world| {
        world.table.socket(fd)?;
        world.table.epoll(set)?.control(operation, fd, events, data)
    }))
}

unsafe extern "C" fn epoll_wait(
    user: User,
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    millis: c_int,
) -> c_int {
    let Some(most) = usize::try_from(most).ok().filter(|&most| most > 0 && !events.is_null())
    else {
        return answer_int::<i64>(Err(Errno::EINVAL));
    };
    let told = shared(user).epoll_wait(set, most, millis).map(|told| {
        for (place, &(events_of_one, data)) in told.iter().enumerate() {
            let event = epoll_event { events: events_of_one, u64: data };
            // SAFETY: there is room for `most`, and there are no more than that.
            unsafe { ptr::write_unaligned(events.add(place), event) };
        }
        i64::try_from(told.len()).unwrap_or(0)
    });
    answer_int(told)
}

unsafe extern "C" fn pipe(_user: User, _into: *mut c_int) -> c_int {
    answer_int::<i64>(Err(Errno::ENOSYS))
}

unsafe extern "C" fn splice(
    _user: User,
    _from: c_int,
    _from_offset: *mut c_longlong,
    _to: c_int,
    _to_offset: *mut c_longlong,
    _bytes: size_t,
    _flags: c_uint,
) -> ssize_t {
    answer::<i64>(Err(Errno::ENOSYS))
}
