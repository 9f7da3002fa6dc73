//! syscall(2): system calls by number, of programs and libraries that bypass the libc functions.

use core::sync::atomic::Ordering::Relaxed;

use libc::{c_int, c_long, c_void, pid_t, sigset_t};
use uncork_posix::{Call, Errno};

use super::passing;
use crate::raw::fail;
use crate::{POSIX, keeper, real, spin, stacked, start};

/// _Fork(3): fork without the handlers that fork itself runs.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) unsafe extern "C-unwind" fn _Fork() -> pid_t {
    start::prepare_fork();
    // SAFETY: the program's own call.
    let child = unsafe { real::_Fork()() };
    if child == 0 {
        start::begin_child();
    } else {
        start::end_fork();
    }
    child
}

/// What a child made by clone(2) must run.
struct Start {
    entry: extern "C-unwind" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// Begins such a child, in its own copy of the memory.
extern "C-unwind" fn begin(start: *mut c_void) -> c_int {
    start::begin_child();
    // SAFETY: `clone` below passes a `Start`, of which the child has a copy at the same address.
    let Start { entry, argument } = unsafe { start.cast::<Start>().read() };
    entry(argument)
}

/// clone(2), by libc's own function. Variadic in C; on x86-64 its arguments are where fixed ones would be. With CLONE_VM the
/// child is a thread, or like one of vfork; without, like one of fork.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn clone(
    entry: extern "C-unwind" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_thread: usize,
    tls: usize,
    child_thread: usize,
) -> c_int {
    // SAFETY: the program's own call, or the same with a beginning of ours in the child.
    unsafe {
        if flags & libc::CLONE_VM != 0 {
            if flags & libc::CLONE_VFORK != 0 {
                stacked::before_vfork();
            }
            POSIX.before_vfork();
            return real::clone()(entry, stack, flags, argument, parent_thread, tls, child_thread);
        }
        start::prepare_fork();
        let mut start = Start { entry, argument };
        let start = (&raw mut start).cast();
        let child = real::clone()(begin, stack, flags, start, parent_thread, tls, child_thread);
        start::end_fork();
        child
    }
}

/// syscall(2). Variadic in C; on x86-64 its arguments are where fixed ones would be, and those that were not given are not used.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the program's own call, by its number or by the function of the same meaning.
    unsafe {
        if let Some(result) = by_name(number, [a, b, c, d, e, f]) {
            return result;
        }
        prepare(number, [a, b, c, d, e, f]);
        let result = real::syscall()(number, a, b, c, d, e, f);
        let new_process = matches!(number, libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork);
        if new_process && result == 0 && POSIX.is_other_process() && !shares_memory(number, a) {
            start::begin_child();
        } else if new_process {
            start::end_fork();
        }
        result
    }
}

/// Returns whether a clone runs in its parent's memory (a thread, or a child like vfork's).
///
/// # Safety
/// `argument` is the call's first one.
unsafe fn shares_memory(number: c_long, argument: usize) -> bool {
    let flags = match number {
        libc::SYS_clone => argument as u64,
        // SAFETY: struct clone_args begins with the flags, and the kernel has accepted it.
        libc::SYS_clone3 => unsafe { (argument as *const u64).read_unaligned() },
        _ => 0,
    };
    flags & libc::CLONE_VM as u64 != 0
}

/// Prepares for a wait on something that we cannot see.
fn before_wait(by: Call) {
    POSIX.before_wait(by);
    stacked::flush();
}

