//! The real functions, which the program would have called without us.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, size_t, ssize_t};
use libc::{epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, off64_t, pid_t};
use libc::{gid_t, pollfd, sigset_t, sockaddr, socklen_t, timespec, timeval, uid_t};

/// Finds `name` in what was loaded after us: libc, or another preloaded library.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a C string; RTLD_NEXT is relative to this library. The condition-variable functions have an older version
    // with another meaning, which dlsym could choose.
    unsafe {
        let versioned = if name.to_bytes().starts_with(b"pthread_cond_") {
            libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.3.2".as_ptr())
        } else {
            ptr::null_mut()
        };
        if versioned.is_null() { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } else { versioned }
    }
}

/// Finds `name` for good, or [`missing`] if there is no such function.
#[cold]
pub(crate) fn resolve(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = next(name);
    let found = if found.is_null() { missing as *mut c_void } else { found };
    slot.store(found, Relaxed);
    found
}

/// Looks up all functions at the start: a lookup takes the lock that dlopen(3) holds while constructors run, which may
/// wait for the very thread that looks, and must not be made in a signal handler.
pub(crate) fn learn_all() {
    learn_own();
    for slot in slots() {
        slot.learn();
    }
    // The program did not ask for functions that are missing: dlerror(3) must not report them.
    // SAFETY: no arguments.
    let _ = unsafe { libc::dlerror() };
}

/// Returns the [`Slot`]s, which the linker has put in one array.
fn slots() -> &'static [Slot] {
    // SAFETY: made by the linker for a section whose name is a C identifier.
    unsafe extern "C" {
        #[link_name = "__start_uncork_slots"]
        static FIRST: u8;
        #[link_name = "__stop_uncork_slots"]
        static END: u8;
    }
    let (first, end) = ((&raw const FIRST).cast::<Slot>(), (&raw const END).cast::<Slot>());
    // SAFETY: the section has nothing but slots, each a static that is shared and never moves.
    unsafe { core::slice::from_raw_parts(first, end.offset_from_unsigned(first)) }
}

/// A function that a shim goes on to. Not all of them are libc's: liburing and libaio may come later, with a module that
/// keeps them to itself (dlopen(3) with RTLD_LOCAL), and are then found only through that module.
pub(crate) struct Slot {
    found: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Slot {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { found: AtomicPtr::new(ptr::null_mut()), name }
    }

    /// Returns the function. `caller` is an address in the caller.
    pub(crate) fn get(&self, caller: usize) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if found.is_null() { self.look(caller) } else { found }
    }

    /// Looks up the function in what is loaded now. One that is missing may come with a module.
    fn learn(&self) {
        if self.found.load(Relaxed).is_null() {
            self.found.store(next(self.name), Relaxed);
        }
    }

    #[cold]
    fn look(&self, caller: usize) -> *mut c_void {
        let mut found = next(self.name);
        if found.is_null() {
            found = beside(caller, self.name);
        }
        if found.is_null() {
            // A module may still bring it.
            return missing as *mut c_void;
        }
        self.found.store(found, Relaxed);
        found
    }
}

/// Libraries that a module may keep to itself, for calls that were jumps, where the return address is not in the module.
const OF_MODULES: [&CStr; 5] =
    [c"liburing.so.2", c"liburing-ffi.so.2", c"liburing.so.1", c"libaio.so.1", c"libaio.so.1t64"];

/// Finds `name` in what the module of `caller` has loaded, or in one of the known libraries.
fn beside(caller: usize, name: &CStr) -> *mut c_void {
    let module = object_of(caller as *const c_void).and_then(|object| {
        // SAFETY: the name of an object that is loaded, if it has one.
        (!object.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(object.dli_fname) })
    });
    let found = module.into_iter().chain(OF_MODULES).find_map(|library| in_loaded(library, name));
    found.unwrap_or(ptr::null_mut())
}

/// Finds `name` in a library that is loaded, which then stays loaded for good, or in its dependencies.
fn in_loaded(library: &CStr, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: C strings, and a handle that dlopen returned. This loads nothing.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if handle.is_null() {
            return None;
        }
        let found = libc::dlsym(handle, name.as_ptr());
        // A lookup through the program itself finds our own shim.
        let own = object_of(missing as *const c_void);
        let found_in = object_of(found);
        let ours = own.map(|own| own.dli_fbase) == found_in.map(|object| object.dli_fbase);
        if found.is_null() || ours {
            libc::dlclose(handle);
            return None;
        }
        Some(found)
    }
}

/// Returns the loaded object that contains this address.
fn object_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut object = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr fills it in if it returns non-zero.
    unsafe { (libc::dladdr(address, object.as_mut_ptr()) != 0).then(|| object.assume_init()) }
}

/// Stands in for a function that this libc does not have (epoll_pwait2 before 2.35 …).
extern "C" fn missing() -> isize {
    crate::raw::fail(uncork_posix::Errno(libc::ENOSYS))
}

