//! Waits for many descriptors: poll, select, epoll.

use core::slice;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t};
use uncork_posix::kernel::state;
use uncork_posix::socket::flag;

use super::duplicates::{are_known, number_of};
use super::{
    SOCKETS, cancelling, count, done, fail, faults, handlers, has, has_set, is_on, mark, outside,
};
use crate::raw::raw;
use crate::{POSIX, real, table};

/// Returns whether some of these are on the stack.
///
/// # Safety
/// `fds` has `number` entries.
pub(crate) unsafe fn polls(fds: *const pollfd, number: nfds_t) -> bool {
    // A process cannot have more descriptors than this.
    if faults::is_nowhere(fds) || number > 1 << 20 || !super::ON.load(Relaxed) {
        return false;
    }
    // SAFETY: as promised.
    let all = unsafe { slice::from_raw_parts(fds, number as usize) };
    for one in all {
        super::claim_if_parents(one.fd);
    }
    all.iter().any(|one| concerns(one.fd)) && is_on()
}

/// Returns whether waiting for a descriptor is waiting for the stack.
fn concerns(fd: c_int) -> bool {
    has(fd) || has_set(fd)
}

/// Shows the kernel, for epoll sets among what is waited for, what their members on the stack report.
fn show_sets(fds: &[pollfd]) {
    for one in fds.iter().filter(|one| has_set(one.fd)) {
        // If there is no descriptor left for that, only the kernel's members are seen.
        let _ = SOCKETS.show_set(number_of(one.fd));
    }
}

/// Makes a poll(2) or ppoll(2), with some descriptors on the stack.
///
/// # Safety
/// As for these.
pub(crate) unsafe fn poll(
    fds: *mut pollfd,
    number: nfds_t,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as promised.
    let (all, mask) = unsafe { (slice::from_raw_parts_mut(fds, number as usize), mask.as_ref()) };
    handlers::begin();
    cancelling::point();
    show_sets(all);
    count(SOCKETS.poll(all, limit, mask)) as c_int
}

/// Number of bits in a word of an fd_set.
const WORD_BITS: usize = 64;

/// Returns a word of an fd_set, which is an array of these, as long as the caller says.
///
/// # Safety
/// `set` is null or has a word at `at`.
unsafe fn word_of(set: *const fd_set, at: usize) -> u64 {
    // SAFETY: as promised.
    if set.is_null() { 0 } else { unsafe { *set.cast::<u64>().add(at) } }
}

/// # Safety
/// As for [`word_of`].
unsafe fn put_word(set: *mut fd_set, at: usize, word: u64) {
    if !set.is_null() {
        // SAFETY: as promised.
        unsafe { *set.cast::<u64>().add(at) = word };
    }
}

/// Iterates over the bits of a word that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// Returns how many descriptors the kernel looks at, whatever select(2) was told: no more than its table has room for.
/// The sets may end there, as those of `select(getdtablesize(), …)`.
fn looked_at(number: c_int) -> usize {
    const STATUS: &str = "/proc/thread-self/status";
    let number = usize::try_from(number).unwrap_or(0);
    if number <= libc::FD_SETSIZE {
        return number;
    }
    let told = std::fs::read_to_string(STATUS).ok();
    let size = told.as_ref().and_then(|told| {
        let line = told.lines().find_map(|line| line.strip_prefix("FDSize:"))?;
        line.trim().parse().ok()
    });
    // Without /proc: those that are known to be open.
    let known = || usize::try_from(table::HIGHEST.load(Relaxed) + 1).unwrap_or(0);
    number.min(size.unwrap_or_else(|| known().max(libc::FD_SETSIZE)))
}

