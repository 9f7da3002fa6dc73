//! Calls that open or close sockets, and their options.

use std::net::SocketAddr;

use core::slice;
use core::sync::atomic::Ordering::SeqCst;

use libc::{c_int, c_ulong, c_void, sockaddr, sockaddr_storage, socklen_t};
use nix::errno::Errno;
use uncork_posix::Call;
use uncork_posix::kernel::state;
use uncork_posix::socket::flag;
use uncork_posix::whereabouts::OnStack;
use uncork_sockets::{Accepted, Asked, ListeningEnd, info, name};

use super::{
    SOCKETS, accepting, aliases, chosen, count, done, fail, faults, handlers, has, is_on, mark,
    places, signals,
};
use crate::raw::raw;
use crate::shims::descriptors;
use crate::{POSIX, linux, real, table};

/// Reason why a socket is the kernel's if the program has asked for that.
pub(super) const ASKED_FOR: &str = "the program asks for a socket of the kernel's (SOCK_KERNEL)";

/// Options that a listener passes on to its connections, or a socket to its own connection.
pub(super) const OPTIONS: [(c_int, c_int, usize); 14] = [
    (libc::SOL_TCP, libc::TCP_NODELAY, 4),
    (libc::SOL_TCP, libc::TCP_CORK, 4),
    (libc::SOL_SOCKET, libc::SO_LINGER, 8),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO, 16),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO, 16),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 4),
    (libc::SOL_TCP, libc::TCP_KEEPIDLE, 4),
    (libc::SOL_TCP, libc::TCP_KEEPINTVL, 4),
    (libc::SOL_TCP, libc::TCP_KEEPCNT, 4),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 4),
    (libc::SOL_TCP, libc::TCP_USER_TIMEOUT, 4),
    (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, 4),
    (libc::SOL_IP, libc::IP_TOS, 4),
    (libc::SOL_IPV6, libc::IPV6_TCLASS, 4),
];

/// Largest number of connections that may wait to be accepted.
const MOST_WAIT: u32 = 65_535;

/// Returns an option of the kernel's socket.
pub(super) fn option_of(fd: c_int, level: c_int, name: c_int, bytes: usize) -> Option<Vec<u8>> {
    let mut value = vec![0; bytes];
    let mut len = bytes as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is how long `value` is.
    unsafe {
        raw!(SYS_getsockopt, fd, level, name, value.as_mut_ptr(), &raw mut len).ok()?;
    }
    value.truncate(len as usize);
    Some(value)
}

/// Returns what the program has set on the kernel's socket, and what the host's settings have changed: all that differs from a
/// new socket on a host with Linux's defaults. TCP_NODELAY is what the program asked for, whatever we have made of it.
pub(super) fn asked_of(fd: c_int) -> Asked {
    let mut asked = Asked::default();
    let fresh = Asked::default();
    for (level, name, bytes) in OPTIONS {
        let value = match (level, name) {
            (libc::SOL_TCP, libc::TCP_NODELAY) => {
                let mut value = vec![0; bytes];
                let mut len = bytes as socklen_t;
                // SAFETY: as above, by the shim that answers what the program has asked for.
                let told = unsafe {
                    let value = value.as_mut_ptr().cast();
                    super::super::shims::options::getsockopt_hook(
                        fd,
                        level,
                        name,
                        value,
                        &raw mut len,
                    )
                };
                (told == 0).then_some(value)
            }
            _ => option_of(fd, level, name, bytes),
        };
        if let Some(value) = value
            && fresh.get(level, name, (0, 0)).as_ref() != Some(&value)
        {
            asked.hear(level, name, &value);
        }
    }
    chosen::tell(fd, &mut asked);
    asked
}

/// Returns the address that the kernel has bound a descriptor to, and whether it is of IPv6.
pub(super) fn local_of(fd: c_int) -> Option<(SocketAddr, bool)> {
    let mut bytes = [0_u8; size_of::<sockaddr_storage>()];
    let mut len = bytes.len() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is how long the array is.
    unsafe { raw!(SYS_getsockname, fd, bytes.as_mut_ptr(), &raw mut len) }.ok()?;
    let name = name::read(bytes.get(..len as usize)?).ok()?;
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    Some((name, i32::from(family) == libc::AF_INET6))
}

