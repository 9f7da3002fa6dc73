//! The cores on which the two ends of an exchange run.

use anyhow::Result;
use serde::Serialize;
pub(crate) use uncork_lab::cores::{Cores, Pinned, pin};

use crate::outcome::Skip;

/// Where the two ends of an exchange run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// Both on one core: shows what the writes cost.
    OneCore,
    /// A core for each: waking the other core is then the largest part of a round trip.
    TwoCores,
}

impl Place {
    /// Returns a short name for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one",
            Self::TwoCores => "two",
        }
    }

    /// Returns the cores to pin to, of those that this process may use.
    pub(crate) fn cores(self) -> Result<Cores> {
        match self {
            Self::OneCore => Cores::one(),
            Self::TwoCores => Cores::two()?.ok_or_else(|| {
                Skip::new("needs two cores, and this process may use only one").into()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_are_skipped_where_there_is_one() {
        let core = Place::OneCore.cores().unwrap().server;
        let _pinned = Pinned::to(core).unwrap();
        assert!(Place::TwoCores.cores().unwrap_err().is::<Skip>());
    }
}
