//! Sockets on the user-space stack (`uncork run --stack`): the program's calls, as [`uncork_sockets`] does them.
//!
//! A descriptor whose state byte says STACK is one of these: the shims look at that byte and come here. Pointers become slices
//! here, results become errno, and a socket goes to the kernel if an option (chosen.rs) or a flag (transfer.rs) needs it.

mod accepting;
mod aliases;
mod behind;
mod calls;
mod cancelling;
pub(crate) mod chosen;
mod connecting;
pub(crate) mod disarmed;
pub(crate) mod duplicates;
mod faults;
mod handing;
pub(crate) mod handlers;
mod heritage;
mod host;
mod many;
mod outside;
pub(crate) mod places;
mod signals;
mod transfer;

use core::cell::Cell;
use core::ffi::CStr;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU8};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;

use libc::{c_char, c_int};
use nix::errno::Errno;
use uncork_guardian::THREADS_VARIABLE;
use uncork_posix::kernel::state;
use uncork_sockets::{Held, Sockets};

use crate::{POSIX, linux, table};

pub(crate) use aliases::STDIO;
pub(crate) use calls::*;
pub(crate) use cancelling::{before_cancel, before_cancel_type, point as cancellation_point};
pub(crate) use connecting::*;
pub(crate) use faults::{is_bad, is_nowhere};
pub(crate) use handing::*;
pub(crate) use heritage::{
    add_as_argument, add_behind_arguments, add_to_exec, add_to_own, add_to_spawn, gives_duplicate,
    gives_listener,
};
pub(crate) use many::*;
pub(crate) use outside::{Process, is_own, own_descriptors};
pub(crate) use transfer::*;

/// What this process has on the stack.
pub(crate) static SOCKETS: Sockets<Process> = Sockets::new(Process);

/// Whether sockets may be on the stack at all.
pub(crate) static ON: AtomicBool = AtomicBool::new(false);

/// Returns whether sockets may be on the stack at all, and the calling thread is not inside it already, nor a child of vfork.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed) && !uncork_sockets::is_inside() && !POSIX.is_vfork_child()
}

/// Returns whether a descriptor is on the stack.
#[inline]
pub(crate) fn has(fd: c_int) -> bool {
    state_of(fd) == Some(state::STACK)
}

/// Returns whether a descriptor is an epoll set with members on the stack.
#[inline]
pub(crate) fn has_set(fd: c_int) -> bool {
    state_of(duplicates::number_of(fd)) == Some(state::STACK_SET) && is_on()
}

/// Returns whether a descriptor is on the stack of the process that this one was forked from.
fn is_of_parent(fd: c_int) -> bool {
    state_of(fd) == Some(state::STACK_OF_PARENT)
}

fn state_of(fd: c_int) -> Option<u8> {
    table::state(fd).map(|state| state.load(Relaxed))
}

/// Returns whether the library closes a descriptor, in the middle of its own work, and finds a socket of the stack there: the
/// program has put that in the place of ours, and goes on using it.
#[inline]
pub(crate) fn is_not_ours(fd: c_int) -> bool {
    uncork_sockets::is_inside()
        && matches!(state_of(fd), Some(state::STACK | state::STACK_SET | state::STACK_OF_PARENT))
}

/// Returns whether a close(2) may close a descriptor: mailboxes, which a child or its parent needs, only the library may close.
/// Programs close all descriptors that they do not know, one by one.
#[inline]
pub(crate) fn may_close(fd: c_int) -> bool {
    if state_of(fd) != Some(state::OURS) {
        return true;
    }
    let is_ours = uncork_sockets::is_inside();
    if is_ours {
        mark(fd, state::UNKNOWN);
    }
    is_ours
}

/// Sets the state of a descriptor.
fn mark(fd: c_int, what: u8) {
    if let Some(byte) = table::state(fd) {
        AtomicU8::store(byte, what, SeqCst);
        table::HIGHEST.fetch_max(fd, Relaxed);
    }
}

/// Starts the stack, if `uncork run --stack` has said where the privileged half is.
pub(crate) fn start() {
    heritage::remember();
    if let Some(host) = host::Guardian::of_environment() {
        places::publish(host.place());
        let apart = heritage::value_of(THREADS_VARIABLE) == Some("1");
        SOCKETS.start(Box::new(host), seed, places::tell, apart);
        ON.store(true, SeqCst);
        handlers::stand_in();
    }
}

