//! `--spin`: the loop that polls before a wait sleeps.
//!
//! A thread that spins looks at its signals too: one that has a handler ends the wait as it would end the call. Before a
//! system call that would wait, signals are blocked during the spin ([`Quiet`]), so that none arrives between the last
//! try and the sleep, where it would have interrupted the program's call and now would not. The stack knows which
//! handlers have run (`stacked::handlers`), and needs no system call for that.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};
use core::time::Duration;

use libc::{c_int, ssize_t};
use uncork_posix::Errno;
use uncork_posix::config::Spin;
use uncork_posix::kernel::Kernel;
use uncork_posix::spin::Waits;
use uncork_sockets::Tried;

use crate::raw::{fail, libc_result, raw};
use crate::stacked::cancellation_point;
use crate::{POSIX, linux};

thread_local! {
    static WAITS: Cell<Waits> = const { Cell::new(Waits::new()) };
    /// This thread spins; or a signal handler has jumped out of a spin.
    static SPINS: Cell<bool> = const { Cell::new(false) };
}

/// The program has installed a handler for a signal that can come at any time.
static HANDLERS: AtomicBool = AtomicBool::new(false);
/// Number of threads that spin right now.
static SPINNING: AtomicU32 = AtomicU32::new(0);
/// Number of cores that the program may use; 0: not asked yet.
static CORES: AtomicU32 = AtomicU32::new(0);

/// A pause of this length between two tries means that another thread ran on this core.
const SOMEBODY_ELSE: Duration = Duration::from_micros(20);
/// A wait this short did not sleep.
const NO_WAIT: Duration = Duration::from_micros(3);
/// Number of tries after which the core is yielded, if each is a system call.
const TRIES_A_TURN: u32 = 16;
/// The same if each only reads memory: it takes about as long.
const GLANCES_A_TURN: u32 = 24;

/// Returns whether waits sleep at once.
#[inline]
pub(crate) fn is_off() -> bool {
    POSIX.settings().spin == Spin::Off || POSIX.is_disabled()
}

/// Notes that sigaction(2) or the like installs `handler` for `signal`.
pub(crate) fn note_handler(signal: c_int, handler: usize) {
    let synchronous = matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS
    );
    if handler != libc::SIG_DFL && handler != libc::SIG_IGN && !synchronous {
        HANDLERS.store(true, Relaxed);
    }
}

/// Calls `attempt` until it succeeds, for as long as a thread of this program should spin, and no handler has run
/// (`is_interrupted`). Learns from a wait that ends here.
pub(crate) fn attempt(
    limit: Option<Duration>,
    is_interrupted: impl Fn() -> bool,
    attempt: &mut dyn FnMut() -> bool,
) -> Tried {
    let budget = budget(limit);
    if budget.is_zero() || is_off() {
        return Tried::Nothing;
    }
    let try_now = || attempt().then_some(());
    match spin(budget, GLANCES_A_TURN, || is_interrupted().then_some(()), try_now) {
        Spun::Done(()) => Tried::Done,
        Spun::Interrupted(()) => Tried::Interrupted,
        Spun::Nothing => Tried::Nothing,
    }
}

/// How a spin ended.
enum Spun<T, I> {
    /// Something was ready.
    Done(T),
    /// A signal came.
    Interrupted(I),
    /// Nothing was ready: sleep.
    Nothing,
}

/// Counts this thread among those that spin, unless spinning is adaptive and as many threads as cores spin already.
fn begin_spinning(adaptive: bool) -> bool {
    if !SPINS.replace(true) && SPINNING.fetch_add(1, Relaxed) >= cores() && adaptive {
        end_spinning();
        return false;
    }
    true
}

fn end_spinning() {
    // A handler that interrupted this may have spun, too, and have ended the spin for both.
    if SPINS.replace(false) {
        SPINNING.fetch_sub(1, Relaxed);
    }
}

/// Resets the counts in the child of a fork: threads that spun are the parent's, and the child may run on other cores.
pub(crate) fn after_fork_in_child() {
    SPINNING.store(0, Relaxed);
    SPINS.set(false);
    CORES.store(0, Relaxed);
}

