//! Requests and their replies, as far as the directions of the data tell.

use std::time::Duration;

/// The exchanges of one connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exchanges {
    begun: Option<Duration>,
    /// When the last octet came of the request under way, or of its reply.
    last: Duration,
    replied: bool,
    paused: bool,
    paused_again: bool,
    /// Requests that were answered.
    pub(crate) answered: u32,
    /// Requests that came as soon as the server had sent something.
    prompt: u16,
    /// Requests that came amid a server's events: after several, and sooner after the last event
    /// than that one came after the one before.
    amid: u16,
    /// Milliseconds of the last pause of the reply under way.
    beat_ms: u16,
    /// Octets that the client sent before the server had sent any: nobody had said anything that these
    /// could confirm.
    opening_bytes: u16,
    /// The time from each of those requests' first octet to its reply's last, added up.
    pub(crate) time: Duration,
}

impl Exchanges {
    /// Notes data of the client. `prompt`: it came no later after the server's last than the client reacts.
    pub(crate) fn request(&mut self, at: Duration, prompt: bool) {
        if self.replied {
            // A single pause is part of a reply, and so is what follows it at once.
            let beat = Duration::from_millis(self.beat_ms.into());
            let amid =
                self.paused_again && (beat / 4..beat).contains(&at.saturating_sub(self.last));
            self.prompt = self.prompt.saturating_add(prompt.into());
            self.amid = self.amid.saturating_add((amid && !prompt).into());
        }
        self.finish();
        self.begun.get_or_insert(at);
        self.last = at;
    }

    /// Notes octets of the client's that came before the server's first.
    pub(crate) fn open(&mut self, bytes: u32) {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.opening_bytes = self.opening_bytes.saturating_add(bytes);
    }

    /// Returns whether the connection began with a request of at most so many octets.
    pub(crate) fn open_within(&self, bytes: u32) -> bool {
        (1..=bytes).contains(&self.opening_bytes.into())
    }

    /// Notes data of the server.
    pub(crate) fn reply(&mut self, at: Duration) {
        if self.begun.is_some() {
            self.replied = true;
            self.last = at;
        }
    }

    /// Returns whether a request waits for its reply, or for the rest of it.
    pub(crate) fn waiting(&self) -> bool {
        self.begun.is_some()
    }

    /// Notes that the reply under way goes on after a pause of that length.
    pub(crate) fn pause(&mut self, length: Duration) {
        self.beat_ms = u16::try_from(length.as_millis()).unwrap_or(u16::MAX);
        self.paused_again = self.paused;
        self.paused = true;
    }

    /// Returns whether the reply has paused more than once: then these may be events that come one by one.
    pub(crate) fn has_paused_again(&self) -> bool {
        self.paused_again
    }

    /// Returns whether some of the reply to the request under way has come.
    pub(crate) fn has_reply(&self) -> bool {
        self.replied
    }

    /// Returns whether the reply under way has paused.
    pub(crate) fn has_paused(&self) -> bool {
        self.paused
    }

    /// Ends the exchange under way, if there was a reply.
    pub(crate) fn finish(&mut self) {
        if !self.replied {
            return;
        }
        (self.replied, self.paused, self.paused_again) = (false, false, false);
        self.beat_ms = 0;
        if let Some(begun) = self.begun.take() {
            self.answered = self.answered.saturating_add(1);
            self.time += self.last.saturating_sub(begun);
        }
    }

    /// Returns whether the client speaks only when the server has, and then at once.
    pub(crate) fn are_prompt(&self) -> bool {
        u32::from(self.prompt) * 10 >= self.answered.min(u16::MAX.into()) * 9
    }

    /// Returns whether the client often speaks amid a server's events.
    pub(crate) fn are_amid_events(&self) -> bool {
        /// A few may be coincidence.
        const FEW: u16 = 3;
        self.amid > FEW && u32::from(self.amid) * 3 >= self.answered.min(u16::MAX.into())
    }

    /// Returns the time from the first octet to the last of the request that has no reply yet.
    pub(crate) fn unanswered(&self) -> Duration {
        self.begun.map(|begun| self.last.saturating_sub(begun)).unwrap_or_default()
    }
}
