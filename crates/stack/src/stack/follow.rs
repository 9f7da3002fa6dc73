//! Changes of the host's settings while the stack lives.

use super::Stack;

impl Stack {
    /// Reads the host's settings again ([`Config::follow`](crate::Config::follow)). Settings that are looked up when they are
    /// needed apply at once, as in the kernel; the others apply to new connections.
    pub fn follow(&mut self, sysctl: &dyn Fn(&str) -> Option<String>) {
        self.shared.config.follow(sysctl);
        self.shared.pool.set_bounds(self.shared.config.memory_bytes);
    }
}
