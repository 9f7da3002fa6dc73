//! Failures that end uncork before, or instead of, the program.

use core::fmt;

/// A sentence for standard error and the exit status that belongs to it.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    sentence: String,
}

impl Failure {
    /// `uncork tune` could not do all that was requested.
    pub(crate) const LEFT: i32 = 1;
    /// The command line was not understood (outside of `uncork run`).
    pub(crate) const USAGE: i32 = 2;
    /// The operating system does not permit the operation.
    pub(crate) const NO_PERMISSION: i32 = 3;
    /// The process that was named does not exist, or is not what it should be.
    pub(crate) const NO_SUCH_PROCESS: i32 = 4;
    /// uncork itself failed, or refused.
    pub(crate) const OWN: i32 = 125;
    /// The command was found and cannot be executed.
    pub(crate) const NOT_EXECUTABLE: i32 = 126;
    /// The command was not found.
    pub(crate) const NOT_FOUND: i32 = 127;

    /// Creates uncork's own failure.
    pub(crate) fn own(sentence: impl Into<String>) -> Self {
        Self { code: Self::OWN, sentence: sentence.into() }
    }

    /// Creates a failure for unusable input or output of `uncork doctor`.
    pub(crate) fn unusable(sentence: impl Into<String>) -> Self {
        Self { code: Self::USAGE, sentence: sentence.into() }
    }

    /// Creates a failure for what `uncork tune` could not do.
    pub(crate) fn left(sentence: impl Into<String>) -> Self {
        Self { code: Self::LEFT, sentence: sentence.into() }
    }

    /// Creates a failure for a run that a signal ended, with the status that says so.
    pub(crate) fn ended_by(code: i32, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }

    /// Creates a failure for something that only another user may do.
    pub(crate) fn no_permission(sentence: impl Into<String>) -> Self {
        Self { code: Self::NO_PERMISSION, sentence: sentence.into() }
    }

    /// Creates a failure for a process that does not exist.
    pub(crate) fn no_such_process(sentence: impl Into<String>) -> Self {
        Self { code: Self::NO_SUCH_PROCESS, sentence: sentence.into() }
    }

    /// Creates a failure for a command that exists and cannot be executed.
    pub(crate) fn not_executable(sentence: impl Into<String>) -> Self {
        Self { code: Self::NOT_EXECUTABLE, sentence: sentence.into() }
    }

    /// Creates a failure for a command that does not exist.
    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self { code: Self::NOT_FOUND, sentence: sentence.into() }
    }

    /// Returns the exit status.
    pub(crate) fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}
