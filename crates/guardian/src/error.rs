//! Errors of the client.

use std::io;
use std::time::Duration;

/// Why a call of the client failed. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text does not name a guardian.
    #[error("UNCORK_STACK names no guardian: let uncork run --stack set it")]
    Place,
    /// Another user's process has taken the guardian's name.
    #[error("the guardian at the place that UNCORK_STACK names is of another user (uid {0})")]
    Stranger(u32),
    /// The guardian's process has ended.
    #[error("the guardian of the stack is gone: start the program anew by uncork run --stack")]
    Gone,
    /// The guardian refuses the request.
    #[error("{0}")]
    Refused(String),
    /// The guardian is stopped, or has too much to do.
    #[error("the guardian of the stack has not answered for {0:?}: it is stopped, or has no time")]
    Slow(Duration),
    /// The guardian speaks another version of the protocol.
    #[error(
        "the guardian's answer is not understood: uncork and libuncork.so must be of one version"
    )]
    Language,
    /// A system call has failed.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl Error {
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, error: error.into() }
    }
}
