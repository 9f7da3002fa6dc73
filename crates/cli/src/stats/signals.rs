//! The signals that uncork receives between the caller and the program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::failure::Failure;

/// Signals sent to uncork that are meant for the program.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// A signal and its origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) signal: Signal,
    /// The process that sent it by kill(2); `None` if the kernel did (a terminal, an alarm), which
    /// sends it to the whole process group, the program included.
    pub(super) sender: Option<Pid>,
}

/// Blocks the signals and reads them from a descriptor. No disposition is changed, so the program
/// inherits the caller's; its mask is set when it is started.
pub(super) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    pub(super) fn take() -> io::Result<Self> {
        let mut set: SigSet = PASSED_ON.into_iter().collect();
        set.add(Signal::SIGCHLD);
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        // A report that cannot be written must not end us instead of the program.
        set.add(Signal::SIGPIPE);
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { fd, before })
    }

    /// Returns the mask that was inherited.
    pub(super) fn before(&self) -> &SigSet {
        &self.before
    }

    /// Returns all that have arrived.
    pub(super) fn received(&self) -> io::Result<Vec<Received>> {
        let mut received = Vec::new();
        while let Some(info) = self.fd.read_signal()? {
            let Ok(signal) = i32::try_from(info.ssi_signo)
                .map_err(|_| ())
                .and_then(|number| Signal::try_from(number).map_err(|_| ()))
            else {
                continue;
            };
            // SI_USER, SI_QUEUE and SI_TKILL are not positive; the kernel's own codes are.
            let by_process = info.ssi_code <= 0;
            let pid = i32::try_from(info.ssi_pid).unwrap_or(0);
            received.push(Received { signal, sender: by_process.then(|| Pid::from_raw(pid)) });
        }
        Ok(received)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Refuses to run with SIGCHLD ignored, as the kernel then discards the exit status of children.
/// Changing that here would change it for the program as well.
pub(super) fn refuse_ignored_children() -> Result<(), Failure> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = 1_u64 << (Signal::SIGCHLD as i32 - 1);
    if ignored.is_some_and(|mask| mask & bit != 0) {
        return Err(Failure::own(
            "--stats needs SIGCHLD, which whoever started uncork has set to be ignored; start \
             it as `env --default-signal=CHLD uncork run --stats …`",
        ));
    }
    Ok(())
}
