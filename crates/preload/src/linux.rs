//! The [`Kernel`] implemented on Linux.

use core::sync::atomic::{AtomicI32, AtomicU8};
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::c_int;
use uncork_bias::Thread;
use uncork_cork::Instant;
use uncork_posix::kernel::{Held, Kernel, Kind};
use uncork_posix::{Errno, Socket};

use crate::raw::{fail, raw};
use crate::{alarm, keeper, spin, table};

/// This process on the machine's own kernel.
#[derive(Debug)]
pub(crate) struct Linux;

/// Returns a socket option that is a plain integer.
fn option(fd: i32, level: c_int, name: c_int) -> Option<i32> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `value`.
    unsafe { raw!(SYS_getsockopt, fd, level, name, &raw mut value, &raw mut len) }.ok()?;
    Some(value)
}

/// Returns SO_SNDTIMEO or SO_RCVTIMEO; `None` if it is not set.
fn timeout(fd: i32, name: c_int) -> Option<Duration> {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `time`.
    unsafe {
        raw!(SYS_getsockopt, fd, libc::SOL_SOCKET, name, &raw mut time, &raw mut len).ok()?;
    }
    let limit = Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (!limit.is_zero()).then_some(limit)
}

/// Returns SO_RCVTIMEO; `None` if it is not set.
pub(crate) fn receive_timeout(fd: i32) -> Option<Duration> {
    timeout(fd, libc::SO_RCVTIMEO)
}

/// Returns SO_SNDTIMEO; `None` if it is not set.
pub(crate) fn send_timeout(fd: i32) -> Option<Duration> {
    timeout(fd, libc::SO_SNDTIMEO)
}

/// Returns net.core.wmem_max, or the kernel's default where it cannot be read: the most that SO_SNDBUF takes.
fn largest_send_buffer() -> c_int {
    const DEFAULT: c_int = 212_992;
    let mut text = [0u8; 16];
    // SAFETY: the path ends with zero; the kernel writes at most the array's size.
    let read = unsafe {
        let path = c"/proc/sys/net/core/wmem_max".as_ptr();
        raw!(SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0).and_then(|fd| {
            let read = raw!(SYS_read, fd, text.as_mut_ptr(), text.len());
            let _ = raw!(SYS_close, fd);
            read
        })
    };
    let text = core::str::from_utf8(&text[..read.unwrap_or(0)]).ok();
    text.and_then(|text| text.trim_end().parse().ok()).unwrap_or(DEFAULT)
}

/// Makes an fstat(2).
fn stat(fd: i32) -> Option<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills in a whole `struct stat`, which is libc's on x86-64.
    unsafe {
        raw!(SYS_fstat, fd, stat.as_mut_ptr()).ok()?;
        Some(stat.assume_init())
    }
}

/// Returns the time of CLOCK_MONOTONIC, through the vDSO.
#[inline]
pub(crate) fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours. clock_gettime sets errno only on bad arguments.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Converts a duration for the kernel.
pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Converts a duration of the program; `None` if it is invalid.
pub(crate) fn duration(time: &libc::timespec) -> Option<Duration> {
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|ns| *ns < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanoseconds))
}

/// Polls one descriptor; returns whether any of `events` (or an error) is there.
pub(crate) fn poll_one(fd: i32, events: i16, limit: Option<Duration>) -> Result<bool, Errno> {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    let limit = limit.map(timespec);
    let limit = limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: one pollfd and an optional timespec, both ours; no signal mask.
    unsafe { raw!(SYS_ppoll, &raw mut poll, 1, limit, 0, 8) }.map(|ready| ready != 0)
}

