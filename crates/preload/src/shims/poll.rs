//! Waiting for readiness: select, poll and epoll in all their forms.

use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use libc::{
    c_int, c_long, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval,
};
use uncork_posix::Call;

use crate::jump::set_shim;
use crate::raw::{libc_result, raw};
use crate::table::HIGHEST;
use crate::{POSIX, linux, real, spin, stacked};

/// Time left of a wait; `None`: no limit.
type Limit = Option<Duration>;

fn milliseconds(timeout: c_int) -> Limit {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Converts a limit to milliseconds, rounded up.
fn to_milliseconds(limit: Limit) -> c_int {
    limit.map_or(-1, |limit| {
        c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    })
}

/// # Safety
/// `time` is null or a valid timespec.
unsafe fn timespec_limit(time: *const timespec) -> Option<Limit> {
    if time.is_null() {
        return Some(None);
    }
    if stacked::is_bad(time) {
        return None;
    }
    // SAFETY: as promised. An invalid one is the kernel's to refuse: `None`.
    linux::duration(unsafe { &*time }).map(Some)
}

/// # Safety
/// `fds` points to `number` pollfds.
unsafe fn before_poll(fds: *const pollfd, number: nfds_t, by: Call) {
    // More than this is an error that the kernel refuses, or so many that the timer must do.
    let readable = !stacked::is_nowhere(fds) && number <= 1 << 16;
    let number = if readable { number as usize } else { 0 };
    // SAFETY: as promised; they are only read before the call begins.
    POSIX.before_poll((0..number).map(|at| unsafe { (*fds.add(at)).fd }), by);
}

/// poll(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn poll(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        before_poll(fds, number, Call::Poll);
        if stacked::polls(fds, number) {
            return stacked::poll(fds, number, milliseconds(timeout), core::ptr::null());
        }
        stacked::flush();
        spin::wait(
            (milliseconds(timeout), 0),
            || libc_result(raw!(SYS_poll, fds, number, 0)) as c_int,
            |left| match left {
                None => real::poll()(fds, number, timeout),
                Some(left) => real::poll()(fds, number, to_milliseconds(left)),
            },
        )
    }
}

/// poll(2), fortified.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    // SAFETY: the program's own call; too small a buffer is the real function's to punish.
    unsafe {
        if room / size_of::<pollfd>() < number as usize {
            return real::__poll_chk()(fds, number, timeout, room);
        }
        poll(fds, number, timeout)
    }
}

/// ppoll(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call. A wait with a signal mask also waits for signals: each try
    // must let them in, so it takes the mask.
    unsafe {
        before_poll(fds, number, Call::Ppoll);
        let call = |timeout: *const timespec| real::ppoll()(fds, number, timeout, mask);
        let Some(limit) = timespec_limit(timeout) else { return call(timeout) };
        if stacked::polls(fds, number) {
            return stacked::poll(fds, number, limit, mask);
        }
        stacked::flush();
        let none = linux::timespec(Duration::ZERO);
        spin::wait(
            (limit, spin::kept_out(mask)),
            || call(&raw const none),
            |left| match left {
                None => call(timeout),
                Some(left) => with_timespec(left, call),
            },
        )
    }
}

/// ppoll(2), fortified.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    number: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: as for `__poll_chk`.
    unsafe {
        if room / size_of::<pollfd>() < number as usize {
            return real::__ppoll_chk()(fds, number, timeout, mask, room);
        }
        ppoll(fds, number, timeout, mask)
    }
}

fn with_timespec(limit: Limit, call: impl FnOnce(*const timespec) -> c_int) -> c_int {
    match limit {
        None => call(core::ptr::null()),
        Some(limit) => {
            let time = linux::timespec(limit);
            call(&raw const time)
        }
    }
}

/// Iterates over the descriptors in an fd_set that are below `number`.
///
/// # Safety
/// `set` is null or has room for `number` bits.
unsafe fn members(set: *const fd_set, number: c_int) -> impl Iterator<Item = c_int> {
    // The kernel does not look past the process's highest descriptor either, and the set may end
    // there, whatever `number` says.
    let number = number.min(HIGHEST.load(Relaxed) + 1).max(0) as usize;
    let words = if stacked::is_nowhere(set) { 0 } else { number.div_ceil(64) };
    (0..words).flat_map(move |word| {
        // SAFETY: as promised; an fd_set is an array of 64-bit words (and may be longer than
        // FD_SETSIZE says, as programs with many descriptors make them).
        let mut left = unsafe { *set.cast::<u64>().add(word) };
        core::iter::from_fn(move || {
            (left != 0).then(|| {
                let bit = left.trailing_zeros();
                left &= left - 1;
                (word * 64) as c_int + bit as c_int
            })
        })
    })
}

