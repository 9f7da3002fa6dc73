//! A device that takes packets of another length than before, and paths that do.

use uncork_packet::{Capabilities, Instant};

use super::Stack;
use crate::connection::Path;

impl Stack {
    /// What the device is known to do.
    #[must_use]
    pub fn device(&self) -> Capabilities {
        self.interface.device
    }

    /// The device's MTU has changed, and its longest train with it; nothing else of it ever does. Where it is smaller now,
    /// connections go on in smaller segments at once, and what is in flight goes out again in those; where it is
    /// larger, those that had all of it before have all of it now, as far as their peers take it.
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

    /// What goes these ways gets through only if it is no longer than this.
    pub(super) fn shrink_paths(&mut self, now: Instant, mtu: u16, which: impl Fn(&Path) -> bool) {
        for place in self.places(|path| path.mtu > mtu && which(path)) {
            if let Some(connection) = self.connections.get_mut(place) {
                let cx = self.shared.at(now);
                connection.shrink_path(cx, mtu.into());
                self.settle(place);
            }
        }
    }

    /// What was bounded by nothing but the device, which had this MTU, is bounded by what it has now (as Linux's
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