/// Writes as much as can be written. A full disk or a reader that has gone ends it silently: the
/// program must not get a SIGPIPE because of us.
pub(crate) fn write_quietly(fd: i32, mut bytes: &[u8]) {
    let pipe: u64 = 1 << (libc::SIGPIPE - 1);
    let mut mask = 0u64;
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel reads `bytes`; its signal sets are eight bytes.
    unsafe {
        let _ = raw!(SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const pipe, &raw mut mask, 8);
        while !bytes.is_empty() {
            match raw!(SYS_write, fd, bytes.as_ptr(), bytes.len()) {
                Ok(written @ 1..) => bytes = &bytes[written..],
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE) => {
                    let _ = raw!(SYS_rt_sigtimedwait, &raw const pipe, 0, &raw const no_time, 8);
                    break;
                }
                _ => break,
            }
        }
        let _ = raw!(SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8);
    }
}

/// Calls of membarrier(2), private and expedited (Linux 4.14).
pub(crate) mod membarrier {
    use core::sync::atomic::AtomicU8;
    use core::sync::atomic::Ordering::SeqCst;

    use crate::raw::raw;

    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    const UNKNOWN: u8 = 0;
    const WORKS: u8 = 1;
    const REFUSED: u8 = 2;

    /// Whether the barrier works. Lost by exec, as the registration is.
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

    fn call(command: i32) -> bool {
        // SAFETY: no pointers.
        unsafe { raw!(SYS_membarrier, command, 0, 0) }.is_ok()
    }

    /// Registers the process at the first call; returns whether that worked. While there is only
    /// one thread that takes no time; later it waits for all cores, some milliseconds.
    pub(crate) fn is_registered() -> bool {
        match STATE.load(SeqCst) {
            UNKNOWN => {
                let works = call(REGISTER_PRIVATE_EXPEDITED);
                STATE.store(if works { WORKS } else { REFUSED }, SeqCst);
                works
            }
            state => state == WORKS,
        }
    }

    /// Makes the barrier. Without a registration no lock has an owner, so this is not called.
    pub(super) fn barrier() {
        if !call(PRIVATE_EXPEDITED) {
            call(REGISTER_PRIVATE_EXPEDITED);
            call(PRIVATE_EXPEDITED);
        }
    }
}

/// Sends SIGPIPE to the calling thread, as the kernel does to a thread that writes.
fn raise_sigpipe() {
    // SAFETY: no pointers.
    unsafe {
        if let (Ok(process), Ok(thread)) = (raw!(SYS_getpid), raw!(SYS_gettid)) {
            let _ = raw!(SYS_tgkill, process, thread, libc::SIGPIPE);
        }
    }
}

/// Fails a write with `error`, as the kernel would.
pub(crate) fn fail_send(error: Errno, flags: c_int) -> isize {
    if error == Errno::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        raise_sigpipe();
    }
    fail(error)
}

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: errno's location is valid in every thread.
    unsafe { *libc::__errno_location() }
}

/// Returns whether a signal has no handler, so that its default action applies to the process.
pub(crate) fn is_unhandled(signal: c_int) -> bool {
    // struct sigaction of the kernel: handler, flags, restorer, mask.
    let mut action = [0usize; 4];
    // SAFETY: the kernel writes four words; the mask is eight octets.
    let asked = unsafe { raw!(SYS_rt_sigaction, signal, 0, action.as_mut_ptr(), 8) };
    asked.is_ok() && action[0] == libc::SIG_DFL
}

impl Kernel for Linux {
    #[inline]
    fn state(&self, fd: i32) -> Option<&AtomicU8> {
        table::state(fd)
    }

    #[inline]
    fn socket(&self, fd: i32) -> Option<&Socket> {
        table::socket(fd)
    }

    fn make_socket(&self, fd: i32) -> Option<&Socket> {
        table::make_socket(fd)
    }

    fn highest(&self) -> &AtomicI32 {
        &table::HIGHEST
    }

    #[inline]
    fn held(&self) -> &Held {
        &table::HELD
    }

    fn thread(&self, forget: fn()) -> Thread {
        if membarrier::is_registered() { uncork_bias::this_thread(forget) } else { Thread::NONE }
    }

