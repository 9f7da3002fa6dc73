//! Locked memory, of which each user may have only a limited amount.

use std::fmt;

use rustix::process::{Resource, getrlimit};

/// The unit of `ulimit -l`.
const KIB: u64 = 1024;

/// Memory of frames that cannot be locked: RLIMIT_MEMLOCK limits all that a user without CAP_IPC_LOCK has locked in this
/// way (net/xdp/xdp_umem.c, xdp_umem_account_pages).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locked {
    /// The device.
    pub device: String,
    /// Octets of the frames of one queue.
    pub bytes: u64,
    /// The limit, in octets.
    pub limit_bytes: u64,
}

impl Locked {
    /// Makes the error with this process's current limit.
    pub(super) fn now(device: &str, bytes: usize) -> Self {
        let limit_bytes = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
        Self { device: device.to_owned(), bytes: bytes as u64, limit_bytes }
    }

    /// Returns a limit that is enough, in octets, a multiple of a KiB. How much the user has locked already is not known:
    /// it is no more than the present limit.
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
