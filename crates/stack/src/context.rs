//! What a connection may reach beside itself.

use uncork_packet::{Capabilities, Instant};

use crate::config::Config;
use crate::connection::{Bounds, Population};
use crate::counters::Counters;
use crate::fast_open::FastOpenState;
use crate::memory::Pool;
use crate::requests::Requests;
use crate::secrets::Secrets;
use crate::stack::given_up::GivenUp;
use crate::stack::join::Deferral;

/// Lent to a connection for one call. The stack keeps it, as to put it together for each call costs more than
/// what most calls are for.
#[derive(Debug)]
pub(crate) struct Context {
    /// Of the call ([`Context::at`]).
    pub(crate) now: Instant,
    pub(crate) config: Config,
    /// Bounds of the retransmission timeout, as the configuration has them.
    pub(crate) timeouts: Bounds,
    /// As the interface has it.
    pub(crate) device: Capabilities,
    pub(crate) pool: Pool,
    pub(crate) population: Population,
    pub(crate) secrets: Secrets,
    pub(crate) counters: Counters,
    /// Since somebody has asked last.
    pub(crate) requests: Requests,
    pub(crate) fast_open: FastOpenState,
    pub(crate) given_up: GivenUp,
    /// Whether an ACK may be decided on later, as more segments may follow.
    pub(crate) deferral: Deferral,
}

impl Context {
    /// For a call at this time.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> &mut Self {
        self.now = now;
        self.deferral = Deferral::Never;
        self
    }
}