    fn barrier(&self) {
        membarrier::barrier();
    }

    fn keep_handlers_off(&self) -> Option<u64> {
        spin::Quiet::begin().map(spin::Quiet::into_mask)
    }

    fn let_handlers(&self, before: u64) {
        drop(spin::Quiet::from_mask(before));
    }

    #[inline]
    fn push(&self, fd: i32) {
        let Some(reach) = keeper::Reach::new(fd) else { return };
        let on: c_int = 1;
        let len = size_of::<c_int>();
        // SAFETY: the kernel reads `len` bytes of `on`.
        let _ = unsafe {
            raw!(SYS_setsockopt, reach.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &raw const on, len)
        };
    }

    #[inline]
    fn send(&self, fd: i32, bytes: &[u8], more: bool) -> Result<usize, Errno> {
        let more = if more { libc::MSG_MORE } else { 0 };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
        // SAFETY: the kernel reads `bytes`.
        unsafe { raw!(SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, 0, 0) }
    }

    fn wait_writable(&self, fd: i32, limit: Option<Duration>) -> Result<bool, Errno> {
        poll_one(fd, libc::POLLOUT, limit)
    }

    fn wait_as_writer(&self, fd: i32) -> Result<(), Errno> {
        spin::wait_to_write(fd)
    }

