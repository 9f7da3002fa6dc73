//! Calls that end a burst and otherwise go through untouched: they sleep, wait for a thread, a process or a signal, start
//! a process, or end this one.

#![allow(non_snake_case)]

use libc::{c_char, c_int, c_void};
use uncork_posix::Call;

use crate::jump::{Registers, changing_shim, passing_shim};
use crate::{POSIX, keeper, linux, real, report, stacked};

/// Arguments of the program's call.
type Args = [usize; 6];

macro_rules! waits {
    ($($prepare:ident $call:ident: $($name:ident)+;)+) => {
        $(
            fn $prepare(_: Args) {
                POSIX.before_wait(Call::$call);
                stacked::flush();
            }
        )+
        $(passing_shim! { $($name => $prepare;)+ })+
    };
}

waits! {
    before_sleep Sleep: sleep;
    before_usleep Usleep: usleep;
    before_nanosleep Nanosleep: nanosleep;
    before_clock_nanosleep ClockNanosleep: clock_nanosleep;
    before_yield SchedYield: sched_yield pthread_yield thrd_yield;
    before_pause Pause: pause;
    before_sigsuspend Sigsuspend: sigsuspend sigpause __sigpause;
    before_sigwait Sigwait: sigwait;
    before_sigwaitinfo Sigwaitinfo: sigwaitinfo;
    before_sigtimedwait Sigtimedwait: sigtimedwait;
    before_child_wait Wait: wait;
    before_waitpid Waitpid: waitpid __waitpid;
    before_waitid Waitid: waitid;
    before_wait3 Wait3: wait3;
    before_wait4 Wait4: wait4;
    before_cond_wait CondWait: pthread_cond_wait;
    before_cond_timedwait CondTimedwait: pthread_cond_timedwait;
    before_cond_clockwait CondClockwait: pthread_cond_clockwait;
    before_join Join: pthread_join pthread_clockjoin_np;
    before_timed_join TimedJoin: pthread_timedjoin_np;
    before_barrier BarrierWait: pthread_barrier_wait;
    before_sem_wait SemWait: sem_wait;
    before_sem_timedwait SemTimedwait: sem_timedwait;
    before_sem_clockwait SemClockwait: sem_clockwait;
    before_cnd_wait CndWait: cnd_wait;
    before_cnd_timedwait CndTimedwait: cnd_timedwait;
    before_thrd_sleep ThrdSleep: thrd_sleep;
    before_thrd_join ThrdJoin: thrd_join;
    before_mq_receive MqReceive: mq_receive;
    before_mq_timedreceive MqTimedreceive: mq_timedreceive;
    before_msgrcv Msgrcv: msgrcv;
    before_semop Semop: semop;
    before_semtimedop Semtimedop: semtimedop;
    before_flock Flock: flock lockf lockf64;
    before_aio AioSuspend: aio_suspend aio_suspend64;
}

fn before_thread_exit(_: Args) {
    POSIX.before_wait(Call::ThreadExit);
    stacked::flush();
    stacked::before_thread_exit();
}

passing_shim! {
    pthread_exit => before_thread_exit;
    thrd_exit => before_thread_exit;
    pthread_cancel => stacked::before_cancel;
    pthread_setcanceltype => stacked::before_cancel_type;
}

/// Pushes before a process is started, which must not find anything held, and gives it our environment if need be.
fn before_spawn(call: &mut Registers) -> Option<*mut c_void> {
    /// Position of the environment among the arguments.
    const ENVIRONMENT: usize = 5;
    let gives_listener = stacked::gives_listener();
    stacked::before_spawn();
    POSIX.before_spawn(Call::Spawn);
    if gives_listener {
        stacked::add_to_spawn(call, ENVIRONMENT);
    }
    None
}

fn before_system(_: Args) {
    stacked::before_spawn();
    POSIX.before_spawn(Call::System);
}

fn before_popen(_: Args) {
    stacked::before_spawn();
    POSIX.before_spawn(Call::Popen);
}

fn before_vfork(_: Args) {
    stacked::before_vfork();
    POSIX.before_vfork();
}

/// Prepares for a program that is started with a duplicate of this descriptor.
fn before_spawn_dup([_, fd, ..]: Args) {
    POSIX.given(fd as c_int, Call::Spawn);
    stacked::gives_duplicate(fd as c_int);
    stacked::hand_over_if_ours(fd as c_int, "a program that was started has it, too (posix_spawn)");
}

/// Prepares for an exec. If the new program inherits a listener on the stack, `add` completes its environment, and
/// returns the function to call instead, if any.
fn before_exec(
    call: &mut Registers,
    add: impl FnOnce(&mut Registers) -> Option<*mut c_void>,
) -> Option<*mut c_void> {
    let gives_listener = stacked::gives_listener();
    stacked::before_exec();
    POSIX.ending_by_exec();
    report::emit_before_exec();
    if gives_listener { add(call) } else { None }
}

/// As [`before_exec`], for a function that takes a path: a program that tries one after another keeps all that it has.
fn of_path<const IS_SEARCHED: bool>(
    call: &mut Registers,
    before: impl FnOnce(&mut Registers) -> Option<*mut c_void>,
) -> Option<*mut c_void> {
    let [path, ..] = call.first_six();
    if stacked::exec_fails(path as *const c_char, IS_SEARCHED) { None } else { before(call) }
}

/// As [`before_exec`], where this argument is the environment.
fn before_exec_with<const ENVIRONMENT: usize>(call: &mut Registers) -> Option<*mut c_void> {
    before_exec(call, |call| {
        stacked::add_to_exec(call, ENVIRONMENT);
        None
    })
}

