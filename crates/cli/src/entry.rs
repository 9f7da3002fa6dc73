//! The entry point of the process.
//!
//! `uncork run` turns into the program that it runs, and that program must find what it would have
//! found without us. Rust's own start-up code sets SIGPIPE to ignored and opens /dev/null for a
//! standard stream that the caller closed; both would be inherited, and the caller's choice could
//! no longer be determined. So the C entry point is used instead, which changes neither. Nothing
//! else is lost: with glibc `std::env::args` does not depend on it.
#![allow(unsafe_code)]

#[cfg(not(test))]
use core::ffi::{c_char, c_int};

/// The C `main`. A panic must not look like an exit status of the program that is run.
// SAFETY: no other function of this program is called `main` (`no_main` is set), and the
// signature is the one that the C start-up code calls.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    let code = std::panic::catch_unwind(crate::uncork).unwrap_or(crate::failure::Failure::OWN);
    std::process::exit(code)
}

/// Keeps the whole program reachable when it is built for its unit tests, whose own `main` replaces
/// the one above.
#[cfg(test)]
const _: fn() -> i32 = crate::uncork;