macro_rules! real {
    ($($name:ident($($arg:ty),*) $(-> $ret:ty)?;)+) => {
        /// The address of each function, once it was looked up.
        #[allow(non_upper_case_globals)]
        pub(crate) mod slot {
            use super::{AtomicPtr, c_void, ptr};
            $(pub(crate) static $name: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());)+
        }

        /// Looks up the functions of this table.
        fn learn_own() {
            $(let _ = $name();)+
        }

        $(
            /// Returns the real function of this name.
            #[inline]
            #[allow(non_snake_case)]
            pub(crate) fn $name() -> unsafe extern "C-unwind" fn($($arg),*) $(-> $ret)? {
                let mut found = slot::$name.load(Relaxed);
                if found.is_null() {
                    found = resolve(&slot::$name, name!($name));
                }
                // SAFETY: the function of this name has this prototype (man page); `missing`
                // ignores its arguments and returns -1 in the same register.
                unsafe { core::mem::transmute(found) }
            }
        )+
    };
}

/// Returns a symbol's name as a C string.
macro_rules! name {
    ($name:ident) => {
        // SAFETY: a literal that ends in its only NUL.
        unsafe {
            core::ffi::CStr::from_bytes_with_nul_unchecked(
                concat!(stringify!($name), "\0").as_bytes(),
            )
        }
    };
}
pub(crate) use name;

real! {
    pthread_setcancelstate(c_int, *mut c_int) -> c_int;
    pthread_testcancel();
    read(c_int, *mut c_void, size_t) -> ssize_t;
    readv(c_int, *const iovec, c_int) -> ssize_t;
    preadv2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    recv(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    recvfrom(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    recvmsg(c_int, *mut msghdr, c_int) -> ssize_t;
    recvmmsg(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    __read_chk(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    __recv_chk(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t;
    __recvfrom_chk(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t)
        -> ssize_t;

    write(c_int, *const c_void, size_t) -> ssize_t;
    writev(c_int, *const iovec, c_int) -> ssize_t;
    pwritev2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    send(c_int, *const c_void, size_t, c_int) -> ssize_t;
    sendto(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    sendmsg(c_int, *const msghdr, c_int) -> ssize_t;
    sendmmsg(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    sendfile(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    sendfile64(c_int, c_int, *mut off64_t, size_t) -> ssize_t;
    splice(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t;

    poll(*mut pollfd, nfds_t, c_int) -> c_int;
    __poll_chk(*mut pollfd, nfds_t, c_int, size_t) -> c_int;
    ppoll(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    __ppoll_chk(*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t) -> c_int;
    select(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    pselect(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t)
        -> c_int;
    epoll_wait(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    epoll_pwait(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    epoll_pwait2(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
    epoll_ctl(c_int, c_int, c_int, *mut epoll_event) -> c_int;

    socket(c_int, c_int, c_int) -> c_int;
    bind(c_int, *const sockaddr, socklen_t) -> c_int;
    listen(c_int, c_int) -> c_int;
    accept(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    accept4(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    connect(c_int, *const sockaddr, socklen_t) -> c_int;
    getsockname(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    getpeername(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    shutdown(c_int, c_int) -> c_int;
    close(c_int) -> c_int;
    close_range(c_uint, c_uint, c_int) -> c_int;
    closefrom(c_int);
    dup(c_int) -> c_int;
    dup2(c_int, c_int) -> c_int;
    dup3(c_int, c_int, c_int) -> c_int;
    fcntl(c_int, c_int, usize) -> c_int;
    fcntl64(c_int, c_int, usize) -> c_int;
    ioctl(c_int, c_ulong, usize) -> c_int;
    getsockopt(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    setsockopt(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    sigaction(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    __sigaction(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    signal(c_int, usize) -> usize;
    bsd_signal(c_int, usize) -> usize;
    ssignal(c_int, usize) -> usize;
    sysv_signal(c_int, usize) -> usize;
    __sysv_signal(c_int, usize) -> usize;
    sigset(c_int, usize) -> usize;
    siginterrupt(c_int, c_int) -> c_int;
    pidfd_getfd(c_int, c_int, c_uint) -> c_int;
    execve(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    execvpe(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    fdopen(c_int, *const c_char) -> *mut c_void;
    fclose(*mut c_void) -> c_int;
    freopen(*const c_char, *const c_char, *mut c_void) -> *mut c_void;
    freopen64(*const c_char, *const c_char, *mut c_void) -> *mut c_void;
    setuid(uid_t) -> c_int;
    setgid(gid_t) -> c_int;
    seteuid(uid_t) -> c_int;
    setegid(gid_t) -> c_int;
    setreuid(uid_t, uid_t) -> c_int;
    setregid(gid_t, gid_t) -> c_int;
    setresuid(uid_t, uid_t, uid_t) -> c_int;
    setresgid(gid_t, gid_t, gid_t) -> c_int;
    setgroups(size_t, *const gid_t) -> c_int;
    initgroups(*const c_char, gid_t) -> c_int;
    unshare(c_int) -> c_int;
    setns(c_int, c_int) -> c_int;
    clone(extern "C-unwind" fn(*mut c_void) -> c_int, *mut c_void, c_int, *mut c_void, usize,
        usize, usize) -> c_int;
    _Fork() -> pid_t;
    syscall(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
}