pub(super) fn is_non_blocking(fd: c_int) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) };
    flags.is_ok_and(|flags| flags as c_int & libc::O_NONBLOCK != 0)
}

/// Evaluates the flags that a program written for F-Stack's adapter adds to a socket's type to choose its stack (ff_adapter.h):
/// returns the type without them, and whether it must be the kernel's. Without the stack the kernel refuses them.
pub(crate) fn wanted_stack(kind: c_int) -> (c_int, bool) {
    const SOCK_FSTACK: c_int = 0x0100_0000;
    const SOCK_KERNEL: c_int = 0x0200_0000;
    if !super::ON.load(core::sync::atomic::Ordering::Relaxed) {
        return (kind, false);
    }
    let kernels = kind & (SOCK_KERNEL | SOCK_FSTACK) == SOCK_KERNEL;
    (kind & !(SOCK_KERNEL | SOCK_FSTACK), kernels)
}

/// Returns whether the program wants a socket to stay on the kernel.
pub(super) fn is_kernels(fd: c_int) -> bool {
    POSIX.find(fd).is_some_and(|at| at.socket.is(flag::KERNELS))
}

/// Begins to listen on the stack, after listen(2) has succeeded on the kernel's socket.
pub(crate) fn listens(fd: c_int) {
    if !is_on() {
        return;
    }
    if is_kernels(fd) {
        return places::kernels(fd, ASKED_FOR);
    }
    let Some((local, ipv6)) = local_of(fd) else { return };
    if local.ip().is_loopback() {
        return places::kernels(fd, "it listens at an address of the loopback device");
    }
    if let Some(why) = chosen::why_kernels(fd) {
        return places::kernels(fd, &why);
    }
    if let Some(why) = signals::why_kernels_listener(fd) {
        return places::kernels(fd, why);
    }
    let mut asked = asked_of(fd);
    chosen::tell_of_listener(fd, &mut asked);
    let is_new = !has(fd);
    let end = ListeningEnd { local, ipv6, v6_only: ipv6 && is_v6_only(fd) };
    SOCKETS.listen(fd, end, backlog_of(fd).unwrap_or(MOST_WAIT).clamp(1, MOST_WAIT), asked);
    if is_new {
        places::listens_later(fd);
        aliases::go_over(fd, &aliases::others(fd), Call::Accept);
    }
}

/// Returns IPV6_V6ONLY, which binding to an IPv6 address sets, too.
pub(super) fn is_v6_only(fd: c_int) -> bool {
    option_of(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY, size_of::<c_int>())
        .is_none_or(|value| value.iter().any(|octet| *octet != 0))
}

/// Handles a descriptor that came from outside: at the start, of a server that is upgraded or started with its sockets
/// (systemd), or over a Unix socket. One that listens already does so on the stack, too.
pub(crate) fn inherited(fd: c_int) {
    if is_on() && POSIX.find(fd).is_some() && is_listening(fd) {
        if let Some((_, ipv6)) = local_of(fd) {
            chosen::was_set_elsewhere(fd, ipv6);
        }
        listens(fd);
    }
}

pub(super) fn is_listening(fd: c_int) -> bool {
    option_of(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, size_of::<c_int>())
        .is_some_and(|listens| listens.iter().any(|octet| *octet != 0))
}

/// Returns what the kernel has made of the backlog of listen(2): -1, as php-fpm has it, is as many as there may be
/// (net.core.somaxconn).
fn backlog_of(fd: c_int) -> Option<u32> {
    /// Offset of tcpi_sacked, which holds it for a listener (tcp_get_info).
    const BACKLOG_AT: usize = 28;
    let info = option_of(fd, libc::SOL_TCP, libc::TCP_INFO, size_of::<libc::tcp_info>())?;
    info.get(BACKLOG_AT..)?.first_chunk().map(|octets| u32::from_ne_bytes(*octets))
}

