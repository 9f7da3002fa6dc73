//! Options of sockets, set by eBPF programs that stay when we are gone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the journal says of them; what each socket was before is kept with the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The mount of bpffs below which they are pinned.
    pub bpffs: PathBuf,
    /// The options, with their values.
    pub cures: Vec<String>,
    /// Which connections.
    pub scope: String,
}

impl Sockets {
    pub(super) fn words(&self) -> String {
        format!("{} for {}", self.cures.join(", "), self.scope)
    }
}
