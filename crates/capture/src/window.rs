//! The part of the file that is being parsed.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use crate::MAX_RECORD_BYTES;

/// How much is read at once. More gains nothing, and exceeds the processor's cache.
const WINDOW_BYTES: usize = 256 << 10;

/// What has been read and not yet consumed, contiguous.
pub(crate) struct Window<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How much was consumed before `start`.
    taken_bytes: u64,
}

impl<R> fmt::Debug for Window<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end, taken_bytes, .. } = self;
        write!(f, "Window {{ {start}..{end}, taken_bytes: {taken_bytes} }}")
    }
}

impl<R: Read> Window<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; WINDOW_BYTES], start: 0, end: 0, taken_bytes: 0 }
    }

    /// Returns the data.
    #[inline]
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the file offset at which [`data`](Self::data) begins.
    pub(crate) fn position(&self) -> u64 {
        self.taken_bytes
    }

    /// Ensures that `wanted` octets are there, and reads only if they are not: what has arrived is
    /// parsed before anything is waited for. Returns false if the file ends before.
    ///
    /// `wanted` may be no more than [`MAX_RECORD_BYTES`].
    #[inline]
    pub(crate) fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        if self.end - self.start >= wanted {
            return Ok(true);
        }
        self.read_more(wanted)
    }

    #[cold]
    fn read_more(&mut self, wanted: usize) -> io::Result<bool> {
        debug_assert!(wanted <= MAX_RECORD_BYTES);
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted.next_power_of_two(), 0);
        }
        while self.end < wanted {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Consumes the next `bytes`, which [`fill`](Self::fill) has ensured.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> &[u8] {
        let from = self.start;
        self.start += bytes;
        self.taken_bytes += bytes as u64;
        &self.buffer[from..self.start]
    }

    /// Returns its capacity.
    #[cfg(test)]
    pub(crate) fn room_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the reader.
    #[cfg(test)]
    pub(crate) fn reader(&self) -> &R {
        &self.reader
    }

    /// Skips `bytes`, however many, without keeping them. Returns false if the file ends before.
    pub(crate) fn skip(&mut self, mut bytes: u64) -> io::Result<bool> {
        loop {
            let here = self.data().len();
            let now = usize::try_from(bytes).map_or(here, |bytes| bytes.min(here));
            self.take(now);
            bytes -= now as u64;
            if bytes == 0 {
                return Ok(true);
            }
            if !self.fill(1)? {
                return Ok(false);
            }
        }
    }
}