/// Makes an accept4(2) on a listener that is on the stack as well.
///
/// # Safety
/// `peer` and `len` as for accept4(2).
pub(crate) unsafe fn accept(
    listener: c_int,
    peer: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        return fail(Errno::EINVAL) as c_int;
    }
    let (fd, name) = match SOCKETS.accept(listener, flags) {
        Ok(Accepted::OnStack { fd, peer: name }) => {
            places::is_new(fd);
            places::on_stack(fd, OnStack::Accepted);
            (fd, name)
        }
        Ok(Accepted::Kernels { fd, peer: name }) => {
            POSIX.accepted(fd, listener);
            places::came_to_kernel(fd, listener);
            (fd, name)
        }
        Ok(Accepted::Passed(connection)) => {
            let (fd, name) = accepting::passed(connection, flags);
            POSIX.accepted(fd, listener);
            places::is_new(fd);
            places::kernels(fd, "it waited to be accepted by a process that has left its port");
            (fd, name)
        }
        Err(error) => return fail(error) as c_int,
    };
    // SAFETY: as promised; a connection whose peer's name cannot be written is closed, as on the kernel (do_accept).
    unsafe {
        if !peer.is_null() && tell(&name, peer, len) != 0 {
            let error = linux::errno();
            descriptors::close_hook(fd);
            return crate::raw::fail(uncork_posix::Errno(error)) as c_int;
        }
    }
    fd
}

/// Waits at a kernel listener whose accept(2) has returned EAGAIN ([`uncork_sockets::Sockets::await_kernels`]). Returns whether
/// to call it again; if not, errno says why.
pub(crate) fn awaits(listener: c_int, begun: std::time::Instant) -> bool {
    let awaited = SOCKETS.await_kernels(listener, begun);
    if awaited != Ok(true) {
        fail(awaited.err().unwrap_or(Errno::EAGAIN));
    }
    awaited == Ok(true)
}

/// Writes an address where the program wants it, as much of it as there is room for.
///
/// # Safety
/// `into` has room for `*len` bytes, or one of them is an address where nothing can be.
pub(super) unsafe fn tell(name: &[u8], into: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: as promised.
    unsafe {
        if faults::is_nowhere(len) {
            return fail(Errno::EFAULT) as c_int;
        }
        let Ok(room) = usize::try_from((*len).cast_signed()) else {
            return fail(Errno::EINVAL) as c_int;
        };
        let room = room.min(name.len());
        if room > 0 && faults::is_nowhere(into) {
            return fail(Errno::EFAULT) as c_int;
        }
        core::ptr::copy_nonoverlapping(name.as_ptr(), into.cast(), room);
        *len = name.len() as socklen_t;
    }
    0
}

/// shutdown(2).
pub(crate) fn shutdown(fd: c_int, how: c_int) -> c_int {
    if SOCKETS.is_listener(fd) {
        // SAFETY: no pointers.
        let result = unsafe { real::shutdown()(fd, how) };
        if result == 0 && how != libc::SHUT_WR {
            SOCKETS.shut_listener(fd);
        }
        return result;
    }
    done(SOCKETS.shutdown(fd, how))
}

/// Handles a descriptor that is about to be closed, or replaced.
pub(crate) fn closing(fd: c_int) {
    if POSIX.is_vfork_child() {
        return;
    }
    super::duplicates::closing(fd);
    super::disarmed::closing(fd);
    if has(fd) {
        handlers::begin();
        if is_on() && SOCKETS.is_last_of_shared(fd) {
            // A child has it, too, and goes on with it.
            let _ = super::hand_over(fd, "a child of fork goes on with it");
        }
        let _ = SOCKETS.close(fd);
        forget(fd);
    } else if super::is_of_parent(fd) {
        SOCKETS.forget(fd);
        forget(fd);
    } else if super::has_set(fd) {
        SOCKETS.close_set(fd);
        forget(fd);
    } else {
        SOCKETS.close_if_waited_for(fd);
    }
}

/// Returns whether a descriptor is closed by exec.
pub(super) fn closes_on_exec(fd: c_int) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { raw!(SYS_fcntl, fd, libc::F_GETFD) };
    flags.is_ok_and(|flags| flags as c_int & libc::FD_CLOEXEC != 0)
}

