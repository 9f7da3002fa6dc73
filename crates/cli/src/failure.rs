//! What ends uncork before, or instead of, the program.

use core::fmt;

/// A sentence for standard error and the exit status that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    sentence: String,
}

impl Failure {
    /// `uncork tune` could not do all that was asked for.
    pub(crate) const LEFT: i32 = 1;
    /// A command line that is not understood (outside of `uncork run`).
    pub(crate) const USAGE: i32 = 2;
    /// The operating system does not allow what it would take.
    pub(crate) const NO_PERMISSION: i32 = 3;
    /// The process that was named is not there, or not what it should be.
    pub(crate) const NO_SUCH_PROCESS: i32 = 4;
    /// uncork itself failed, or refused.
    pub(crate) const OWN: i32 = 125;
    /// The command was found and cannot be executed.
    pub(crate) const NOT_EXECUTABLE: i32 = 126;
    /// The command was not found.
    pub(crate) const NOT_FOUND: i32 = 127;

    /// uncork's own failure.
    pub(crate) fn own(sentence: impl Into<String>) -> Self {
        Self { code: Self::OWN, sentence: sentence.into() }
    }

    /// Input or output of `uncork doctor` that cannot be used.
    pub(crate) fn unusable(sentence: impl Into<String>) -> Self {
        Self { code: Self::USAGE, sentence: sentence.into() }
    }

    /// What `uncork tune` could not do.
    pub(crate) fn left(sentence: impl Into<String>) -> Self {
        Self { code: Self::LEFT, sentence: sentence.into() }
    }

    /// What a signal has ended, with the status that says so.
    pub(crate) fn ended_by(code: i32, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }

    /// Something that only another user may do.
    pub(crate) fn no_permission(sentence: impl Into<String>) -> Self {
        Self { code: Self::NO_PERMISSION, sentence: sentence.into() }
    }

    /// A process that is not there.
    pub(crate) fn no_such_process(sentence: impl Into<String>) -> Self {
        Self { code: Self::NO_SUCH_PROCESS, sentence: sentence.into() }
    }

    /// A command that exists and cannot be executed.
    pub(crate) fn not_executable(sentence: impl Into<String>) -> Self {
        Self { code: Self::NOT_EXECUTABLE, sentence: sentence.into() }
    }

    /// A command that does not exist.
    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self { code: Self::NOT_FOUND, sentence: sentence.into() }
    }

    /// The exit status.
    pub(crate) fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}
