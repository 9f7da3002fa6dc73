//! Going before all ordinary programs: a frame that waits for its carrier's turn is late.
//!
//! Together with `tap.rs` the only place of this crate with `unsafe`: no library that is used here
//! has sched_setscheduler(2).
#![allow(unsafe_code)]

use std::io;

/// Above ordinary programs, below what a kernel runs in real time itself (50).
const PRIORITY: libc::c_int = 40;

/// Makes the calling thread one that runs whenever it can (SCHED_FIFO).
///
/// # Errors
/// `EPERM` without the privilege.
pub fn raise() -> io::Result<()> {
    // SAFETY: plain data; all zeros is a valid one.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: the kernel reads `parameters`; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
