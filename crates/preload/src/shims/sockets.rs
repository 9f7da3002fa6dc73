//! Calls that make, connect or shut down sockets: socket, bind, listen, accept, connect, shutdown.

use libc::{c_int, c_uint, sockaddr, socklen_t};
use uncork_posix::kernel::Kernel;
use uncork_posix::socket::flag;
use uncork_posix::{Call, Errno, Origin};
use uncork_sockets::End;

use super::descriptors;
use crate::jump::descriptor_shim;
use crate::raw::{fail, libc_result, raw};
use crate::stacked::{self, on_stack};
use crate::{POSIX, linux, real, spin};

/// socket(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn socket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    let (kind, kernels) = stacked::wanted_stack(kind);
    // SAFETY: the program's own call.
    let fd = unsafe { real::socket()(domain, kind, protocol) };
    let stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
    let is_tcp = stream
        && matches!(domain, libc::AF_INET | libc::AF_INET6)
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if fd >= 0 && !is_tcp {
        POSIX.forget(fd);
    } else if fd >= 0 {
        POSIX.opened(fd, Origin::Made);
        stacked::places::is_new(fd);
        if kernels && let Some(at) = POSIX.find(fd) {
            at.socket.set(flag::KERNELS);
        }
    }
    fd
}

/// bind(2). A connection has a local address already, even if its kernel socket has none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn bind(
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> c_int {
    if stacked::has(fd) && stacked::is_on() && !stacked::SOCKETS.is_listener(fd) {
        // SAFETY: the program's own call.
        return unsafe { stacked::bind_again(fd, to, len) };
    }
    // SAFETY: the program's own call.
    let result = unsafe { real::bind()(fd, to, len) };
    if result == 0 || linux::errno() != libc::EADDRINUSE {
        return result;
    }
    // SAFETY: the program's own call, once more.
    unsafe {
        if stacked::gives_back(to, len) {
            return real::bind()(fd, to, len);
        }
    }
    // What ran in between may have changed errno.
    fail(Errno(libc::EADDRINUSE)) as c_int
}

/// listen(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if stacked::has(fd) && stacked::is_on() && !stacked::SOCKETS.is_listener(fd) {
        return fail(Errno(libc::EINVAL)) as c_int;
    }
    // SAFETY: the program's own call.
    let result = unsafe { real::listen()(fd, backlog) };
    if result == 0 {
        POSIX.listens(fd);
        stacked::listens(fd);
    }
    result
}

fn accepting(listener: c_int, call: impl Fn() -> c_int) -> c_int {
    POSIX.before_read(listener, Call::Accept);
    let waits =
        !spin::is_off() && POSIX.find(listener).is_some() && !POSIX.kernel.is_nonblocking(listener);
    let begun = stacked::has(listener).then(std::time::Instant::now);
    let mut fd = if waits { accept_spinning(listener, &call) } else { call() };
    while fd < 0
        && linux::errno() == libc::EAGAIN
        && begun.is_some_and(|begun| stacked::awaits(listener, begun))
    {
        fd = call();
    }
    if fd >= 0 {
        POSIX.accepted(fd, listener);
        stacked::places::came_to_kernel(fd, listener);
    }
    fd
}

fn accept_spinning(listener: c_int, call: impl Fn() -> c_int) -> c_int {
    let begin = linux::now();
    if let Err(error) = spin::readiness(listener, libc::POLLIN, linux::receive_timeout(listener)) {
        return fail(error) as c_int;
    }
    let fd = call();
    spin::learn_since(begin);
    fd
}

/// accept(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept(
    listener: c_int,
    peer: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        on_stack!(listener => stacked::accept(listener, peer, len, 0));
        accepting(listener, || real::accept()(listener, peer, len))
    }
}

/// accept4(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept4(
    listener: c_int,
    peer: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        on_stack!(listener => stacked::accept(listener, peer, len, flags));
        accepting(listener, || real::accept4()(listener, peer, len, flags))
    }
}

/// connect(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn connect(
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> c_int {
    POSIX.before_wait(Call::Connect);
    // SAFETY: the program's own call.
    unsafe {
        if let Some(result) = stacked::connect(fd, to, len) {
            return result;
        }
        if !spin::is_off() && POSIX.find(fd).is_some() && !POSIX.kernel.is_nonblocking(fd) {
            return connect_spinning(fd, to, len);
        }
        real::connect()(fd, to, len)
    }
}

