//! Real-time priority above all ordinary programs: a frame that waits for its carrier's turn is late.
//!
//! One of two files of this crate with `unsafe`, beside `tap.rs`: no library that is used here
//! has sched_setscheduler(2).
#![allow(unsafe_code)]

use std::io;

/// Above ordinary programs, below the kernel's own real-time threads (50).
const PRIORITY: libc::c_int = 40;

/// Gives the calling thread real-time priority (SCHED_FIFO).
///
/// # Errors
/// `EPERM` without the privilege.
pub fn raise() -> io::Result<()> {
    // SAFETY: plain data, for which all zeros are valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: the kernel reads `parameters`; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