/// As [`before_exec`], where the environment is the process's own; `other` takes one as its third argument.
fn before_exec_of_own(call: &mut Registers, other: fn() -> *mut c_void) -> Option<*mut c_void> {
    before_exec(call, |call| stacked::add_as_argument(call, 2).then(other))
}

fn before_exec_of_list(call: &mut Registers) -> Option<*mut c_void> {
    before_exec(call, |_| {
        stacked::add_to_own();
        None
    })
}

fn before_exec_of_list_and_environment(call: &mut Registers) -> Option<*mut c_void> {
    before_exec(call, |call| {
        stacked::add_behind_arguments(call);
        None
    })
}

changing_shim! {
    posix_spawn => before_spawn;
    posix_spawnp => before_spawn;
    execve => |call| of_path::<false>(call, before_exec_with::<2>);
    execvpe => |call| of_path::<true>(call, before_exec_with::<2>);
    fexecve => before_exec_with::<2>;
    execveat => before_exec_with::<3>;
    execv => |call| of_path::<false>(call, |call| before_exec_of_own(call, || real::execve() as *mut c_void));
    execvp => |call| of_path::<true>(call, |call| before_exec_of_own(call, || real::execvpe() as *mut c_void));
    execl => |call| of_path::<false>(call, before_exec_of_list);
    execlp => |call| of_path::<true>(call, before_exec_of_list);
    execle => |call| of_path::<false>(call, before_exec_of_list_and_environment);
}

passing_shim! {
    posix_spawn_file_actions_adddup2 => before_spawn_dup;
    system => before_system;
    popen => before_popen;
    vfork => before_vfork;
}

/// Notes that stdio writes inside libc, where no shim sees it.
fn before_dprintf([fd, ..]: Args) {
    stacked::hand_over_if_ours(fd as c_int, "it is written by stdio (dprintf)");
    POSIX.uses_stdio(fd as c_int);
}

passing_shim! {
    dprintf => before_dprintf;
    vdprintf => before_dprintf;
    __dprintf_chk => before_dprintf;
    __vdprintf_chk => before_dprintf;
}

/// Pushes before exit(3), which runs what the program registered; the destructor pushes the rest.
fn before_exit(_: Args) {
    POSIX.ending(Call::Exit);
}

fn end_at_once(call: Call) {
    stacked::end();
    POSIX.ending_for_good(call);
    report::emit();
}

pub(super) fn before_immediate_exit(_: Args) {
    end_at_once(Call::UnderscoreExit);
}

fn before_quick_exit(_: Args) {
    end_at_once(Call::QuickExit);
}

/// Pushes before abort(3). It may come from a corrupted heap: nothing is allocated, so there is no report.
fn before_abort(_: Args) {
    POSIX.release_all(Call::Abort);
}

/// Pushes before this process sends a signal to itself.
fn before_own_signal(signal: usize) {
    POSIX.before_signal(|| linux::is_unhandled(signal as c_int));
}

pub(super) fn before_raise([signal, ..]: Args) {
    before_own_signal(signal);
}

/// Prepares for kill(2); a process group may include this process.
pub(super) fn before_kill([process, signal, ..]: Args) {
    let process = process as c_int;
    if process <= 0 || process.unsigned_abs() == POSIX.process() {
        before_own_signal(signal);
    }
}

fn before_killpg([_, signal, ..]: Args) {
    before_own_signal(signal);
}

pub(super) fn before_tgkill([process, _, signal, ..]: Args) {
    before_kill([process, signal, 0, 0, 0, 0]);
}

/// Prepares for a signal to a thread of this process: one that ends the process does so whichever thread gets it.
fn before_signal_to_thread([_, signal, ..]: Args) {
    before_own_signal(signal);
}

passing_shim! {
    pthread_kill => before_signal_to_thread;
    pthread_sigqueue => before_signal_to_thread;
    raise => before_raise;
    gsignal => before_raise;
    kill => before_kill;
    killpg => before_killpg;
    tgkill => before_tgkill;
    sigqueue => before_kill;
    __assert_fail => before_abort;
    __assert_perror_fail => before_abort;
    __assert => before_abort;
}

/// Prepares for daemon(3), which forks inside libc and ends this process unseen: the child goes on with what there is.
fn before_daemon(_: Args) {
    stacked::before_daemon();
}

passing_shim! {
    daemon => before_daemon;
    exit => before_exit;
    _exit => before_immediate_exit;
    _Exit => before_immediate_exit;
    quick_exit => before_quick_exit;
    abort => before_abort;
}

/// Stands aside before a program forbids itself system calls, as it does not know of ours.
fn before_prctl([option, ..]: Args) {
    if option as i32 == libc::PR_SET_SECCOMP {
        keeper::stand_aside();
    }
}

passing_shim! {
    prctl => before_prctl;
}

/// Notes the use of io_uring: liburing makes its system calls itself, and only its functions can be intercepted.
fn before_uring_setup(_: Args) {
    POSIX.uses_io_uring();
}

fn before_uring_wait(_: Args) {
    POSIX.before_wait(Call::IoUring);
}

passing_shim! {
    io_uring_setup => before_uring_setup;
    io_uring_queue_init => before_uring_setup;
    io_uring_queue_init_params => before_uring_setup;
    io_uring_queue_init_mem => before_uring_setup;
    io_uring_enter => before_uring_wait;
    io_uring_submit => before_uring_wait;
    io_uring_submit_and_wait => before_uring_wait;
    io_uring_submit_and_wait_timeout => before_uring_wait;
    io_uring_wait_cqes => before_uring_wait;
    io_uring_wait_cqe_timeout => before_uring_wait;
    __io_uring_get_cqe => before_uring_wait;
}
