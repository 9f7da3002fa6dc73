//! Options of sockets, set by eBPF programs that stay when we are gone.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uncork_bpf::tune::Pins;

use crate::Error;
use crate::netns::{Handle, NetNs};

/// What the journal says of them; what each socket was before is kept with the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The mount of bpffs below which they are pinned.
    pub bpffs: PathBuf,
    /// The options, with their values.
    pub cures: Vec<String>,
    /// Which connections.
    pub scope: String,
    /// The same, to be looked up; entries of older versions do not have it.
    #[serde(default)]
    pub reach: Option<Reach>,
}

/// What of a scope may be gone before the entry is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// The only network namespace.
    pub netns: Option<NetNs>,
    /// The cgroup, and its number.
    pub cgroup: Option<(PathBuf, u64)>,
    /// The process at the root of the tree.
    pub pid: Option<u32>,
    /// Whether connections are met that are established later.
    pub new: bool,
}

impl Sockets {
    pub(super) fn words(&self) -> String {
        format!("{} for {}", self.cures.join(", "), self.scope)
    }

    /// Whether it is also for connections that are established later.
    pub(crate) fn meets_new(&self) -> bool {
        self.reach.as_ref().is_none_or(|reach| reach.new)
    }

    /// Why no connection is met any more, if none is.
    pub(crate) fn ended(&self, pins: &Pins, entry: u32) -> Result<Option<String>, Error> {
        let Some(Reach { netns, cgroup, pid, new }) = &self.reach else { return Ok(None) };
        if let Some(netns) = netns
            && Handle::find(netns)?.is_none()
        {
            return Ok(Some("its network namespace is gone".to_owned()));
        }
        if let Some((path, number)) = cgroup
            && fs::metadata(path).map_or(0, |found| found.ino()) != *number
        {
            return Ok(Some(format!("cgroup {} was removed", path.display())));
        }
        if let Some(pid) = pid
            && pins.living(entry)? == Some(0)
        {
            return Ok(Some(format!("process {pid} and all that descended from it have ended")));
        }
        Ok((!new).then(|| "no connection is left as it has set it".to_owned()))
    }
}