/// Returns whether some of these are on the stack.
///
/// # Safety
/// Each set is null or has room for `number` bits.
pub(crate) unsafe fn selects(number: c_int, sets: [*mut fd_set; 3]) -> bool {
    if !is_on() || sets.into_iter().any(|set| faults::is_bad(set)) {
        return false;
    }
    let number = number.min(table::HIGHEST.load(Relaxed) + 1).max(0) as usize;
    let asked = || {
        (0..number.div_ceil(WORD_BITS)).flat_map(|at| {
            // SAFETY: as promised.
            let all = sets.iter().fold(0, |all, &set| all | unsafe { word_of(set, at) });
            bits(all).map(move |bit| at * WORD_BITS + bit)
        })
    };
    let asked = || asked().filter(|fd| *fd < number).map(|fd| fd as c_int);
    asked().for_each(super::claim_if_parents);
    asked().any(concerns)
}

/// Makes a select(2) or pselect(2) with some descriptors on the stack, as a poll(2).
///
/// # Safety
/// As for these.
pub(crate) unsafe fn select(
    number: c_int,
    sets: [*mut fd_set; 3],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    // The events that the kernel takes for each (POLLIN_SET, POLLOUT_SET, POLLEX_SET of fs/select.c).
    const ASKED: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    const TOLD: [i16; 3] = [
        libc::POLLIN | libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT | libc::POLLERR,
        libc::POLLPRI,
    ];
    let number = looked_at(number);
    let words = number.div_ceil(WORD_BITS);
    let mut polled = Vec::new();
    for at in 0..words {
        // SAFETY: as promised.
        let asked = sets.map(|set| unsafe { word_of(set, at) });
        for bit in bits(asked[0] | asked[1] | asked[2]) {
            let fd = at * WORD_BITS + bit;
            let events = asked.iter().zip(ASKED).filter(|(word, _)| *word >> bit & 1 != 0);
            let events = events.fold(0, |events, (_, asked)| events | asked);
            if fd < number {
                polled.push(pollfd { fd: fd as c_int, events, revents: 0 });
            }
        }
    }
    handlers::begin();
    cancelling::point();
    show_sets(&polled);
    // SAFETY: as promised.
    if let Err(error) = SOCKETS.poll(&mut polled, limit, unsafe { mask.as_ref() }) {
        return fail(error) as c_int;
    }
    if polled.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
        return fail(nix::errno::Errno::EBADF) as c_int;
    }
    let mut told = 0;
    let mut ready = polled.iter().peekable();
    for at in 0..words {
        let mut found = [0_u64; 3];
        while let Some(one) = ready.next_if(|one| one.fd as usize / WORD_BITS == at) {
            for ((word, asked), means) in found.iter_mut().zip(ASKED).zip(TOLD) {
                if one.events & asked != 0 && one.revents & means != 0 {
                    *word |= 1 << (one.fd as usize % WORD_BITS);
                    told += 1;
                }
            }
        }
        for (set, word) in sets.into_iter().zip(found) {
            // SAFETY: as promised.
            unsafe { put_word(set, at, word) };
        }
    }
    told
}

/// Makes an epoll_ctl(2) on a descriptor that is on the stack.
///
/// # Safety
/// As for the call.
pub(crate) unsafe fn control_set(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let set = number_of(set);
    if !has_set(set) && !outside::is_set(set) {
        // SAFETY: the program's own call, for the kernel to refuse.
        return unsafe { real::epoll_ctl()(set, operation, fd, event) };
    }
    // SAFETY: as promised.
    let asked = (!faults::is_nowhere(event)).then(|| unsafe { *event });
    let result = SOCKETS.control_set(set, operation, fd, asked);
    if result == Err(uncork_sockets::HANDED_OVER) {
        // Another thread has made it the kernel's meanwhile, and its memberships, too.
        // SAFETY: the program's own call.
        return unsafe { real::epoll_ctl()(set, operation, fd, event) };
    }
    if result.is_ok() && operation == libc::EPOLL_CTL_ADD {
        mark(set, state::STACK_SET);
    }
    done(result)
}

