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
/// `message` must be a valid msghdr whose control data, if any, can be read as far as its header says.
unsafe fn each_passed_fd(message: *const msghdr, mut look: impl FnMut(c_int)) {
    // SAFETY: each header is within the control data, and so is what it says to be behind it.
    unsafe {
        let end = (*message).msg_control.addr() + (*message).msg_controllen;
        let mut control: *const cmsghdr = libc::CMSG_FIRSTHDR(message);
        while !control.is_null() {
            // The kernel refuses such a message (CMSG_OK in linux/socket.h), so nothing is passed.
            let room = end - control.addr();
            if !(size_of::<cmsghdr>()..=room).contains(&(*control).cmsg_len) {
                return;
            }
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