/// Copies of the sets, to restore them after a try that finds nothing.
struct Sets {
    words: [[u64; Sets::WORDS]; 3],
}

impl Sets {
    /// FD_SETSIZE bits; larger sets are not spun on.
    const WORDS: usize = 16;

    /// Returns whether the sets can be read, and have no more bits than there is room for.
    fn fit(number: c_int, sets: [*mut fd_set; 3]) -> bool {
        let are_there = !sets.into_iter().any(|set| stacked::is_bad(set));
        are_there && (0..=libc::FD_SETSIZE as c_int).contains(&number)
    }

    /// # Safety
    /// Each set is null or has room for `number` ≤ FD_SETSIZE bits.
    unsafe fn save(number: c_int, sets: [*mut fd_set; 3]) -> Self {
        let mut saved = Self { words: [[0; Self::WORDS]; 3] };
        let bytes = (number as usize).div_ceil(64) * 8;
        for (to, from) in saved.words.iter_mut().zip(sets) {
            if !from.is_null() {
                // SAFETY: as promised.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        from.cast(),
                        to.as_mut_ptr().cast::<u8>(),
                        bytes,
                    );
                };
            }
        }
        saved
    }

    /// # Safety
    /// As for [`Sets::save`], with the same arguments.
    unsafe fn restore(&self, number: c_int, sets: [*mut fd_set; 3]) {
        let bytes = (number as usize).div_ceil(64) * 8;
        for (from, to) in self.words.iter().zip(sets) {
            if !to.is_null() {
                // SAFETY: as promised.
                unsafe {
                    core::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to.cast(), bytes);
                };
            }
        }
    }
}

/// Tries pselect(2) without waiting, and restores the sets if nothing was ready.
///
/// # Safety
/// As for pselect(2), `number` ≤ FD_SETSIZE.
unsafe fn try_select(number: c_int, sets: [*mut fd_set; 3], mask: *const sigset_t) -> c_int {
    let none = linux::timespec(Duration::ZERO);
    // SAFETY: as promised.
    unsafe {
        let saved = Sets::save(number, sets);
        let ready = real::pselect()(number, sets[0], sets[1], sets[2], &raw const none, mask);
        if ready == 0 {
            saved.restore(number, sets);
        }
        ready
    }
}

/// select(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn select(
    number: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the program's own call. Linux writes the time left into `timeout`: so do we, or the
    // last call does it.
    unsafe {
        POSIX.before_poll(members(read, number).chain(members(except, number)), Call::Select);
        let call = || real::select()(number, read, write, except, timeout);
        if stacked::is_bad(timeout) {
            return call();
        }
        let limit = if timeout.is_null() { Some(None) } else { time_of(*timeout).map(Some) };
        let Some(limit) = limit else { return call() };
        if stacked::selects(number, sets) {
            let begin = linux::now();
            let ready = stacked::select(number, sets, limit, core::ptr::null());
            if let Some(limit) = limit {
                let left = limit.saturating_sub(linux::now().since(begin));
                (*timeout).tv_sec = left.as_secs() as libc::time_t;
                (*timeout).tv_usec = left.subsec_micros().into();
            }
            return ready;
        }
        stacked::flush();
        if !Sets::fit(number, sets) {
            return call();
        }
        let begin = linux::now();
        let store = |left: Duration| {
            if !timeout.is_null() {
                (*timeout).tv_sec = left.as_secs() as libc::time_t;
                (*timeout).tv_usec = left.subsec_micros().into();
            }
        };
        spin::wait(
            (limit, 0),
            || {
                let ready = try_select(number, sets, core::ptr::null());
                if ready > 0
                    && let Some(limit) = limit
                {
                    store(limit.saturating_sub(linux::now().since(begin)));
                }
                ready
            },
            |left| {
                if let Some(Some(left)) = left {
                    store(left);
                }
                call()
            },
        )
    }
}

fn time_of(time: timeval) -> Option<Duration> {
    let microseconds = u64::try_from(time.tv_usec).ok()?;
    Some(
        Duration::from_secs(u64::try_from(time.tv_sec).ok()?) + Duration::from_micros(microseconds),
    )
}

/// pselect(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pselect(
    number: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the program's own call.
    unsafe {
        POSIX.before_poll(members(read, number).chain(members(except, number)), Call::Pselect);
        let call = |timeout| real::pselect()(number, read, write, except, timeout, mask);
        let Some(limit) = timespec_limit(timeout) else { return call(timeout) };
        if stacked::selects(number, sets) {
            return stacked::select(number, sets, limit, mask);
        }
        stacked::flush();
        if !Sets::fit(number, sets) {
            return call(timeout);
        }
        spin::wait(
            (limit, spin::kept_out(mask)),
            || try_select(number, sets, mask),
            |left| match left {
                None => call(timeout),
                Some(left) => with_timespec(left, call),
            },
        )
    }
}

