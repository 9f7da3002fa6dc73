//! Signal handlers that interrupt the stack.
//!
//! A handler may call anything that is async-signal-safe, read and write included, or jump away and never come back.
//! If it has interrupted a thread that holds the stack's lock, neither can work. So the program's handlers are called
//! by one of ours: if that finds that it has interrupted the stack, it blocks the signal, sends it to this thread
//! again, and the thread unblocks it when it leaves the stack, microseconds later. It also records which handler has
//! run, and so whether a blocking call goes on (SA_RESTART).
//!
//! A signal that ends the process by default has a handler of ours, too, as the kernel would not know that something
//! is still to be sent: peers would be reset. The program sees the default action when it asks.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};
use core::time::Duration;
use std::os::fd::RawFd;

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::raw::raw;
use crate::{linux, real};

/// Number of signals, and one more: they begin with 1.
const SIGNALS: usize = 65;

/// Signals that are sent to end a process which has no handler for them. After faults there is nothing to be saved.
const ENDING: [c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];
/// How long an interrupted thread waits for the end: longer than it takes where peers are not slow.
const PATIENCE: Duration = Duration::from_millis(200);
/// No end takes longer than this.
const OVERDUE: Duration = Duration::from_secs(2);

/// The program's handler of each signal, and the flags with which it was installed.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static FLAGS: [AtomicI32; SIGNALS] = [const { AtomicI32::new(0) }; SIGNALS];
/// Signals that siginterrupt(3) was called for, a bit each: their handlers end calls.
static ENDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Signals that this thread has deferred, a bit each.
    static PUT_OFF: Cell<u64> = const { Cell::new(0) };
    /// A handler has run.
    static RAN: Cell<bool> = const { Cell::new(false) };
    /// A handler has run that ends blocking calls.
    static ENDED: Cell<bool> = const { Cell::new(false) };
    /// The descriptor that wakes this thread, which is about to sleep.
    static BELL: Cell<Option<RawFd>> = const { Cell::new(None) };
}

fn bit(signal: c_int) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|shift| 1_u64.checked_shl(shift)).unwrap_or(0)
}

/// Returns whether a fault of this very thread raised the signal: if it were deferred, the fault would repeat.
fn is_fault(signal: c_int, info: *const siginfo_t) -> bool {
    let faults =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: the kernel passes it to every handler with SA_SIGINFO.
    faults.contains(&signal) && unsafe { (*info).si_code } > 0
}

/// Makes a sigaction(2) of a program on the stack.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(at) = usize::try_from(signal).ok().filter(|at| (1..SIGNALS).contains(at)) else {
        // SAFETY: the program's own call, for the kernel to refuse.
        return unsafe { real::sigaction()(signal, action, old) };
    };
    let (handler_before, flags_before) = (HANDLERS[at].load(Acquire), FLAGS[at].load(Relaxed));
    // SAFETY: as promised.
    unsafe {
        let mut changed = MaybeUninit::<libc::sigaction>::uninit();
        let mut told = action;
        if let Some(action) = action.as_ref()
            && (action.sa_sigaction != libc::SIG_DFL || ENDING.contains(&signal))
            && action.sa_sigaction != libc::SIG_IGN
        {
            let mut copy = *action;
            let ours = handle as *const () as usize;
            // A program that was told of ours, as by the system call itself, may install it again.
            if copy.sa_sigaction != ours {
                // Stored before the first signal can come.
                FLAGS[at].store(copy.sa_flags, Relaxed);
                HANDLERS[at].store(copy.sa_sigaction, Release);
            }
            if copy.sa_sigaction == libc::SIG_DFL {
                // It does not need the program's stack, and a call that goes on after it was not interrupted.
                copy.sa_flags |= libc::SA_ONSTACK | libc::SA_RESTART;
            }
            copy.sa_sigaction = ours;
            copy.sa_flags =
                copy.sa_flags & !(libc::SA_RESETHAND | libc::SA_NODEFER) | libc::SA_SIGINFO;
            told = changed.write(copy);
        }
        let result = real::sigaction()(signal, told, old);
        if result == 0
            && let Some(old) = old.as_mut()
            && old.sa_sigaction == handle as *const () as usize
        {
            old.sa_sigaction = handler_before;
            old.sa_flags = flags_before;
        }
        result
    }
}

