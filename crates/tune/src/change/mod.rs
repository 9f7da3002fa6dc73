//! Changes: each knows what was before, how to set it, and how to set it back.

pub mod link;
pub mod programs;
pub mod route;
pub mod sysctl;

use serde::{Deserialize, Serialize};

pub use link::Link;
pub use programs::{Reach, Sockets};
pub use route::Route;
pub use sysctl::Sysctl;

use crate::Error;
use crate::netns::{Handle, NetNs};

/// A single change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// A sysctl of a network namespace.
    Sysctl(Sysctl),
    /// Limits of a network device.
    Link(Link),
    /// An attribute of a route.
    Route(Route),
    /// Options of sockets, by eBPF programs.
    Sockets(Sockets),
}

/// The state in which a changed thing is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// As we set it.
    AsSet,
    /// As it was before.
    AsBefore,
    /// Neither: its present value.
    Other(String),
    /// Nothing is left to set back, for this reason.
    Gone(String),
}

impl Change {
    /// Makes the change.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        if self.is_none() {
            return Ok(());
        }
        let handle = self.handle()?.ok_or_else(|| {
            Error::Unable(format!("{}: its network namespace is gone", self.words()))
        })?;
        match self {
            Self::Sysctl(sysctl) => sysctl.apply(&handle),
            Self::Link(link) => link.apply(&handle),
            Self::Route(route) => route.apply(&handle),
            // Its programs are started, and asked how it went, by the code that applies an entry.
            Self::Sockets(_) => Ok(()),
        }
    }

    /// Returns its present state; `None` if what it belonged to is gone, and it with that.
    pub(crate) fn state(&self) -> Result<Option<State>, Error> {
        let Some(handle) = self.handle()? else { return Ok(None) };
        match self {
            Self::Sysctl(sysctl) => sysctl.state(&handle).map(Some),
            Self::Link(link) => link.state(&handle),
            Self::Route(route) => route.state(&handle).map(Some),
            Self::Sockets(_) => Ok(Some(State::AsSet)),
        }
    }

    /// Returns what users should know of it although it is as it was set.
    pub(crate) fn warning(&self) -> Result<Option<String>, Error> {
        match (self, self.handle()?) {
            (Self::Route(route), Some(handle)) => route.warning(&handle),
            _ => Ok(None),
        }
    }

    /// Sets it back to what it was before, and reads it back.
    pub(crate) fn restore(&self) -> Result<(), Error> {
        let Some(handle) = self.handle()? else { return Ok(()) };
        match self {
            Self::Sysctl(sysctl) => sysctl.restore(&handle),
            Self::Link(link) => link.restore(&handle),
            Self::Route(route) => route.restore(&handle),
            Self::Sockets(_) => return Ok(()),
        }?;
        match self.state()? {
            None | Some(State::AsBefore | State::Gone(_)) => Ok(()),
            Some(State::AsSet) if self.is_none() => Ok(()),
            Some(State::AsSet) => Err(Error::Unable(format!(
                "{}: the kernel took it back, and it is as it was set all the same",
                self.words()
            ))),
            Some(State::Other(now)) => Err(Error::Unable(format!(
                "{}: it was set back, and {now}: that is neither what it was nor what it was set to",
                self.words()
            ))),
        }
    }

    /// Returns whether it changes nothing: it is in the journal for later entries.
    pub(crate) fn is_none(&self) -> bool {
        match self {
            Self::Sysctl(sysctl) => sysctl.before == sysctl.after,
            Self::Link(link) => link.before == link.after,
            Self::Route(route) => route.before.as_ref() == Some(&route.after),
            Self::Sockets(_) => false,
        }
    }

    /// Says what is changed, from what, to what.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Sysctl(sysctl) => sysctl.words(),
            Self::Link(link) => link.words(),
            Self::Route(route) => route.words(),
            Self::Sockets(sockets) => sockets.words(),
        }
    }

    /// Says what has been set back, to what.
    #[must_use]
    pub fn words_back(&self) -> String {
        match self {
            Self::Sysctl(sysctl) => sysctl.words_back(),
            Self::Link(link) => link.words_back(),
            Self::Route(route) => route.words_back(),
            Self::Sockets(sockets) => sockets.words(),
        }
    }

    /// Returns whether both change the same thing.
    pub(crate) fn same_thing(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sysctl(a), Self::Sysctl(b)) => a.netns == b.netns && a.name == b.name,
            (Self::Link(a), Self::Link(b)) => a.netns == b.netns && a.index == b.index,
            (Self::Route(a), Self::Route(b)) => a.netns == b.netns && a.is_same(b),
            _ => false,
        }
    }

    /// Takes over the `before` of an older entry that is undone, so that undoing this one ends
    /// where the older began. Returns whether this one is based on the older.
    pub(crate) fn inherit(&mut self, older: &Self) -> bool {
        match (self, older) {
            (Self::Sysctl(mine), Self::Sysctl(theirs)) => {
                inherit(&mut mine.before, &theirs.before, &theirs.after)
            }
            (Self::Link(mine), Self::Link(theirs)) => {
                inherit(&mut mine.before, &theirs.before, &theirs.after)
            }
            (Self::Route(mine), Self::Route(theirs)) => {
                inherit(&mut mine.before, &theirs.before, &Some(theirs.after.clone()))
            }
            _ => false,
        }
    }

    pub(crate) fn netns(&self) -> Option<&NetNs> {
        match self {
            Self::Sysctl(sysctl) => Some(&sysctl.netns),
            Self::Link(link) => Some(&link.netns),
            Self::Route(route) => Some(&route.netns),
            Self::Sockets(_) => None,
        }
    }

    fn handle(&self) -> Result<Option<Handle>, Error> {
        self.netns().map_or_else(|| Handle::own().map(Some), Handle::find)
    }
}

/// An undoing that was killed half-way has handed the value over already: that is no difference.
fn inherit<T: Clone + PartialEq>(mine: &mut T, before: &T, after: &T) -> bool {
    if mine != after && mine != before {
        // It was changed in between: the younger entry found that value, and keeps it.
        return false;
    }
    mine.clone_from(before);
    true
}
