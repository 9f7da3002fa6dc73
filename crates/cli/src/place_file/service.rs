//! What can be found by a name, and how that is said where it cannot.

use std::path::Path;

use super::Name;
use crate::failure::Failure;

/// Who keeps such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// `uncork stack start`, for `uncork run --stack=instance`.
    Instances,
    /// `uncork stack guard`, for `uncork run --stack` of who has no privilege.
    Guardian,
}

impl Service {
    /// Where its files are, one for each name.
    pub(super) fn directory(self) -> &'static Path {
        Path::new(match self {
            Self::Instances => "/run/uncork/stack",
            Self::Guardian => "/run/uncork/guard",
        })
    }

    /// What starts the one of this name.
    pub(super) fn command(self, name: &Name) -> String {
        let part = match self {
            Self::Instances => "start",
            Self::Guardian => "guard",
        };
        let option = if name.is_default() { String::new() } else { format!(" --name {name}") };
        format!("sudo uncork stack {part}{option}")
    }

    pub(super) fn is_absent(self, name: &Name) -> Failure {
        let command = self.command(name);
        Failure::own(match self {
            Self::Instances => {
                format!("no instances {name} of the stack run: {command} starts them")
            }
            Self::Guardian => format!("no guardian {name} of stacks runs: {command} starts it"),
        })
    }

    /// It has said where it is, and nobody is there.
    pub(crate) fn is_gone(self, name: &Name) -> Failure {
        let command = self.command(name);
        Failure::own(match self {
            Self::Instances => format!(
                "the instances {name} of the stack have ended, or are of another network namespace: {command}"
            ),
            Self::Guardian => format!(
                "the guardian {name} of stacks has ended, or is of another network namespace: {command}"
            ),
        })
    }

    /// Whoever has begun it has not said where it is.
    pub(super) fn is_silent(self, name: &Name) -> Failure {
        let command = self.command(name);
        Failure::own(match self {
            Self::Instances => format!(
                "the instances {name} of the stack are still starting, or were killed as they did: try again, or {command}"
            ),
            Self::Guardian => format!(
                "the guardian {name} of stacks is still starting, or was killed as it did: try again, or {command}"
            ),
        })
    }

    pub(super) fn is_others(self, name: &Name) -> Failure {
        let command = self.command(name);
        let what = match self {
            Self::Instances => format!("attach to the instances {name} of the stack"),
            Self::Guardian => format!("use the guardian {name} of stacks"),
        };
        Failure::own(format!(
            "this user may not {what}: {command} --group GROUP lets those of a group"
        ))
    }

    pub(super) fn is_taken(self, name: &Name) -> Failure {
        Failure::unusable(match self {
            Self::Instances => format!(
                "instances {name} of the stack run already: end them, or give these another --name"
            ),
            Self::Guardian => format!(
                "a guardian {name} of stacks runs already: end it, or give this one another --name"
            ),
        })
    }
}
