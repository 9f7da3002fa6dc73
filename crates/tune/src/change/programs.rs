//! Socket options, set by eBPF programs that stay after this process has ended.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uncork_bpf::tune::Pins;

use crate::Error;
use crate::netns::{Handle, NetNs};

/// The journal's record of the programs; a socket's earlier options are kept with the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The mount of bpffs below which they are pinned.
    pub bpffs: PathBuf,
    /// The options, with their values.
    pub cures: Vec<String>,
    /// The scope, in words: which connections.
    pub scope: String,
    /// The scope in a form that can be looked up; entries of older versions lack it.
    #[serde(default)]
    pub reach: Option<Reach>,
}

/// The parts of a scope that may be gone before the entry is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// The only network namespace, if there is one.
    pub netns: Option<NetNs>,
    /// The cgroup, and its inode number.
    pub cgroup: Option<(PathBuf, u64)>,
    /// The process at the root of the tree.
    pub pid: Option<u32>,
    /// Whether connections established later are included.
    pub new: bool,
}

impl Sockets {
    pub(super) fn words(&self) -> String {
        format!("{} for {}", self.cures.join(", "), self.scope)
    }

    /// Returns whether it also applies to connections established later.
    pub(crate) fn meets_new(&self) -> bool {
        self.reach.as_ref().is_none_or(|reach| reach.new)
    }

    /// Returns why it applies to no connection any more, if that is so.
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
