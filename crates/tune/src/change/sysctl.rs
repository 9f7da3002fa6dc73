//! A sysctl of one network namespace, under /proc/sys/net.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::State;
use crate::Error;
use crate::netns::{Handle, NetNs};

/// A sysctl, before and after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// The network namespace of the setting.
    pub netns: NetNs,
    /// Its name as in sysctl(8): `net.ipv4.tcp_limit_output_bytes`.
    pub name: String,
    /// The value before.
    pub before: String,
    /// The value that is set.
    pub after: String,
}

impl Sysctl {
    /// Reads the present value.
    ///
    /// # Errors
    /// If this kernel has no such setting, or it may not be read.
    pub fn plan(handle: &Handle, name: &str, after: String) -> Result<Self, Error> {
        let before = handle.within(|| read(name))??;
        Ok(Self { netns: handle.id.clone(), name: name.to_owned(), before, after })
    }

    pub(super) fn apply(&self, handle: &Handle) -> Result<(), Error> {
        write(handle, &self.name, &self.after)
    }

    pub(super) fn state(&self, handle: &Handle) -> Result<State, Error> {
        let now = handle.within(|| read(&self.name))??;
        Ok(match now {
            _ if now == self.after => State::AsSet,
            _ if now == self.before => State::AsBefore,
            _ => State::Other(format!("{} is {now} now", self.name)),
        })
    }

    pub(super) fn restore(&self, handle: &Handle) -> Result<(), Error> {
        write(handle, &self.name, &self.before)
    }

    pub(super) fn words(&self) -> String {
        let Self { name, before, after, netns } = self;
        if before == after {
            format!("{name} stays {before}{}", netns.words())
        } else {
            format!("{name} from {before} to {after}{}", netns.words())
        }
    }

    pub(super) fn words_back(&self) -> String {
        format!("{} back to {}{}", self.name, self.before, self.netns.words())
    }
}

/// Returns its file: a dot separates directories, as in sysctl(8).
fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/sys/{}", name.replace('.', "/")))
}

fn read(name: &str) -> Result<String, Error> {
    let text = fs::read_to_string(path(name));
    let text =
        text.map_err(|error| Error::Sysctl { name: name.to_owned(), verb: "read", error })?;
    Ok(text.trim_end().to_owned())
}

fn write(handle: &Handle, name: &str, value: &str) -> Result<(), Error> {
    let written = handle.within(|| fs::write(path(name), value))?;
    written.map_err(|error| Error::Sysctl { name: name.to_owned(), verb: "set", error })
}
