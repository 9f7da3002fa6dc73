//! connect(2), and the local ends of connections: reserved, or assigned by bind(2).

use core::slice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};

use libc::{c_int, msghdr, sockaddr, sockaddr_storage, socklen_t};
use nix::errno::Errno;
use uncork_posix::Call;
use uncork_posix::whereabouts::OnStack;
use uncork_sockets::{Begun, errno, name};

use super::calls::{
    ASKED_FOR, asked_of, is_kernels, is_non_blocking, is_v6_only, local_of, option_of,
};
use super::{
    SOCKETS, aliases, cancelling, chosen, done, fail, faults, handlers, has, is_on, places, signals,
};
use crate::raw::raw;
use crate::{POSIX, real};

/// Connects a kernel socket on the stack, if the route to the peer leads over one of its devices. None: the kernel must connect
/// it.
///
/// # Safety
/// As for connect(2).
pub(crate) unsafe fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> Option<c_int> {
    handlers::begin();
    cancelling::point();
    if has(fd) {
        // SAFETY: as promised.
        return super::unless_over(Some(unsafe { connect_again(fd, to, len) }));
    }
    // SAFETY: as promised.
    match unsafe { begin(fd, (to, len), Opening::Connect) }? {
        Err(error) => Some(fail(error) as c_int),
        // To the program it is connected (TCP_FASTOPEN_CONNECT).
        Ok((Begun::Deferred, _)) => Some(0),
        Ok((Begun::Leaves, true)) => Some(done(finish_connect(fd))),
        Ok((Begun::Leaves, false)) => Some(fail(Errno::EINPROGRESS) as c_int),
    }
}

/// Opens a connection on the stack for sendto(2) and the like with MSG_FASTOPEN, on a kernel socket that is not connected; the
/// caller then sends the data. None: the kernel must make the call.
///
/// # Safety
/// As for connect(2).
pub(crate) unsafe fn open_fast(
    fd: c_int,
    flags: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> Option<Result<(), Errno>> {
    if flags & libc::MSG_FASTOPEN == 0 || !is_on() || has(fd) || POSIX.find(fd).is_none() {
        return None;
    }
    POSIX.before_wait(Call::Connect);
    handlers::begin();
    if !SOCKETS.may_open_fast() {
        // The kernel refuses it.
        return None;
    }
    // SAFETY: as promised.
    let begun = unsafe { begin(fd, (to, len), Opening::Fast) }?;
    Some(begun.and_then(|(begun, waits)| match begun {
        Begun::Deferred => Ok(()),
        Begun::Leaves if waits && flags & libc::MSG_DONTWAIT == 0 => finish_connect(fd),
        // No cookie is known, and one was asked for (tcp_sendmsg_fastopen).
        Begun::Leaves => Err(Errno::EINPROGRESS),
    }))
}

/// As [`open_fast`], for sendmsg(2).
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn open_fast_by_message(
    fd: c_int,
    flags: c_int,
    message: *const msghdr,
) -> Option<Result<(), Errno>> {
    if flags & libc::MSG_FASTOPEN == 0 || faults::is_nowhere(message) {
        return None;
    }
    // SAFETY: as promised.
    unsafe { open_fast(fd, flags, (*message).msg_name.cast(), (*message).msg_namelen) }
}

/// How a connection is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// connect(2).
    Connect,
    /// MSG_FASTOPEN.
    Fast,
}

/// Makes a connect(2) of a socket that is on the stack.
///
/// # Safety
/// As for connect(2).
unsafe fn connect_again(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as promised.
    match unsafe { family_of(to, len) } {
        // SAFETY: as promised.
        Ok(libc::AF_UNSPEC) => return unsafe { disconnect(fd, to, len) },
        Ok(_) => {}
        Err(error) => return fail(error) as c_int,
    }
    done(finish_connect(fd).map_err(|error| match error {
        Errno::EINVAL => Errno::EISCONN,
        // This call is not the one that began it.
        Errno::EINPROGRESS => Errno::EALREADY,
        other => other,
    }))
}

