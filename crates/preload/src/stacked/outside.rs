//! What [`uncork_sockets`] needs from the process around it.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use core::time::Duration;
use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;

use libc::c_int;
use nix::errno::Errno;
use uncork_guardian::mailbox;
pub(super) use uncork_high::HIGH;
use uncork_posix::kernel::state;
use uncork_sockets::{Accepted, HandedOver, Outside, Part, Tried};

use super::{accepting, behind, cancelling};
use crate::raw::raw;
use crate::spin::Quiet;
use crate::{linux, real, spin};

/// This process.
#[derive(Debug)]
pub(crate) struct Process;

/// The kernel sockets of which the descriptors of accepted connections are duplicates: one of IPv4, and one of IPv6, which
/// has options of its own.
static SPARES: [OnceLock<RawFd>; 2] = [OnceLock::new(), OnceLock::new()];

pub(super) fn errno(error: uncork_posix::Errno) -> Errno {
    Errno::from_raw(error.0)
}

pub(super) fn spare(ipv6: bool) -> Result<RawFd, Errno> {
    let spare = &SPARES[usize::from(ipv6)];
    if let Some(spare) = spare.get() {
        return Ok(*spare);
    }
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    unsafe {
        let low = raw!(SYS_socket, family, kind, 0).map_err(errno)?;
        let high = raw!(SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, HIGH);
        let fd = match high {
            Ok(high) => {
                let _ = raw!(SYS_close, low);
                high
            }
            Err(_) => low,
        };
        Ok(*spare.get_or_init(|| fd as RawFd))
    }
}

