//! The end of a stack: whether anybody still needs it, and what to do if that takes too long.

use uncork_packet::Instant;

use super::Stack;
use crate::connection::{Connection, State};

impl Stack {
    /// Whether no peer waits for anything: there is no connection but those that are over, and nothing
    /// of them is left to be sent. TIME-WAIT counts as over, as all it waits for are old segments.
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

    /// Ends all connections with a reset, those included whose names were given back.
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
