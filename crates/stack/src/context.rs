//! What a connection can reach outside itself.

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

/// State of the stack that is lent to a connection for one call. The stack keeps it assembled, as building it for each call
/// would cost more than most calls do.
#[derive(Debug)]
pub(crate) struct Context {
    /// Time of the current call ([`Context::at`]).
    pub(crate) now: Instant,
    pub(crate) config: Config,
    /// Bounds of the retransmission timeout, from the configuration.
    pub(crate) timeouts: Bounds,
    /// The device's capabilities, a copy of the interface's.
    pub(crate) device: Capabilities,
    pub(crate) pool: Pool,
    pub(crate) population: Population,
    pub(crate) secrets: Secrets,
    pub(crate) counters: Counters,
    /// Requests counted since they were last asked for.
    pub(crate) requests: Requests,
    pub(crate) fast_open: FastOpenState,
    pub(crate) given_up: GivenUp,
    /// Whether the decision on an ACK may be deferred, as more segments may follow.
    pub(crate) deferral: Deferral,
}

impl Context {
    /// Sets the time for a call, in which no ACK is deferred.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> &mut Self {
        self.now = now;
        self.deferral = Deferral::Never;
        self
    }
}
