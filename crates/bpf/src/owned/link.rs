//! Ties the filters to the kernel for as long as their owner lives: attaches programs to a device's ingress
//! (tcx, Linux 6.6; XDP by a link, Linux 5.9), and tells them when the thread that answers for them ends.
//!
//! The one file of this crate with `unsafe`: libbpf-rs has no calls for this.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};

/// Length of `struct life` (`owned/maps.h`), at the beginning of a page of its own.
pub(super) const LIFE_BYTES: usize = 64;

/// `FUTEX_OWNER_DIED` of linux/futex.h.
const DIED: u32 = 0x4000_0000;

/// Most programs on a device (BPF_MPROG_MAX).
const LINKS: usize = 64;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= LIFE_BYTES);

/// Attaches `program` to the ingress of the device with this index, in the network namespace of this
/// thread. Closing the descriptor detaches it: however the process ends, nothing is left.
pub(super) fn attach_ingress(program: BorrowedFd<'_>, device: i32) -> io::Result<OwnedFd> {
    // SAFETY: three numbers, and no options, which bpf_link_create(3) takes as all zeros.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            device,
            libbpf_sys::BPF_TCX_INGRESS,
            ptr::null(),
        )
    };
    owned(fd)
}

/// Returns the index of the device that a link of [`attach_ingress`] is attached to, 0 if the device is gone (tcx_link_fdinfo);
/// `None` if the kernel does not report it.
pub(super) fn device_of(link: BorrowedFd<'_>) -> Option<i32> {
    told(link, "ifindex:")?.parse().ok()
}

/// Whether a link of [`attach_ingress`] is attached to the device with this index, in the network namespace of this thread: a
/// device that was moved to another namespace may keep its index. `None` if the kernel does not report it.
pub(super) fn is_on(link: BorrowedFd<'_>, device: i32) -> Option<bool> {
    let own: u32 = told(link, "link_id:")?.parse().ok()?;
    let mut links = [0_u32; LINKS];
    let mut programs = [0_u32; LINKS];
    let mut options = libbpf_sys::bpf_prog_query_opts::default();
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.prog_ids = programs.as_mut_ptr();
    options.link_ids = links.as_mut_ptr();
    options.__bindgen_anon_1.count = LINKS as u32;
    let kind = libbpf_sys::BPF_TCX_INGRESS;
    // SAFETY: two numbers, and options that give their own length, with room for as many program and link ids
    // as they say; all outlive the call.
    let done = unsafe { libbpf_sys::bpf_prog_query_opts(device, kind, &raw mut options) };
    match -done {
        0 => Some(links.contains(&own)),
        libc::ENODEV => Some(false),
        _ => None,
    }
}

/// Returns a field of a descriptor's fdinfo.
fn told(descriptor: BorrowedFd<'_>, what: &str) -> Option<String> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let told = fs::read_to_string(path).ok()?;
    told.lines().find_map(|line| line.strip_prefix(what)).map(|told| told.trim().to_owned())
}

/// Has the device's driver run `program` for each received frame: native XDP, never the kernel's generic mode for
/// drivers that have none. Detached as above. An XDP program that is attached already stays, and this one is refused.
pub(super) fn attach_xdp(program: BorrowedFd<'_>, device: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain data, for which all zeros are valid; its own length says how much of it there is.
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
    // SAFETY: three numbers, and options that outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            device,
            libbpf_sys::BPF_XDP,
            &raw const options,
        )
    };
    owned(fd)
}

