//! `libuncork.so`: the libc symbols that a program's sockets pass through, one thin shim each.
//!
//! A shim says what the program is about to do ([`uncork_posix`], or [`uncork_sockets`] on the
//! user-space stack, decides what that means), makes the call, and says how it went.
//!
//! Never here: a panic, a line printed uninvited, an allocation or lock on the path of a descriptor
//! that is not ours. `unsafe` is also in `bias`, `heap`, `driver`, `guardian` and `handover`.
#![allow(clippy::missing_safety_doc)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("libuncork.so knows x86-64 Linux with glibc only");

mod alarm;
mod jump;
mod keeper;
mod linux;
mod raw;
mod real;
mod report;
mod shims;
mod spin;
mod stacked;
mod start;
mod table;

/// The library's state in this process.
pub(crate) static POSIX: uncork_posix::Posix<linux::Linux> = uncork_posix::Posix::new(linux::Linux);