/// Begins a connection on the stack, if the route to the peer leads over one of its devices, and returns whether the call waits.
/// None: the kernel must make it.
///
/// # Safety
/// As for connect(2).
unsafe fn begin(
    fd: c_int,
    (to, len): (*const sockaddr, socklen_t),
    opening: Opening,
) -> Option<Result<(Begun, bool), Errno>> {
    if faults::is_nowhere(to) || len < 16 || !is_on() || POSIX.find(fd).is_none() {
        return None;
    }
    let kernels = |why: &str| {
        places::kernels(fd, why);
        None
    };
    if is_kernels(fd) {
        return kernels(ASKED_FOR);
    }
    if aliases::is_elsewhere(fd) {
        return kernels(aliases::ELSEWHERE);
    }
    if let Some(why) = chosen::why_kernels(fd) {
        return kernels(&why);
    }
    if let Some(why) = signals::why_kernels(fd) {
        return kernels(why);
    }
    let others = aliases::others(fd);
    if aliases::are_standard(&others) {
        return kernels("it is standard input, output or error (dup)");
    }
    if aliases::has_stream(fd, &others) {
        return kernels(aliases::STDIO);
    }
    // SAFETY: as promised.
    let bytes = unsafe { slice::from_raw_parts(to.cast::<u8>(), len as usize) };
    let remote = name::read(bytes).ok()?;
    let (bound, ipv6) = local_of(fd)?;
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: as promised.
    if unsafe { family_of(to, len) } != Ok(family) {
        // The kernel refuses an address of another family.
        return None;
    }
    if matches!(remote.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        return kernels("the address of its other end is of one link alone (fe80::/10)");
    }
    let source = match SOCKETS.source_for(remote, bound) {
        Ok(source) => source,
        Err(why) => return kernels(&why),
    };
    // Read as the program has set it, before the socket is bound.
    let v6_only = ipv6 && is_v6_only(fd);
    if v6_only && remote.is_ipv4() {
        // The kernel refuses it.
        return None;
    }
    let reserved = || SOCKETS.reserved_end((fd, namespace_of(fd)?), source, remote);
    let any_port = bound.port() == 0 && port_range(fd).is_none() && !shares_ports(fd);
    let reserved = any_port.then(reserved).flatten();
    let Some(local) = reserved.or_else(|| bound_end(fd, (source, remote), bound, ipv6)) else {
        return kernels("the kernel does not reserve a port for it");
    };
    if bound.port() != 0 && SOCKETS.is_between(local, remote) {
        // A SYN of the kernel's would not be answered either: segments between these ends belong to the other connection.
        return Some(Err(Errno::EADDRNOTAVAIL));
    }
    let non_blocking = is_non_blocking(fd);
    let asked = asked_of(fd);
    let fast = opening == Opening::Fast || asked.connects_fast();
    let (ends, family) = ((local, remote), (ipv6, v6_only));
    let begun = match SOCKETS.begin_connect(fd, ends, family, (non_blocking, fast), asked) {
        Ok(begun) => begun,
        Err(why) => return kernels(&why),
    };
    places::on_stack(fd, OnStack::Connected);
    aliases::go_over(fd, &others, Call::Connect);
    Some(Ok((begun, !non_blocking)))
}

/// Returns the family of an address, if it is one that the kernel reads.
///
/// # Safety
/// As for connect(2).
unsafe fn family_of(name: *const sockaddr, len: socklen_t) -> Result<c_int, Errno> {
    match len as usize {
        len if len > size_of::<sockaddr_storage>() || len < size_of::<libc::sa_family_t>() => {
            Err(Errno::EINVAL)
        }
        _ if faults::is_nowhere(name) => Err(Errno::EFAULT),
        // SAFETY: as promised: it has its first two octets.
        _ => Ok(c_int::from(unsafe { name.cast::<libc::sa_family_t>().read_unaligned() })),
    }
}

/// Disconnects (connect(2) with AF_UNSPEC): a connection is dissolved, a listener stops listening.
///
/// # Safety
/// As for connect(2).
unsafe fn disconnect(fd: c_int, nobody: *const sockaddr, len: socklen_t) -> c_int {
    let is_listener = SOCKETS.is_listener(fd);
    if !is_listener && let Err(error) = SOCKETS.disconnect(fd) {
        return fail(error) as c_int;
    }
    // The kernel's socket gives its port back, unless the program has chosen it.
    // SAFETY: as promised.
    let result = unsafe { real::connect()(fd, nobody, len) };
    if is_listener && result == 0 {
        SOCKETS.shut_listener(fd);
    }
    result
}

/// Waits for a connection, or returns its result. After one that failed another one may be tried.
fn finish_connect(fd: c_int) -> Result<(), Errno> {
    let result = SOCKETS.finish_connect(fd);
    let failed = result.is_err_and(errno::is_failed_connect);
    if failed && let Ok(given) = SOCKETS.give_back(fd) {
        super::handing::settle(&given);
    }
    result
}

/// Returns the cookie of a socket's network namespace.
fn namespace_of(fd: c_int) -> Option<u64> {
    /// asm-generic/socket.h, since Linux 5.14.
    const SO_NETNS_COOKIE: c_int = 71;
    let value = option_of(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, size_of::<u64>())?;
    Some(u64::from_ne_bytes(*value.first_chunk()?))
}

/// Returns whether other sockets with the same option may bind to the port, too: to that of the kernel's socket they can.
fn shares_ports(fd: c_int) -> bool {
    [libc::SO_REUSEADDR, libc::SO_REUSEPORT].into_iter().any(|option| {
        option_of(fd, libc::SOL_SOCKET, option, size_of::<c_int>())
            .is_some_and(|value| value.iter().any(|octet| *octet != 0))
    })
}

