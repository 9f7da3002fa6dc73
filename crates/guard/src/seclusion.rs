//! Separates this process from the one that started it: from its open descriptors, and from signals to its group.

use std::fs;
use std::io;
use std::os::fd::RawFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// The signals that may be sent to a whole process group.
const OF_GROUPS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Makes this process one that nothing waits for and nobody ends by accident: a session of its own, the root
/// directory, no descriptor but the standard ones (a process may wait for the end of a pipe), and no signal that is
/// meant for all processes of a group, which the program may outlive.
///
/// # Errors
///
/// What the kernel says.
pub fn seclude() -> io::Result<()> {
    OF_GROUPS.into_iter().collect::<SigSet>().thread_block()?;
    // Fails for the leader of a process group, which we are not.
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

/// Does the same for an instance of `uncork stack start`, which SIGTERM ends, and which needs no privilege: it loses all
/// capabilities, for good. Its user stays.
///
/// # Errors
///
/// What the kernel says.
pub fn seclude_instance() -> io::Result<()> {
    seclude()?;
    SigSet::from(Signal::SIGTERM).thread_unblock()?;
    // All that the kernel has; nothing is lost by asking for others.
    for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        let _ = thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    thread::set_capabilities(None, sets)?;
    thread::set_no_new_privs(true)?;
    Ok(())
}
