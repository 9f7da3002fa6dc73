//! Reception of the packets of one connection.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::SockRef;
use uncork_sockdiag::{Name, SockDiag};

use super::{Options, Replies};
use crate::wire::{read_some, write_all};
use crate::{REPLY_BYTES, packet_bytes};

const REPLY: [u8; REPLY_BYTES] = *b"ok";

/// The results of one connection.
#[derive(Debug)]
pub(super) struct Tally {
    /// Whole logical packets.
    pub(super) packets: u64,
    /// Calls of `read(2)` that returned data.
    pub(super) reads: u64,
    /// Segments with data, where they are reported.
    pub(super) segments: Option<u32>,
    pub(super) bytes: u64,
    pub(super) ending: Ending,
    /// Times between packets, where they were measured.
    pub(super) intervals: Option<Intervals>,
}

/// The ways in which a connection ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// Every packet arrived.
    Complete,
    /// The client closed between two packets.
    Closed,
    /// The client closed inside a packet, of which this many bytes had arrived.
    Torn { bytes: usize },
    /// A call failed.
    Failed(io::Error),
}

/// Receives connection after connection into the same buffer.
pub(super) struct Receiver<'a> {
    options: &'a Options,
    packet: Vec<u8>,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(options: &'a Options) -> Self {
        Self { options, packet: vec![0; packet_bytes(options.buffers)] }
    }

    /// Reads packets from `socket` and answers them until there are enough or it ends.
    pub(super) fn receive(&mut self, socket: &TcpStream) -> Tally {
        let mut tally = Tally {
            packets: 0,
            reads: 0,
            segments: None,
            bytes: 0,
            ending: Ending::Complete,
            intervals: (self.options.replies == Replies::None).then(Intervals::default),
        };
        if let Err(ending) = self.receive_into(socket, &mut tally) {
            tally.ending = ending;
        }
        if self.options.json {
            tally.segments = segments_in(socket);
        }
        tally
    }

    fn receive_into(&mut self, socket: &TcpStream, tally: &mut Tally) -> Result<(), Ending> {
        if self.options.replies == Replies::NoDelay {
            socket.set_nodelay(true)?;
        }
        while tally.packets < self.options.packets {
            self.one(socket, tally)?;
            tally.packets += 1;
            match self.options.replies {
                Replies::Plain | Replies::NoDelay => {
                    write_all(socket, &REPLY)?;
                }
                Replies::Corked => {
                    let socket_ref = SockRef::from(socket);
                    socket_ref.set_tcp_cork(true)?;
                    write_all(socket, &REPLY)?;
                    socket_ref.set_tcp_cork(false)?;
                }
                Replies::None => {
                    if let Some(intervals) = &mut tally.intervals {
                        intervals.packet_at(Instant::now());
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives one logical packet, in as many reads as it takes.
    #[inline]
    fn one(&mut self, socket: &TcpStream, tally: &mut Tally) -> Result<(), Ending> {
        let mut have = 0;
        while have < self.packet.len() {
            match read_some(socket, &mut self.packet[have..])? {
                0 if have == 0 => return Err(Ending::Closed),
                0 => return Err(Ending::Torn { bytes: have }),
                bytes => {
                    have += bytes;
                    tally.bytes += bytes as u64;
                    tally.reads += 1;
                }
            }
        }
        Ok(())
    }
}

/// Returns the segments with data received, by the kernel's count. A connection that was reset is
/// gone, and an unknown count does no harm.
fn segments_in(socket: &TcpStream) -> Option<u32> {
    let name = Name::of(socket.local_addr().ok()?, socket.peer_addr().ok()?);
    Some(SockDiag::open().ok()?.connection(&name).ok()??.info.data_segs_in)
}

impl From<io::Error> for Ending {
    fn from(cause: io::Error) -> Self {
        Self::Failed(cause)
    }
}

/// The times between one packet's end and the next.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    last: Option<Instant>,
    count: u32,
    sum: Duration,
    min: Duration,
    max: Duration,
}

impl Intervals {
    fn packet_at(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            let interval = now - last;
            self.min = if self.count == 0 { interval } else { self.min.min(interval) };
            self.max = self.max.max(interval);
            self.sum += interval;
            self.count = self.count.saturating_add(1);
        }
    }

    pub(super) fn min(&self) -> Duration {
        self.min
    }

    pub(super) fn max(&self) -> Duration {
        self.max
    }

    /// Returns the average; zero if there was no interval.
    pub(super) fn average(&self) -> Duration {
        self.sum.checked_div(self.count).unwrap_or_default()
    }
}

impl fmt::Display for Intervals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max, average) = (self.min(), self.max(), self.average());
        write!(
            out,
            "server: min={}ns, max={}ns, avg={}ns",
            min.as_nanos(),
            max.as_nanos(),
            average.as_nanos()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_between_packets() {
        let mut intervals = Intervals::default();
        assert_eq!(intervals.to_string(), "server: min=0ns, max=0ns, avg=0ns");
        let start = Instant::now();
        for microseconds in [0, 30, 40, 90] {
            intervals.packet_at(start + Duration::from_micros(microseconds));
        }
        assert_eq!(intervals.to_string(), "server: min=10000ns, max=50000ns, avg=30000ns");
    }
}
