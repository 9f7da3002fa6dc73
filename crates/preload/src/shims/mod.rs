//! The exported symbols, by purpose.

pub(crate) mod credentials;
pub(crate) mod descriptors;
pub(crate) mod named;
pub(crate) mod options;
pub(crate) mod passing;
pub(crate) mod poll;
pub(crate) mod read;
pub(crate) mod sendfile;
pub(crate) mod signals;
pub(crate) mod sockets;
pub(crate) mod stdio;
pub(crate) mod syscall;
pub(crate) mod write;

use libc::{c_int, cmsghdr, msghdr};

/// Calls `look` for each descriptor that a message carries (SCM_RIGHTS).
///
/// # Safety
/// `message` must be a valid msghdr whose control data, if any, can be read.
unsafe fn each_passed_fd(message: *const msghdr, mut look: impl FnMut(c_int)) {
    // SAFETY: the CMSG functions stay within the control data that the header declares.
    unsafe {
        let mut control: *const cmsghdr = libc::CMSG_FIRSTHDR(message);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS
            {
                let data = libc::CMSG_DATA(control).cast::<c_int>();
                let bytes = (*control).cmsg_len - libc::CMSG_LEN(0) as usize;
                for at in 0..bytes / size_of::<c_int>() {
                    look(data.add(at).read_unaligned());
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}
