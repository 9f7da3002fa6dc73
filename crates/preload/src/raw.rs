//! The library's own system calls, made directly: they are no cancellation points, leave errno
//! alone and cannot come back to our own shims.

use core::arch::asm;

use uncork_posix::Errno;

/// Makes a system call.
///
/// # Safety
/// As for the system call: pointers among the arguments must be valid for what it does.
#[inline]
pub(crate) unsafe fn syscall(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the x86-64 system call convention; rcx and r11 are clobbered by the instruction,
    // memory may be written as the caller has promised to allow.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// [`syscall`] with fewer arguments, each cast to `usize`.
macro_rules! raw {
    ($number:ident $(, $arg:expr)* $(,)?) => {{
        let given = [$($arg as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(&given);
        $crate::raw::syscall(libc::$number, args)
    }};
}
pub(crate) use raw;

/// Sets errno and returns -1, as a failed libc call does.
pub(crate) fn fail(errno: Errno) -> isize {
    // SAFETY: errno's location is valid in every thread.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

/// Converts a raw result to what a libc call returns.
pub(crate) fn libc_result(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(errno) => fail(errno),
    }
}