/// Returns whether the socket that stands for a connection is inherited by the program that a child of vfork becomes. The child
/// may have closed it, and something else may have its number.
pub(super) fn is_inherited(fd: c_int) -> bool {
    !closes_on_exec(fd) && is_unconnected(fd)
}

/// Returns whether it is a TCP socket without a connection.
pub(super) fn is_unconnected(fd: c_int) -> bool {
    /// linux/tcp_states.h
    const TCP_CLOSE: u8 = 7;
    option_of(fd, libc::SOL_TCP, libc::TCP_INFO, 1).is_some_and(|info| info == [TCP_CLOSE])
}

/// Marks a descriptor as unknown.
pub(super) fn forget(fd: c_int) {
    if let Some(byte) = table::state(fd) {
        byte.store(state::UNKNOWN, SeqCst);
    }
    places::is_new(fd);
}

/// Handles a range of descriptors, from `first` to `last`, that is about to be closed.
pub(crate) fn closing_range(first: u32, last: u32) {
    if !is_on() {
        return;
    }
    let highest = table::HIGHEST.load(SeqCst).max(0).unsigned_abs();
    for fd in first..=last.min(highest) {
        closing(fd.cast_signed());
    }
}

/// Notes that `new` has become a duplicate of `old`, which is on the stack.
pub(crate) fn duplicated(old: c_int, new: c_int) {
    if SOCKETS.duplicated(old, new).is_ok() {
        mark(new, state::STACK);
        places::is_like(new, old);
    }
}

/// Makes an fcntl(2), as far as it concerns the socket. None: it concerns the descriptor.
pub(crate) fn control(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    match command {
        libc::F_GETFL => {
            if let Some(flags) = SOCKETS.at_listener(fd, || accepting::status(fd)) {
                return Some(count(flags.map(|flags| flags as usize)) as c_int);
            }
            let non_blocking = SOCKETS.is_non_blocking(fd).ok()?;
            Some(libc::O_RDWR | if non_blocking { libc::O_NONBLOCK } else { 0 })
        }
        libc::F_SETFL => {
            let flags = argument as c_int;
            if flags & libc::O_ASYNC != 0 {
                return Some(signals::set(true));
            }
            let at_kernels = accepting::in_turn(|insists| {
                SOCKETS.at_listener(fd, || accepting::set_status(fd, flags, insists))
            });
            let set = || SOCKETS.set_non_blocking(fd, flags & libc::O_NONBLOCK != 0);
            Some(done(at_kernels.unwrap_or_else(set)))
        }
        _ => signals::control(fd, command, argument),
    }
}

/// Makes an ioctl(2). None: the kernel must make it.
///
/// # Safety
/// As for ioctl(2).
pub(crate) unsafe fn ask(fd: c_int, request: c_ulong, argument: usize) -> Option<c_int> {
    if request == libc::FIONBIO {
        if faults::is_nowhere(argument as *const c_int) {
            return Some(fail(Errno::EFAULT) as c_int);
        }
        // SAFETY: as promised.
        let on = unsafe { (argument as *const c_int).read_unaligned() } != 0;
        let at_kernels = accepting::in_turn(|insists| {
            SOCKETS.at_listener(fd, || accepting::set_non_blocking(fd, on, insists))
        });
        let set = || SOCKETS.set_non_blocking(fd, on);
        return Some(done(at_kernels.unwrap_or_else(set)));
    }
    // SAFETY: as promised.
    if let Some(result) = unsafe { signals::ask(fd, request, argument) } {
        return Some(result);
    }
    match SOCKETS.queue(fd, request) {
        Ok(None) => None,
        Ok(Some(_)) if faults::is_nowhere(argument as *const c_int) => {
            Some(fail(Errno::EFAULT) as c_int)
        }
        Ok(Some(bytes)) => {
            // SAFETY: as promised.
            unsafe { (argument as *mut c_int).write_unaligned(bytes) };
            Some(0)
        }
        Err(error) => Some(fail(error) as c_int),
    }
}

