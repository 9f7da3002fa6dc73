//! Socket options, and queries about a socket's queues.

use libc::{c_int, c_ulong, c_void, socklen_t};
use uncork_posix::options::Opt;

use crate::jump::descriptor_shim;
use crate::{POSIX, real, stacked};

descriptor_shim!(setsockopt => setsockopt_hook, when tcp);
descriptor_shim!(getsockopt => getsockopt_hook, when tcp);
descriptor_shim!(ioctl => ioctl_hook, when tcp);

/// TCP_ULP and TCP_REPAIR (linux/tcp.h).
const TCP_ULP: c_int = 31;
const TCP_REPAIR: c_int = 19;

fn option(level: c_int, name: c_int) -> Opt {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Opt::Nodelay,
        (libc::IPPROTO_TCP, libc::TCP_CORK) => Opt::Cork,
        (libc::IPPROTO_TCP, TCP_ULP | TCP_REPAIR) => Opt::Ulp,
        (libc::IPPROTO_TCP, libc::TCP_INFO) => Opt::Info,
        (libc::SOL_SOCKET, libc::SO_ERROR) => Opt::Error,
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => Opt::LowWater,
        _ => Opt::Other,
    }
}

pub(crate) unsafe extern "C-unwind" fn setsockopt_hook(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    stacked::claim_if_parents(fd);
    let option = option(level, name);
    // SAFETY: the program's own call. Its value is read only after the kernel has accepted it, or
    // where a bad pointer would be refused anyhow.
    unsafe {
        if stacked::has(fd)
            && stacked::is_on()
            && let Some(result) =
                stacked::unless_over(stacked::set_option(fd, level, name, value, len))
        {
            return result;
        }
        let call = || real::setsockopt()(fd, level, name, value, len);
        let Some(at) = POSIX.find(fd) else { return call() };
        let note = |result| {
            if result == 0 {
                stacked::chosen::was_set(at.socket, (level, name), value, len);
            }
            result
        };
        if option == Opt::Other {
            return note(call());
        }
        let readable = !value.is_null() && len as usize >= size_of::<c_int>();
        let value_of = || value.cast::<c_int>().read_unaligned();
        // The kernel takes a mark of zero for one byte.
        let off = if option == Opt::LowWater { 0..=1 } else { 0..=0 };
        let on = readable && !off.contains(&value_of());
        POSIX.setting(at, option, on);
        let result = call();
        if result == 0 {
            POSIX.was_set(at, option, on);
        }
        note(result)
    }
}

pub(crate) unsafe extern "C-unwind" fn getsockopt_hook(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    stacked::claim_if_parents(fd);
    let option = option(level, name);
    // SAFETY: the program's own call; when it succeeds, `*len` bytes of `value` are set.
    unsafe {
        if stacked::has(fd)
            && stacked::is_on()
            && let Some(result) = stacked::unless_over(stacked::option(fd, level, name, value, len))
        {
            return result;
        }
        let call = || real::getsockopt()(fd, level, name, value, len);
        let Some(at) = POSIX.find(fd) else { return call() };
        if option == Opt::Other {
            let result = call();
            if result == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_COOKIE) {
                stacked::keep_cookie(at.socket, value);
            }
            return result;
        }
        POSIX.getting(at, option);
        let result = call();
        if result == 0
            && let Some(answer) = POSIX.answer(at, option)
        {
            let bytes = answer.to_ne_bytes();
            let len = (*len as usize).min(bytes.len());
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), len);
        }
        result
    }
}

pub(crate) unsafe extern "C-unwind" fn ioctl_hook(
    fd: c_int,
    request: c_ulong,
    argument: usize,
) -> c_int {
    /// linux/sockios.h. SIOCOUTQ is TIOCOUTQ by another name.
    const SIOCOUTQNSD: c_ulong = 0x894B;
    stacked::claim_if_parents(fd);
    if stacked::has(fd) && stacked::is_on() {
        // SAFETY: the program's own call.
        let result = unsafe { stacked::ask(fd, request, argument) };
        if let Some(result) = stacked::unless_over(result) {
            return result;
        }
    }
    if matches!(request, libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD) {
        POSIX.asking_queue(fd);
    }
    // SAFETY: the program's own call.
    unsafe { real::ioctl()(fd, request, argument) }
}
