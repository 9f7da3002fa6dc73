//! Memory that the kernel keeps from being swapped out, of which a user may have only so much.

use std::fmt;

use rustix::process::{Resource, getrlimit};

/// `ulimit -l` counts these.
const KIB: u64 = 1024;

/// Memory of frames that cannot be locked: RLIMIT_MEMLOCK is over all that a user has locked so, and for who lacks
/// CAP_IPC_LOCK (net/xdp/xdp_umem.c, xdp_umem_account_pages).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locked {
    /// The device.
    pub device: String,
    /// Of the frames of one queue.
    pub bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

impl Locked {
    /// With the limit of this process.
    pub(super) fn now(device: &str, bytes: usize) -> Self {
        let limit_bytes = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
        Self { device: device.to_owned(), bytes: bytes as u64, limit_bytes }
    }

    /// A limit that is enough, in octets, of which there are whole KiB. What the user has locked already is not known: it
    /// is no more than the present limit.
    #[must_use]
    pub fn enough_bytes(&self) -> u64 {
        let kib = self.limit_bytes.div_ceil(KIB) + self.bytes.div_ceil(KIB);
        kib.min(u64::MAX / KIB) * KIB
    }
}

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, bytes, limit_bytes } = self;
        write!(
            f,
            "AF_XDP has to lock {} KiB of memory for a queue of {device}, and this user may lock {} KiB in all",
            bytes.div_ceil(KIB),
            limit_bytes / KIB
        )
    }
}