/// Spins before a system call, with signals blocked; an interruption returns the pending signals.
fn spin_quietly<T>(budget: Duration, try_now: impl FnMut() -> Option<T>) -> Spun<T, u64> {
    let quiet = Quiet::begin();
    let pending = || quiet.as_ref().map(Quiet::pending).filter(|set| *set != 0);
    spin(budget, TRIES_A_TURN, pending, try_now)
}

/// Spins for `budget` on `try_now`, and yields the core once in `tries_a_turn` tries. Learns from a wait that ends here;
/// the clock is not read once more for that, as the thread that has waited now has work to do.
fn spin<T, I>(
    budget: Duration,
    tries_a_turn: u32,
    interruption: impl Fn() -> Option<I>,
    mut try_now: impl FnMut() -> Option<T>,
) -> Spun<T, I> {
    let adaptive = POSIX.settings().spin == Spin::Auto;
    if !begin_spinning(adaptive) {
        return Spun::Nothing;
    }
    let begin = linux::now();
    let mut last = begin;
    let mut tries = 0;
    let ended = loop {
        if let Some(done) = try_now() {
            with_waits(Waits::undisturbed);
            learn(last.since(begin));
            break Spun::Done(done);
        }
        if let Some(interruption) = interruption() {
            break Spun::Interrupted(interruption);
        }
        let now = linux::now();
        if now.since(begin) >= budget {
            break Spun::Nothing;
        }
        if adaptive && now.since(last) > SOMEBODY_ELSE {
            with_waits(Waits::crowded);
            break Spun::Nothing;
        }
        last = now;
        tries += 1;
        if tries % tries_a_turn == 0 {
            POSIX.kernel.give_way();
        } else {
            core::hint::spin_loop();
        }
    };
    end_spinning();
    ended
}

fn with_waits<T>(run: impl FnOnce(&mut Waits) -> T) -> T {
    let mut waits = WAITS.get();
    let result = run(&mut waits);
    WAITS.set(waits);
    result
}

fn budget(limit: Option<Duration>) -> Duration {
    let budget = with_waits(|waits| waits.budget(POSIX.settings().spin));
    limit.map_or(budget, |limit| budget.min(limit))
}

/// Learns from the length of a wait, if it was one.
pub(crate) fn learn(waited: Duration) {
    if waited > NO_WAIT {
        with_waits(|waits| waits.learn(waited));
    }
}

/// Returns the signals of a mask that a wait takes: these do not end it.
///
/// # Safety
/// As for the calls that take such a mask.
pub(crate) unsafe fn kept_out(mask: *const libc::sigset_t) -> u64 {
    // SAFETY: as promised; the kernel uses its first eight bytes.
    if mask.is_null() { 0 } else { unsafe { mask.cast::<u64>().read() } }
}

/// Makes a wait of the poll family, for at most `limit` and with the signals `kept_out` blocked. `try_now` polls without
/// waiting; `call` is the program's own call, with the time left if spinning took some of it (`Some(None)`: no limit).
#[inline]
pub(crate) fn wait(
    (limit, kept_out): (Option<Duration>, u64),
    try_now: impl FnMut() -> c_int,
    call: impl FnOnce(Option<Option<Duration>>) -> c_int,
) -> c_int {
    if is_off() || limit == Some(Duration::ZERO) {
        return call(None);
    }
    wait_spinning((limit, kept_out), try_now, call)
}

fn wait_spinning(
    (limit, kept_out): (Option<Duration>, u64),
    mut try_now: impl FnMut() -> c_int,
    call: impl FnOnce(Option<Option<Duration>>) -> c_int,
) -> c_int {
    let budget = budget(limit);
    let begin = linux::now();
    if budget.is_zero() {
        let ready = call(None);
        learn(linux::now().since(begin));
        return ready;
    }
    let spun = spin_quietly(budget, || match try_now() {
        0 => None,
        ready => Some((ready, linux::errno())),
    });
    match spun {
        Spun::Done((ready, errno)) if ready < 0 => fail(Errno(errno)) as c_int,
        Spun::Done((ready, _)) => ready,
        // None of these calls is ever restarted (signal(7)).
        Spun::Interrupted(pending) if handled(pending & !kept_out).any(|_| true) => {
            fail(Errno::EINTR) as c_int
        }
        _ => {
            let spent = linux::now().since(begin);
            let ready = call(Some(limit.map(|limit| limit.saturating_sub(spent))));
            learn(linux::now().since(begin));
            ready
        }
    }
}

