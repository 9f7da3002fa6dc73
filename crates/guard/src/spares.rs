//! Packet sockets whose rings are made ahead, for a server whose processes come and go.
//!
//! To make a socket's two rings the kernel waits for a grace period of RCU each time (packet_set_ring calls
//! synchronize_net): 5 to 30 ms in which nobody else is served, and in which the new process answers nobody. So where a process
//! with a stack has ended while others live on, a thread makes a socket for whoever comes next. It takes as much of
//! the kernel's memory as any (25 MiB), and goes when nobody has come for a while.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uncork_driver::OpenError;
use uncork_driver::af_packet::{Prepared, Settings};

/// How long one is kept for somebody.
const KEPT: Duration = Duration::from_secs(60);

/// One for each device at the most.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<Spare>);

#[derive(Debug)]
struct Spare {
    settings: Settings,
    made: JoinHandle<Result<Prepared, OpenError>>,
    since: Instant,
}

impl Spares {
    /// One may be wanted soon.
    pub(crate) fn make(&mut self, settings: Settings) {
        let wanted = |spare: &Spare| spare.settings.device == settings.device;
        if self.0.iter().any(wanted) {
            return;
        }
        let theirs = settings.clone();
        let made = thread::Builder::new().name("rings".to_owned());
        // Without a thread nothing is ahead.
        if let Ok(made) = made.spawn(move || Prepared::new(&theirs)) {
            self.0.push(Spare { settings, made, since: Instant::now() });
        }
    }

    /// A socket for this device as it is now, and whether it was there already.
    pub(crate) fn take(&mut self, settings: &Settings) -> Result<(Prepared, bool), OpenError> {
        let at = self.0.iter().position(|spare| spare.settings.device == settings.device);
        let made = at.and_then(|at| self.0.swap_remove(at).made.join().ok()?.ok());
        match made.filter(|made| made.is_of(settings)) {
            Some(made) => Ok((made, true)),
            None => Ok((Prepared::new(settings)?, false)),
        }
    }

    /// Those that nobody has come for go.
    pub(crate) fn tidy(&mut self) {
        self.0.retain(|spare| spare.since.elapsed() < KEPT);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
