//! A test with the loader itself of whether it can load the library.
//!
//! About a library that it cannot preload ld.so only prints a line on standard error, and runs the
//! program all the same. Asked by dlopen(3), the same loader gives its reason.
#![allow(unsafe_code)]

use core::error::Error as _;
use core::ffi::c_void;
use std::ffi::CString;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::environment::LIBRARY_VARIABLES;

/// Loads `library` into this process. It stays loaded, as its code may have been registered to run
/// at exit. The error is the loader's own message, or that it is not our library.
pub(crate) fn load(library: &Path) -> Result<(), String> {
    for name in LIBRARY_VARIABLES {
        // Without these the library's constructor has no visible effect.
        // SAFETY: uncork has a single thread, so that no other reads the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    // SAFETY: this runs the constructor of a library that the user named or that was installed
    // beside us, which the program to be run would run as well.
    let loaded = unsafe { Library::open(Some(library), RTLD_LAZY | RTLD_LOCAL) };
    // The loader's message is in the source; the error itself only says that there is one.
    let loaded =
        loaded.map_err(|error| error.source().map_or(error.to_string(), ToString::to_string))?;
    let symbol = CString::new(uncork_posix::published::SYMBOL).map_err(|e| e.to_string())?;
    // SAFETY: the symbol is only looked for; its address is never used.
    let found = unsafe { loaded.get::<*const c_void>(symbol.to_bytes_with_nul()) }.is_ok();
    std::mem::forget(loaded);
    if found { Ok(()) } else { Err("it is not a build of libuncork.so".to_owned()) }
}