/// linux/in.h, since Linux 6.3: both ends of the range that a port must be from, or 0.
const IP_LOCAL_PORT_RANGE: c_int = 51;

/// Returns the range that the program wants a port from, if any.
fn port_range(fd: c_int) -> Option<Vec<u8>> {
    // A kernel that does not know the option has no range.
    option_of(fd, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, size_of::<u32>())
        .filter(|range| range.iter().any(|octet| *octet != 0))
}

/// Returns the end that a descriptor is bound to, or becomes bound to here: the kernel reserves the port.
fn bound_end(
    fd: c_int,
    (source, remote): (IpAddr, SocketAddr),
    bound: SocketAddr,
    ipv6: bool,
) -> Option<SocketAddr> {
    let from = |port| bind(fd, SocketAddr::new(source, port), bound, ipv6);
    let port = free_port(fd, (source, remote), bound, ipv6);
    // Another socket may have taken that port by now.
    from(port).or_else(|| from(bound.port()))
}

/// Returns the port to connect from, or 0 for any that the kernel chooses.
///
/// When a connection is closed, the kernel may assign its port again, but in TIME-WAIT the stack still has it, and would refuse
/// the same ends once more. On kernel sockets another port is taken, too. A socket can be bound only once, so a port is found by
/// a socket that is used for nothing else.
fn free_port(
    fd: c_int,
    (source, remote): (IpAddr, SocketAddr),
    bound: SocketAddr,
    ipv6: bool,
) -> u16 {
    /// If so many ports in a row are taken, nearly all are.
    const TRIES: usize = 16;
    if bound.port() != 0 || !SOCKETS.has_opened() {
        return bound.port();
    }
    let any = SocketAddr::new(source, 0);
    let range = port_range(fd);
    let one = || {
        let asks = super::outside::new_socket(ipv6).ok()?.into_raw_fd();
        if let Some(range) = &range {
            let (at, len) = (range.as_ptr(), range.len());
            // SAFETY: `at` has `len` octets; if this fails, any port is tried.
            let _ = unsafe {
                raw!(SYS_setsockopt, asks, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, at, len)
            };
        }
        let given = bind(asks, any, any, ipv6);
        // SAFETY: no pointers; it is nobody else's.
        let _ = unsafe { raw!(SYS_close, asks) };
        given
    };
    let given = (0..TRIES).map_while(|_| one()).find(|local| !SOCKETS.is_taken(*local, remote));
    given.map_or(0, |local| local.port())
}

/// Returns whether bind(2), which has reported that the port is in use, may succeed now: a connection of this program had it.
///
/// # Safety
/// As for bind(2).
pub(crate) unsafe fn gives_back(to: *const sockaddr, len: socklen_t) -> bool {
    if !is_on() || faults::is_nowhere(to) {
        return false;
    }
    // SAFETY: as promised.
    let bytes = unsafe { slice::from_raw_parts(to.cast::<u8>(), len as usize) };
    name::read(bytes).is_ok_and(|end| SOCKETS.gives_back(end.port()))
}

/// Makes a bind(2) of a connection, which is bound already: errors of the address come before that one.
///
/// # Safety
/// As for bind(2).
pub(crate) unsafe fn bind_again(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    let mut name = [0_u8; size_of::<sockaddr_storage>()];
    let is_name = !faults::is_nowhere(to) && len as usize <= name.len();
    let Some((_, ipv6)) = local_of(fd).filter(|_| is_name) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let Ok(another) = super::outside::new_socket(ipv6) else {
        return fail(Errno::EINVAL) as c_int;
    };
    // SAFETY: as promised, and the address is not longer than the buffer.
    unsafe { core::ptr::copy_nonoverlapping(to.cast(), name.as_mut_ptr(), len as usize) };
    // Without a port: that may be another socket's, which must not be reported here.
    name[2..4].fill(0);
    // SAFETY: an address of this length, and a socket that nobody else has.
    let bound = unsafe { raw!(SYS_bind, another.as_raw_fd(), name.as_ptr(), len) };
    match bound {
        // For IPv6 the kernel does not check the address then (__inet6_bind).
        Err(error) if error.0 != libc::EADDRNOTAVAIL || !ipv6 => crate::raw::fail(error) as c_int,
        _ => fail(Errno::EINVAL) as c_int,
    }
}

/// Binds a descriptor, unless it is bound, and returns the end that it is bound to.
fn bind(fd: c_int, to: SocketAddr, bound: SocketAddr, ipv6: bool) -> Option<SocketAddr> {
    if bound.port() != 0 {
        return Some(to);
    }
    let name = name::octets(to, ipv6);
    // SAFETY: an address of this length.
    unsafe { raw!(SYS_bind, fd, name.as_ptr(), name.len()) }.ok()?;
    local_of(fd).map(|(local, _)| local)
}