/// Begins to connect without waiting, spins, and lets the program's own call finish: on a socket
/// that is connecting it waits, on one that has connected meanwhile it succeeds.
///
/// # Safety
/// As for connect(2).
unsafe fn connect_spinning(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as promised. O_NONBLOCK is set for the length of one call that does not wait and that
    // nothing can interrupt; no other thread works on a socket that is not connected.
    unsafe {
        let Ok(flags) = raw!(SYS_fcntl, fd, libc::F_GETFL) else {
            return real::connect()(fd, to, len);
        };
        let _ = raw!(SYS_fcntl, fd, libc::F_SETFL, flags | libc::O_NONBLOCK as usize);
        let begun = raw!(SYS_connect, fd, to, len);
        let _ = raw!(SYS_fcntl, fd, libc::F_SETFL, flags);
        match begun {
            Err(error) if error.0 == libc::EINPROGRESS => {}
            // Another call has begun it: this one waits, too.
            Err(error) if error.0 == libc::EALREADY => return real::connect()(fd, to, len),
            done => return libc_result(done) as c_int,
        }
        let begin = linux::now();
        match spin::readiness(fd, libc::POLLOUT, linux::send_timeout(fd)) {
            // A connect that times out goes on by itself, and is reported so.
            Err(Errno::EAGAIN) => return fail(Errno(libc::EINPROGRESS)) as c_int,
            Err(error) => return fail(error) as c_int,
            Ok(()) => {}
        }
        let result = real::connect()(fd, to, len);
        if result < 0 && linux::errno() == libc::EALREADY {
            // The kernel says this of a connect that another call has begun, when the time is up.
            return fail(Errno(libc::EINPROGRESS)) as c_int;
        }
        spin::learn_since(begin);
        result
    }
}

/// shutdown(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    on_stack!(at_once fd => stacked::shutdown(fd, how));
    let deferred = POSIX.shutting(fd, matches!(how, libc::SHUT_WR | libc::SHUT_RDWR));
    // SAFETY: the program's own call, or the half of it that need not wait.
    unsafe {
        match (deferred, how) {
            (false, _) => real::shutdown()(fd, how),
            (true, libc::SHUT_RDWR) => real::shutdown()(fd, libc::SHUT_RD),
            (true, _) => 0,
        }
    }
}

descriptor_shim!(getsockname => getsockname_hook, when tcp);
descriptor_shim!(getpeername => getpeername_hook, when tcp);

/// Writes the address of an end; of a listener the kernel knows it.
///
/// # Safety
/// As for getsockname(2); `kernel` is the program's own call.
unsafe fn naming(
    (fd, end): (c_int, End),
    into: *mut sockaddr,
    len: *mut socklen_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    if !stacked::SOCKETS.is_listener(fd) {
        // SAFETY: as promised.
        on_stack!(at_once fd => unsafe { stacked::name(fd, end, into, len) });
    }
    kernel()
}

pub(crate) unsafe extern "C-unwind" fn getsockname_hook(
    fd: c_int,
    into: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { naming((fd, End::Local), into, len, || real::getsockname()(fd, into, len)) }
}

pub(crate) unsafe extern "C-unwind" fn getpeername_hook(
    fd: c_int,
    into: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { naming((fd, End::Remote), into, len, || real::getpeername()(fd, into, len)) }
}

/// Returns whether a pidfd is this very process's (proc_pid_fdinfo(5)).
fn is_own_process(pidfd: c_int) -> bool {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{pidfd}")).unwrap_or_default();
    let pid = told.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse().ok()) == Some(std::process::id())
}

/// pidfd_getfd(2): fetches a descriptor of another process, or duplicates one of this process.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pidfd_getfd(
    pidfd: c_int,
    target: c_int,
    flags: c_uint,
) -> c_int {
    // SAFETY: the program's own call.
    let call = || unsafe { real::pidfd_getfd()(pidfd, target, flags) };
    let is_known = stacked::has(target) || POSIX.find(target).is_some();
    if is_known && is_own_process(pidfd) {
        return descriptors::duplicating(target, call);
    }
    let fd = call();
    if fd >= 0 {
        stacked::places::is_new(fd);
        POSIX.inherited(fd);
    }
    fd
}