/// Makes a signal(3) of a program on the stack, with these flags.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn signal(signal: c_int, handler: usize, flags: c_int) -> usize {
    // SAFETY: an all-zero sigaction is valid; both live as long as the call.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaddset(&raw mut action.sa_mask, signal);
        if sigaction(signal, &raw const action, &raw mut old) == 0 {
            old.sa_sigaction
        } else {
            libc::SIG_ERR
        }
    }
}

/// Notes what siginterrupt(3) has set: whether the signal ends calls from now on.
pub(crate) fn ends_calls_by(signal: c_int, ends: bool) {
    let Some(flags) = usize::try_from(signal).ok().and_then(|at| FLAGS.get(at)) else { return };
    if ends {
        ENDS.fetch_or(bit(signal), Relaxed);
        flags.fetch_and(!libc::SA_RESTART, Relaxed);
    } else {
        ENDS.fetch_and(!bit(signal), Relaxed);
        flags.fetch_or(libc::SA_RESTART, Relaxed);
    }
}

/// Returns the flags with which signal(3) installs a handler.
pub(crate) fn usual_flags(signal: c_int) -> c_int {
    if ENDS.load(Relaxed) & bit(signal) == 0 { libc::SA_RESTART } else { 0 }
}

/// Returns the program's handler of a signal, SIG_ERR if there can be none.
pub(crate) fn handler_of(signal: c_int) -> usize {
    // SAFETY: an all-zero sigaction is valid, and lives as long as the call.
    unsafe {
        let mut now: libc::sigaction = core::mem::zeroed();
        let asked = sigaction(signal, core::ptr::null(), &raw mut now);
        if asked == 0 { now.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// The handler that the kernel calls for every signal that has one.
unsafe extern "C-unwind" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if uncork_sockets::is_inside() && !is_fault(signal, info) {
        // SAFETY: what the kernel has passed to us.
        unsafe { put_off(signal, info, context.cast()) };
        return;
    }
    let at = usize::try_from(signal).unwrap_or(0).min(SIGNALS - 1);
    let (handler, flags) = (HANDLERS[at].load(Acquire), FLAGS[at].load(Relaxed));
    if handler == libc::SIG_DFL {
        end_by(signal);
        return;
    }
    let ends = ENDED.get() || flags & libc::SA_RESTART == 0;
    has_run(ends);
    super::SOCKETS.handler_runs();
    if let Some(bell) = BELL.get() {
        let once = 1_u64;
        // SAFETY: eight bytes that live as long as the call. It leaves the program's errno alone.
        let _ = unsafe { raw!(SYS_write, bell, &raw const once, 8) };
    }
    if flags & libc::SA_RESETHAND != 0 {
        // SAFETY: an all-zero sigaction is the default.
        unsafe {
            let default: libc::sigaction = core::mem::zeroed();
            sigaction(signal, &raw const default, core::ptr::null_mut());
        }
    }
    if flags & libc::SA_NODEFER != 0 {
        unblock(bit(signal));
    }
    // SAFETY: the program's own handler, of the kind that its flags say.
    unsafe {
        if flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                core::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C-unwind" fn(c_int) = core::mem::transmute(handler);
            handler(signal);
        }
    }
    // Once more, as the handler may have made calls of its own.
    has_run(ends);
}

/// Installs our handler for those ending signals whose action is the default. Called before the program has a second
/// thread. Not in the first process of its namespace, which no signal ends by default (kill(2)).
pub(super) fn stand_in() {
    if is_init() {
        return;
    }
    for signal in ENDING {
        // SAFETY: an all-zero sigaction is the default; both live as long as the calls.
        unsafe {
            let default: libc::sigaction = core::mem::zeroed();
            let mut now: libc::sigaction = core::mem::zeroed();
            let asked = real::sigaction()(signal, core::ptr::null(), &raw mut now);
            if asked == 0 && now.sa_sigaction == libc::SIG_DFL {
                sigaction(signal, &raw const default, core::ptr::null_mut());
            }
        }
    }
}

fn is_init() -> bool {
    // SAFETY: no pointers.
    unsafe { raw!(SYS_getpid) == Ok(1) }
}

/// Ends the process as the kernel would have done at once, after what the kernel cannot do. Returns if it ends later.
fn end_by(signal: c_int) {
    if is_init() {
        return;
    }
    let all = u64::MAX;
    // No handler of the program interrupts this: it could want the stack, which the program does not enter any more.
    // The mask from before is restored when the handler returns.
    // SAFETY: a set of eight bytes.
    let _ = unsafe { raw!(SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const all, 0, 8) };
    let ends = super::ON.load(Relaxed) && !super::POSIX.is_other_process();
    if ends && super::SOCKETS.ask_for_end(signal) && !is_ended_in_time() && !is_overdue() {
        return;
    }
    end_process(signal);
}

/// Returns whether the first signal came so long ago that something is wrong: another one then ends the process.
fn is_overdue() -> bool {
    static FIRST: AtomicU64 = AtomicU64::new(0);
    let now = linux::now().0;
    let first = FIRST.compare_exchange(0, now, Relaxed, Relaxed).err().unwrap_or(now);
    now.saturating_sub(first) > u64::try_from(OVERDUE.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits for a keeper, for a while: if that needs what this thread has locked, this thread has to go on.
fn is_ended_in_time() -> bool {
    let errno = linux::errno();
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let until = linux::now().0 + u64::try_from(PATIENCE.as_nanos()).unwrap_or(0);
    while linux::now().0 < until {
        if super::SOCKETS.has_ended() {
            return true;
        }
        // SAFETY: a time that lives as long as the call.
        let _ = unsafe { raw!(SYS_nanosleep, &raw const pause, 0) };
    }
    // SAFETY: errno's location is valid in every thread.
    unsafe { *libc::__errno_location() = errno };
    false
}

/// Restores the kernel's default action, which ends the process.
pub(super) fn end_process(signal: c_int) {
    // SAFETY: an all-zero sigaction is the default; the rest has no pointers.
    unsafe {
        let default: libc::sigaction = core::mem::zeroed();
        real::sigaction()(signal, &raw const default, core::ptr::null_mut());
        if let (Ok(process), Ok(thread)) = (raw!(SYS_getpid), raw!(SYS_gettid)) {
            let _ = raw!(SYS_tgkill, process, thread, signal);
        }
        unblock(bit(signal));
        // The process has ended by now, unless something unforeseen prevents that.
        let _ = raw!(SYS_exit_group, 128 + signal);
    }
}

fn has_run(ends: bool) {
    RAN.set(true);
    ENDED.set(ENDED.get() || ends);
}

/// Defers a signal until the thread has left the stack, when it comes again.
///
/// # Safety
/// `info` and `context` are what the kernel has passed to the handler.
unsafe fn put_off(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let bit = bit(signal);
    // SAFETY: as promised; the mask is a set of eight bytes, the first of glibc's.
    unsafe {
        let _ = raw!(SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const bit, 0, 8);
        // The mask that is restored when the handler returns.
        *(&raw mut (*context).uc_sigmask).cast::<u64>() |= bit;
        PUT_OFF.set(PUT_OFF.get() | bit);
        uncork_sockets::note_interruption();
        let (Ok(process), Ok(thread)) = (raw!(SYS_getpid), raw!(SYS_gettid)) else { return };
        let _ = raw!(SYS_rt_tgsigqueueinfo, process, thread, signal, info);
    }
}

fn unblock(set: u64) {
    // SAFETY: a set of eight bytes.
    let _ = unsafe { raw!(SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const set, 0, 8) };
}

/// Lets deferred signals come, as the thread has left the stack.
pub(super) fn let_come() {
    let set = PUT_OFF.replace(0);
    if set != 0 {
        unblock(set);
    }
}

/// Begins a call that may wait: handlers that have run before do not count. Called not only when the call waits, or a
/// signal that comes earlier in the call would be noticed only after the next event that ends the wait.
#[inline]
pub(crate) fn begin() {
    RAN.set(false);
    ENDED.set(false);
}

/// Returns whether a handler has run since [`begin`].
pub(super) fn was_interrupted() -> bool {
    RAN.get()
}

/// Sets what wakes the thread if a handler runs between the last look at [`was_interrupted`] and the sleep.
pub(super) fn wake_by(bell: Option<RawFd>) {
    BELL.set(bell);
}

/// Returns whether a handler has run since [`begin`] that ends blocking calls on sockets; any does, if the call has a
/// time limit (signal(7)).
pub(super) fn ends_calls(limited: bool) -> bool {
    limited || ENDED.get()
}
