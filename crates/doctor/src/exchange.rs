//! Requests and their replies, as far as the directions of data tell.

use std::time::Duration;

/// The exchanges of one connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exchanges {
    begun: Option<Duration>,
    replied: Option<Duration>,
    paused: bool,
    /// Requests that were answered.
    pub(crate) answered: u64,
    /// From each request's first octet to its reply's last.
    pub(crate) time: Duration,
}

impl Exchanges {
    /// The client has sent data.
    pub(crate) fn request(&mut self, at: Duration) {
        if self.replied.is_some() {
            self.finish();
        }
        self.begun.get_or_insert(at);
    }

    /// The server has sent data.
    pub(crate) fn reply(&mut self, at: Duration) {
        if self.begun.is_some() {
            self.replied = Some(at);
        }
    }

    /// Whether a request waits for its reply, or for the rest of it.
    pub(crate) fn waiting(&self) -> bool {
        self.begun.is_some()
    }

    /// The reply under way goes on after a pause.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// Whether some of the reply to the request under way has come.
    pub(crate) fn has_reply(&self) -> bool {
        self.replied.is_some()
    }

    /// Whether it has done so before.
    pub(crate) fn has_paused(&self) -> bool {
        self.paused
    }

    /// Nothing more belongs to the exchange under way.
    pub(crate) fn finish(&mut self) {
        self.paused = false;
        if let (Some(begun), Some(replied)) = (self.begun.take(), self.replied.take()) {
            self.answered += 1;
            self.time += replied.saturating_sub(begun);
        }
    }
}
