//! Changes of the device's MTU, and of path MTUs.

use uncork_packet::{Capabilities, Instant};

use super::Stack;
use crate::connection::Path;

impl Stack {
    /// Returns the device's capabilities.
    #[must_use]
    pub fn device(&self) -> Capabilities {
        self.interface.device
    }

    /// Changes the device's MTU and its longest train; none of its other capabilities ever change. Where the MTU is smaller now,
    /// connections go on in smaller segments at once, and what is in flight is sent again in those; where it is
    /// larger, connections that were bounded by it before are bounded by the new one, as far as their peers accept it.
    pub fn set_device(&mut self, now: Instant, device: Capabilities) {
        self.finish_joining();
        let before = self.interface.device.mtu;
        (self.interface.device.mtu, self.interface.device.max_train_bytes) =
            (device.mtu, device.max_train_bytes);
        self.shared.device = self.interface.device;
        if device.mtu < before {
            self.shrink_paths(now, device.mtu, |_| true);
        } else if device.mtu > before {
            self.widen_paths(before);
        }
    }

    /// Lowers the path MTU of the selected paths to `mtu`.
    pub(super) fn shrink_paths(&mut self, now: Instant, mtu: u16, which: impl Fn(&Path) -> bool) {
        for place in self.places(|path| path.mtu > mtu && which(path)) {
            if let Some(connection) = self.connections.get_mut(place) {
                let cx = self.shared.at(now);
                connection.shrink_path(cx, mtu.into());
                self.settle(place);
            }
        }
    }

    /// Raises the path MTU of connections that only the device bounded, at its former MTU `before` (as Linux's
    /// connections follow the route, tcp_current_mss).
    fn widen_paths(&mut self, before: u16) {
        for place in self.places(|path| path.mtu == before) {
            if let Some(connection) = self.connections.get_mut(place) {
                connection.path.mtu = self.interface.path_mtu(connection.path.neighbour);
                connection.resize_segment();
            }
        }
    }

    fn places(&self, which: impl Fn(&Path) -> bool) -> Vec<u32> {
        let all = self.connections.iter();
        all.filter(|(_, one)| which(&one.path)).map(|(place, _)| place).collect()
    }
}
