//! Keeping nothing of what whoever started us has open, and hearing none of his signals.

use std::fs;
use std::io;
use std::os::fd::RawFd;

use nix::sys::signal::{SigSet, Signal};

/// Makes this process one that nothing waits for and nobody ends by accident: a session of its own, the root
/// directory, no descriptor but the standard ones (somebody may wait for the end of a pipe), and no signal that is
/// meant for all processes of a group, which the program may outlive.
///
/// # Errors
///
/// What the kernel says.
pub fn seclude() -> io::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
        signals.add(signal);
    }
    signals.thread_block()?;
    // Fails for the first of a group, which we are not.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/")?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<RawFd>().ok();
    let open: Vec<_> = fs::read_dir("/proc/self/fd")?.flatten().filter_map(number).collect();
    for inherited in open.into_iter().filter(|number| *number > 2) {
        // The directory's own is closed already.
        let _ = nix::unistd::close(inherited);
    }
    Ok(())
}
