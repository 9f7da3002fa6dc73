//! Shutting a stack down: whether any peer still needs it, and how to end it if that takes too long.

use uncork_packet::Instant;

use super::Stack;
use crate::connection::{Connection, State};

impl Stack {
    /// Returns whether no peer waits for anything: all connections are over, and none of them has
    /// anything left to send. TIME-WAIT counts as over, as it only waits for old segments.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let is_over = |connection: &Connection| {
            matches!(connection.state, State::Closed | State::TimeWait)
                && connection.owed.is_empty()
                && !connection.ack.is_demanded()
                && !connection.ack.is_held()
        };
        self.connections.iter().all(|(_, connection)| is_over(connection))
    }

    /// Ends all connections with a reset, including those that their users have released.
    pub fn abort_all(&mut self, now: Instant) {
        let places: Vec<u32> = self.connections.iter().map(|(place, _)| place).collect();
        for place in places {
            if let Some(connection) = self.connections.get_mut(place) {
                let cx = self.shared.at(now);
                connection.abort(cx);
                self.settle(place);
            }
        }
    }
}
