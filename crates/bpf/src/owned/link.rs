//! Attaching a program to what comes into a device (tcx, Linux 6.6).
//!
//! The one file of this crate with `unsafe`: libbpf-rs has no call for it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Attaches `program` to what comes into the device of this number, of the network namespace of this
/// thread. It is detached when the descriptor is closed: whatever ends the process, nothing is left.
pub(super) fn attach_ingress(program: BorrowedFd<'_>, device: i32) -> io::Result<OwnedFd> {
    // SAFETY: two numbers, a third, and no options, which bpf_link_create(3) takes as all zeros.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            device,
            libbpf_sys::BPF_TCX_INGRESS,
            std::ptr::null(),
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a descriptor that was just made for us, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
