//! What a script is played on.

use std::io;
use std::time::Duration;

use nix::errno::Errno;

use crate::language::{Call, Side};

/// A packet that the host has sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// When, after the host's beginning.
    pub at: Duration,
    /// From its IP header on.
    pub bytes: Vec<u8>,
}

/// What a socket call has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was done; of octets, so many.
    Done(usize),
    /// These octets came.
    Read(Vec<u8>),
    /// It failed.
    Failed(Errno),
}

/// How much earlier or later than written something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// How much earlier: timers that count in ticks begin in the middle of one.
    pub early: Duration,
    /// How much later.
    pub late: Duration,
    /// How much later what comes at once may be.
    pub at_once: Duration,
    /// In which part of a longer time: timer wheels are the coarser the farther away.
    pub part: u32,
}

impl Tolerance {
    /// How late something may be that is due after `due`.
    #[must_use]
    pub fn lateness(&self, due: Duration) -> Duration {
        if due.is_zero() {
            return self.at_once;
        }
        self.late + due.checked_div(self.part).unwrap_or_default()
    }
}

/// The host itself does not work: nothing is said of its TCP.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A call of the system failed.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// The place for it could not be made.
    #[error("cannot prepare the host: {0}")]
    Place(String),
    /// A script asks for what this host has not.
    #[error("{0}")]
    Lacking(String),
}

impl HostError {
    /// For `map_err`.
    pub fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::System { doing, error: error.into() }
    }
}

/// A host with one TCP and one device.
pub trait Host {
    /// Which of the two it is.
    fn side(&self) -> Side;

    /// How exact it can be expected to be.
    fn tolerance(&self) -> Tolerance;

    /// Time since its beginning.
    fn now(&self) -> Duration;

    /// Lets time go on until then.
    ///
    /// # Errors
    /// If the host is broken.
    fn sleep_until(&mut self, at: Duration) -> Result<(), HostError>;

    /// A packet from the network, from its IP header on.
    ///
    /// # Errors
    /// If the host is broken.
    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError>;

    /// The next packet that it has sent, or sends until then.
    ///
    /// # Errors
    /// If the host is broken.
    fn next(&mut self, until: Duration) -> Result<Option<Sent>, HostError>;

    /// Makes a socket call, which never waits. `data` is what send(2) sends.
    ///
    /// # Errors
    /// If the host is broken, or has no such call.
    fn call(&mut self, call: &Call, data: &[u8]) -> Result<Answer, HostError>;
}