/// epoll_wait(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    POSIX.before_epoll(stacked::duplicates::number_of(epfd), Call::EpollWait);
    // SAFETY: the program's own call.
    unsafe {
        let limit = milliseconds(timeout);
        if stacked::concerns_set(epfd, limit) {
            return stacked::wait_for_set(epfd, events, most, limit, core::ptr::null());
        }
        spin::wait(
            (milliseconds(timeout), 0),
            || libc_result(raw!(SYS_epoll_wait, epfd, events, most, 0)) as c_int,
            |left| match left {
                None => real::epoll_wait()(epfd, events, most, timeout),
                Some(left) => real::epoll_wait()(epfd, events, most, to_milliseconds(left)),
            },
        )
    }
}

/// epoll_pwait(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    POSIX.before_epoll(stacked::duplicates::number_of(epfd), Call::EpollPwait);
    // SAFETY: the program's own call; see `ppoll` for the mask.
    unsafe {
        let limit = milliseconds(timeout);
        if stacked::concerns_set(epfd, limit) {
            return stacked::wait_for_set(epfd, events, most, limit, mask);
        }
        let call = |timeout| real::epoll_pwait()(epfd, events, most, timeout, mask);
        spin::wait(
            (milliseconds(timeout), spin::kept_out(mask)),
            || call(0),
            |left| match left {
                None => call(timeout),
                Some(left) => call(to_milliseconds(left)),
            },
        )
    }
}

/// epoll_pwait2(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    POSIX.before_epoll(stacked::duplicates::number_of(epfd), Call::EpollPwait2);
    // SAFETY: the program's own call; see `ppoll` for the mask.
    unsafe {
        let call = |timeout| real::epoll_pwait2()(epfd, events, most, timeout, mask);
        let Some(limit) = timespec_limit(timeout) else { return call(timeout) };
        if stacked::concerns_set(epfd, limit) {
            return stacked::wait_for_set(epfd, events, most, limit, mask);
        }
        let none = linux::timespec(Duration::ZERO);
        spin::wait(
            (limit, spin::kept_out(mask)),
            || call(&raw const none),
            |left| match left {
                None => call(timeout),
                Some(left) => with_timespec(left, call),
            },
        )
    }
}

/// Prepares for a wait of this family that is made by its number, and otherwise goes through as it is: the kernel's own
/// calls take other masks than libc's, and change the limit.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn before_by_number(call: c_long, [a, b, _, d, ..]: [usize; 6]) {
    let before_epoll = |by| POSIX.before_epoll(stacked::duplicates::number_of(a as c_int), by);
    // SAFETY: as promised.
    let before_select = |by| unsafe {
        let number = a as c_int;
        POSIX.before_poll(members(b as _, number).chain(members(d as _, number)), by);
    };
    match call {
        // SAFETY: as promised.
        libc::SYS_ppoll => unsafe { before_poll(a as _, b as _, Call::Ppoll) },
        libc::SYS_select => before_select(Call::Select),
        libc::SYS_pselect6 => before_select(Call::Pselect),
        libc::SYS_epoll_pwait => before_epoll(Call::EpollPwait),
        libc::SYS_epoll_pwait2 => before_epoll(Call::EpollPwait2),
        _ => return,
    }
    stacked::flush();
}

set_shim!(epoll_ctl => epoll_ctl_hook, note watched);

/// Notes that a TCP socket is added to a set, or modified there.
extern "C" fn watched(epfd: c_int, _: c_int, fd: c_int) {
    POSIX.watched(stacked::duplicates::number_of(epfd), fd);
}

/// epoll_ctl(2) where something may be on the stack.
pub(crate) unsafe extern "C-unwind" fn epoll_ctl_hook(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if operation == libc::EPOLL_CTL_ADD || operation == libc::EPOLL_CTL_MOD {
        POSIX.watched(stacked::duplicates::number_of(epfd), fd);
    }
    // SAFETY: the program's own call.
    unsafe {
        stacked::claim_if_parents(fd);
        if stacked::has(fd) && stacked::is_on() {
            return stacked::control_set(epfd, operation, fd, event);
        }
        let result = real::epoll_ctl()(epfd, operation, fd, event);
        if result == 0 && operation == libc::EPOLL_CTL_ADD {
            stacked::entered(epfd, fd);
        }
        if result != 0 && linux::errno() == libc::ENOENT {
            return stacked::disarmed::control(epfd, operation, fd, event).unwrap_or(result);
        }
        result
    }
}
