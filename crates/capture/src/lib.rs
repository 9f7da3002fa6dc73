//! A reader of captures, frame by frame.
//!
//! [`Capture::open`] takes anything that can be read: a file, standard input, a pipe that is still
//! being written to. It tells pcap from pcapng by the first octets; from then on
//! [`next_frame`](Capture::next_frame) returns one frame after the other, in the order of the file,
//! without allocating: frames are views of one buffer. A frame is returned as soon as all of it has
//! been read; nothing waits for a buffer to fill up.
//!
//! Memory is bounded whatever the file says: no record may be longer than [`MAX_RECORD_BYTES`],
//! blocks without frames are skipped without being kept, and a section of a pcapng file may have
//! [`MAX_INTERFACES`] interfaces.
//!
//! ```text
//! Read ─▶ Window ─▶ pcap   ─▶ Frame ─▶ uncork_wire::read_frame
//!                └▶ pcapng ─┘
//! ```
#![forbid(unsafe_code)]

mod error;
mod kind;
mod links;
mod pcap;
mod pcapng;
mod time;
mod window;

#[cfg(test)]
mod tests;

use std::io::Read;
use std::time::Duration;

use uncork_wire::link::LinkType;

pub use error::{Error, Lie};
pub use links::UnknownLink;

use kind::Kind;
use pcap::Pcap;
use pcapng::Pcapng;
use window::Window;

/// Longest record that is accepted, in octets: header, frame and options. Linux makes no segment
/// train longer than 512 KiB (`GSO_MAX_SIZE`), and tcpdump keeps at most 256 KiB of a frame.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// Most interfaces that a section of a pcapng file may describe.
pub const MAX_INTERFACES: usize = 1 << 16;

/// A frame as it was captured.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// When it was captured, since 1970 (UTC).
    pub time: Duration,
    /// Type of its first header.
    pub link: LinkType,
    /// Its length before the capture cut it, in octets.
    pub wire_bytes: usize,
    /// The part of it that was captured.
    pub bytes: &'a [u8],
}

/// Counts of what has been read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Frames that were returned.
    pub frames: u64,
    /// Frames among them without a timestamp (simple packet blocks of pcapng): they are given that
    /// of the frame before.
    pub without_time: u64,
    /// Frames that were skipped because their interface's link type is not supported.
    pub unknown_link: u64,
    /// The link type of the first of those.
    pub first_unknown_link: Option<UnknownLink>,
    /// Files that follow the first one, as from `cat one.pcap two.pcap`.
    pub files_behind: u64,
}

/// A capture that is being read.
#[derive(Debug)]
pub struct Capture<R> {
    window: Window<R>,
    format: Format,
    counts: Counts,
    ended: bool,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Format {
    fn open<R: Read>(kind: Kind, window: &mut Window<R>) -> Result<Self, Error> {
        Ok(match kind {
            Kind::Pcap => Self::Pcap(Pcap::open(window)?),
            Kind::Pcapng => Self::Pcapng(Pcapng::default()),
        })
    }

    fn next<R: Read>(
        &mut self,
        window: &mut Window<R>,
        counts: &mut Counts,
    ) -> Result<Option<Record>, Error> {
        match self {
            Self::Pcap(pcap) => pcap.next(window),
            Self::Pcapng(pcapng) => pcapng.next(window, counts),
        }
    }
}

/// Where in the window a frame is, and the data of its record.
#[derive(Debug, Clone, Copy)]
struct Record {
    time: Duration,
    link: LinkType,
    wire_bytes: usize,
    /// Offset of the frame from the record's first octet.
    at: usize,
    /// Length of the frame, in octets.
    bytes: usize,
    /// Length of the whole record, in octets.
    record_bytes: usize,
}

impl<R: Read> Capture<R> {
    /// Opens a capture: reads as much as is needed to determine the format.
    ///
    /// # Errors
    ///
    /// [`Error`] if it is no capture, or one whose frames cannot be read.
    pub fn open(reader: R) -> Result<Self, Error> {
        let mut window = Window::new(reader);
        let kind = kind::of(&mut window)?;
        let format = Format::open(kind, &mut window)?;
        Ok(Self { window, format, counts: Counts::default(), ended: false })
    }

    /// Returns the next frame, or `None` at the end.
    ///
    /// # Errors
    ///
    /// [`Error`] if the file is damaged or ends in the middle of something. Frames returned before
    /// are valid; nothing follows, and further calls return `None`.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let record = match self.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => {
                self.ended = true;
                return match self.counts.first_unknown_link {
                    Some(link) if self.counts.frames == 0 => Err(Error::LinkType(link)),
                    _ => Ok(None),
                };
            }
            Err(error) => {
                self.ended = true;
                return Err(error);
            }
        };
        self.counts.frames += 1;
        let bytes = &self.window.take(record.record_bytes)[record.at..record.at + record.bytes];
        let Record { time, link, wire_bytes, .. } = record;
        Ok(Some(Frame { time, link, wire_bytes, bytes }))
    }

    fn next_record(&mut self) -> Result<Option<Record>, Error> {
        loop {
            self.next_file()?;
            match self.format.next(&mut self.window, &mut self.counts)? {
                // Another file begins where a block would.
                None if !self.window.data().is_empty() => {}
                next => return Ok(next),
            }
        }
    }

    /// Goes on with another file that begins here.
    fn next_file(&mut self) -> Result<(), Error> {
        let kind = match self.format {
            Format::Pcap(_) => Kind::Pcap,
            Format::Pcapng(_) => Kind::Pcapng,
        };
        // What was read of the first file is a whole record, or nothing.
        if let Some(kind) = kind::another(&mut self.window, kind)? {
            self.format = Format::open(kind, &mut self.window)?;
            self.counts.files_behind += 1;
        }
        Ok(())
    }

    /// Returns what has been read so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the position in the file, in octets.
    #[must_use]
    pub fn position_bytes(&self) -> u64 {
        self.window.position()
    }
}
