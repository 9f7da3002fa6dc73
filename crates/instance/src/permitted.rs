//! What the host's settings permit of TCP Fast Open, for all that listen.

use std::time::{Duration, Instant};

use uncork_stack::FastOpen;

use crate::floor::{Floor, Host};

/// How often they are read: they may change while programs listen. The kernel reads them for each SYN.
const LOOKS: Duration = Duration::from_secs(1);

/// The settings, as they were last read.
#[derive(Debug, Default)]
pub(crate) struct Permitted {
    switches: FastOpen,
    /// When that was; never before they are wanted.
    looked: Option<Instant>,
}

impl Permitted {
    /// Returns the settings, at most a second old.
    pub(crate) fn switches(&mut self, host: &mut dyn Host) -> FastOpen {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOKS) {
            self.switches = host.fast_open();
            self.looked = Some(Instant::now());
        }
        self.switches
    }
}

impl Floor {
    /// Applies a change of the settings, before SYNs that have come are looked at.
    pub(crate) fn look_at_permitted(&mut self) {
        if self.permitted.looked.is_none() {
            return;
        }
        let before = self.permitted.switches;
        if self.permitted.switches(self.host.as_mut()) != before {
            (0..self.desks.len()).for_each(|desk| self.tell_fast_open(desk));
        }
    }
}