/// Prepares for a call by its number that otherwise goes through as it is.
fn prepare(number: c_long, all @ [a, b, c, ..]: [usize; 6]) {
    const FUTEX_WAITS: [c_int; 4] =
        [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET, libc::FUTEX_LOCK_PI, libc::FUTEX_LOCK_PI2];
    match number {
        libc::SYS_futex => {
            let operation = b as c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
            if FUTEX_WAITS.contains(&operation) {
                before_wait(Call::Futex);
            }
        }
        libc::SYS_futex_waitv => before_wait(Call::Futex),
        libc::SYS_nanosleep => before_wait(Call::Nanosleep),
        libc::SYS_clock_nanosleep => before_wait(Call::ClockNanosleep),
        libc::SYS_sched_yield => before_wait(Call::SchedYield),
        libc::SYS_wait4 => before_wait(Call::Wait4),
        libc::SYS_waitid => before_wait(Call::Waitid),
        libc::SYS_rt_sigtimedwait => before_wait(Call::Sigtimedwait),
        // The other operations of seccomp(2) only query.
        libc::SYS_seccomp if a as u32 <= libc::SECCOMP_SET_MODE_FILTER => keeper::stand_aside(),
        libc::SYS_prctl if a as c_int == libc::PR_SET_SECCOMP => keeper::stand_aside(),
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo => passing::before_kill([a, b, 0, 0, 0, 0]),
        libc::SYS_tgkill => passing::before_tgkill([a, b, c, 0, 0, 0]),
        libc::SYS_tkill => passing::before_raise([b, 0, 0, 0, 0, 0]),
        libc::SYS_io_submit => super::sendfile::before_io_submit([a, b, c, 0, 0, 0]),
        libc::SYS_io_uring_setup => POSIX.uses_io_uring(),
        libc::SYS_io_uring_enter => POSIX.before_wait(Call::IoUring),
        libc::SYS_fork | libc::SYS_clone | libc::SYS_clone3 => {
            start::prepare_fork();
            if number == libc::SYS_clone && a & libc::CLONE_VM as usize != 0 {
                // The child shares the heap, and may go on before this thread does (CLONE_VFORK).
                uncork_heap::after_fork_in_parent();
            }
        }
        libc::SYS_execve | libc::SYS_execveat => {
            stacked::before_exec();
            POSIX.ending_by_exec();
        }
        libc::SYS_exit_group => {
            passing::before_immediate_exit([0; 6]);
        }
        libc::SYS_rt_sigaction if b != 0 => {
            // SAFETY: the program's struct, which begins with the handler.
            let handler = unsafe { (b as *const usize).read_unaligned() };
            spin::note_handler(a as c_int, handler);
        }
        libc::SYS_close_range if c as c_int & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 => {
            POSIX.closing_range(a as u32, b as u32, Call::CloseRange);
        }
        // SAFETY: the program's own call, which reads what these point to, too.
        _ => unsafe { super::poll::before_by_number(number, all) },
    }
}

/// A signal mask as the kernel reads it, which is shorter than libc's.
struct Mask(Option<sigset_t>);

impl Mask {
    /// # Safety
    /// The caller passes the address of a mask in the kernel's format, or null.
    unsafe fn of(address: usize) -> Self {
        if address == 0 {
            return Self(None);
        }
        // SAFETY: a signal set is a number of octets, all of which may be zero.
        let mut mask: sigset_t = unsafe { core::mem::zeroed() };
        // SAFETY: as promised, and the kernel's mask is the shorter one.
        unsafe {
            (&raw mut mask).cast::<u64>().write((address as *const u64).read_unaligned());
        }
        Self(Some(mask))
    }

    /// # Safety
    /// The caller passes the address of an address of such a mask (pselect(2), C library/kernel differences), or null.
    unsafe fn behind(address: usize) -> Self {
        // SAFETY: as promised.
        unsafe {
            Self::of(if address == 0 { 0 } else { (address as *const usize).read_unaligned() })
        }
    }

    fn as_ptr(&self) -> *const sigset_t {
        self.0.as_ref().map_or(core::ptr::null(), core::ptr::from_ref)
    }
}