/// Returns unpredictable bytes.
fn seed() -> [u8; 32] {
    let mut bytes = [0; 32];
    // SAFETY: the kernel writes at most so many bytes, and all of so few.
    let _ = unsafe { crate::raw::raw!(SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    bytes
}

/// Sends what was written, as the program turns to something that we cannot see.
#[inline]
pub(crate) fn flush() {
    if ON.load(Relaxed) && is_on() {
        SOCKETS.flush();
    }
}

/// Ends the process's part of the stack. Connections that children have, too, go on without it.
pub(crate) fn end() {
    if is_on() && !POSIX.is_other_process() {
        handlers::begin();
        for fd in SOCKETS.shared_with_children() {
            let _ = hand_over(fd, "a child of fork has it, too, and goes on with it");
        }
        SOCKETS.end();
    }
}

/// Returns whether this is a child of vfork: it runs in its parent's memory, with descriptors of its own.
fn is_vfork_child() -> bool {
    POSIX.is_vfork_child() && ON.load(Relaxed) && !uncork_sockets::is_inside()
}

/// Returns whether execve(2) is about to find no program at this path: then everything stays as it is. `is_searched`: unless it
/// has a slash, it is searched for in the directories of PATH.
pub(crate) fn exec_fails(path: *const c_char, is_searched: bool) -> bool {
    if !is_on() || is_nowhere(path) {
        return false;
    }
    // SAFETY: a string of the program's, which libc reads as well.
    let path = unsafe { CStr::from_ptr(path) };
    if !is_searched || path.to_bytes().contains(&b'/') {
        return is_no_program(path);
    }
    if path.is_empty() {
        return true;
    }
    // The default of execvp(3) if the variable is not set.
    let directories = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    directories.as_bytes().split(|octet| *octet == b':').all(|directory| {
        // An empty one is the current directory.
        let directory = if directory.is_empty() { b"." } else { directory };
        let whole = CString::new([directory, b"/", path.to_bytes()].concat());
        whole.is_ok_and(|whole| is_no_program(&whole))
    })
}

fn is_no_program(path: &CStr) -> bool {
    // SAFETY: a string, as execve(2) wants it.
    let found = unsafe {
        crate::raw::raw!(
            SYS_faccessat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::X_OK,
            libc::AT_EACCESS
        )
    };
    let no_program = [libc::ENOENT, libc::ENOTDIR, libc::EACCES, libc::ELOOP, libc::ENAMETOOLONG];
    found.is_err_and(|error| no_program.contains(&error.0))
}

/// Prepares for an exec; the new program goes on with the descriptors that it inherits.
pub(crate) fn before_exec() {
    if is_vfork_child() {
        let connections = SOCKETS.connections().into_iter();
        let inherited: Vec<_> = connections.filter(|fd| is_inherited(*fd)).collect();
        give_by_keeper(&inherited);
    }
    if !is_on() || POSIX.is_other_process() {
        return;
    }
    give_to_program("another program took this one's place (exec)");
    end();
}

/// Prepares for libc to start a program with the descriptors that it inherits.
pub(crate) fn before_spawn() {
    if is_on() && !POSIX.is_other_process() {
        SOCKETS.share_listeners();
        give_to_program("a program that was started has it, too (posix_spawn, system, popen)");
    }
}

/// Notes that the calling thread ends; if it is the process's first one, the last one then has to end the process.
pub(crate) fn before_thread_exit() {
    if is_on() && !POSIX.is_other_process() && linux::is_first_thread() {
        SOCKETS.leader_leaves();
    }
}

/// Hands connections over before daemon(3): a child takes this process's place, which ends unseen.
pub(crate) fn before_daemon() {
    if is_on() && !POSIX.is_other_process() {
        for fd in SOCKETS.connections() {
            let _ = hand_over(fd, "a child of daemon(3) goes on with it");
        }
    }
}

/// Makes what another program inherits the kernel's: that program knows nothing of a stack.
fn give_to_program(why: &str) {
    let inherited = |fd: &c_int| !closes_on_exec(*fd);
    for fd in SOCKETS.of_parent().into_iter().filter(inherited) {
        claim_if_parents(fd);
    }
    for fd in SOCKETS.connections().into_iter().filter(inherited) {
        let _ = hand_over(fd, why);
    }
}

/// `on_stack!(fd => call)`: if `fd` is on the stack, returns what `call` does, after ending the thread's burst on a kernel
/// socket. A signal handler that has interrupted the stack itself is told to try again later. `at_once`: the call never waits,
/// and is no cancellation point.
macro_rules! on_stack {
    ($fd:expr => $call:expr) => {
        if $crate::stacked::has($fd) {
            $crate::stacked::cancellation_point();
        }
        $crate::stacked::on_stack!(at_once $fd => $call);
    };
    (at_once $fd:expr => $call:expr) => {
        if $crate::stacked::has($fd) {
            if $crate::stacked::is_on() {
                $crate::stacked::handlers::begin();
                $crate::POSIX.before_wait(uncork_posix::Call::Turn);
                let result = $call;
                if result != -1 || !$crate::stacked::went_over() {
                    return result;
                }
            } else {
                return $crate::raw::fail(uncork_posix::Errno::EAGAIN) as _;
            }
        }
        $crate::stacked::claim_if_parents($fd);
    };
}
pub(crate) use on_stack;

/// Returns whether the call that has just failed must be made on the kernel's socket: another thread has made the connection the
/// kernel's meanwhile.
pub(crate) fn went_over() -> bool {
    linux::errno() == uncork_sockets::HANDED_OVER as i32
}

/// Returns the result of a call on the stack, unless the call must be made on the kernel's socket.
pub(crate) fn unless_over(result: Option<c_int>) -> Option<c_int> {
    result.filter(|result| *result != -1 || !went_over())
}

/// Corrects SO_COOKIE as the kernel has answered it: the value from before the connection became the kernel's stays.
///
/// # Safety
/// `value` is what the kernel has written its cookie to.
pub(crate) unsafe fn keep_cookie(socket: &uncork_posix::socket::Socket, value: *mut libc::c_void) {
    let told = socket.cookie.load(Relaxed);
    if told != 0 {
        // SAFETY: as promised; the kernel refuses room for less.
        unsafe { value.cast::<u64>().write_unaligned(told) };
    }
}

/// Sets errno and returns -1.
fn fail(error: Errno) -> isize {
    crate::raw::fail(uncork_posix::Errno(error as i32))
}

/// Converts a result to what a libc call returns.
fn count(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(count) => count as isize,
        Err(error) => fail(error),
    }
}

fn done(result: Result<(), Errno>) -> c_int {
    count(result.map(|()| 0)) as c_int
}

thread_local! {
    /// The lock that is held over fork(2), in the thread that forks. It has no destructor: exit(3) runs those of a thread before
    /// its own handlers, which may fork, too.
    static FORKING: Cell<Option<ManuallyDrop<Held<'static>>>> = const { Cell::new(None) };
}

/// Prepares for fork(2).
pub(crate) fn before_fork() {
    if is_on() {
        FORKING.set(Some(ManuallyDrop::new(SOCKETS.before_fork())));
    }
}

/// Prepares for vfork: its child has a copy of the descriptors, and nothing can be put behind the copies from here any more.
pub(crate) fn before_vfork() {
    if is_on() {
        SOCKETS.before_vfork();
    }
}

pub(crate) fn after_fork_in_parent() {
    if let Some(held) = FORKING.take() {
        drop(ManuallyDrop::into_inner(held));
        SOCKETS.after_fork();
    }
}

/// Begins the child: it has none of its parent's connections, and a connection of its own to the privileged half.
pub(crate) fn after_fork_in_child() {
    let Some(held) = FORKING.take().map(ManuallyDrop::into_inner) else { return };
    outside::forget_threads();
    match host::Guardian::of_environment() {
        Some(host) => {
            SOCKETS.after_fork_in_child(held, &host);
            for fd in SOCKETS.of_parent() {
                mark(fd, state::STACK_OF_PARENT);
            }
        }
        None => {
            drop(held);
            ON.store(false, SeqCst);
        }
    }
    SOCKETS.after_fork();
}
