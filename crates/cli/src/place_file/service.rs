//! Services that are found by name, and the errors where one is not.

use std::path::Path;

use super::Name;
use crate::failure::Failure;

/// The services that have such files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// `uncork stack start`, for `uncork run --stack=instance`.
    Instances,
    /// `uncork stack guard`, for `uncork run --stack` without privilege.
    Guardian,
}

impl Service {
    /// Returns the directory of its files, one for each name.
    pub(super) fn directory(self) -> &'static Path {
        Path::new(match self {
            Self::Instances => "/run/uncork/stack",
            Self::Guardian => "/run/uncork/guard",
        })
    }

    /// Returns the command that starts the service of this name.
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

    /// Says that the service has published its place, and does not answer there.
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

    /// Says that the process that began the service has not published a place.
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
