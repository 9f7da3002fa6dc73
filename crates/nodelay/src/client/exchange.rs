//! The timed exchange: packets out, replies in, and nothing else.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use socket2::SockRef;

use super::args::Style;
use super::pace::Pace;
use super::parts::{File, Part, cut};
use super::{Options, PROGRAM, REPLY_LIMIT};
use crate::error::Error;
use crate::output::complain;
use crate::wire::read_some;
use crate::{REPLY_BYTES, packet_bytes};

/// Longest latency that is recorded; longer ones count as this long.
const LONGEST: Duration = Duration::from_secs(60);

/// The results of a run.
pub(super) struct Tally {
    pub(super) elapsed: Duration,
    /// `write(2)` calls, or `send`, `writev` and `sendfile`, that moved bytes.
    pub(super) writes: u64,
    /// Time from the first write of a packet to its reply, in nanoseconds; `None` unless requested.
    pub(super) latency: Option<Histogram<u64>>,
    /// How late each packet was begun, in nanoseconds; `None` unless requested.
    pub(super) lateness: Option<Histogram<u64>>,
}

/// One run over one connection.
pub(super) struct Exchange<'a> {
    socket: &'a TcpStream,
    options: &'a Options,
    /// The bytes of a logical packet.
    packet: Vec<u8>,
    latency: Option<Histogram<u64>>,
    lateness: Option<Histogram<u64>>,
}

impl<'a> Exchange<'a> {
    /// Prepares everything that the run needs, so that nothing is allocated while it is timed.
    pub(super) fn new(socket: &'a TcpStream, options: &'a Options) -> Result<Self, Error> {
        let record = options.style == Style::Json;
        Ok(Self {
            socket,
            options,
            packet: (b'A'..=b'Z').cycle().take(packet_bytes(options.buffers)).collect(),
            latency: (record && options.await_reply).then(histogram).transpose()?,
            lateness: (record && options.rate.is_some()).then(histogram).transpose()?,
        })
    }

    /// Sends every packet and waits for its reply.
    pub(super) fn run(mut self) -> Result<Tally, Error> {
        let packet = std::mem::take(&mut self.packet);
        let file = File::of(&packet, self.options.cut).map_err(Error::File)?;
        let mut parts = cut(&packet, self.options.cut, file.as_ref());
        let mut writes = 0;
        let begun = Instant::now();
        let pace = self.options.rate.map(Pace::start).transpose().map_err(Error::Clock)?;
        for index in 0..self.options.packets {
            if let Some(pace) = &pace {
                let late = pace.wait(index).map_err(Error::Clock)?;
                record(&mut self.lateness, late);
            }
            let sent = self.latency.is_some().then(Instant::now);
            writes += self.one(&mut parts).map_err(|cause| self.ended(index, cause))?;
            if index == 0 {
                self.first_done()?;
            }
            if let Some(sent) = sent {
                record(&mut self.latency, sent.elapsed());
            }
        }
        let elapsed = begun.elapsed();
        Ok(Tally { elapsed, writes, latency: self.latency, lateness: self.lateness })
    }

    /// Sends one logical packet and reads its reply; returns the number of writes.
    #[inline]
    fn one(&self, parts: &mut [Part<'_>]) -> io::Result<u64> {
        if self.options.cork {
            SockRef::from(self.socket).set_tcp_cork(true)?;
        }
        let mut writes = 0;
        let held = if self.options.more { parts.len() - 1 } else { 0 };
        let (held, last) = parts.split_at_mut(held);
        for part in held {
            writes += part.send_with_more(self.socket)?;
        }
        for part in last {
            writes += part.write(self.socket)?;
        }
        if self.options.cork {
            SockRef::from(self.socket).set_tcp_cork(false)?;
        }
        if self.options.await_reply {
            self.reply()?;
        }
        Ok(writes)
    }

    #[inline]
    fn reply(&self) -> io::Result<()> {
        let mut reply = [0; REPLY_BYTES];
        let mut have = 0;
        while have < REPLY_BYTES {
            match read_some(self.socket, &mut reply[have..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => have += bytes,
                Err(cause) => self.no_reply_yet(cause)?,
            }
        }
        Ok(())
    }

    /// Handles a first reply that is late, or a read that failed otherwise.
    #[cold]
    fn no_reply_yet(&self, cause: io::Error) -> io::Result<()> {
        if cause.kind() != io::ErrorKind::WouldBlock || self.options.rate.is_some() {
            return Err(cause);
        }
        complain(
            PROGRAM,
            &format_args!(
                "no reply to the first packet within {} s, still waiting: the server may be busy \
                 with another client, or was not given the same --buffers, or was given the word \
                 rate",
                REPLY_LIMIT.as_secs()
            ),
        );
        // Once is enough.
        self.socket.set_read_timeout(None)
    }

    /// Lifts the limit: both ends agree on the packets, so that later replies may take any time.
    fn first_done(&self) -> Result<(), Error> {
        if self.options.rate.is_some() {
            return Ok(());
        }
        self.socket
            .set_read_timeout(None)
            .map_err(|cause| Error::Option { option: "SO_RCVTIMEO", cause })
    }

    #[cold]
    fn ended(&self, done: u64, cause: io::Error) -> Error {
        let packets = self.options.packets;
        match cause.kind() {
            io::ErrorKind::UnexpectedEof => Error::Ended { done, packets, cause: None },
            io::ErrorKind::WouldBlock => Error::NoReply { done, packets, limit: REPLY_LIMIT },
            _ => Error::Ended { done, packets, cause: Some(cause) },
        }
    }
}

fn histogram() -> Result<Histogram<u64>, hdrhistogram::CreationError> {
    Histogram::new_with_bounds(1, nanoseconds(LONGEST), 3)
}

#[inline]
fn record(into: &mut Option<Histogram<u64>>, time: Duration) {
    if let Some(histogram) = into {
        histogram.saturating_record(nanoseconds(time));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_beyond_the_histogram_counts_as_the_longest() {
        let mut recorded = Some(histogram().unwrap());
        record(&mut recorded, LONGEST * 10);
        let recorded = recorded.unwrap();
        assert_eq!(recorded.len(), 1);
        assert!(recorded.max() >= nanoseconds(LONGEST));
    }
}