/// Makes a setsockopt(2). None: the kernel's socket must be told, too, or alone.
///
/// # Safety
/// As for setsockopt(2).
pub(crate) unsafe fn set_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Option<c_int> {
    if faults::is_nowhere(value) || c_int::try_from(len).is_err() {
        // The kernel reports what is wrong with it.
        return None;
    }
    if chosen::is_of_listeners(level, name) && SOCKETS.is_listener(fd) {
        return Some(chosen::set_of_listener(fd, name, value, len));
    }
    // SAFETY: as promised.
    let bytes = unsafe { slice::from_raw_parts(value.cast::<u8>(), len as usize) };
    match SOCKETS.set_option(fd, level, name, bytes) {
        Ok(true) if SOCKETS.is_listener(fd) => None,
        Ok(true) => Some(0),
        Ok(false) if SOCKETS.is_listener(fd) && chosen::is_for_the_stack(level, name, bytes) => {
            None
        }
        Ok(false) if is_in_force(fd, level, name, bytes) => Some(0),
        // All accepted connections share one kernel socket until an option must be set on one of them.
        Ok(false) => match SOCKETS.give_its_own(fd) {
            Ok(()) if chosen::is_for_the_stack(level, name, bytes) => None,
            // Only the kernel knows what it means, if it is known at all.
            // SAFETY: as promised.
            Ok(()) => match unsafe { raw!(SYS_setsockopt, fd, level, name, value, len) } {
                Err(error) if matches!(error.0, libc::ENOPROTOOPT | libc::ENOENT) => {
                    Some(crate::raw::fail(error) as c_int)
                }
                _ => {
                    let why = chosen::why(level.cast_unsigned(), name.cast_unsigned());
                    if SOCKETS.leave_to_kernel(fd, &why).is_err() {
                        super::hand_over_if_ours(fd, &why);
                    }
                    None
                }
            },
            // There is no descriptor left for a socket of its own.
            Err(_) if chosen::is_for_the_stack(level, name, bytes) => Some(0),
            Err(error) => Some(fail(error) as c_int),
        },
        Err(error) => Some(fail(error) as c_int),
    }
}

/// Returns whether an option has this value already. Programs set all options of the listener on an accepted connection
/// (Erlang's `inet` does), and most of them have those values from the beginning.
fn is_in_force(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> bool {
    value.len() == size_of::<c_int>()
        && option_of(fd, level, name, value.len()).is_some_and(|told| told == value)
}

/// Returns TCP_INFO of a listener: the kernel's, and what waits on the stack. None: it is not a listener.
fn listener_info(fd: c_int) -> Option<Vec<u8>> {
    /// More than any kernel returns.
    const ROOM: usize = 512;
    let waiting = SOCKETS.waiting(fd)?;
    let mut told = option_of(fd, libc::SOL_TCP, libc::TCP_INFO, ROOM)?;
    info::add_waiting(&mut told, waiting);
    Some(told)
}

/// Makes a getsockopt(2). None: the kernel's socket answers.
///
/// # Safety
/// As for getsockopt(2).
pub(crate) unsafe fn option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<c_int> {
    // SAFETY: as promised.
    if faults::is_nowhere(len) || unsafe { c_int::try_from(*len) }.is_err() {
        // Nothing is read from the stack: the error of a socket is reported once.
        let error = if faults::is_nowhere(len) { Errno::EFAULT } else { Errno::EINVAL };
        return Some(fail(error) as c_int);
    }
    if (level, name) == (libc::SOL_SOCKET, libc::SO_COOKIE) {
        // The cookie of the kernel's socket behind it, which from now on is this connection's alone.
        return SOCKETS.give_its_own(fd).err().map(|error| fail(error) as c_int);
    }
    let answer = match SOCKETS.option(fd, level, name) {
        Ok(None) if (level, name) == (libc::SOL_TCP, libc::TCP_INFO) => listener_info(fd)?,
        Ok(answer) => answer?,
        Err(error) => return Some(fail(error) as c_int),
    };
    // SAFETY: as promised: `*len` bytes of room.
    unsafe {
        let room = (*len as usize).min(answer.len());
        if room > 0 && faults::is_nowhere(value) {
            return Some(fail(Errno::EFAULT) as c_int);
        }
        core::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast(), room);
        *len = room as socklen_t;
    }
    Some(0)
}