    fn widen_send_buffer(&self, fd: i32, bytes: usize) {
        let Some(now) = option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF) else { return };
        // The kernel doubles what is asked for, up to twice net.core.wmem_max. If its own tuning
        // has made the buffer larger than that, asking would shrink it for good.
        let wanted = (now / 2).saturating_add(bytes as c_int);
        if wanted > largest_send_buffer() {
            return;
        }
        let len = size_of::<c_int>();
        // SAFETY: the kernel reads `len` bytes of `wanted`.
        let _ = unsafe {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_SNDBUF);
            raw!(SYS_setsockopt, fd, level, name, &raw const wanted, len)
        };
    }

    fn unwatch(&self, epfd: i32, fd: i32) {
        // SAFETY: a deletion passes no event.
        let _ = unsafe { raw!(SYS_epoll_ctl, epfd, libc::EPOLL_CTL_DEL, fd, 0) };
    }

    fn discards(&self, fd: i32) -> bool {
        let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
        let mut len = size_of::<libc::linger>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `linger`.
        let got = unsafe {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
            raw!(SYS_getsockopt, fd, level, name, &raw mut linger, &raw mut len)
        };
        got.is_ok() && linger.l_onoff != 0 && linger.l_linger == 0
    }

    fn discard(&self, fd: i32) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let len = size_of::<libc::linger>();
        // SAFETY: the kernel reads `len` bytes of `linger`.
        let _ = unsafe {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
            raw!(SYS_setsockopt, fd, level, name, &raw const linger, len)
        };
        self.close(fd);
    }

    fn shut_writing(&self, fd: i32) {
        // SAFETY: no pointers.
        let _ = unsafe { raw!(SYS_shutdown, fd, libc::SHUT_WR) };
    }

    fn send_timeout(&self, fd: i32) -> Option<Duration> {
        send_timeout(fd)
    }

    fn is_nonblocking(&self, fd: i32) -> bool {
        // SAFETY: no pointer among the arguments.
        unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) }
            .is_ok_and(|flags| flags as c_int & libc::O_NONBLOCK != 0)
    }

    fn closes_on_exec(&self, fd: i32) -> bool {
        // SAFETY: no pointer among the arguments.
        unsafe { raw!(SYS_fcntl, fd, libc::F_GETFD) }
            .is_ok_and(|flags| flags as c_int & libc::FD_CLOEXEC != 0)
    }

    fn kind(&self, fd: i32) -> Kind {
        /// Major number of /dev/null, /dev/zero, /dev/urandom and the like.
        const MEMORY_DEVICES: u32 = 1;
        let Some(stat) = stat(fd) else { return Kind::Waits };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Kind::Ready,
            libc::S_IFCHR if libc::major(stat.st_rdev) == MEMORY_DEVICES => Kind::Ready,
            _ => Kind::Waits,
        }
    }

    fn is_tcp(&self, fd: i32) -> bool {
        let get = |name| option(fd, libc::SOL_SOCKET, name);
        get(libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
            && matches!(get(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
    }

    fn nodelay(&self, fd: i32) -> bool {
        option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY).is_some_and(|on| on != 0)
    }

    fn has_protocol(&self, fd: i32) -> bool {
        /// TCP_ULP_NAME_MAX of net/tcp.h.
        const NAME_BYTES: usize = 16;
        let mut name = [0u8; NAME_BYTES];
        let mut len = NAME_BYTES as libc::socklen_t;
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_ULP);
        // SAFETY: the kernel writes at most `len` bytes into `name`.
        let asked =
            unsafe { raw!(SYS_getsockopt, fd, level, option, name.as_mut_ptr(), &raw mut len) };
        // Without one the name is empty.
        asked.is_ok() && len > 0
    }

    fn low_water(&self, fd: i32) -> u32 {
        option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).map_or(1, |bytes| bytes as u32)
    }

    fn max_segment(&self, fd: i32) -> u32 {
        option(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG).map_or(0, |bytes| bytes as u32)
    }

    fn peer(&self, fd: i32) -> Option<SocketAddr> {
        let mut address = core::mem::MaybeUninit::<libc::sockaddr_in6>::zeroed();
        let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, and an all-zero sockaddr_in6 is valid.
        let address = unsafe {
            raw!(SYS_getpeername, fd, address.as_mut_ptr(), &raw mut len).ok()?;
            address.assume_init()
        };
        let port = u16::from_be(address.sin6_port);
        match c_int::from(address.sin6_family) {
            // sockaddr_in has its address where sockaddr_in6 has its flow label.
            libc::AF_INET => {
                let ip = Ipv4Addr::from(u32::from_be(address.sin6_flowinfo));
                Some(SocketAddr::new(IpAddr::V4(ip), port))
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.to_canonical(), port))
            }
            _ => None,
        }
    }

    fn identity(&self, fd: i32) -> u64 {
        stat(fd).map_or(0, |stat| stat.st_ino)
    }

    fn duplicate(&self, fd: i32) -> Option<i32> {
        /// Above what programs with fd_sets and small tables can use.
        const LOWEST: i32 = 1024;
        // SAFETY: no pointer among the arguments.
        let duplicate = |from: i32| unsafe { raw!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, from) };
        duplicate(LOWEST).or_else(|_| duplicate(3)).ok().map(|fd| fd as i32)
    }

    fn close(&self, fd: i32) {
        // SAFETY: a descriptor that `duplicate` made.
        let _ = unsafe { raw!(SYS_close, fd) };
    }

    fn now(&self) -> Instant {
        now()
    }

    fn give_way(&self) {
        // SAFETY: no arguments.
        let _ = unsafe { raw!(SYS_sched_yield) };
    }

    fn start_keeper(&self) -> bool {
        keeper::start()
    }

    fn wake_keeper(&self) {
        keeper::wake();
    }

    fn set_alarm(&self, at: Instant) -> bool {
        alarm::set(at)
    }

    fn say(&self, line: &str) {
        write_quietly(2, line.as_bytes());
    }

    fn consider_dump(&self) {
        crate::report::dump_if_due();
    }

    fn pid(&self) -> u32 {
        // SAFETY: no arguments.
        unsafe { raw!(SYS_getpid) }.unwrap_or(0) as u32
    }
}

/// Returns whether the calling thread is the process's first one.
pub(crate) fn is_first_thread() -> bool {
    // SAFETY: no pointers.
    unsafe { raw!(SYS_gettid) == raw!(SYS_getpid) }
}
