//! The host that a script is played on.

use std::io;
use std::time::Duration;

use nix::errno::Errno;

use crate::language::{Call, Side};

/// A packet that the host sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Time since the host's beginning.
    pub at: Duration,
    /// The packet from its IP header on.
    pub bytes: Vec<u8>,
}

/// Result of a socket call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Success; the number of octets, if any.
    Done(usize),
    /// The octets that were read.
    Read(Vec<u8>),
    /// The error.
    Failed(Errno),
}

/// Deviations from the written time that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// How much too early: timers that count in ticks may start in the middle of one.
    pub early: Duration,
    /// How much too late.
    pub late: Duration,
    /// How much too late for something that is due at once.
    pub at_once: Duration,
    /// The divisor of a longer time that is added: timer wheels are coarser for later timers.
    pub part: u32,
}

impl Tolerance {
    /// Returns how late something may be that is due after `due`.
    #[must_use]
    pub fn lateness(&self, due: Duration) -> Duration {
        if due.is_zero() {
            return self.at_once;
        }
        self.late + due.checked_div(self.part).unwrap_or_default()
    }
}

/// The host itself fails, which says nothing about its TCP.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call failed.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// The error.
        error: io::Error,
    },
    /// The environment could not be set up.
    #[error("cannot prepare the host: {0}")]
    Place(String),
    /// A script needs what this host does not have.
    #[error("{0}")]
    Lacking(String),
}

impl HostError {
    /// Returns a conversion for `map_err`.
    pub fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::System { doing, error: error.into() }
    }
}

/// A host with one TCP and one device.
pub trait Host {
    /// Returns which of the two hosts it is.
    fn side(&self) -> Side;

    /// Returns how exact its times are.
    fn tolerance(&self) -> Tolerance;

    /// Returns the time since its beginning.
    fn now(&self) -> Duration;

    /// Lets time pass until `at`.
    ///
    /// # Errors
    /// If the host is broken.
    fn sleep_until(&mut self, at: Duration) -> Result<(), HostError>;

    /// Passes a packet from the network to the host, from its IP header on.
    ///
    /// # Errors
    /// If the host is broken.
    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError>;

    /// Returns the next packet that it has sent, or sends by `until`.
    ///
    /// # Errors
    /// If the host is broken.
    fn next(&mut self, until: Duration) -> Result<Option<Sent>, HostError>;

    /// Makes a socket call, which never blocks. `data` is what send(2) sends.
    ///
    /// # Errors
    /// If the host is broken, or has no such call.
    fn call(&mut self, call: &Call, data: &[u8]) -> Result<Answer, HostError>;
}
