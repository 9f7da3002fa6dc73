//! What a connection may reach beside itself.

use uncork_packet::{Capabilities, Instant};

use crate::config::Config;
use crate::connection::Bounds;
use crate::counters::Counters;
use crate::fast_open::FastOpenState;
use crate::memory::Pool;
use crate::secrets::Secrets;
use crate::stack::join::Deferral;

/// Lent to a connection for one call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    /// Bounds of the retransmission timeout, as the configuration has them.
    pub(crate) timeouts: Bounds,
    pub(crate) device: &'a Capabilities,
    pub(crate) pool: &'a mut Pool,
    pub(crate) secrets: &'a Secrets,
    pub(crate) counters: &'a mut Counters,
    pub(crate) fast_open: &'a mut FastOpenState,
    /// Whether an ACK may be decided on later, as more segments may follow.
    pub(crate) deferral: Deferral,
}
