//! Attaching a program to what comes into a device (tcx, Linux 6.6; XDP by a link, Linux 5.9).
//!
//! The one file of this crate with `unsafe`: libbpf-rs has no calls for it.
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
    owned(fd)
}

/// Has the device's driver run `program` for each frame that comes: its own XDP, never the kernel's stand-in for
/// drivers that have none. Detached as above. A program that is there stays, and this one is refused.
pub(super) fn attach_xdp(program: BorrowedFd<'_>, device: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain data; all zeros is a valid one, and its own length says how much of it there is.
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
    // SAFETY: two numbers, a third, and options that outlive the call.
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

/// The number of the XDP program that a device has.
pub(super) fn xdp_program(device: i32) -> Option<u32> {
    let mut options = libbpf_sys::bpf_xdp_query_opts::default();
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    // SAFETY: two numbers, and options that outlive the call and say how long they are.
    let done = unsafe { libbpf_sys::bpf_xdp_query(device, 0, &raw mut options) };
    let numbers = [options.prog_id, options.drv_prog_id, options.skb_prog_id, options.hw_prog_id];
    numbers.into_iter().find(|number| done == 0 && *number != 0)
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a descriptor that was just made for us, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