/// Notes that the kernel's descriptor `fd` has become a member of `set`. If it is a set itself, its members on the
/// stack end a wait for the outer one, too.
pub(crate) fn entered(set: c_int, fd: c_int) {
    let (set, fd) = (number_of(set), number_of(fd));
    if !is_on() || table::state(fd).is_none_or(|state| state.load(Relaxed) == state::TCP) {
        return;
    }
    if (has_set(fd) || outside::is_set(fd)) && SOCKETS.show_set(fd).is_ok() {
        SOCKETS.adopt_set(set, fd);
        mark(fd, state::STACK_SET);
        mark(set, state::STACK_SET);
    }
}

/// Returns the sets that a kernel socket may be a member of. If it was added to several, only the last is known: then
/// all that are open.
pub(super) fn sets_of(fd: c_int) -> Vec<c_int> {
    let has_many = POSIX.find(fd).is_some_and(|at| at.socket.is(flag::MANY_SETS));
    if has_many { open_sets() } else { POSIX.set_of(fd).into_iter().collect() }
}

/// Returns all sets that are open, read from /proc.
fn open_sets() -> Vec<c_int> {
    const IS: &str = "anon_inode:[eventpoll]";
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let sets = all
        .flatten()
        .filter(|one| std::fs::read_link(one.path()).is_ok_and(|what| what.as_os_str() == IS));
    let sets = sets.filter_map(|one| one.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<_> = sets.map(number_of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Moves the membership of a socket in a kernel's set to the stack, as the socket has become the stack's (by
/// connect(2) or listen(2), before which some programs add their sockets). One that listens is a member of both, in the kernel's
/// under other data.
pub(super) fn move_to_stack(set: c_int, fd: c_int) {
    let Some(event) = membership(set, fd) else { return };
    let remove = libc::EPOLL_CTL_DEL;
    // SAFETY: no pointers.
    let is_free = unsafe { raw!(SYS_epoll_ctl, set, remove, fd, 0) }.is_ok();
    if !is_free {
        return;
    }
    if SOCKETS.control_set(set, libc::EPOLL_CTL_ADD, fd, Some(event)).is_ok() {
        mark(set, state::STACK_SET);
    } else {
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: an event that lives as long as the call.
        let _ = unsafe { raw!(SYS_epoll_ctl, set, add, fd, &raw const event) };
    }
}

/// Returns what a descriptor is watched for in a kernel's set: its line `tfd: 5 events: 1d data: 7` in fdinfo
/// (proc_pid_fdinfo(5)).
fn membership(set: c_int, fd: c_int) -> Option<epoll_event> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{set}")).ok()?;
    let wanted = fd.to_string();
    told.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let mut after = |name| words.find(|word| *word == name).and_then(|_| words.next());
        let is_it = after("tfd:") == Some(wanted.as_str());
        let events = after("events:").and_then(|word| u32::from_str_radix(word, 16).ok())?;
        let data = after("data:").and_then(|word| u64::from_str_radix(word, 16).ok())?;
        is_it.then_some(epoll_event { events, u64: data })
    })
}

/// Returns whether waiting for a set is waiting for the stack: it has members there, or another thread may add the
/// first one while this one waits.
pub(crate) fn concerns_set(set: c_int, limit: Option<Duration>) -> bool {
    has_set(set) || limit != Some(Duration::ZERO) && is_on()
}

/// The kernel refuses to report more at once (EP_MAX_EVENTS).
const MOST_EVENTS: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// Makes an epoll_wait(2) or the like on a set with members on the stack.
///
/// # Safety
/// As for these.
pub(crate) unsafe fn wait_for_set(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let set = number_of(set);
    if !(1..=MOST_EVENTS).contains(&most) {
        return fail(nix::errno::Errno::EINVAL) as c_int;
    }
    if faults::is_nowhere(events) {
        return fail(nix::errno::Errno::EFAULT) as c_int;
    }
    handlers::begin();
    cancelling::point();
    are_known([set]);
    // SAFETY: as promised.
    let (into, mask) = unsafe { (slice::from_raw_parts_mut(events, most as usize), mask.as_ref()) };
    count(SOCKETS.wait_for_set(set, into, limit, mask)) as c_int
}