/// Makes a call that has a shim of its own, and returns its result.
///
/// # Safety
/// As for the system call.
unsafe fn by_name(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    use super::{descriptors, options, poll, read, sendfile, sockets, write};
    let fd = a as c_int;
    // SAFETY: the arguments are those of the function of the same name; the shims written in assembly have the prototype of their
    // real function.
    let result = unsafe {
        match number {
            libc::SYS_read => read::read_hook(fd, b as _, c) as c_long,
            libc::SYS_readv => read::readv_hook(fd, b as _, c as c_int) as c_long,
            libc::SYS_write => write::write_hook(fd, b as _, c) as c_long,
            libc::SYS_writev => write::writev_hook(fd, b as _, c as c_int) as c_long,
            libc::SYS_close => descriptors::close_hook(fd).into(),
            libc::SYS_sendmsg => write::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendto => {
                write::sendto_hook(fd, b as _, c, d as c_int, e as _, f as u32) as c_long
            }
            libc::SYS_recvmsg => read::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvfrom => {
                read::recvfrom_hook(fd, b as _, c, d as c_int, e as _, f as _) as c_long
            }
            libc::SYS_sendfile => sendfile::sendfile_hook(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => {
                sendfile::splice(fd, b as _, c as c_int, d as _, e, f as u32) as c_long
            }
            libc::SYS_socket => sockets::socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_accept => sockets::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => sockets::accept4(fd, b as _, c as _, d as c_int).into(),
            libc::SYS_connect => sockets::connect(fd, b as _, c as u32).into(),
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_dup2 => descriptors::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_setsockopt => {
                options::setsockopt_hook(fd, b as c_int, c as c_int, d as _, e as u32).into()
            }
            libc::SYS_getsockopt => {
                options::getsockopt_hook(fd, b as c_int, c as c_int, d as _, e as _).into()
            }
            libc::SYS_ioctl => options::ioctl_hook(fd, b as _, c).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_getsockname => sockets::getsockname_hook(fd, b as _, c as _).into(),
            libc::SYS_getpeername => sockets::getpeername_hook(fd, b as _, c as _).into(),
            libc::SYS_bind => sockets::bind(fd, b as _, c as u32).into(),
            libc::SYS_listen => sockets::listen(fd, b as c_int).into(),
            libc::SYS_recvmmsg => read::recvmmsg(fd, b as _, c as u32, d as c_int, e as _).into(),
            libc::SYS_sendmmsg => write::sendmmsg(fd, b as _, c as u32, d as c_int).into(),
            // The position is in two halves, of which the second is unused on 64 bits.
            libc::SYS_preadv2 => {
                read::preadv2_hook(fd, b as _, c as c_int, d as _, f as c_int) as c_long
            }
            libc::SYS_pwritev2 => {
                write::pwritev2_hook(fd, b as _, c as c_int, d as _, f as c_int) as c_long
            }
            libc::SYS_poll => poll::poll(a as _, b as _, c as c_int).into(),
            _ if !stacked::ON.load(Relaxed) => {
                return by_name_of_kernels(number, [a, b, c, d, e, f]);
            }
            libc::SYS_close_range => {
                descriptors::close_range(a as u32, b as u32, c as c_int).into()
            }
            libc::SYS_ppoll => poll::ppoll(a as _, b as _, c as _, Mask::of(d).as_ptr()).into(),
            libc::SYS_select => poll::select(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_pselect6 => {
                poll::pselect(fd, b as _, c as _, d as _, e as _, Mask::behind(f).as_ptr()).into()
            }
            libc::SYS_epoll_ctl => poll::epoll_ctl_hook(fd, b as c_int, c as c_int, d as _).into(),
            libc::SYS_epoll_pwait => {
                let mask = Mask::of(e);
                poll::epoll_pwait(fd, b as _, c as c_int, d as c_int, mask.as_ptr()).into()
            }
            libc::SYS_epoll_pwait2 => {
                let mask = Mask::of(e);
                poll::epoll_pwait2(fd, b as _, c as c_int, d as _, mask.as_ptr()).into()
            }
            _ => return by_name_of_kernels(number, [a, b, c, d, e, f]),
        }
    };
    Some(result)
}

/// As [`by_name`], for calls that do not concern sockets on the stack.
///
/// # Safety
/// As for the system call.
unsafe fn by_name_of_kernels(number: c_long, [a, b, c, d, ..]: [usize; 6]) -> Option<c_long> {
    use super::{credentials, poll, sockets};
    let fd = a as c_int;
    // SAFETY: as above.
    let result = unsafe {
        match number {
            libc::SYS_epoll_wait => poll::epoll_wait(fd, b as _, c as c_int, d as c_int).into(),
            // libuv adds descriptors to epoll sets by a ring, if it can have one, and the kernel would find no connection behind
            // them. It does without one where rings are forbidden (kernel.io_uring_disabled, and in most containers).
            libc::SYS_io_uring_setup if stacked::is_on() => fail(Errno(libc::EPERM)) as c_long,
            libc::SYS_unshare => credentials::unshare(fd).into(),
            libc::SYS_setns => credentials::setns(fd, b as c_int).into(),
            libc::SYS_pidfd_getfd => sockets::pidfd_getfd(fd, b as c_int, c as u32).into(),
            _ => return None,
        }
    };
    Some(result)
}
