//! The host's settings change while the stack lives.

use super::Stack;

impl Stack {
    /// The host's settings may be others now ([`Config::follow`](crate::Config::follow)): for what is looked up when it is
    /// needed at once, as the kernel does it; for the rest with the next connection.
    pub fn follow(&mut self, sysctl: &dyn Fn(&str) -> Option<String>) {
        self.shared.config.follow(sysctl);
        self.shared.pool.set_bounds(self.shared.config.memory_bytes);
    }
}
