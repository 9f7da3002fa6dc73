//! The timer thread: [`uncork_posix`]'s keeper as a thread of the kernel.
//!
//! It is a bare kernel thread that libc does not know. Made by pthread_create it would make every
//! program multi-threaded: slower system calls and allocations (glibc skips locks and cancellation
//! points while there is one thread), a `pthread_exit` of the main thread that never ends the
//! process, an unshare(2) that is refused. The price is that it has no thread-local storage: what
//! it runs (`Posix::tick`) uses none, allocates nothing, and makes its system calls directly. And
//! as libc would not carry a change of user over to it, it ends before one ([`without`]) and is
//! made anew at the next hold.
//!
//! A second thread makes every call on a descriptor dearer for the first one: while two share the
//! descriptor table, the kernel counts each use up and down (fdget), a fiftieth of a small write
//! and its answer. So in a program of one thread the keeper leaves the table (close_range(2)
//! unshares it without copying an entry) and fetches a descriptor with pidfd_getfd(2) when it has
//! to push, which is seldom ([`Reach`]).

use core::arch::asm;
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32};
use core::time::Duration;

use libc::{c_char, c_int, c_void};
use uncork_posix::config::Hold;
use uncork_posix::{Errno, Next};

use crate::raw::raw;
use crate::{POSIX, alarm, linux, real, report};

/// Size of its stack, and of the block above that stands in for thread-local storage.
const STACK_BYTES: usize = 64 * 1024;
const TLS_BYTES: usize = 4096;

/// Futex word that counts the wake-ups.
static WAKE: AtomicU32 = AtomicU32::new(0);
/// The thread's id while it lives; the kernel clears it at its end and wakes waiters.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// The thread's stack, mapped once.
static STACK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether the thread may leave the program's descriptor table.
static MAY_DETACH: AtomicBool = AtomicBool::new(true);
/// Whether the thread sleeps by an alarm.
static HAS_ALARM: AtomicBool = AtomicBool::new(false);
/// The process's pidfd, in the table of a keeper that has its own; -1: it shares the program's.
static PIDFD: AtomicI32 = AtomicI32::new(-1);

/// The thread ends after this time without a hold. While it shares the descriptor table the kernel
/// counts every descriptor that a call uses up and down, since a second thread could close it
/// meanwhile; a program that no longer needs help must not go on paying for that.
const IDLE_FOR: Duration = Duration::from_secs(1);

/// Makes the thread. It takes none of the program's signals and dies with the process.
pub(crate) fn start() -> bool {
    // A thread that has just decided to end may still be on the stack.
    wait_for_end();
    let Some(stack) = stack() else { return false };
    PIDFD.store(-1, SeqCst);
    if !gains_by_detaching() {
        MAY_DETACH.store(false, SeqCst);
    }
    let all = u64::MAX;
    let mut before = 0u64;
    // SAFETY: signal sets of eight bytes. A thread inherits its creator's mask.
    unsafe {
        let _ = raw!(SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const all, &raw mut before, 8);
        let made = clone(stack);
        let _ = raw!(SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, 0, 8);
        made
    }
}

/// Returns whether system calls are filtered (seccomp): a filter may kill for an unusual one.
fn is_filtered() -> bool {
    // SAFETY: no pointers.
    let filter = unsafe { raw!(SYS_prctl, libc::PR_GET_SECCOMP) };
    filter != Ok(0)
}

/// Returns whether a descriptor table of its own saves this program anything and works here. Bytes
/// gathered in the process may leave a descriptor of theirs behind, and reports need standard
/// error: both are in the program's table.
fn gains_by_detaching() -> bool {
    let settings = POSIX.settings();
    settings.hold == Hold::Kernel
        && settings.debug == 0
        && settings.dump_interval.is_none()
        && !is_filtered()
        && is_single_threaded()
}

