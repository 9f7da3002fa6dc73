//! What the host's settings permit of TCP Fast Open, for whoever listens.

use std::time::{Duration, Instant};

use uncork_stack::FastOpen;

use crate::floor::{Floor, Host};

/// They may change while somebody listens. The kernel looks at each SYN.
const LOOKS: Duration = Duration::from_secs(1);

/// As they were the last time.
#[derive(Debug, Default)]
pub(crate) struct Permitted {
    switches: FastOpen,
    /// When that was; never before somebody wants to know.
    looked: Option<Instant>,
}

impl Permitted {
    /// What they are, of a second ago at the most.
    pub(crate) fn switches(&mut self, host: &mut dyn Host) -> FastOpen {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOKS) {
            self.switches = host.fast_open();
            self.looked = Some(Instant::now());
        }
        self.switches
    }
}

impl Floor {
    /// They may be others, before SYNs that have come are looked at.
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