/// Makes a new kernel socket.
pub(super) fn new_socket(ipv6: bool) -> Result<OwnedFd, Errno> {
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the descriptor is new, and nobody else's.
    unsafe {
        let fd = raw!(SYS_socket, family, kind, 0).map_err(errno)?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Returns what identifies the kernel's socket behind a descriptor, whichever of its descriptors that is.
pub(super) fn inode(fd: RawFd) -> Option<u64> {
    // SAFETY: an all-zero structure is valid; the kernel writes nothing but it.
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        raw!(SYS_fstat, fd, &raw mut about).ok()?;
        Some(about.st_ino)
    }
}

/// Returns our own descriptors from `first` to `last`, in order: a program that closes them all means those that it knows of.
pub(crate) fn own_descriptors(first: u32, last: u32) -> Vec<u32> {
    if !super::is_on() && !super::is_vfork_child() {
        return Vec::new();
    }
    let spares = SPARES.iter().filter_map(|spare| spare.get().copied());
    let all = super::SOCKETS.own_descriptors().into_iter().chain(spares);
    let mut kept: Vec<u32> = all.filter_map(|fd| u32::try_from(fd).ok()).collect();
    kept.retain(|fd| (first..=last).contains(fd));
    kept.sort_unstable();
    kept
}

/// Returns whether a descriptor is one of our own. The look takes memory and locks, which a handler that calls dup2(2) may
/// not have: it is made only where it is likely.
pub(crate) fn is_own(fd: c_int) -> bool {
    // SAFETY: no pointers.
    let is_open = || unsafe { raw!(SYS_fcntl, fd, libc::F_GETFD) }.is_ok();
    let number = fd.max(0).unsigned_abs();
    fd >= HIGH && !super::has(fd) && is_open() && !own_descriptors(number, number).is_empty()
}

/// Returns whether a descriptor is an epoll set: only a set says that a socket is not a member (ENOENT).
pub(super) fn is_set(fd: RawFd) -> bool {
    let Ok(spare) = spare(false) else { return false };
    let remove = libc::EPOLL_CTL_DEL;
    // SAFETY: no pointers.
    let removed = unsafe { raw!(SYS_epoll_ctl, fd, remove, spare, 0) };
    removed.is_err_and(|error| errno(error) == Errno::ENOENT)
}

impl Outside for Process {
    fn poll(&self, fds: &mut [libc::pollfd], limit: Option<Duration>) -> Result<usize, Errno> {
        let limit = limit.map(linux::timespec);
        let limit = limit.as_ref().map_or(core::ptr::null(), |limit| &raw const *limit);
        let number = fds.len() as libc::nfds_t;
        // SAFETY: a slice of pollfds, and a pointer to a time that lives as long as the call.
        let ready = cancelling::exposed(|| unsafe {
            real::ppoll()(fds.as_mut_ptr(), number, limit, core::ptr::null())
        });
        usize::try_from(ready).map_err(|_| Errno::from_raw(linux::errno()))
    }

    fn wait(
        &self,
        set: RawFd,
        into: &mut [libc::epoll_event],
        limit: Option<Duration>,
    ) -> Result<usize, Errno> {
        let limit = limit.map(linux::timespec);
        let limit = limit.as_ref().map_or(core::ptr::null(), |limit| &raw const *limit);
        let most = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        let events = into.as_mut_ptr();
        // SAFETY: the kernel writes at most as many events as the slice has, and the time lives as long as the call.
        let ready = cancelling::exposed(|| unsafe {
            real::epoll_pwait2()(set, events, most, limit, core::ptr::null())
        });
        usize::try_from(ready).map_err(|_| Errno::from_raw(linux::errno()))
    }

    fn look_into_set(&self, set: RawFd, into: &mut [libc::epoll_event]) -> Result<usize, Errno> {
        // SAFETY: the kernel writes at most as many events as the slice has.
        unsafe { raw!(SYS_epoll_wait, set, into.as_mut_ptr(), into.len(), 0) }.map_err(errno)
    }

    fn control(
        &self,
        set: RawFd,
        operation: i32,
        fd: RawFd,
        event: Option<libc::epoll_event>,
    ) -> Result<(), Errno> {
        let mut event = event;
        let event = event.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
        // SAFETY: none, or an event that lives as long as the call.
        unsafe { raw!(SYS_epoll_ctl, set, operation, fd, event) }.map(drop).map_err(errno)
    }

    fn enter(&self, set: RawFd, fd: RawFd, data: u64, one_of_many: bool) -> Result<(), Errno> {
        let enter = |events: i32| {
            let mut event = libc::epoll_event { events: events as u32, u64: data };
            let add = libc::EPOLL_CTL_ADD;
            // SAFETY: an event that lives as long as the call.
            unsafe { raw!(SYS_epoll_ctl, set, add, fd, &raw mut event) }.map(drop).map_err(errno)
        };
        match enter(libc::EPOLLIN | if one_of_many { libc::EPOLLEXCLUSIVE } else { 0 }) {
            // It is a set itself.
            Err(Errno::EINVAL) if one_of_many => enter(libc::EPOLLIN),
            entered => entered,
        }
    }

    fn keep_whole(&self) -> bool {
        cancelling::keep()
    }

    fn let_go(&self) {
        cancelling::let_go();
    }

    fn tries(&self) -> bool {
        !spin::is_off()
    }

    fn try_for_a_while(&self, limit: Option<Duration>, attempt: &mut dyn FnMut() -> bool) -> Tried {
        spin::attempt(limit, super::handlers::was_interrupted, attempt)
    }

    fn block(&self, signals: &libc::sigset_t) -> libc::sigset_t {
        // SAFETY: a set of all zeros is empty; the kernel reads and writes eight bytes, of which glibc's sets have more.
        unsafe {
            let mut before: libc::sigset_t = core::mem::zeroed();
            let (how, set) = (libc::SIG_SETMASK, core::ptr::from_ref(signals));
            let _ = raw!(SYS_rt_sigprocmask, how, set, &raw mut before, 8);
            before
        }
    }

    fn goes_on_waiting(&self) {
        super::handlers::begin();
    }

    fn was_interrupted(&self) -> bool {
        super::handlers::was_interrupted()
    }

    fn wake_by(&self, bell: Option<RawFd>) {
        super::handlers::wake_by(bell);
    }

    fn learn(&self, waited: Duration) {
        spin::learn(waited);
    }

    fn ends_calls(&self, limited: bool) -> bool {
        super::handlers::ends_calls(limited)
    }

    fn end(&self) {
        super::end();
    }

    fn end_process(&self, signal: i32) {
        super::handlers::end_process(signal);
    }

    fn end_if_alone(&self) {
        /// Only one of several keepers does it.
        static ENDS: AtomicBool = AtomicBool::new(false);
        if are_all_ours() && !ENDS.swap(true, SeqCst) {
            // SAFETY: as libc does it in the last thread.
            unsafe { libc::exit(0) };
        }
    }

    fn left(&self) {
        super::handlers::let_come();
    }

    fn stand_in(&self, flags: i32, ipv6: bool) -> Result<RawFd, Errno> {
        let spare = spare(ipv6)?;
        let command =
            if flags & libc::SOCK_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        // SAFETY: no pointers.
        let fd = unsafe { raw!(SYS_fcntl, spare, command, 0) }.map_err(errno)?;
        super::mark(fd as RawFd, state::STACK);
        Ok(fd as RawFd)
    }

    fn give_own(&self, fds: &[RawFd], ipv6: bool) -> Result<(), Errno> {
        let own = new_socket(ipv6)?;
        fds.iter().map(|&fd| behind::put(fd, &own)).fold(Ok(()), Result::and)
    }

    fn has_room(&self) -> Result<(), Errno> {
        new_socket(false).map(drop)
    }

    fn begin(&self, fd: RawFd) {
        behind::mark(fd, true);
    }

    fn put(&self, fds: &[RawFd], connection: OwnedFd, stands: bool) -> Result<Option<u64>, Errno> {
        let first = *fds.first().ok_or(Errno::EBADF)?;
        let cookie = if stands { None } else { behind::cookie_of(first) };
        if !stands {
            behind::copy_options(first, connection.as_raw_fd());
        }
        let put = fds.iter().map(|&fd| behind::put(fd, &connection));
        put.fold(Ok(()), Result::and).map(|()| cookie)
    }

    fn lose(&self, fds: &[RawFd]) {
        for &fd in fds {
            behind::mark(fd, false);
            super::calls::forget(fd);
        }
    }

    fn protect(&self, fd: RawFd) {
        super::mark(fd, state::OURS);
    }

    fn mailbox(&self) -> Result<OwnedFd, Errno> {
        behind::mailbox()
    }

    fn leave(&self, mailbox: BorrowedFd<'_>, fd: RawFd, connection: Option<RawFd>) {
        // SAFETY: the stack's lock is held, under which no thread closes it.
        let connection = connection.map(|connection| unsafe { BorrowedFd::borrow_raw(connection) });
        // If the kernel does not allow it (ETOOMANYREFS), this process alone has it.
        let _ = mailbox::put(mailbox, fd, connection);
    }

    fn accept(&self, listener: RawFd, flags: i32) -> Result<Accepted, Errno> {
        accepting::as_it_is(listener, flags)
    }

    fn accept_at_once(&self, listener: RawFd, flags: i32) -> Result<Accepted, Errno> {
        accepting::at_once(listener, flags)
    }

    fn is_non_blocking(&self, listener: RawFd) -> bool {
        accepting::is_non_blocking(listener)
    }

    fn answer_children(&self) {
        super::handing::answer_children();
    }

    fn start_keeper(&self, part: Part) -> bool {
        start_thread("uncork-stack", move || super::SOCKETS.keep(part))
    }

    fn start_telling(&self, to: OwnedFd) {
        let _ = start_thread("uncork-stat", move || super::SOCKETS.tell(to));
    }

    fn settle(&self, handed: &HandedOver) {
        super::handing::settle(handed);
    }
}

/// Number of our own threads that live.
static OURS: AtomicUsize = AtomicUsize::new(0);

/// Forgets the parent's threads, which the child of fork does not have.
pub(super) fn forget_threads() {
    OURS.store(0, SeqCst);
}

/// Returns whether the process has no other threads; a first one that has ended stays until the process does.
fn are_all_ours() -> bool {
    // Counted before the look: one of ours that begins meanwhile is taken for the program's.
    let ours = OURS.load(SeqCst);
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let lives = |thread: &fs::DirEntry| {
        let told = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may contain anything: proc_pid_stat(5).
        told.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    threads.flatten().filter(lives).count() <= ours
}

/// One of our own threads, counted while this lives.
struct Counted;

impl Counted {
    fn begin() -> Self {
        OURS.fetch_add(1, SeqCst);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OURS.fetch_sub(1, SeqCst);
    }
}

/// Starts a thread of ours; returns whether it did. It inherits the mask: none of the program's signals come to it. The two
/// that glibc reserves do: by one of them all threads take over a change of user, and setuid(2) waits until they have.
fn start_thread(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    let all = !Quiet::OF_GLIBC;
    let mut before = 0_u64;
    // SAFETY: signal sets of eight bytes.
    unsafe {
        let block = libc::SIG_BLOCK;
        let _ = raw!(SYS_rt_sigprocmask, block, &raw const all, &raw mut before, 8);
    }
    let body = move || {
        let _counted = Counted::begin();
        body();
    };
    let started = std::thread::Builder::new().name(name.into()).spawn(body).is_ok();
    // SAFETY: as above.
    unsafe {
        let set = libc::SIG_SETMASK;
        let _ = raw!(SYS_rt_sigprocmask, set, &raw const before, 0, 8);
    }
    started
}