/// Flags of a receiving call that waits for nothing, for more than one byte, or for something else.
const NOT_PLAIN: c_int =
    libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Receives from a socket with a low-water mark (SO_RCVLOWAT). A call that does not wait takes less: the spin asks whether
/// there is enough, as poll(2) does. Otherwise as [`receive`].
pub(crate) fn receive_enough(
    fd: c_int,
    flags: c_int,
    mut try_now: impl FnMut(c_int) -> Result<usize, Errno>,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if flags & NOT_PLAIN != 0 || POSIX.kernel.is_nonblocking(fd) {
        return call();
    }
    let begin = linux::now();
    let received = match readiness(fd, libc::POLLIN, linux::receive_timeout(fd)) {
        Ok(()) => call(),
        // A wait that is over takes what there is (tcp_recvmsg_locked of net/ipv4/tcp.c).
        Err(error) => match try_now(flags | libc::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => fail(error),
            taken => libc_result(taken),
        },
    };
    learn_since(begin);
    received
}

/// Receives, after a spin. `try_now` receives with the flags given; `call` is the program's own call.
pub(crate) fn receive(
    fd: c_int,
    flags: c_int,
    mut try_now: impl FnMut(c_int) -> Result<usize, Errno>,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if flags & NOT_PLAIN != 0 {
        return call();
    }
    let begin = linux::now();
    let budget = budget(None);
    if budget.is_zero() {
        let received = call();
        if received >= 0 {
            learn(linux::now().since(begin));
        }
        return received;
    }
    let mut try_now = || match try_now(flags | libc::MSG_DONTWAIT) {
        Err(Errno::EAGAIN) => None,
        result => Some(result),
    };
    match try_now() {
        // The descriptor was closed and reused without our knowing.
        Some(Err(Errno::ENOTSOCK)) => return call(),
        Some(result) => return libc_result(result),
        None => {}
    }
    if POSIX.kernel.is_nonblocking(fd) {
        return fail(Errno::EAGAIN);
    }
    let limit = linux::receive_timeout(fd);
    let budget = limit.map_or(budget, |limit| budget.min(limit));
    let received = match spin_quietly(budget, try_now) {
        Spun::Done(result) => return libc_result(result),
        Spun::Interrupted(pending) if interrupts(fd, pending) => fail(Errno::EINTR),
        // SO_RCVTIMEO cannot be reduced by the time that has passed: a wait whose time the spin has used up is over, a
        // longer one is overrun by one spin at most.
        _ if limit.is_some_and(|limit| linux::now().since(begin) >= limit) => fail(Errno::EAGAIN),
        _ => call(),
    };
    learn(linux::now().since(begin));
    received
}

/// Spins until a descriptor has `events`, before a call that waits for them, for `limit` at most. `Err`: a signal ends
/// the wait, or its time is up.
pub(crate) fn readiness(fd: c_int, events: i16, limit: Option<Duration>) -> Result<(), Errno> {
    let budget = budget(limit);
    if budget.is_zero() {
        return Ok(());
    }
    let ready = || linux::poll_one(fd, events, Some(Duration::ZERO)).ok().filter(|ready| *ready);
    match spin_quietly(budget, ready) {
        Spun::Done(_) => Ok(()),
        Spun::Interrupted(pending) if interrupts(fd, pending) => Err(Errno::EINTR),
        _ if limit == Some(budget) => Err(Errno::EAGAIN),
        _ => Ok(()),
    }
}

/// How long a thread that waits to write keeps the program's signal handlers off at most.
const PIECE: Duration = Duration::from_millis(5);