/// glibc's own flag (since 2.32), which does not count this thread.
static SINGLE_THREADED: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Looks up what is needed later, at the start, where dlsym(3) may be called.
pub(crate) fn learn() {
    // SAFETY: a C string.
    let flag = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(flag.cast(), SeqCst);
    // The standard library's locks wait and wake by syscall(3), which is our own shim: the keeper,
    // when it releases a lock that another thread waits for, must not be the first to look it up.
    let _ = real::syscall();
}

fn is_single_threaded() -> bool {
    let flag = SINGLE_THREADED.load(SeqCst);
    // SAFETY: a variable of libc's, which is never unloaded; libc writes it like this, too.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

/// Leaves the program's descriptor table for an empty one that holds only a pidfd of the process.
fn detach() {
    if !MAY_DETACH.load(SeqCst) {
        return;
    }
    // SAFETY: no pointers. With UNSHARE no descriptor of the program is closed, nor copied.
    let pidfd = unsafe {
        let own = raw!(SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE);
        let Ok(process) = own.and_then(|_| raw!(SYS_getpid)) else { return };
        raw!(SYS_pidfd_open, process, 0)
    };
    // Without a pidfd nothing can be reached: `Reach` says so, and the next keeper stays attached.
    PIDFD.store(pidfd.map_or(i32::MAX, |fd| fd as i32), SeqCst);
}

/// A descriptor of the program, as the calling thread can use it.
pub(crate) struct Reach {
    /// The descriptor's number in this thread's table.
    pub(crate) fd: i32,
    fetched: bool,
}

impl Reach {
    /// `None`: the thread is a keeper with a table of its own that cannot get at the program's, as
    /// when the main thread has ended before the others. A keeper that shares it comes next; until
    /// then the kernel's own limit of 200 ms bounds what it holds.
    #[inline]
    pub(crate) fn new(fd: i32) -> Option<Self> {
        let pidfd = PIDFD.load(Relaxed);
        if pidfd < 0 || !is_keeper() {
            return Some(Self { fd, fetched: false });
        }
        // SAFETY: no pointers.
        let fetched = unsafe { raw!(SYS_pidfd_getfd, pidfd, fd, 0) };
        if fetched.is_err() {
            MAY_DETACH.store(false, SeqCst);
        }
        fetched.ok().map(|fd| Self { fd: fd as i32, fetched: true })
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        if self.fetched {
            // SAFETY: a descriptor of this thread's own table.
            let _ = unsafe { raw!(SYS_close, self.fd) };
        }
    }
}

/// Returns whether the caller runs on the keeper's stack: it has no thread-local storage to ask.
#[inline]
fn is_keeper() -> bool {
    let here = 0u8;
    let base = STACK.load(Relaxed) as usize;
    (&raw const here as usize).wrapping_sub(base) < STACK_BYTES
}

fn stack() -> Option<*mut c_void> {
    let known = STACK.load(SeqCst);
    if !known.is_null() {
        return Some(known);
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let bytes = STACK_BYTES + TLS_BYTES;
    // SAFETY: a new anonymous mapping; its lowest page becomes a guard.
    unsafe {
        let base = raw!(SYS_mmap, 0, bytes, protection, flags, -1i32, 0).ok()?;
        let _ = raw!(SYS_mprotect, base, 4096, libc::PROT_NONE);
        let tls = (base + STACK_BYTES) as *mut usize;
        // The x86-64 ABI: %fs:0 holds the address of itself.
        tls.write(tls as usize);
        STACK.store(base as *mut c_void, SeqCst);
        Some(base as *mut c_void)
    }
}

/// # Safety
/// `base` is what [`stack`] returned, and no keeper runs on it.
unsafe fn clone(base: *mut c_void) -> bool {
    const FLAGS: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let top = base as usize + STACK_BYTES;
    let result: isize;
    // SAFETY: the child begins on its own stack, 16-byte aligned at the call, and never returns;
    // the parent goes on after the label with its registers as they were.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call {run}",
            "ud2",
            "2:",
            run = sym run,
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") FLAGS as usize,
            in("rsi") top,
            in("rdx") THREAD.as_ptr(),
            in("r10") THREAD.as_ptr(),
            in("r8") top,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result > 0
}

/// Wakes the thread from [`Next::Sleep`] and [`Next::Await`].
pub(crate) fn wake() {
    if HAS_ALARM.load(SeqCst) {
        alarm::wake(POSIX.process(), THREAD.load(SeqCst));
        return;
    }
    WAKE.fetch_add(1, SeqCst);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: WAKE is a futex word for the life of the process.
    let _ = unsafe { raw!(SYS_futex, &raw const WAKE, operation, 1) };
}

/// Makes a call that changes the process's user or namespaces while there is no keeper.
pub(crate) fn without<T>(call: impl FnOnce() -> T) -> T {
    POSIX.without_keeper(wait_for_end, call)
}

/// Ends it for good: see [`uncork_posix::Posix::stand_aside`]. The report takes system calls, too.
pub(crate) fn stand_aside() {
    if POSIX.is_vfork_child() {
        return;
    }
    POSIX.stand_aside(wait_for_end);
    report::emit_for_good();
}

fn wait_for_end() {
    loop {
        let thread = THREAD.load(SeqCst);
        if thread == 0 {
            return;
        }
        // Not a private futex: the kernel's wake-up at a thread's end is not private.
        // SAFETY: THREAD is a futex word for the life of the process; no time limit.
        let _ = unsafe { raw!(SYS_futex, &raw const THREAD, libc::FUTEX_WAIT, thread, 0) };
    }
}

/// Runs the thread. No thread-local storage, no allocation, no libc from here on.
extern "C" fn run() -> ! {
    // SAFETY: plain arguments; the name is a C string. The timer slack of 50 µs that threads get by
    // default would overrun a short bound.
    unsafe {
        let _ = raw!(SYS_prctl, libc::PR_SET_NAME, c"uncork-keeper".as_ptr());
        let _ = raw!(SYS_prctl, libc::PR_SET_TIMERSLACK, 1);
    }
    detach();
    if !is_filtered() && alarm::make() {
        HAS_ALARM.store(true, SeqCst);
        POSIX.keeper_has_alarm();
    }
    loop {
        let next = POSIX.tick();
        if !MAY_DETACH.load(SeqCst) && PIDFD.load(SeqCst) >= 0 && POSIX.may_be_replaced() {
            end();
        }
        match next {
            Next::Tick(period) if HAS_ALARM.load(SeqCst) => _ = alarm::wait(period),
            Next::Tick(period) => {
                let time = linux::timespec(period);
                // SAFETY: the kernel reads `time`.
                let _ = unsafe { raw!(SYS_nanosleep, &raw const time, 0) };
            }
            Next::Await if alarm::wait(IDLE_FOR) || !POSIX.may_end() => {}
            Next::Sleep if sleep() => {}
            Next::Await | Next::Sleep | Next::Leave => end(),
        }
    }
}

fn end() {
    HAS_ALARM.store(false, SeqCst);
    alarm::delete();
    // SAFETY: ends this thread alone; its stack stays mapped.
    let _ = unsafe { raw!(SYS_exit, 0) };
}

/// Sleeps until it is woken; false: nothing was held for so long that the thread must end.
fn sleep() -> bool {
    let operation: c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let limit = linux::timespec(IDLE_FOR);
    loop {
        let seen = WAKE.load(SeqCst);
        if !POSIX.keeper_sleeps() {
            return true;
        }
        // SAFETY: WAKE is a futex word for the life of the process; the kernel reads `limit`.
        let slept = unsafe { raw!(SYS_futex, &raw const WAKE, operation, seen, &raw const limit) };
        if slept == Err(Errno(libc::ETIMEDOUT)) && POSIX.may_leave() {
            return false;
        }
    }
}

/// Forgets the thread in a child of fork: it stayed with the parent.
pub(crate) fn forget() {
    THREAD.store(0, SeqCst);
    HAS_ALARM.store(false, SeqCst);
    alarm::forget();
}
