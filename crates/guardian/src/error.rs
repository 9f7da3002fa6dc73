//! Why the guardian is of no help.

use std::io;
use std::time::Duration;

/// Why the guardian is of no help. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The place is none.
    #[error("UNCORK_STACK names no guardian: let uncork run --stack set it")]
    Place,
    /// It is another user's, who has taken the place.
    #[error("the guardian at the place that UNCORK_STACK names is of another user (uid {0})")]
    Stranger(u32),
    /// Its process has ended.
    #[error("the guardian of the stack is gone: start the program anew by uncork run --stack")]
    Gone,
    /// It will not do that.
    #[error("{0}")]
    Refused(String),
    /// It is stopped, or has too much to do.
    #[error("the guardian of the stack has not answered for {0:?}: it is stopped, or has no time")]
    Slow(Duration),
    /// It speaks otherwise.
    #[error(
        "the guardian's answer is not understood: uncork and libuncork.so must be of one version"
    )]
    Language,
    /// Something of the system's.
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