/// Returns the id of the device's XDP program.
pub(super) fn xdp_program(device: i32) -> Option<u32> {
    let mut options = libbpf_sys::bpf_xdp_query_opts::default();
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    // SAFETY: two numbers, and options that outlive the call and give their own length.
    let done = unsafe { libbpf_sys::bpf_xdp_query(device, 0, &raw mut options) };
    let numbers = [options.prog_id, options.drv_prog_id, options.skb_prog_id, options.hw_prog_id];
    numbers.into_iter().find(|number| done == 0 && *number != 0)
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor was just created for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A lock that one thread holds, in memory that the filters read. It is a robust mutex (pthread_mutexattr_setrobust(3)): when
/// the thread that holds it ends, the kernel notes that in its first word (FUTEX_OWNER_DIED; in glibc that is the futex). It
/// does so while it takes down the thread's memory, and only after that its descriptors (do_exit).
///
/// It stays with the thread that has made it, which alone may unlock it.
#[derive(Debug)]
pub struct Answering(NonNull<libc::pthread_mutex_t>);

impl Answering {
    /// Locks the mutex in an mmapable map whose first entry holds none yet.
    pub(super) fn by(map: BorrowedFd<'_>) -> io::Result<Self> {
        let (protection, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing one.
        let begin =
            unsafe { libc::mmap(ptr::null_mut(), LIFE_BYTES, protection, how, map.as_raw_fd(), 0) };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mutex = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: memory for a mutex, aligned to a page, that nobody else uses and that stays mapped until it is unlocked.
        unsafe { lock_robust(mutex.as_ptr()) }.inspect_err(|_| {
            // SAFETY: exactly what mmap gave, in which no held mutex is.
            let _ = unsafe { libc::munmap(begin, LIFE_BYTES) };
        })?;
        Ok(Self(mutex))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // SAFETY: locked by this thread, as this is neither Send nor Sync; and exactly what mmap gave, which the
        // thread's robust list no longer refers to once it is unlocked.
        unsafe {
            libc::pthread_mutex_unlock(self.0.as_ptr());
            // Nobody answers from now on, as if the thread had died: all is the kernel's before the filters are detached.
            self.0.as_ptr().cast::<u32>().write_volatile(DIED);
            libc::munmap(self.0.as_ptr().cast(), LIFE_BYTES);
        }
    }
}

/// Makes a robust mutex and locks it.
///
/// # Safety
///
/// `mutex` is memory for one, used by nobody else, and stays mapped as long as it is locked.
unsafe fn lock_robust(mutex: *mut libc::pthread_mutex_t) -> io::Result<()> {
    let done = |error| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    // SAFETY: plain data, which the next call initialises.
    let mut kind: libc::pthread_mutexattr_t = unsafe { std::mem::zeroed() };
    // SAFETY: the attributes outlive their last use, and the caller vouches for the mutex.
    unsafe {
        done(libc::pthread_mutexattr_init(&raw mut kind))?;
        let made =
            done(libc::pthread_mutexattr_setrobust(&raw mut kind, libc::PTHREAD_MUTEX_ROBUST))
                .and_then(|()| {
                    let shared = libc::PTHREAD_PROCESS_SHARED;
                    done(libc::pthread_mutexattr_setpshared(&raw mut kind, shared))
                })
                .and_then(|()| done(libc::pthread_mutex_init(mutex, &raw const kind)));
        libc::pthread_mutexattr_destroy(&raw mut kind);
        made?;
        done(libc::pthread_mutex_lock(mutex))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;
    use std::thread;

    use super::*;

    /// `FUTEX_TID_MASK` of linux/futex.h.
    const OWNER: u32 = 0x3fff_ffff;

    fn memory() -> File {
        // SAFETY: a NUL-terminated name, and no flags.
        let memory = owned(unsafe { libc::memfd_create(c"uncork-life".as_ptr(), 0) }).unwrap();
        let memory = File::from(memory);
        memory.set_len(LIFE_BYTES as u64).unwrap();
        memory
    }

    fn word(memory: &File) -> u32 {
        let mut octets = [0; 4];
        memory.read_exact_at(&mut octets, 0).unwrap();
        u32::from_ne_bytes(octets)
    }

    #[test]
    fn a_thread_that_ends_without_a_word_is_told_of_in_the_first_word() {
        let memory = memory();
        let ends = || {
            let answering = Answering::by(memory.as_fd()).unwrap();
            // SAFETY: it takes no arguments and only reads.
            let own = unsafe { libc::gettid() };
            assert_eq!((word(&memory) & OWNER).cast_signed(), own);
            assert_eq!(word(&memory) & DIED, 0);
            std::mem::forget(answering);
        };
        // A scope waits for its closures, not for the ends of their threads, unless they are joined.
        thread::scope(|scope| scope.spawn(ends).join()).unwrap();
        assert_eq!(word(&memory), DIED);
    }

    #[test]
    fn who_gives_it_back_answers_no_more_and_another_one_may() {
        let memory = memory();
        let answers = || drop(Answering::by(memory.as_fd()).unwrap());
        thread::scope(|scope| scope.spawn(answers).join()).unwrap();
        assert_eq!(word(&memory), DIED);
        let answering = Answering::by(memory.as_fd()).unwrap();
        assert_eq!(word(&memory) & DIED, 0);
        drop(answering);
    }
}