/// Waits until a descriptor takes bytes, for some milliseconds at most, as a blocking write of the program's does: it ends a
/// thread that is cancelled. `Err`: a handler has run that ends calls (signal(7)). Which handlers are to run is only known
/// while they are kept off.
pub(crate) fn wait_to_write(fd: c_int) -> Result<(), Errno> {
    // The thread may end here: nothing of it is locked.
    cancellation_point();
    let quiet = Quiet::begin();
    let waited = linux::poll_one(fd, libc::POLLOUT, Some(PIECE));
    let pending = quiet.as_ref().map_or(0, Quiet::pending);
    let ends = handled(pending)
        .any(|flags| flags & libc::SA_RESTART == 0 || linux::send_timeout(fd).is_some());
    drop(quiet);
    match waited {
        _ if ends => Err(Errno::EINTR),
        Ok(_) => Ok(()),
        // One of the signals that are not kept off, such as the one by which threads are cancelled.
        Err(Errno::EINTR) => {
            cancellation_point();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Learns from a wait that [`readiness`] preceded.
pub(crate) fn learn_since(begin: uncork_cork::Instant) {
    learn(linux::now().since(begin));
}

/// Iterates over the flags of the handlers of those pending signals that have one.
fn handled(pending: u64) -> impl Iterator<Item = c_int> {
    (1..=64).filter(move |signal| pending >> (signal - 1) & 1 != 0).filter_map(|signal| {
        // The kernel's own struct: handler, flags, restorer, mask.
        let mut action = [0u64; 4];
        // SAFETY: the kernel writes one such struct.
        unsafe { raw!(SYS_rt_sigaction, signal, 0, action.as_mut_ptr(), 8) }.ok()?;
        let handler = action[0] as usize;
        (handler != libc::SIG_DFL && handler != libc::SIG_IGN).then_some(action[1] as c_int)
    })
}

/// Returns whether these signals end a blocking call on a socket with EINTR: those without SA_RESTART do, and all do if
/// the socket has a time limit (signal(7)).
fn interrupts(fd: c_int, pending: u64) -> bool {
    handled(pending)
        .any(|flags| flags & libc::SA_RESTART == 0 || linux::receive_timeout(fd).is_some())
}

fn cores() -> u32 {
    match CORES.load(Relaxed) {
        0 => {
            let mut set = [0u64; 128];
            // SAFETY: the kernel writes at most the array's size.
            let bytes =
                unsafe { raw!(SYS_sched_getaffinity, 0, size_of_val(&set), set.as_mut_ptr()) };
            let words = bytes.unwrap_or(0) / 8;
            let cores = set[..words].iter().map(|word| word.count_ones()).sum::<u32>().max(1);
            CORES.store(cores, Relaxed);
            cores
        }
        cores => cores,
    }
}

/// Blocks signals while it lives, if any has a handler.
pub(crate) struct Quiet {
    before: u64,
}

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

impl Quiet {
    /// Signals that glibc keeps for itself: cancellation, setuid.
    pub(crate) const OF_GLIBC: u64 = bit(32) | bit(33);

    pub(crate) fn begin() -> Option<Self> {
        /// Signals that are never blocked: those that a fault of this thread raises, and glibc's.
        const NEVER: u64 = bit(libc::SIGSEGV)
            | bit(libc::SIGBUS)
            | bit(libc::SIGILL)
            | bit(libc::SIGFPE)
            | bit(libc::SIGTRAP)
            | bit(libc::SIGSYS)
            | Quiet::OF_GLIBC;
        if !HANDLERS.load(Relaxed) {
            return None;
        }
        let set = !NEVER;
        let mut before = 0u64;
        // SAFETY: signal sets of eight bytes.
        unsafe { raw!(SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const set, &raw mut before, 8) }
            .ok()?;
        Some(Self { before })
    }

    /// Leaves them blocked until a [`Quiet::from_mask`] of this value is dropped.
    pub(crate) fn into_mask(self) -> u64 {
        let before = self.before;
        core::mem::forget(self);
        before
    }

    /// Takes over from [`Quiet::into_mask`].
    pub(crate) fn from_mask(before: u64) -> Self {
        Self { before }
    }

    /// Returns the signals that the program would have got by now.
    fn pending(&self) -> u64 {
        let mut set = 0u64;
        // SAFETY: a signal set of eight bytes.
        let _ = unsafe { raw!(SYS_rt_sigpending, &raw mut set, 8) };
        set & !self.before
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: a signal set of eight bytes.
        let _ =
            unsafe { raw!(SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const self.before, 0, 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_spins_although_threads_of_its_parent_did() {
        SPINNING.store(1000, Relaxed);
        assert!(!begin_spinning(true), "all cores are taken");
        after_fork_in_child();
        assert!(begin_spinning(true));
        assert_eq!(SPINNING.load(Relaxed), 1);
        end_spinning();
        // A handler that interrupted a spin has ended it for both.
        end_spinning();
        assert_eq!(SPINNING.load(Relaxed), 0);
    }
}
