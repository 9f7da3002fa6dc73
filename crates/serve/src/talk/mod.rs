//! Conversations: four protocols without I/O of their own, so that the same code
//! serves on both stacks.

mod date;
mod http;
mod outbox;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uncork_stack::Instant;

use crate::pattern::Pattern;
use crate::stream::{Stop, Stream};
use http::{Http, Responses};
use outbox::{Outbox, Source};

/// The protocol that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Received data are sent back (RFC 862).
    Echo,
    /// Received data are dropped (RFC 863).
    Discard,
    /// Lines of characters without end (RFC 864).
    Chargen,
    /// HTTP/1.1: `/` is a short body, `/file` a long one.
    Http {
        /// Length of the body of `/`.
        body_bytes: u64,
        /// Length of the body of `/file`.
        file_bytes: u64,
    },
}

impl Service {
    /// Returns its default port: the well-known one, or 8080 for HTTP.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Echo => 7,
            Self::Discard => 9,
            Self::Chargen => 19,
            Self::Http { .. } => 8080,
        }
    }

    /// Name of the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Discard => "discard",
            Self::Chargen => "chargen",
            Self::Http { .. } => "http",
        }
    }
}

/// State that all conversations of a server share.
#[derive(Debug)]
pub(crate) struct Site {
    service: Service,
    body: Pattern,
    chargen: Pattern,
    responses: Responses,
    next_second: Instant,
}

impl Site {
    pub(crate) fn new(service: Service) -> Self {
        let body = Pattern::body();
        let responses = Responses::new(service, &body);
        Self { service, chargen: Pattern::chargen(), responses, body, next_second: Instant::ZERO }
    }

    /// Updates the wall-clock time in the answers, when a new second may have begun.
    pub(crate) fn keep_time(&mut self, now: Instant) {
        if now < self.next_second {
            return;
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.responses.set_time(wall.as_secs(), &self.body);
        let of_second = Duration::from_nanos(wall.subsec_nanos().into());
        self.next_second = now + (Duration::from_secs(1) - of_second);
    }

    pub(crate) fn service(&self) -> Service {
        self.service
    }

    fn pattern(&self, source: Source) -> &Pattern {
        match source {
            Source::Body => &self.body,
            Source::Chargen => &self.chargen,
        }
    }
}

/// State of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It continues when the peer has sent data, or has room.
    Waits { reads: bool, writes: bool },
    /// It is over: both sides are done, or the connection has failed.
    Over,
}

#[derive(Debug)]
enum Kind {
    Echo,
    Discard,
    Chargen,
    Http(Http),
}

/// One conversation with a peer.
#[derive(Debug)]
pub(crate) struct Talk {
    kind: Kind,
    outbox: Outbox,
    /// Whether the peer has sent its FIN.
    peer_ended: bool,
    /// Whether nothing more will be put into the outbox.
    ending: bool,
    /// Whether our FIN was sent.
    ended: bool,
}

impl Talk {
    pub(crate) fn new(service: Service) -> Self {
        let mut outbox = Outbox::default();
        let kind = match service {
            Service::Echo => Kind::Echo,
            Service::Discard => Kind::Discard,
            Service::Chargen => {
                outbox.add(Source::Chargen, u64::MAX);
                Kind::Chargen
            }
            Service::Http { .. } => Kind::Http(Http::default()),
        };
        Self { kind, outbox, peer_ended: false, ending: false, ended: false }
    }

    /// Ends the conversation after what the stack has taken already.
    pub(crate) fn finish(&mut self) {
        self.outbox.clear();
        self.ending = true;
    }

    /// Whether this side is done and waits for the peer.
    pub(crate) fn lingers(&self) -> bool {
        self.ended && !self.peer_ended
    }

    /// Continues as far as possible.
    pub(crate) fn drive(
        &mut self,
        site: &Site,
        stream: &mut impl Stream,
        scratch: &mut [u8],
    ) -> Standing {
        self.go_on(site, stream, scratch).unwrap_or(Standing::Over)
    }

    fn go_on(
        &mut self,
        site: &Site,
        stream: &mut impl Stream,
        scratch: &mut [u8],
    ) -> Result<Standing, Stop> {
        loop {
            let clear = self.outbox.flush(site, stream)?;
            if clear && !self.ending && self.answer_next(site, stream)? {
                continue;
            }
            if clear && self.ending && !self.ended {
                stream.end_writing();
                self.ended = true;
            }
            if self.ended && self.peer_ended {
                return Ok(Standing::Over);
            }
            // A peer that does not read answers may not request more of them.
            let reads = !self.peer_ended && (clear || matches!(self.kind, Kind::Chargen));
            if !reads {
                return Ok(Standing::Waits { reads, writes: !clear });
            }
            match stream.read(scratch) {
                Ok(0) => self.note_end(),
                Ok(bytes) => self.take(site, stream, &scratch[..bytes])?,
                Err(Stop::WouldBlock) => return Ok(Standing::Waits { reads, writes: !clear }),
                Err(Stop::Failed) => return Err(Stop::Failed),
            }
        }
    }

    /// Answers a request that is already complete; returns whether there was one.
    fn answer_next(&mut self, site: &Site, stream: &mut impl Stream) -> Result<bool, Stop> {
        let Kind::Http(http) = &mut self.kind else { return Ok(false) };
        match http.next(&site.responses, stream, &mut self.outbox)? {
            http::Next::Answered => Ok(true),
            http::Next::AnsweredLast => {
                self.ending = true;
                Ok(true)
            }
            http::Next::Incomplete => {
                // Requests from before the end are answered; an incomplete one is not.
                self.ending = self.peer_ended;
                Ok(false)
            }
        }
    }

    fn note_end(&mut self) {
        self.peer_ended = true;
        match self.kind {
            // Complete requests may still be waiting.
            Kind::Http(_) => {}
            // RFC 864: characters are sent until the peer closes.
            Kind::Chargen => self.finish(),
            Kind::Echo | Kind::Discard => self.ending = true,
        }
    }

    fn take(&mut self, site: &Site, stream: &mut impl Stream, bytes: &[u8]) -> Result<(), Stop> {
        if self.ending {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Echo => self.outbox.send(stream, bytes, false),
            Kind::Discard | Kind::Chargen => Ok(()),
            Kind::Http(http) => {
                if http.is_empty() && self.outbox.is_empty() {
                    let next = http.take_first(bytes, &site.responses, stream, &mut self.outbox)?;
                    self.ending = next == http::Next::AnsweredLast;
                } else {
                    http.take(bytes);
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
