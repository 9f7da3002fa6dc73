//! Beginning and end of the library: constructor, fork, destructor.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::AtomicU64;

use libc::c_void;
use uncork_posix::config::Hold;
use uncork_posix::published::{self, Tables, WORDS};
use uncork_posix::{Call, Settings};

use crate::raw::raw;
use crate::{POSIX, keeper, linux, real, report, spin, stacked, table};

/// The block at which `uncork status` begins to read ([`uncork_posix::published`]).
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static uncork_published: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

#[global_allocator]
static MEMORY: uncork_heap::Memory = uncork_heap::Memory;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destruct;

extern "C" fn construct() {
    if !interposes() {
        // Opened with dlopen (by `uncork run`, to see whether the loader can): no call comes here.
        return;
    }
    real::learn_all();
    let settings = Settings::from_lookup(loaded_as_autocork(), |name| std::env::var(name).ok());
    let tables = Tables {
        states: table::STATES.as_ptr() as u64,
        highest: &raw const table::HIGHEST as u64,
        blocks: table::BLOCKS.as_ptr() as u64,
        block_len: table::BLOCK as u64,
    };
    if settings.hold == Hold::User {
        linux::membarrier::is_registered();
    }
    keeper::learn();
    published::publish(&uncork_published, &settings, tables);
    POSIX.start(settings);
    // SAFETY: three functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    each_descriptor(|fd| POSIX.inherited(fd));
    stacked::start();
    if stacked::is_on() {
        each_descriptor(stacked::inherited);
    }
    for line in &POSIX.settings().ignored {
        report::say_ignored(line);
    }
}

extern "C" fn destruct() {
    if POSIX.started() {
        stacked::end();
        POSIX.ending_for_good(Call::Fini);
        report::emit();
    }
}

extern "C" fn before_fork() {
    prepare_fork();
}

extern "C" fn in_parent() {
    end_fork();
}

extern "C" fn in_child() {
    begin_child();
}

/// Prepares for a fork, whose child has its own memory.
pub(crate) fn prepare_fork() {
    POSIX.before_fork();
    stacked::before_fork();
    uncork_heap::before_fork();
}

/// Ends the preparation in the parent, whether the fork succeeded or not.
pub(crate) fn end_fork() {
    uncork_heap::after_fork_in_parent();
    stacked::after_fork_in_parent();
    POSIX.after_fork_in_parent();
}

/// Begins the child of a fork.
pub(crate) fn begin_child() {
    uncork_heap::after_fork_in_child();
    stacked::after_fork_in_child();
    keeper::forget();
    spin::after_fork_in_child();
    POSIX.after_fork_in_child();
    report::restart();
}

/// Returns whether the program's calls come to us: then we were loaded before libc, possibly after
/// another preloaded library. Of two copies of this library, such as one that /etc/ld.so.preload
/// names and the one of `uncork run`, only the first is at work: the other would hold what the
/// first has just pushed. Comparing the address of our own `read` with what dlsym(3) finds would
/// not tell: a reference to an exported function is bound to the first one of its name, too.
fn interposes() -> bool {
    // SAFETY: a C string; dlsym finds the first object of this name, in the order of loading.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, FIRST_COPY.as_ptr()) };
    let mut search = Search { first_copy: first as usize };
    // SAFETY: the callback has the signature that is asked for, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(us_or_libc), (&raw mut search).cast()) == US }
}

/// The name of [`uncork_published`], which every version of this library exports.
const FIRST_COPY: &CStr = c"uncork_published";

/// What [`us_or_libc`] looks for, besides this library and libc.
struct Search {
    /// An address in the copy of this library that was loaded first. Zero if no copy is in the
    /// global scope, as when this one is opened with dlopen(3).
    first_copy: usize,
}

/// Results that end the search through the loaded objects, which goes in the order of loading.
const US: c_int = 1;
const LIBC: c_int = 2;
const OTHER_COPY: c_int = 3;

unsafe extern "C" fn us_or_libc(
    object: *mut libc::dl_phdr_info,
    _bytes: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a description of an object that stays loaded meanwhile, and the
    // pointer that `interposes` passed to it.
    let (base, headers, search) = unsafe {
        let object = &*object;
        let headers = slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (object.dlpi_addr, headers, &*search.cast::<Search>())
    };
    let holds = |address: usize| {
        let address = (address as u64).wrapping_sub(base);
        headers.iter().any(|part| {
            part.p_type == libc::PT_LOAD && address.wrapping_sub(part.p_vaddr) < part.p_memsz
        })
    };
    if holds(us_or_libc as *const () as usize) {
        US
    } else if holds(libc::__errno_location as *const () as usize) {
        LIBC
    } else if search.first_copy != 0 && holds(search.first_copy) {
        OTHER_COPY
    } else {
        0
    }
}

/// Returns the path of this library, as it was given to the loader.
pub(crate) fn own_path() -> Option<&'static CStr> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let address = &raw const uncork_published;
    // SAFETY: dladdr fills `info` in if it returns non-zero; dli_fname is a C string that lives
    // as long as this library.
    unsafe {
        if libc::dladdr(address.cast(), info.as_mut_ptr()) == 0 {
            return None;
        }
        let name = info.assume_init().dli_fname;
        (!name.is_null()).then(|| CStr::from_ptr(name))
    }
}

/// Returns whether this library was loaded under its second name.
fn loaded_as_autocork() -> bool {
    let name = own_path().and_then(|path| path.to_bytes().rsplit(|byte| *byte == b'/').next());
    name.is_some_and(|name| name.starts_with(b"libautocork"))
}

/// Calls `look` for each descriptor that is open now.
fn each_descriptor(mut look: impl FnMut(i32)) {
    /// Without /proc: the number of descriptors that an inetd or a service manager may hand over.
    const FEW: i32 = 64;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let opened = unsafe { raw!(SYS_openat, libc::AT_FDCWD, c"/proc/self/fd".as_ptr(), flags, 0) };
    let Ok(directory) = opened else { return (0..FEW).for_each(look) };
    let mut buffer = [0u8; 2048];
    // SAFETY: the kernel writes at most the buffer's length.
    let read = |buffer: &mut [u8; 2048]| unsafe {
        raw!(SYS_getdents64, directory, buffer.as_mut_ptr(), buffer.len())
    };
    while let Ok(len @ 1..) = read(&mut buffer) {
        let mut at = 0;
        // struct linux_dirent64: inode, offset, record length (u16 at 16), type, name at 19.
        while at + 19 < len {
            let record = usize::from(u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]));
            let name = &buffer[at + 19..len.min(at + record)];
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
            let fd = digits.fold(None, |fd: Option<i32>, digit| {
                Some(fd.unwrap_or(0).wrapping_mul(10).wrapping_add(i32::from(digit - b'0')))
            });
            if let Some(fd) = fd.filter(|fd| *fd != directory as i32) {
                look(fd);
            }
            at += record.max(19);
        }
    }
    // SAFETY: opened above.
    let _ = unsafe { raw!(SYS_close, directory) };
}
