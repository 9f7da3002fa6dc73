//! The data that a conversation still has to send.

use super::Site;
use crate::stream::{Stop, Stream};

/// The pattern that a stretch is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Body,
    Chargen,
}

/// Octets of its own, followed by a stretch of a pattern.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    own: Vec<u8>,
    /// Number of those that are sent.
    gone: usize,
    stretch: Option<Stretch>,
}

#[derive(Debug, Clone, Copy)]
struct Stretch {
    source: Source,
    next: u64,
    end: u64,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.gone == self.own.len() && self.stretch.is_none()
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sends `bytes`, and keeps what was not taken. Only allowed while nothing else is kept.
    pub(crate) fn send(
        &mut self,
        stream: &mut impl Stream,
        bytes: &[u8],
        more: bool,
    ) -> Result<(), Stop> {
        debug_assert!(self.is_empty());
        let taken = match stream.write(bytes, more) {
            Ok(taken) => taken,
            Err(Stop::WouldBlock) => 0,
            Err(Stop::Failed) => return Err(Stop::Failed),
        };
        self.own.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    /// Appends a stretch of a pattern.
    pub(crate) fn add(&mut self, source: Source, end: u64) {
        self.stretch = (end > 0).then_some(Stretch { source, next: 0, end });
    }

    /// Sends what the stream takes; returns whether that was all.
    pub(crate) fn flush(&mut self, site: &Site, stream: &mut impl Stream) -> Result<bool, Stop> {
        while self.gone < self.own.len() {
            match stream.write(&self.own[self.gone..], self.stretch.is_some()) {
                Ok(taken) => self.gone += taken,
                Err(Stop::WouldBlock) => return Ok(false),
                Err(Stop::Failed) => return Err(Stop::Failed),
            }
        }
        // Frees memory that holds nothing.
        if !self.own.is_empty() {
            self.own = Vec::new();
            self.gone = 0;
        }
        while let Some(stretch) = &mut self.stretch {
            let pattern = site.pattern(stretch.source);
            let piece = pattern.piece(stretch.next, stretch.end - stretch.next);
            let more = stretch.next + (piece.len() as u64) < stretch.end;
            match stream.write(piece, more) {
                Ok(taken) => stretch.next += taken as u64,
                Err(Stop::WouldBlock) => return Ok(false),
                Err(Stop::Failed) => return Err(Stop::Failed),
            }
            if stretch.next == stretch.end {
                self.stretch = None;
            }
        }
        Ok(true)
    }
}
